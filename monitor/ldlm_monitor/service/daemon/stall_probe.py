"""Decides when this host is inspected for a run without steps, and when the findings are judged.

The host is inspected some seconds before a run counts as stalled, so that the alert can name the
reason; if a step comes after all, the findings are dropped. The inspection has a thread of its
own, because a system call on a dead mount may never return.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.records import Event, Heartbeat, Record
from ldlm_monitor.base.snapshot import HostView
from ldlm_monitor.base.text.sanitize import plain
from ldlm_monitor.finished.playback.recording import Recorder
from ldlm_monitor.host.probe import process
from ldlm_monitor.host.probe.host import HostProbe
from ldlm_monitor.host.probe.host_events import folders
from ldlm_monitor.host.probe.run_processes import ENDED
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.run.endings import processes_of
from ldlm_monitor.judge.run.verdict import ProbeCandidate
from ldlm_monitor.logs.source.file_system import Worker
from ldlm_monitor.service.state.read_log import ReadLog

LOOK_SECONDS = 5.0
"""Seconds for one look: two reads of each process a second apart, RAS (at most 3 s), stacks."""
LEAD_SECONDS = 6.0
"""Seconds before its stall limit at which a run is looked at: a look, and a second for turns."""
WATCH_SECONDS = 30.0
"""Seconds between two notes of active runs' processes. A choice: each costs a scan of /proc, and a
process that dies before its first note is not known."""
BEAT_SECONDS = 10.0
"""Seconds between two reads of active runs' heartbeats: a third of the least default limit."""
AGAIN_SECONDS = 300.0
"""Seconds until a stalled run is looked at again, doubled each time: its alert was sent already."""
EARLY_SECONDS = 60.0
"""Least seconds between two looks before a run's limit: some runs come near it at every step."""
FRESH_SECONDS = 20.0
"""Seconds after which findings are too old, as processes change; more than a look and its lead."""
OLD_SECONDS = 3600.0
"""Runs without a step for more seconds are looked at last. A choice: most were given up by then."""
OLD_PAUSE_SECONDS = 60.0  # between two looks at such old runs: a folder may have a thousand
MAX_CASES = 32
"""Runs in one look: a choice, more than one host trains, and few enough for `LOOK_SECONDS`."""
_TURN_SECONDS = 0.5
"""Least seconds between two turns through all runs: half of the one in `LEAD_SECONDS`."""

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProbeRecords:
    """Records of one run, to be judged at `at` (Unix seconds)."""

    run: str
    at: float
    events: Sequence[Record]


@dataclass(slots=True)
class _StallStanding:
    """The looks at a run since its last step, which came at `since` (Unix seconds).

    `pids`: the processes that lived at the last one.
    """

    since: float
    pids: tuple[int, ...] = ()
    looks: int = 0
    looked_at: float = -math.inf
    ended_at: float | None = None
    found: list[Record] | None = None


@dataclass(slots=True)
class _Asked:
    answer: Future[dict[str, list[Record]]]
    at: float
    since: dict[str, float]
    late: bool = False


class Probing:
    """Decides which runs to look at. Not thread-safe. Its thread calls `ring` after a look."""

    def __init__(self, host: HostProbe, ring: Callable[[], None]) -> None:
        self._host = host
        self._ring = ring
        self._worker = Worker("probe")
        self._standings: dict[str, _StallStanding] = {}
        self._early_at: dict[str, float] = {}
        self._asked: _Asked | None = None
        self._watching: Future[dict[str, list[Heartbeat]]] | None = None
        self._noted: set[str] = set()
        self._beats: dict[str, Heartbeat] = {}
        self._watched_at = self._noted_at = self._turned_at = self._old_at = -math.inf

    def turn(self, monitor: Monitor, now: float) -> Iterator[ProbeRecords]:
        """The records to judge before the monitor's time advances to `now` (Unix seconds)."""
        answered = self._take_answer(now)
        if not answered and now - self._turned_at < _TURN_SECONDS and not self._holds:
            return
        self._turned_at = now
        is_old_due = self._holds or now - self._old_at >= OLD_PAUSE_SECONDS
        since = -math.inf if is_old_due else now - OLD_SECONDS
        suspects = list(
            monitor.runs.probe_candidates(now + LEAD_SECONDS, now - WATCH_SECONDS, since)
        )
        for suspect in suspects:
            standing = self._standing(suspect)
            if standing.found is None:
                continue
            if suspect.state == "stalled" or suspect.ended_at is not None:
                yield self._hand_over(suspect.run, standing, now)
            elif now - standing.looked_at > FRESH_SECONDS:
                standing.found = None
            elif suspect.stalls_at is not None and suspect.stalls_at <= now:
                yield self._hand_over(suspect.run, standing, max(suspect.stalls_at, monitor.clock))
        yield from self._new_heartbeats(now)
        self._ask(monitor, suspects, now)

    def judge(
        self, monitor: Monitor, reads: ReadLog, recorder: Recorder | None, now: float
    ) -> list[Transition]:
        """Judge this host's records of runs that stall; as with bytes, they are stored first."""
        transitions: list[Transition] = []
        try:
            for found in self.turn(monitor, now):
                before = monitor.runs.verdict(found.run)
                at = min(found.at, now)
                reads.note_observed(found.events, at)
                if recorder is not None:
                    recorder.observed(found.events, at)
                transitions += monitor.observe(found.events, at)
                verdict = monitor.runs.verdict(found.run)
                if verdict is not None and verdict != before:  # not in an earlier alert
                    log.warning("%s: %s", plain(found.run), plain(verdict))
        except Exception:  # a bug of ours: the logs go on being watched
            monitor.count_dropped("internal_error")
            log.exception("a bug of ours: what this host reports is passed over")
        return transitions

    def close(self, patience: float = 0.0) -> None:
        """End the thread: wait for it up to `patience` seconds, because a call in it may hang."""
        self._worker.close(patience)
        self._host.gpus.close()

    @property
    def hosts(self) -> Mapping[str, HostView]:
        """By run, what was last seen of active runs on this host."""
        return self._host.facts

    @property
    def _holds(self) -> bool:
        return any(each.found is not None for each in self._standings.values())

    def _hand_over(self, run: str, standing: _StallStanding, at: float) -> ProbeRecords:
        found, standing.found = standing.found or [], None
        seen = [look for each in found if isinstance(each, Event) for look in processes_of(each)]
        alive = [look["pid"] for look in seen if look["state"] not in ENDED]
        standing.pids = tuple(pid for pid in alive if isinstance(pid, int))
        standing.looks = max(standing.looks, 1)
        return ProbeRecords(run, at, found)

    def _standing(self, suspect: ProbeCandidate) -> _StallStanding:
        known = self._standings.get(suspect.run)
        if known is None or known.since != suspect.last_progress_at:
            known = self._standings[suspect.run] = _StallStanding(suspect.last_progress_at)
        return known

    def _take_answer(self, now: float) -> bool:
        asked = self._asked
        if asked is None:
            return False
        if not asked.answer.done():
            if now - asked.at > LOOK_SECONDS and not asked.late:
                asked.late = True
                log.warning(
                    "the look at this host did not answer within %g s: alerts do not wait",
                    LOOK_SECONDS,
                )
            return False
        self._asked = None
        try:
            answers = asked.answer.result()
        except Exception:  # a bug of ours costs the evidence, not the alert
            log.exception("a bug of ours: a stalled run could not be looked at")
            return True
        for run, events in answers.items():
            standing = self._standings.get(run)
            # A heartbeat a second or more after the last logged step: the run goes on and only
            # its rows stopped, so it does not use up the early look of `EARLY_SECONDS`.
            beats = [each.time for each in events if isinstance(each, Heartbeat)]
            if beats and max(beats) > asked.since[run] + 1.0:
                self._early_at.pop(run, None)
            if standing is not None and standing.since == asked.since[run] and events:
                standing.found = events
        return True

    def _ask(self, monitor: Monitor, suspects: Sequence[ProbeCandidate], now: float) -> None:
        if self._asked is not None or self._watching is not None:
            return
        if wanted := self._wanted(suspects, now):
            for each in wanted:
                standing = self._standings[each.run]
                standing.looks += each.state == "stalled"
                standing.looked_at, standing.ended_at = now, each.ended_at
                self._early_at[each.run] = now
            # Half a second less, so that the answer is here before the warning of `_take_answer`.
            answer = self._post(lambda: self._host.look(wanted, LOOK_SECONDS - 0.5))
            self._asked = _Asked(answer, now, {each.run: each.last_progress_at for each in wanted})
        else:
            self._watch(monitor, now)

    def _watch(self, monitor: Monitor, now: float) -> None:
        """Read the heartbeats of active runs and, every `WATCH_SECONDS`, note their processes."""
        runs = monitor.runs.training()
        note = bool(runs - self._noted) or (bool(runs) and now - self._noted_at >= WATCH_SECONDS)
        if not note and now - self._watched_at < BEAT_SECONDS:
            return
        self._watched_at = now
        if note:
            self._noted_at, self._noted = now, runs
        alive = monitor.runs.probe_candidates(math.inf, math.inf)
        cases = [each for each in alive if each.state != "stalled"]
        if any(note or folders(each) for each in cases):
            self._watching = self._post(lambda: self._host.watch(cases, note=note))

    def _new_heartbeats(self, now: float) -> Iterator[ProbeRecords]:
        if self._watching is None or not self._watching.done():
            return
        answer, self._watching = self._watching, None
        if (problem := answer.exception()) is not None:
            log.error("a bug of ours: runs could not be watched", exc_info=problem)
            return
        for run, beats in answer.result().items():
            fresh = [each for each in beats if self._is_news(each)]
            joined = [each.position.path for each in fresh if each.position.path not in self._beats]
            self._beats |= {each.position.path: each for each in fresh}
            if joined:
                more = f" and {len(joined) - 1} more" if len(joined) > 1 else ""
                beside = "following too, as heartbeats of"
                log.info("%s%s: %s %s", plain(joined[0]), more, beside, plain(run))
            if fresh:
                yield ProbeRecords(run, now, fresh)

    def _is_news(self, beat: Heartbeat) -> bool:
        known = self._beats.get(beat.position.path)
        return known is None or (known.step, known.phase) != (beat.step, beat.phase)

    def _wanted(self, suspects: Sequence[ProbeCandidate], now: float) -> list[ProbeCandidate]:
        wanted = [each for each in suspects if self._wants_look(each, now)]
        late = [each for each in wanted if now - each.last_progress_at < OLD_SECONDS]
        if late:
            return late[:MAX_CASES]
        if now - self._old_at < OLD_PAUSE_SECONDS:
            return []
        self._old_at = now
        return wanted[:MAX_CASES]

    def _wants_look(self, suspect: ProbeCandidate, now: float) -> bool:
        standing = self._standings[suspect.run]
        if suspect.ended_at is not None:
            recent = now - suspect.ended_at < WATCH_SECONDS
            return recent and suspect.state != "finished" and standing.ended_at is None
        if suspect.state == "stalled":
            # 2**6: the longest pause is about five hours, a few looks a night.
            pause = AGAIN_SECONDS * 2 ** min(standing.looks - 1, 6) if standing.looks else 0.0
            if any(map(_has_left, standing.pids)):  # it may have ended
                pause = 0.0
            return now - standing.looked_at >= max(pause, FRESH_SECONDS)
        if suspect.stalls_at is None:
            return False
        lead = min(LEAD_SECONDS, (suspect.stalls_at - suspect.last_progress_at) / 2)
        near = suspect.stalls_at - lead <= now
        return near and now - self._early_at.get(suspect.run, -math.inf) >= EARLY_SECONDS

    def _post(self, work: Callable[[], T]) -> Future[T]:
        answer = self._worker.submit(work)
        answer.add_done_callback(lambda _: self._ring())
        return answer


def _has_left(pid: int) -> bool:
    found = process.look(pid)
    return found is None or found.status is not None
