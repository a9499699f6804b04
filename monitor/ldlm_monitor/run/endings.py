"""What an event says of a run's end: who ended it, how sure that is, and whose fault it was."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ldlm_monitor.model.names import ENDED_STATES
from ldlm_monitor.model.records import Event

TABLE = "elastic_failure_table"
NAMES_ANOTHER = {
    "monitored_barrier_failed": "missing_rank",
    "megatron_result_validation": "reported_rank",
}
"""Who tells of another rank that it did not come, or whose numbers are wrong; the field."""
_NAMES_NOBODY = frozenset(
    {
        "collective_mismatch",
        "ddp_param_mismatch",
        "nccl_watchdog_terminated",
        "nccl2_backend_timeout",
    }
)
"""Every rank but the one at fault says so."""
_DEATHS = frozenset({"elastic_worker_failed", "fatal_python_error", "srun_task_exit"})
_ABORTS = frozenset(
    {
        "nccl_watchdog_terminated",
        "nccl_monitor_kill",
        "nccl2_backend_timeout",
        "cxx_terminate",
        "monitored_barrier_failed",
    }
)
"""At the end of a finished run these are noise."""
_KILLS = frozenset({"elastic_agent_signaled", "slurm_cancelled", "slurm_oom_kill"})
_TELLS_OF_ANOTHER = "elastic_worker_failed"
"""A launcher's word: where it stands on a rank's line, that rank only tells it."""
_TERMINATION_SIGNALS = (-15, -2)
_INTERRUPTS = ("KeyboardInterrupt", "SignalException")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run may have ended, since `since`; certain at `confirm_at` if it does not go on."""

    state: str
    since: float
    confirm_at: float
    rank: int | None
    evidence: Event


def culprit(event: Event) -> int | None:
    """The global rank that an event names as the first to fail.

    Ranks that the agent terminated itself (SIGTERM) are never named.
    """
    rank: object = None
    if event.kind in NAMES_ANOTHER:
        rank = event.fields.get(NAMES_ANOTHER[event.kind])
    elif event.kind in _NAMES_NOBODY:
        return None
    elif event.rank is not None and event.kind != _TELLS_OF_ANOTHER:
        return event.rank
    elif event.kind == TABLE:
        blamed = event.fields.get("root_exitcode") not in _TERMINATION_SIGNALS
        blamed &= event.fields.get("root_role") != "victim"
        blamed &= event.fields.get("root_kind") not in _NAMES_NOBODY
        rank = event.fields.get("root_rank") if blamed else None
    elif event.fields.get("global_rank") is not None:
        rank = event.fields["global_rank"]
    elif event.node in (None, "0"):
        # On the first node local ranks are the global ones.
        rank = event.fields.get("local_rank")
    return rank if isinstance(rank, int) else None


def is_kill(event: Event) -> bool:
    """Something outside of the training ended it."""
    if event.kind == "srun_task_exit":
        return event.fields.get("status") == "Terminated"
    if event.kind == "slurm_cancelled":
        # Slurm ends the step where a task failed: a consequence.
        reason = str(event.fields.get("reason", ""))
        return not reason.startswith(("TASK FAILURE", "non-zero exit code"))
    return event.kind in _KILLS


def explains(event: Event, known: Ending) -> bool:
    """The scheduler gives the reason for deaths that looked like a crash."""
    given = event.kind == "slurm_cancelled" and bool(event.fields.get("reason"))
    return given and known.state == "crashed" and known.evidence.kind == "srun_task_exit"


def is_interrupt(event: Event) -> bool:
    """A person's Ctrl-C, as a worker or the agent tells it."""
    if event.kind == "elastic_sigterm_peer":
        return event.fields.get("signal") == "SIGINT"
    exception = str(event.fields.get("exc_type", "")).rpartition(".")[2]
    interrupted = event.kind == "python_exception" and exception in _INTERRUPTS
    return interrupted and event.severity == "error"


def is_death(event: Event) -> bool:
    """A launcher, the scheduler or the process itself reports that a worker failed."""
    if event.kind == "slurm_cancelled":
        return not is_kill(event)
    return event.kind in _DEATHS and event.fields.get("role") != "context"


def is_abort(event: Event) -> bool:
    """A process is ending itself, by the last thing it says."""
    return event.kind in _ABORTS and not event.fields.get("disabled")


def is_fatal(event: Event) -> bool:
    """An uncaught exception by its looks: a root cause, or what tells of one, with a traceback."""
    return (
        event.fields.get("role") in ("root", "evidence")
        and event.severity in ("error", "critical")
        and ("traceback" in event.fields or event.fields.get("status") == "failed")
    )


def dies_of_another(event: Event) -> bool:
    """An uncaught exception by its looks, which only says that others are gone or did not come."""
    return (
        event.fields.get("role") == "victim"
        and event.severity in ("error", "critical")
        and "traceback" in event.fields
        and not is_interrupt(event)
    )


def suffered(event: Event) -> bool:
    """The rank tells that another one is gone: it is not where the failure began."""
    victim = event.fields.get("role") == "victim" and event.kind != "python_exception"
    return victim and event.severity in ("error", "critical")


def strength(event: Event) -> int:
    """How well an event knows the first to fail: the table has global ranks, the agent not."""
    if is_fatal(event) or event.kind in NAMES_ANOTHER:
        return 2
    return 1 if event.kind == TABLE and culprit(event) is not None else 0


def absolves(event: Event, known: Ending) -> bool:
    """The table says that the rank accused died of another one's death."""
    told = event.kind == TABLE and event.fields.get("root_role") == "victim"
    return told and known.evidence.kind in _DEATHS


TABLE_SECONDS = 3.0
"""How long torchrun's failure table, which names the rank, is waited for."""
SILENCE_SECONDS = 10.0
"""A traceback is a crash only if the run goes on no more: it may have been caught."""
VICTIM_SECONDS = 60.0
"""Who died first may be told later than who died of it: an agent gives its workers 30 s."""
STRAY_SECONDS = 1.0
"""Another file of the run may tell its last steps this much after the end."""


class Suspicion:
    """How the run may have ended, if `ending` is not None, and by whose fault."""

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self._victims: set[int] = set()

    def hear(self, event: Event) -> None:
        """A rank that tells of what others did to it did not fail first."""
        if event.rank is not None and suffered(event):
            self._victims.add(event.rank)

    def clear(self) -> None:
        """The run has begun anew."""
        self.ending = None
        self._victims.clear()

    def went_on(self, at: float) -> None:
        """A step was taken at `at`: it was no end, unless another file only tells it late."""
        if self.ending is not None and at - self.ending.since > STRAY_SECONDS:
            self.ending = None
        self._victims.clear()

    def take(self, event: Event, at: float, *, phase: str) -> None:
        """Take in an event, while the run is in `phase`, a word of `names.RUN_STATES`."""
        kind = event.kind
        if is_kill(event):
            if self.ending is not None and explains(event, self.ending):
                self.ending = None
            if self.ending is None:
                self._suspect("killed", at, TABLE_SECONDS, event, phase)
        elif kind == TABLE:
            # Where a node blames a victim, another node's table may know better.
            wait = TABLE_SECONDS if culprit(event) is None else 0.0
            self._suspect("crashed", at, wait, event, phase)
        elif is_death(event):
            self._suspect("crashed", at, TABLE_SECONDS, event, phase)
        elif phase in ENDED_STATES:
            return
        elif is_interrupt(event):
            if self.ending is None:
                self._suspect("killed", at, SILENCE_SECONDS, event, phase)
        elif is_abort(event) or is_fatal(event):
            self._suspect("crashed", at, SILENCE_SECONDS, event, phase)
        elif dies_of_another(event):
            self._suspect("crashed", at, VICTIM_SECONDS, event, phase)

    def _suspect(self, state: str, at: float, wait: float, event: Event, phase: str) -> None:
        rank, known = culprit(event), self.ending
        if dies_of_another(event) or (rank in self._victims and not is_fatal(event)):
            rank = None
        if known is None:
            if phase not in ("crashed", "killed"):
                self.ending = Ending(state, at, at + wait, rank, event)
        elif known.evidence.fields.get("role") == "victim" and state == "crashed":
            # SIGTERM is what a launcher sends to the others when one died.
            self.ending = Ending(state, known.since, at + wait, rank, event)
        elif known.state == "crashed":
            stronger = strength(event) > strength(known.evidence)
            named = known.rank
            if (rank is not None and (named is None or stronger)) or absolves(event, known):
                named = rank
            self.ending = replace(
                known,
                confirm_at=min(known.confirm_at, at + wait),
                rank=named,
                evidence=event if stronger and event.kind != TABLE else known.evidence,
            )


class Attendance:
    """Who began, and who has not ended yet. What no rank tells of itself is not its business."""

    def __init__(self) -> None:
        self._training: set[int] = set()

    def observe(self, event: Event) -> bool:
        """Take in a begin or an end; whether the end is that of the run.

        The callback's rows name a process (begin) and a status (end); a banner of a log
        does not, and its end is everybody's.
        """
        own = event.rank is not None and not {"pid", "status"}.isdisjoint(event.fields)
        if event.rank is None or not own:
            return True
        if event.kind == "run_started":
            self._training.add(event.rank)
        else:
            self._training.discard(event.rank)
        return not self._training

    def clear(self) -> None:
        """The run begins anew."""
        self._training.clear()
