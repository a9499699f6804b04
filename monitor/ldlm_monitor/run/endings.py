"""How a run may have ended: by which event, and when that is certain."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ldlm_monitor.model.names import ENDED_STATES
from ldlm_monitor.model.records import Event

_TABLE = "elastic_failure_table"
_ACCUSES_ANOTHER = frozenset({"monitored_barrier_failed", "megatron_result_validation"})
_ONLY_FOLLOWS = frozenset(
    {
        *("collective_mismatch", "ddp_param_mismatch"),
        *("nccl_watchdog_terminated", "nccl2_backend_timeout"),
    }
)
"""Logged by every rank except the one at fault."""
_DEATHS = frozenset({"elastic_worker_failed", "fatal_python_error", "srun_task_exit"})
_ABORTS = frozenset(
    {
        *("nccl_watchdog_terminated", "nccl_monitor_kill", "nccl2_backend_timeout"),
        *("cxx_terminate", "monitored_barrier_failed"),
    }
)
"""After the end of a finished run these are part of the teardown."""
_KILLS = frozenset({"elastic_agent_signaled", "slurm_cancelled", "slurm_oom_kill"})
_TERMINATION_SIGNALS = (-15, -2)
"""torchrun sends SIGTERM, and passes on SIGINT, to the workers that are left."""
_INTERRUPTS = ("KeyboardInterrupt", "SignalException")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run may have ended at `since`; certain at `confirm_at` unless a step comes before."""

    state: str
    since: float
    confirm_at: float
    evidence: Event


def is_kill(event: Event) -> bool:
    """Whether something outside of the training ended it."""
    if event.kind == "srun_task_exit":
        return event.fields.get("status") == "Terminated"
    if event.kind == "slurm_cancelled":
        # Slurm ends the step where a task failed: a consequence.
        reason = str(event.fields.get("reason", ""))
        return not reason.startswith(("TASK FAILURE", "non-zero exit code"))
    return event.kind in _KILLS


def explains(event: Event, assumed: Ending) -> bool:
    """Whether the scheduler gives the reason for deaths that looked like a crash."""
    given = event.kind == "slurm_cancelled" and bool(event.fields.get("reason"))
    return given and assumed.state == "crashed" and assumed.evidence.kind == "srun_task_exit"


def is_interrupt(event: Event) -> bool:
    """A person's Ctrl-C, as a worker or the agent reports it."""
    if event.kind == "elastic_sigterm_peer":
        return event.fields.get("signal") == "SIGINT"
    exception = str(event.fields.get("exc_type", "")).rpartition(".")[2]
    interrupted = event.kind == "python_exception" and exception in _INTERRUPTS
    return interrupted and event.severity == "error"


def is_death(event: Event) -> bool:
    """Whether a launcher, the scheduler or the process itself reports that a worker failed."""
    if event.kind == "slurm_cancelled":
        return not is_kill(event)
    return event.kind in _DEATHS and event.fields.get("role") != "context"


def is_abort(event: Event) -> bool:
    """Whether this is the last message of a process that ends itself."""
    return event.kind in _ABORTS and not event.fields.get("disabled")


def is_fatal(event: Event) -> bool:
    """Whether this is an uncaught exception: a root cause, or evidence of one, with a traceback."""
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
    """Whether a rank itself reports what failed, which a launcher only follows."""
    return is_fatal(event) or event.kind in _ACCUSES_ANOTHER


def _names_a_cause(table: Event) -> bool:
    """Whether the process that torchrun's table blames did not follow another one."""
    fields = table.fields
    followed = fields.get("root_role") == "victim" or fields.get("root_kind") in _ONLY_FOLLOWS
    return not followed and fields.get("root_exitcode") not in _TERMINATION_SIGNALS


TABLE_SECONDS = 3.0
"""How long to wait for torchrun's failure table, which has the global rank: the agent prints it
as soon as its workers are down."""
SILENCE_SECONDS = 10.0
"""A traceback is a crash only if no step follows: the exception may have been caught."""
VICTIM_SECONDS = 60.0
"""The first death may be logged after the deaths it caused: torchrun's agent gives its workers
30 s to end (`PContext.close`), and each node has an agent of its own."""
STRAY_SECONDS = 1.0
"""Buffered output of another file of the run may log its last steps this long after the end."""


class EndingTracker:
    """How the run may have ended (`ending`; None: it goes on)."""

    def __init__(self) -> None:
        self.ending: Ending | None = None

    def went_on(self, at: float) -> None:
        """A step was taken at `at`: it was no end, unless another file logs the step late."""
        if self.ending is not None and at - self.ending.since > STRAY_SECONDS:
            self.ending = None

    def observe(self, event: Event, at: float, *, phase: str) -> None:
        """Process an event while the run is in `phase`, one of `names.RUN_STATES`."""
        kind = event.kind
        if is_kill(event):
            if self.ending is None or explains(event, self.ending):
                self.ending = None
                self._assume("killed", at, TABLE_SECONDS, event, phase)
        elif kind == _TABLE:
            # Where a node's table blames a victim, another node's table may have the cause.
            wait = 0.0 if _names_a_cause(event) else TABLE_SECONDS
            self._assume("crashed", at, wait, event, phase)
        elif is_death(event):
            self._assume("crashed", at, TABLE_SECONDS, event, phase)
        elif phase in ENDED_STATES:
            return
        elif is_interrupt(event):
            if self.ending is None:
                self._assume("killed", at, SILENCE_SECONDS, event, phase)
        elif is_abort(event) or is_fatal(event):
            self._assume("crashed", at, SILENCE_SECONDS, event, phase)
        elif dies_of_another(event):
            self._assume("crashed", at, VICTIM_SECONDS, event, phase)

    def _assume(self, state: str, at: float, wait: float, event: Event, phase: str) -> None:
        assumed = self.ending
        if assumed is None:
            if phase not in ("crashed", "killed"):
                self.ending = Ending(state, at, at + wait, event)
        elif assumed.evidence.fields.get("role") == "victim" and state == "crashed":
            # SIGTERM is what a launcher sends to the others when one died.
            self.ending = Ending(state, assumed.since, at + wait, event)
        elif assumed.state == "crashed":
            nearer = has_own_words(event) and not has_own_words(assumed.evidence)
            self.ending = replace(
                assumed,
                confirm_at=min(assumed.confirm_at, at + wait),
                evidence=event if nearer else assumed.evidence,
            )
