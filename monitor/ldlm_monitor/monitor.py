"""The corridor: bytes and time in, alert transitions out. Only this file knows the rooms' order."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

from ldlm_monitor.alert import Transition
from ldlm_monitor.alerts import (
    RuleSet,
    load_rules,
    packaged_rules,
)
from ldlm_monitor.chunk import Chunk
from ldlm_monitor.detect import Detectors
from ldlm_monitor.incidents import Incidents, Standing
from ldlm_monitor.judge import Judge
from ldlm_monitor.names import DETECT_PREFIX
from ldlm_monitor.own_metrics import core_points
from ldlm_monitor.parse import ROW_SUFFIXES, Parser
from ldlm_monitor.points import Point
from ldlm_monitor.promql import Expression, parse
from ldlm_monitor.records import Event, Position, Record, SampleBlock
from ldlm_monitor.run.fleet import Fleet
from ldlm_monitor.run.identity import RunNames
from ldlm_monitor.run.pace import StallSettings
from ldlm_monitor.run.witness import Witness
from ldlm_monitor.urgency import Urgency
from ldlm_monitor.view import AlertView, MonitorView, Snapshot

RECENT_EVENTS = 500
RECENT_TRANSITIONS = 500


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """Seconds, all of them.

    `evaluation_interval`: the grid of scrapes and evaluations. `end_series_after`:
    how long a run's series stay after it finished, crashed or was killed.
    `retention`: how far back the embedded store reaches, beyond what rules need.
    """

    evaluation_interval: float = 5.0
    end_series_after: float = 900.0
    retention: float = 6 * 3600.0
    stall: StallSettings = field(default_factory=StallSettings)


class RunStanding(NamedTuple):
    """The little that following a run's files depends on."""

    state: str
    has_steps: bool
    has_ended: bool


@dataclass(frozen=True, slots=True)
class Suspect:
    """A run whose host may be asked why no step comes; times in Unix seconds.

    `stalls_at`: when it will count as stalled, None once it ended. `pids` by rank, with
    the host that they are on, and `dumps` of flight recorders are what its logs tell.
    """

    run: str
    state: str
    last_progress_at: float
    stalls_at: float | None
    ended_at: float | None
    files: tuple[str, ...]
    pids: dict[int | None, tuple[str, int]]
    dumps: tuple[str, ...]
    world_size: int | None
    position: Position


class Monitor:
    """Turns bytes and time into alert transitions.

    Deterministic: the same chunks and times give the same transitions. Starts no
    thread, reads no clock, opens no file but the packaged rules and patterns.
    """

    def __init__(
        self,
        *,
        rules: RuleSet[Expression] | None = None,
        parser: Parser | None = None,
        names: RunNames | None = None,
        settings: MonitorSettings | None = None,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        """`stopwatch` (seconds, any origin) only times evaluations for the monitor's own metric."""
        self.names = names or RunNames()
        self._settings = settings or MonitorSettings()
        self._parser = parser or Parser()
        self._stopwatch = stopwatch
        self._runs = Fleet(self._settings.stall, self._settings.end_series_after)
        self._judge = Judge(
            rules if rules is not None else _packaged(),
            self._settings.evaluation_interval,
            self._settings.retention,
        )
        self._witness = Witness(self._runs)
        self._incidents = Incidents()
        self._detectors: dict[str, Detectors] = {}
        self._timed = True
        self._events: deque[Event] = deque(maxlen=RECENT_EVENTS)
        self._urgency = Urgency()
        self._transitions: deque[Transition] = deque(maxlen=RECENT_TRANSITIONS)
        self._dropped = Counter({"internal_error": 0, "unreadable": 0})
        self._edge: list[Point] = []
        self._clock = -math.inf
        self._next_slot = -math.inf
        self._busy_until = -math.inf
        self._version = 0
        self._evaluations = 0
        self._evaluation_seconds = 0.0

    @property
    def clock(self) -> float:
        """How far time has passed, Unix seconds; -inf before the first call."""
        return self._clock

    @property
    def version(self) -> int:
        """Changes whenever anything did that a snapshot shows."""
        return self._version

    def feed(self, chunk: Chunk, now: float) -> list[Transition]:
        """Take in new bytes of one file, read at `now` (Unix seconds)."""
        origin = self.names.origin(chunk.path)
        transitions = self._complete_blocks(now)
        self._witness.look_at(chunk)
        came = now - chunk.age
        self._timed = chunk.timed
        for found in self._parser.feed_blocks(chunk, origin, now):
            if isinstance(found, SampleBlock):
                transitions += self._take_block(found, came)
            else:
                transitions += self.observe((found,), came)
        self._witness.keep_progress(origin.run)
        self._witness.look_at(None)
        self._timed = True
        return transitions

    def observe(self, records: Iterable[Record], now: float) -> list[Transition]:
        """Take in records, as read at `now`; one with its own time is judged at that time.

        What is older than the clock is filed at its own time and judged at the clock's.
        """
        transitions: list[Transition] = []
        for record in records:
            at = now if record.time is None else min(record.time, now)
            transitions += self._advance(at)
            transitions += self._take(record, at)
        return transitions

    def tick(self, now: float) -> list[Transition]:
        """Let time pass up to `now`: stalls, `for`, staleness, evaluations due.

        Each happens at its own time: how often this is called changes nothing.
        """
        return self._complete_blocks(now) + self._advance(now)

    def finish(self, now: float, paths: Iterable[str] = ()) -> list[Transition]:
        """The files have ended at `now`: complete what was open and decide what was doubtful."""
        transitions: list[Transition] = []
        for path in paths:
            transitions += self.observe(self._parser.finish(path), now)
        transitions += self._advance(now)
        self._runs.finish(now)
        return transitions + self._evaluate(max(now, self._clock))

    def due(self) -> float | None:
        """When `tick` should be called at the latest, None if nothing is to come by itself."""
        slot = self._next_slot if self._wants_slot(self._next_slot) else None
        judged = (self._judge.due(), self._urgency.due)
        times = (self._parser.open_until(), *judged, self._runs.due(), slot)
        earliest = min(time for time in times if time is not None)
        return None if math.isinf(earliest) else earliest

    def compiled(self) -> Iterator[tuple[str, object]]:
        """What is made of rules and definitions alone, by name: see `checkpoint`."""
        yield from self._parser.compiled()
        yield from self._judge.compiled()
        yield "stopwatch", self._stopwatch

    def count_dropped(self, reason: str, count: int = 1) -> None:
        """Count what the edge had to drop, or could not read."""
        if count:
            self._dropped[reason] += count
            self._changed(max(self._clock, 0.0))

    def note_edge(self, points: list[Point]) -> None:
        """What the edge exports of itself joins the next scrape, so that rules see it."""
        if points != self._edge:
            self._edge = points
            self._changed(max(self._clock, 0.0))

    def reconfigure(self, rules: RuleSet[Expression], stall: StallSettings) -> None:
        """Judge by other rules and limits from now on; alerts of the same rule go on."""
        self._judge.replace_rules(rules)
        self._runs.set_stall(stall)
        self._changed(max(self._clock, 0.0))

    def firing(self) -> list[Transition]:
        """The alerts that fire, each as when it began to."""
        return [self._with_cause(self._testify(each)) for each in self._judge.firing()]

    def starts(self) -> dict[str, float]:
        """When each active alert's condition first held, by the alert's key."""
        return self._judge.starts()

    def restore_starts(self, starts: Mapping[str, float]) -> None:
        """Give active alerts the earlier start times that were known before a restart."""
        self._judge.restore_starts(starts)

    def progress(self) -> dict[str, tuple[int, float]]:
        """By run, the step of its last progress and when that was."""
        return {
            run.name: (run.life.progress_step, run.life.last_progress_at)
            for run in self._runs
            if run.life.progress_step is not None
        }

    def restore_progress(self, progress: Mapping[str, tuple[int, float]]) -> None:
        """Believe what was seen live of a run's last step, where that still is its last."""
        for name, (step, at) in progress.items():
            run = self._runs.get(name)
            if run is not None and run.life.progress_step == step:
                run.life.restore_progress(at)
                self._runs.touch(run)

    def standing_of(self, path: str) -> RunStanding | None:
        """How the run that a file belongs to stands, None before its first record."""
        run = self._runs.get(self.names.origin(path).run)
        if run is None:
            return None
        return RunStanding(run.life.state, run.life.progress_step is not None, run.life.ended)

    def going_on(self) -> set[str]:
        """Names of the runs that take steps."""
        return {run.name for run in self._runs if run.life.can_stall}

    def suspects(
        self, until: float, ended_since: float, since: float = -math.inf
    ) -> Iterator[Suspect]:
        """The runs that stall by `until` (Unix seconds), that did, or that ended of late.

        None whose step advanced last before `since`.
        """
        for run in self._runs.nearing(until, ended_since):
            life = run.life
            if life.last_progress_at < since:
                continue
            yield Suspect(
                run=run.name,
                state=life.state,
                last_progress_at=life.last_progress_at,
                stalls_at=None if life.ended else life.last_progress_at + life.stall_limit,
                ended_at=life.ended_at,
                files=tuple(run.files),
                pids=dict(run.pids),
                dumps=tuple(run.dumps.values()),
                world_size=run.world_size,
                position=life.progress_position,
            )

    def verdict(self, run: str) -> str | None:
        """What became of a run that takes no step, in words; None where nothing was found."""
        known = self._runs.get(run)
        found = None if known is None else known.verdict
        return None if found is None else str(found)

    def snapshot(self) -> Snapshot:
        """Everything a reader may see, as it stands at the last feed or tick."""
        healths = self._judge.healths()
        return Snapshot(
            version=self._version,
            at=max(self._clock, 0.0),
            runs=tuple(
                run.view(
                    self._runs.health(run, healths.get(run.name, "HEALTHY")),
                    self._detected(run.name),
                )
                for run in self._runs
            ),
            alerts=tuple(self._alert_views()),
            incidents=self._incidents.views(self._clock, self._standing),
            events=tuple(self._events),
            transitions=tuple(self._transitions),
            monitor=self._own_view(),
            points=tuple(point for group in self._run_points(self._clock) for point in group),
            curves={run.name: run.curves() for run in self._runs},
        )

    def _detected(self, run: str) -> dict[str, float]:
        """What detectors say of a run as a whole, not of one of its ranks."""
        detectors = self._detectors.get(run)
        return {
            point.name.removeprefix(DETECT_PREFIX): point.value
            for point in (detectors.points if detectors else ())
            if len(point.labels) == 1
        }

    def _own_view(self) -> MonitorView:
        counters = self._parser.counters
        return MonitorView(
            lines=counters.lines,
            bytes=counters.bytes,
            parse_errors=counters.parse_errors,
            evaluations=self._evaluations,
            evaluation_seconds=self._evaluation_seconds,
            records=dict(counters.records),
            dropped=self._drops(),
        )

    def _take_block(self, block: SampleBlock, now: float) -> list[Transition]:
        if block.times is not None:
            return self._take_timed(block, [min(time, now) for time in block.times])
        transitions = self._advance(now)
        run = self._runs.of(block.sample(0), now)
        urgent = run.observe_block(block, now, timed=self._timed)
        self._runs.touch(run)
        at = max(now, self._clock)
        self._changed(at)
        if urgent is None or not self._urgency.is_at_once(run.name, urgent, at):
            return transitions
        return transitions + self._evaluate(at)

    def _take_timed(self, block: SampleBlock, times: Sequence[float]) -> list[Transition]:
        """Take in lines, each at its own time: as one by one, in parts in which nothing is due."""
        transitions: list[Transition] = []
        start = 0
        while start < len(block):
            sample = block.sample(start)
            transitions += self._advance(times[start])
            transitions += self._take(sample, times[start])
            start += 1
            due = min(self._next_slot, self._runs.due(), self._judge.due() or math.inf)
            due = min(due, self._urgency.due)
            stop = bisect_left(times, due, start)
            run = self._runs.of(sample, times[start - 1])
            if stop > start and run.life.only_advances(block, times[stop - 1]):
                run.observe_steps(block.part(start, stop), times[start:stop])
                start = stop
                self._clock = max(self._clock, times[stop - 1])
                self._runs.touch(run)
                self._changed(self._clock)
        return transitions

    def _take(self, record: Record, at: float) -> list[Transition]:
        run = self._runs.of(record, at)
        if isinstance(record, Event):
            self._events.append(record)
            self._incidents.take(record, max(at, self._clock), self._standing)
        rows = record.position.path.endswith(ROW_SUFFIXES)
        urgent = run.observe(record, at, rows=rows, timed=self._timed)
        self._runs.touch(run)
        at = max(at, self._clock)
        self._changed(at)
        if urgent is None or not self._urgency.is_at_once(run.name, urgent, at):
            return []
        return self._evaluate(at)

    def _complete_blocks(self, now: float) -> list[Transition]:
        """Take in the records of several lines that were complete by their silence before `now`."""
        transitions: list[Transition] = []
        while (silent := self._parser.open_until()) is not None and silent <= now:
            transitions += self.observe(self._parser.tick(silent), silent)
        return transitions

    def _changed(self, at: float) -> None:
        self._version += 1
        self._busy_until = at + self._judge.reach + self._settings.evaluation_interval

    def _advance(self, to: float) -> list[Transition]:
        """Let what falls due by itself up to `to` happen, each at its own time."""
        if to <= self._clock:
            return []
        transitions: list[Transition] = []
        interval = self._settings.evaluation_interval
        if math.isinf(self._next_slot):
            self._next_slot = math.ceil(to / interval) * interval
        while True:
            if not self._wants_slot(self._next_slot):
                self._next_slot = max(self._next_slot, math.ceil(to / interval) * interval)
            slot = self._slot_until(to)
            times = (slot, self._runs.due(), self._judge.due(), self._urgency.due)
            due = min(time for time in times if time is not None)
            if due > to:
                break
            transitions += self._evaluate(max(due, self._clock))
        self._clock = to
        return transitions

    def _slot_until(self, to: float) -> float:
        """The next slot up to `to` that can differ from the one before it; inf: none."""
        slot = self._next_slot
        if slot <= self._busy_until:
            return slot
        if not self._judge.asks_the_time or not self._runs.active:
            return math.inf
        interval = self._settings.evaluation_interval
        found = self._judge.next_switch(slot, to, interval)
        if math.isinf(found):
            self._next_slot = max(slot, (math.floor(to / interval) + 1) * interval)
        return found

    def _wants_slot(self, slot: float) -> bool:
        if slot <= self._busy_until:
            return True
        return self._judge.asks_the_time and self._runs.active

    def _evaluate(self, at: float) -> list[Transition]:
        """Scrape our own metrics, then evaluate every rule, at `at`."""
        started = self._stopwatch() if self._stopwatch else 0.0
        if self._runs.tick(at):
            self._changed(at)
        interval = self._settings.evaluation_interval
        if at >= self._next_slot:
            self._next_slot = (math.floor(at / interval) + 1) * interval
        self._clock = max(self._clock, at)
        self._urgency.judged(at)
        for run in self._runs.take_news():
            self._incidents.settle(run.name, at, self._standing)
            detectors = self._detectors.setdefault(run.name, Detectors(run.name))
            detectors.take(run.measured())
        groups = [*self._run_points(at), list(core_points(self._own_view())), self._edge]
        found = self._judge.evaluate(groups, at, self._runs.has_ended)
        self._evaluations += 1
        self._runs.keep_healths(self._judge.healths())
        if found:
            self._changed(at)
        if self._stopwatch:
            self._evaluation_seconds = self._stopwatch() - started
        told = [self._testify(each) for each in found]
        for each in told:
            self._incidents.take_alert(each, at, self._standing)
        told = [self._with_cause(each) for each in told]
        self._transitions.extend(each for each in told if not each.is_heartbeat)
        return told

    def _testify(self, transition: Transition) -> Transition:
        return self._witness.testify(transition, self._judge.asks(transition.alert))

    def _with_cause(self, transition: Transition) -> Transition:
        """The transition with its run's incident and the first cause, where they are known."""
        run = transition.labels.get("run")
        if run is None or transition.state != "firing":
            return transition
        cause = self._incidents.cause(run, self._clock, self._standing)
        incident = self._incidents.incident_of(run, transition.key)
        if cause is None and incident is None:
            return transition
        return replace(transition, cause=cause, incident=incident)

    def _standing(self, name: str) -> Standing:
        run = self._runs.get(name)
        if run is None:
            return Standing()
        return Standing(
            state=run.life.state,
            ended_at=run.life.ended_at,
            last_progress_at=run.life.last_progress_at
            if run.life.progress_step is not None
            else -math.inf,
            step=run.life.progress_step,
            world_size=run.world_size,
            spoken=run.ranks,
            rank_steps=run.rank_steps,
        )

    def _run_points(self, at: float) -> list[list[Point]]:
        detected = [
            self._detectors[run.name].points
            for run in self._runs.shown(at)
            if run.name in self._detectors
        ]
        return [*self._runs.points(at, self._judge.healths()), *detected, self._judge.points()]

    def _alert_views(self) -> list[AlertView]:
        views = []
        for active in self._judge.active:
            views.append(
                AlertView(
                    name=active.rule.name,
                    state=active.state,
                    labels=dict(active.labels),
                    annotations=dict(active.annotations),
                    value=active.value,
                    active_at=active.active_at,
                    fired_at=active.fired_at,
                    position=self._witness.position(active.rule.name, active.labels),
                )
            )
        return views

    def _drops(self) -> dict[str, int]:
        labels = sum(run.values.dropped for run in self._runs)
        truncated = self._parser.counters.truncated
        return {"truncated": truncated, "label_limit": labels, **self._dropped}


@cache
def _packaged() -> RuleSet[Expression]:
    return load_rules(packaged_rules(), parse)
