"""How a run may have ended: by which event, and when that is certain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ldlm_monitor.base.names import ENDED_STATES, EndReason
from ldlm_monitor.base.records import Event, Position, Scalar
from ldlm_monitor.judge.run.pace import LATE
from ldlm_monitor.judge.run.run_states import ENDS, MOVES
from ldlm_monitor.logs.parse.meanings import meaning_of, meaning_of_kind

_TABLE = "elastic_failure_table"  # kind of the table in which torchrun lists its failed workers
_TERMINATION_SIGNALS = (-15, -2)  # exit codes of workers to which torchrun sent SIGTERM or SIGINT
ProcessLook: TypeAlias = Mapping[str, Scalar]
"""What a probe of the host found of one process: `pid`, `state`, `rank`, `cores` and others."""


@dataclass(frozen=True, slots=True)
class Ending:
    """An assumed end at `since`, certain at `confirm_at` (Unix seconds) if no step follows."""

    state: str  # crashed or killed
    since: float
    confirm_at: float
    evidence: Event  # shows the end best


def is_kill(event: Event) -> bool:
    """Whether the scheduler or a signal ended the training from outside."""
    return meaning_of(event).ends == "killed"


def explains(event: Event, assumed: Ending) -> bool:
    """Whether `event` names who ended a run of which only its victims reported so far: the
    scheduler's reason for the exits of tasks, or any sender of the SIGTERM that a worker got.
    """
    given = meaning_of(event).writer is not None and bool(event.fields.get("reason"))
    by_exits = assumed.state == "crashed" and "exit report" in meaning_of(assumed.evidence).words
    return (given and by_exits) or has_sigterm(assumed.evidence)


def is_interrupt(event: Event) -> bool:
    """Whether a worker or torchrun's agent reports a person's Ctrl-C (SIGINT)."""
    meaning = meaning_of(event)
    if "sigterm" in meaning.words:
        return meaning.cause == "external"
    is_external = "exception" in meaning.words and meaning.cause == "external"
    return is_external and event.severity == "error"


def is_news(event: Event, end: Event | None) -> bool:
    """Whether an event counts after `end`, the evidence of the run's end; None: it goes on.

    What follows an end by `ldlm-monitor run` is none, but for what it does. That nobody writes
    the log any more is none after a person's Ctrl-C.
    """
    meaning = meaning_of(event)
    if end is None or event.fields.get("role") == "progress" or "course" in meaning.words:
        return True
    if "deed" in meaning_of(end).words:
        return False
    stopped = meaning_of(end).opens and end.fields.get("signal") == "SIGINT"
    return not meaning.finds_nobody or not (stopped or is_interrupt(end))


def has_sigterm(event: Event) -> bool:
    """Whether a worker reports a SIGTERM that it got: of its launcher after a failure, or not."""
    return "sigterm" in meaning_of(event).words and bool(event.fields.get("received"))


def is_death(event: Event) -> bool:
    """Whether a launcher, the scheduler or the process itself reports that a worker failed."""
    return meaning_of(event).ends == "crashed"


def is_abort(event: Event) -> bool:
    """Whether this is the last message of a process that ends itself."""
    return "abort" in meaning_of(event).words and not event.fields.get("disabled")


def is_fatal(event: Event) -> bool:
    """Whether this is an uncaught exception of its own cause, or the callback's status `failed`."""
    return (
        event.fields.get("role") in ("root", "evidence")
        and event.severity in ("error", "critical")
        and ("traceback" in event.fields or event.fields.get("status") == "failed")
    )


def dies_of_another(event: Event) -> bool:
    """Whether this is an uncaught exception that another rank caused by leaving or not joining."""
    return (
        event.fields.get("role") == "victim"
        and event.severity in ("error", "critical")
        and "traceback" in event.fields
        and not is_interrupt(event)
    )


def has_own_words(event: Event) -> bool:
    """Whether the event is a rank's own report of the failure, and not its launcher's."""
    return is_fatal(event) or "accuser" in meaning_of(event).words


@dataclass(frozen=True, slots=True)
class End:
    """What shows that a run is over, and the line that does; `at` is None if no line does."""

    reason: EndReason
    at: Position | None


def end_by(event: Event) -> End:
    """The end that an event shows."""
    fields, meaning = event.fields, meaning_of(event)
    codes = [*map(fields.get, ("exitcode", "root_exitcode", "exit_code"))]
    code = next((each for each in codes if isinstance(each, int)), None)
    signalled = fields.get("signal") or is_interrupt(event) or has_sigterm(event)
    reason: EndReason
    if "obeyed" in meaning.words:
        reason = "words"
    elif signalled or meaning.ends == "killed" or (code is not None and code < 0):
        reason = "signal"
    elif code is not None or "exit report" in meaning.words:
        reason = "exit_code"
    else:
        reason = "words" if meaning.ends == "finished" else "exception"
    return End(reason, event.position if event.position.path else None)


def end_of_gone(gone: Sequence[ProcessLook], *, out_of_memory: bool) -> End:
    """As `state_of_gone`: what shows that processes which are gone have ended."""
    statuses = [status for each in gone if isinstance(status := each.get("status"), int)]
    if out_of_memory or any(status & 0x7F for status in statuses):
        return End("signal", None)
    return End("exit_code" if statuses else "writer_gone", None)


def _names_a_cause(table: Event) -> bool:
    """Whether the process that torchrun's table blames did not fail because of another one."""
    fields = table.fields
    root = meaning_of_kind(str(fields.get("root_kind", "")))
    followed = fields.get("root_role") == "victim" or "follower" in root.words
    return not followed and fields.get("root_exitcode") not in _TERMINATION_SIGNALS


def processes_of(event: Event) -> list[ProcessLook]:
    """The processes that a probe's event is about."""
    found = event.fields.get("processes")
    looks = found if isinstance(found, list) else []
    return [each for each in looks if isinstance(each, dict)]  # type: ignore[misc]


def state_of_gone(gone: Sequence[ProcessLook], *, out_of_memory: bool) -> str:
    """How processes that are gone ended, by their exit statuses (wait(2)); `ended`: not known.

    `gone`: what a probe of the host found of each. `out_of_memory`: the kernel killed one for that.
    """
    statuses = [status for each in gone if isinstance(status := each.get("status"), int)]
    if out_of_memory or any(status & 0x7F for status in statuses):
        return "killed"
    if any(status >> 8 for status in statuses):
        return "crashed"
    return "finished" if statuses and len(statuses) == len(gone) else "ended"


TABLE_SECONDS = 3.0
"""Wait for torchrun's failure table, which names the global rank. Its agent prints the table as
soon as its workers are down. A choice: longer delays the alert of every crash, shorter alerts
without that rank."""
SILENCE_SECONDS = 10.0
"""A traceback counts as a crash if no step follows for so long: the exception may have been caught.
A choice: longer delays the alert, shorter misjudges a run with slow steps."""
LOGGED_SECONDS = 60.0
"""As `SILENCE_SECONDS`, for an exception that a logger printed, or of a program that is tried: the
training goes on with its next step or ends. A choice for a run without steps, else `LATE` times
what is normal."""
VICTIM_SECONDS = 60.0
"""Wait for a report of the first failure where ranks logged only that they lost a peer. Twice the
30 s in which torchrun's agent lets its workers end (`PContext.close`): each node has an agent."""
STRAY_SECONDS = 1.0
"""Steps logged this soon after an end do not undo it: they are the buffered output of another
file. A choice: a real restart takes longer than a second."""
GOING_STEPS = 3
"""Steps in the same file that refute an end in a log without times. A choice: other ranks print one
or two before they miss the one that failed, more would leave a short second launch crashed."""
_SITES = 64  # places of caught exceptions kept. A choice: programs catch at few, more cost memory


def _site(event: Event) -> tuple[object, ...]:
    """Where an exception was raised; `None` in each place for another event."""
    return tuple(map(event.fields.get, ("exc_type", "file", "line")))


class EndingTracker:
    """Finds a run's end by its last events; `assumed` is an uncertain end, or None.

    `refuted`: how many ends were refuted by steps of a log without times. `out_of_memory`: since
    the last step, the host's kernel killed a process of it for memory.
    """

    def __init__(self) -> None:
        self.assumed: Ending | None = None
        self.refuted = 0
        self.out_of_memory = False
        self._steps = 0
        self._file = ""  # of the log in which the assumed end stands
        self._caught: dict[tuple[object, ...], None] = {}

    def went_on(self, at: float, path: str, *, timed: bool, resumed: bool) -> None:
        """Drop the assumed end if a step logged at `at` (Unix seconds) in file `path` refutes it.

        Not `timed`: several do, or one after a caught exception. `resumed`: the step fell.
        """
        self.out_of_memory = False
        if (end := self.assumed) is None:
            return
        # The callback's report is of a rank that has left: those of other ranks refute nothing.
        if path != self._file and end.evidence.fields.get("status") == "failed":
            return
        site = _site(end.evidence)
        self._steps += path == self._file
        enough = self._steps >= (1 if site in self._caught else GOING_STEPS)
        if at - end.since > STRAY_SECONDS or (enough and not timed):
            self.assumed = None
            self.refuted += enough and not timed
            if "file" in end.evidence.fields and not resumed and len(self._caught) < _SITES:
                self._caught[site] = None

    def continue_file(self, before: str, path: str) -> None:
        """See `Fleet.continue_file`."""
        self._file = path if self._file == before else self._file

    def shift(self, seconds: float) -> None:
        """Leave a clock's jump of `seconds` out of the wait for a step after the assumed end."""
        if (end := self.assumed) is not None:
            since, confirm_at = end.since + seconds, end.confirm_at + seconds
            self.assumed = replace(end, since=since, confirm_at=confirm_at)

    def note_words(self, *, weak: bool) -> None:
        """Drop an assumed end after whose last words another launch reports its own, or whose
        exception was caught before, if no `weak` words that end other things, too.
        """
        if weak or self.assumed is None:
            return
        evidence = self.assumed.evidence
        if "last words" in meaning_of(evidence).words or _site(evidence) in self._caught:
            self.assumed = None

    def observe(self, event: Event, at: float, *, phase: str, patience: float) -> None:
        """Process an event at `at` (Unix seconds); `phase`, of `names.RUN_STATES`, is the run's.

        `patience`: seconds that are normal between two steps.
        """
        logged = bool(event.fields.get("logged"))
        caught = max(LOGGED_SECONDS, LATE * patience)  # until one that may be is an end
        if logged and self.assumed is not None and self.assumed.evidence.fields.get("logged"):
            self.assumed = None  # the program caught the one before, too, and went on
        self.out_of_memory = self.out_of_memory or meaning_of(event).finds_no_memory
        if is_kill(event):
            if phase not in MOVES["kill"].leaves:
                return
            if self.assumed is None or explains(event, self.assumed):
                self.assumed = None
                self._assume("killed", at, TABLE_SECONDS, event, phase)
        elif event.kind == _TABLE:
            # If a node's table blames a victim, another node's table may name the cause.
            wait = 0.0 if _names_a_cause(event) else TABLE_SECONDS
            self._assume("crashed", at, wait, event, phase)
        elif is_death(event):
            self._assume("crashed", at, caught if logged else TABLE_SECONDS, event, phase)
        elif phase in ENDED_STATES:
            return
        elif is_interrupt(event) or has_sigterm(event):
            if self.assumed is None:
                wait = SILENCE_SECONDS if is_interrupt(event) else VICTIM_SECONDS
                self._assume("killed", at, wait, event, phase)
        elif is_abort(event) or is_fatal(event):
            wait = caught if logged else SILENCE_SECONDS
            self._assume("crashed", at, wait, event, phase)
        elif dies_of_another(event):
            self._assume("crashed", at, VICTIM_SECONDS, event, phase)

    def state_of_exit(self, event: Event) -> tuple[str, End]:
        """The state and end of a run whose processes are gone, as a probe's event reports."""
        gone = processes_of(event)
        state = state_of_gone(gone, out_of_memory=self.out_of_memory)
        return state, end_of_gone(gone, out_of_memory=self.out_of_memory)

    def _assume(self, state: str, at: float, wait: float, event: Event, phase: str) -> None:
        assumed = self.assumed
        if assumed is None:
            if phase in MOVES[ENDS[state]].leaves:
                self._steps = 0
                self.assumed = Ending(state, at, at + wait, event)
        elif state == "crashed" and (
            assumed.evidence.fields.get("role") == "victim"
            or ("last words" in meaning_of(assumed.evidence).words and is_fatal(event))
        ):
            # A kill does not replace a victim's death: launchers send SIGTERM after a first death.
            self.assumed = Ending(state, assumed.since, at + wait, event)
        elif assumed.state == "crashed":
            nearer = has_own_words(event) and not has_own_words(assumed.evidence)
            self.assumed = replace(
                assumed,
                confirm_at=min(assumed.confirm_at, at + wait),
                evidence=event if nearer else assumed.evidence,
            )
        if self.assumed is not None and self.assumed.evidence is event:
            self._file = event.position.path
