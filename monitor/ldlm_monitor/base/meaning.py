"""What an event means: whether it can be a cause, ends a run, explains a pause, accuses a rank."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Cause: TypeAlias = Literal["external", "hardware", "local", "named", "network", "none"]
"""As what an event can be the first cause: somebody ended the job; a machine, a process or a link
reports a fault; other lines accuse a rank (`named`). `none`: it is a consequence."""
Ending: TypeAlias = Literal["crashed", "killed", "finished"]
Fault: TypeAlias = Literal["gpu", "memory", "storage", "segfault", "adapter"]
"""What fails in a machine."""
Word: TypeAlias = Literal[
    "timeout",  # a rank waited for a collective until its limit: the cause is older
    "abort",  # the last message of a process that ends itself; after a run's end, of its teardown
    "accuser",  # logged by a rank that names another one as the cause
    "follower",  # logged by every rank except the one at fault
    "exception",  # an exception of a program, whose class and text say more
    "sigterm",  # a process reports the signal that it got
    "last words",  # of a shell or an interpreter, when its program is gone
    "start",  # between two attempts; of no failure
    "restart",  # a launcher starts all its workers again
    "first words",  # a program prints it before it trains
    "results",  # the numbers with which a training ends
    "skips",  # batches are passed over before the first step, without a line for hours
    "left",  # nobody writes the log any more
    "look",  # a look at hosts: outdated by the next step
    "early",  # no failure, but may be logged before the first line of one
    "aftermath",  # survivors log it every second, or a process at its exit
    "vague",  # follows from most causes: anything else says more
    "dies with",  # of a process's death: says more than what is vague, less than all else
    "silence",  # a look at the processes of a run that takes no step
    "saved",  # a checkpoint is complete
    "finding",  # evidence on why a run takes no step
    "flight record",  # of what a process's collectives did, in the file that its field `path` names
    "hint",  # opens no incident, but is all that some logs say of their end
    "forced",  # a launcher kills a process that ignored SIGTERM
    "names group",  # follows a timeout with the process group of its collective
    "exit report",  # a scheduler reports the exit of a task
    "names peer",  # has the address of the peer that was lost
    "course",  # changes the course of a run: part of its timeline
    "checksums",  # of a rank's replica: compared between ranks, and then no event
    "expected",  # the settings want it in time: when it came last is exported
    "urgent",  # judged at once, as the run may end soon after it
    "lost worker",  # a process reports that one of its own is gone
    "deed",  # `ldlm-monitor run` ends the run, as --on or a person asked: what follows is of that
    "obeyed",  # the training ends by itself, as it was asked to: no signal is sent
]
How: TypeAlias = Literal["missing", "fingerprints", "parameters", "desync", "hung", "stuck"]
"""How an event accuses ranks; each has its analysis in `judge/incidents/accusations.py`."""
Phase: TypeAlias = Literal["running", "evaluating", "checkpointing"]


@dataclass(frozen=True, slots=True)
class AccusingKind:
    """How an event accuses ranks, and in which order sources are believed, the lowest first.

    `who`: the reason's text before the ranks; `what`: the fault of which they are accused.
    """

    how: How
    order: int = 0
    who: str = ""
    what: str = ""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an event means; the keys are those of `meanings` in definition files.

    `ends`: the state of a run that ends with it. `lasts`: it was logged at the end of a wait, and
    so began before its line. `opens`: it opens an incident although only a warning. `fault`: what
    fails in a machine; `shows`: the faults of which a process logs it. `pause`: the phase that
    explains the pause before it, and the phase after it. `counts`: the counter that it raises.
    `writer`: who prints it, where that is not the process or its launcher.
    """

    cause: Cause = "none"
    words: frozenset[Word] = frozenset()
    ends: Ending | None = None
    lasts: bool = False
    opens: bool = False
    fault: Fault | None = None
    shows: frozenset[Fault] = frozenset()
    accuses: AccusingKind | None = None
    pause: tuple[Phase, Phase] | None = None
    counts: Literal["skipped", "restarts"] | None = None
    writer: Literal["scheduler"] | None = None

    @property
    def begins_run(self) -> bool:
        """Whether a program says that it begins to train, with its settings beside it."""
        return {"start", "first words"} <= self.words

    @property
    def finds_nobody(self) -> bool:
        """Whether a look at the host found that no process writes the log any more."""
        return {"finding", "left"} <= self.words

    @property
    def finds_no_memory(self) -> bool:
        """Whether the host's kernel killed a process for its memory."""
        return self.fault == "memory" and "finding" in self.words

    @property
    def begins_evaluation(self) -> bool:
        """Whether an evaluation is announced, whose end the next step or another event shows."""
        return self.pause == ("evaluating", "evaluating")


NOTHING: Final = Meaning()
