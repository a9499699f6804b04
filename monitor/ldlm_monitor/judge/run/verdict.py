"""Why a run takes no step: it is hung, killed, crashed, finished, or only silent.

A pure function of the events since the last step. The strongest evidence decides: first a fatal
error or processes that are gone, then a collective that ranks did not join, then processes that
cannot or do not run. NCCL's RAS (its status service) only adds accusations: a rank that it does
not report may hang all the same.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from ldlm_monitor.base.meaning import Meaning
from ldlm_monitor.base.records import Event, FieldValue, Position
from ldlm_monitor.base.snapshot import VerdictView
from ldlm_monitor.base.text.format import signal_name
from ldlm_monitor.judge.run.endings import (
    ProcessLook,
    is_abort,
    is_fatal,
    processes_of,
    state_of_gone,
)
from ldlm_monitor.judge.run.lifecycle import Lifecycle
from ldlm_monitor.logs.parse.meanings import meaning_of

IDLE_CORES = 0.05
"""Used CPU cores below which a process is idle, a choice: the threads of watchdogs and heartbeats
alone use less, a thread that computes uses a whole one."""
RELAY_CORES = 0.005
"""A process that used fewer CPU cores up to the last step only forwards a log: `srun`, `ssh`,
`kubectl logs`; the training runs elsewhere. A choice: a tenth of `IDLE_CORES`."""
MAX_REASONS = 4  # most reasons of a verdict. A choice: more make an alert's line hard to read
_SHOWN_PROCESSES = 3  # processes that a reason names. A choice: more make its line hard to read
_End: TypeAlias = Literal["finished", "crashed", "killed", "ended"]  # states of a run that is over
_SHOWN_STACKS = 2  # stacks in a verdict. A choice: one waits and one differs; most repeat these
_STACKS = "stack_dump"  # kind of what a process does


def verdict(evidence: Iterable[Event], *, complete: bool = False) -> VerdictView | None:
    """The verdict by the events since the last step; None without evidence.

    `complete`: the run has taken all its steps, so that processes that are gone have finished.
    """
    events = [*evidence]
    looks = _looks(events)
    gone = [look for look in looks if look["state"] in ("gone", "zombie")]
    failed = next((each for each in events if is_fatal(each) or is_abort(each)), None)
    if failed is not None and (gone or not looks):  # if processes live, the error was caught
        return VerdictView(word="crashed", reasons=(failed.message,))
    if gone:
        return _of_the_gone(gone, events, complete=complete, alone=len(gone) < len(looks))
    left = [event.message for event in events if meaning_of(event).finds_nobody]
    if left and not looks:
        return VerdictView(word="ended", reasons=(left[-1],))
    dumps = {event.rank: event for event in events if event.kind == _STACKS}
    accused = [event.message for event in dumps.values() if event.fields.get("accused")]
    named = [*accused, *_of_collectives(events)]
    reasons = [*named, *_of_states(looks)]
    stacks = [*_of_stacks(dumps)]
    looks = [look for look in looks if _trains(look)]
    most = max(map(_cores, looks), default=0.0)
    computes = most >= IDLE_CORES and not named
    if reasons:
        shown = (*reasons[:MAX_REASONS], *stacks)
        return VerdictView(word="hung", reasons=shown, computes=computes)
    if looks:
        who = f"{len(looks)} processes run" if len(looks) > 1 else f"{_who(looks)} runs"
        verb = "compute, on up to" if len(looks) > 1 else "computes, on"
        why = f"{who} and {verb} {most:.1f} cores"
        return VerdictView(word="silent", reasons=(why, *stacks), computes=computes)
    return None


def _of_the_gone(
    gone: Sequence[ProcessLook], events: Sequence[Event], *, complete: bool, alone: bool
) -> VerdictView:
    """The verdict where processes are gone; `alone`: others of the run live on."""
    killed = next((each for each in events if meaning_of(each).finds_no_memory), None)
    word = state_of_gone(gone, out_of_memory=killed is not None)
    if word == "ended":
        word = "finished" if complete else "killed" if alone else word
    return VerdictView(word=cast("_End", word), reasons=_why_gone(gone, killed, word))


def _why_gone(gone: Sequence[ProcessLook], killed: Event | None, word: str) -> tuple[str, ...]:
    are_gone = _who(gone, "is gone", "are gone")
    if killed is not None:
        return are_gone, f"out of memory: {killed.message}"
    signals, codes = ([look for look in gone if read(look)] for read in (_signal, _code))
    if word == "finished":
        return (f"{_who(gone)} ended without an error",)
    if word == "killed" and signals:
        number = _signal(signals[0])
        ended = [look for look in signals if _signal(look) == number]
        by = signal_name(number) or f"signal {number}"
        return (f"{_who(ended, 'was ended', 'were ended')} by {by}",)
    if word == "crashed" and codes:
        code = _code(codes[0])
        whose = _who([look for look in codes if _code(look) == code])
        return (f"{whose} ended with exit code {code}",)
    return (f"{are_gone}, and no line says why: a signal, or an end without a message",)


def _signal(look: ProcessLook) -> int:
    """The signal in a zombie's wait status (wait(2)); 0 without one."""
    return _status(look) & 0x7F


def _code(look: ProcessLook) -> int:
    """The exit code in a zombie's wait status (wait(2)); 0 if unknown."""
    return _status(look) >> 8


def _status(look: ProcessLook) -> int:
    """A zombie's wait status (wait(2)); 0 if unknown."""
    status = look.get("status")
    return status if isinstance(status, int) else 0


def _of_collectives(events: Iterable[Event]) -> Iterator[str]:
    """What probes learned of NCCL about ranks; what names a missing rank comes first."""
    found = [each for each in events if _is_of_collectives(meaning_of(each))]
    for event in sorted(found, key=lambda each: not each.fields.get("missing_ranks")):
        if event.fields.get("probe") and event.fields.get("role") != "context":
            yield event.message


def _is_of_collectives(meaning: Meaning) -> bool:
    """Whether ranks are missing by what was recorded of collectives, not by a look at stacks."""
    accuses = meaning.accuses
    return accuses is not None and accuses.how == "missing" and "look" not in meaning.words


def _of_stacks(dumps: Mapping[int | None, Event]) -> Iterator[str]:
    for rank, event in [*dumps.items()][:_SHOWN_STACKS]:
        if "frame" in event.fields and "accused" not in event.fields:
            yield event.message if rank is None else f"rank {rank}: {event.message}"


def _of_states(looks: Sequence[ProcessLook]) -> Iterator[str]:
    if found := [look for look in looks if look["state"] == "stopped"]:
        yield _who(found, "is stopped; SIGCONT continues it", "are stopped; SIGCONT continues them")
    if found := [look for look in looks if look["state"] == "disk sleep"]:
        waiting = _who(found, "waits", "wait")
        yield f"{waiting} for a disk, a file server or a driver{_place(found)}"
    alive = [each for each in looks if each["state"] in ("running", "sleeping") and _trains(each)]
    idle = [look for look in alive if _cores(look) < IDLE_CORES]
    if idle and len(idle) < len(alive):
        yield f"{_who(idle, 'is idle', 'are idle')} while the others compute{_place(idle)}"
    elif idle:
        yield f"{_who(idle, 'sleeps', 'sleep')}{_place(idle)} without CPU time"


def _place(looks: Sequence[ProcessLook]) -> str:
    places = {str(place) for look in looks if (place := look.get("waits_in"))}
    return f" in {min(places)}" if len(places) == 1 else ""


def _who(looks: Sequence[ProcessLook], does: str = "", do: str = "") -> str:
    """The processes, and what one `does` or several `do`."""
    named = [(look.get("rank"), f"pid {look['pid']}") for look in looks[:_SHOWN_PROCESSES]]
    shown = [pid if rank is None else f"rank {rank} ({pid})" for rank, pid in named]
    more = len(looks) - len(shown)
    names = ", ".join(shown) + (f" and {more} more" if more else "")
    return f"{names} {does if len(looks) == 1 else do}".rstrip()


def _trains(look: ProcessLook) -> bool:
    usual = look.get("usual_cores")
    return not isinstance(usual, int | float) or usual >= RELAY_CORES


def _cores(look: ProcessLook) -> float:
    cores = look.get("cores")
    return float(cores) if isinstance(cores, int | float) else 0.0


def _looks(events: Sequence[Event]) -> list[ProcessLook]:
    for event in reversed(events):
        meaning = meaning_of(event)
        if meaning.finds_nobody or "silence" in meaning.words:
            return processes_of(event)
    return []


_MAX_EVENTS = 64  # last events kept since a step. A choice: more cost memory, crashes log thousands
_MAX_RANKS = 4096
"""Most pids, and most dump files, kept: as many dumps of flight recorders as a probe reads."""


@dataclass(frozen=True, slots=True)
class ProbeCandidate:
    """A run whose host may be probed to find why it takes no step; times in Unix seconds.

    `stalls_at`: when it will count as stalled; None if it has ended. By its logs: `pids` (host and
    process id of each rank), `dumps` (files of flight recorders), `position` (of the last step),
    `saved` (how many checkpoints), `saved_to` (path of the last one, "" if it has none).
    `reports_gpus`: whether the callback reports values of its GPUs.
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
    saved: int = 0
    saved_to: str = ""
    reports_gpus: bool = False


class Findings:
    """The evidence since the last step of the run whose states are in `life`.

    `pids`: host and process id by rank. `dumps`: flight recorders' files by rank, None if unknown.
    """

    def __init__(self, life: Lifecycle) -> None:
        self._life = life
        self._found: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self._since = life.last_progress_at
        self.pids: dict[int | None, tuple[str, int]] = {}
        self.dumps: dict[int | None, str] = {}

    def note_process(self, rank: int | None, host: FieldValue, pid: FieldValue) -> None:
        """Store the host and pid of a rank, where a record has them."""
        has_room = rank in self.pids or len(self.pids) < _MAX_RANKS
        if has_room and isinstance(host, str) and isinstance(pid, int):
            self.pids[rank] = host, pid

    def shift(self, seconds: float) -> None:
        """Keep the events as evidence though `Lifecycle.shift` moved the time of the last step."""
        self._since += seconds

    def add(self, event: Event) -> None:
        """Keep an event that is evidence, or that has the path of a flight recorder dump."""
        words = meaning_of(event).words
        if "finding" in words or is_fatal(event) or is_abort(event):
            if self._since != self._life.last_progress_at:
                self._found.clear()
                self._since = self._life.last_progress_at
            self._found.append(event)
        path = event.fields.get("path") if "flight record" in words else None
        if isinstance(path, str) and len(self.dumps) < _MAX_RANKS:
            self.dumps[event.rank] = path

    @property
    def show_a_hang(self) -> bool:
        """Whether it is shown that a stalled run hangs: by itself, or as a rank is gone.

        Who waits for a disk may save.
        """
        if self._life.state != "stalled" or (found := self.verdict(None, None)) is None:
            return False
        waits = any(look["state"] == "disk sleep" for look in _looks([*self._found]))
        return found.word in ("killed", "crashed") or (found.word == "hung" and not waits)

    def verdict(self, step: int | None, total: int | None) -> VerdictView | None:
        """The verdict on a stalled or ended run, None without evidence.

        `step`: the last one, of `total`. A run that ended has a verdict only if its host was
        probed; otherwise its log suffices.
        """
        life = self._life
        if not self._found or self._since != life.last_progress_at:
            return None
        if life.state == "stalled":
            return verdict(self._found, complete=life.goal.is_reached)
        if not life.ended or not any(event.fields.get("probe") for event in self._found):
            return None
        logged = [] if life.end_evidence is None else [life.end_evidence.message]
        if life.state == "ended" and (found := verdict(self._found)) is not None:
            of = f" of {total:,}" if total else ""
            logged = [*([] if step is None else [f"stopped at step {step:,}{of}"]), *found.reasons]
        killed = [
            f"out of memory: {each.message}"
            for each in self._found
            if meaning_of(each).finds_no_memory
        ]
        reasons = [*logged, *killed, *_of_collectives(self._found)]
        return VerdictView(word=cast("_End", life.state), reasons=tuple(reasons[:MAX_REASONS]))
