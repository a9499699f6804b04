"""The states of a run, what moves it from one to another, and what it then forgets: a table.

`Lifecycle` moves a run by it. The row `silence` alone it judges anew whenever time has passed or a
limit has changed. docs/decisions.md shows the table.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ldlm_monitor.base.names import ENDED_STATES, RUN_STATES

Kept: TypeAlias = Literal["silence", "pause", "doubtful end", "end", "place", "goal"]
"""What a run keeps until a move forgets it: since when no sign of life came, and whether it stalled
for that; the phase that explains the next step's delay; an end that a step may refute; the time and
line of an end; the last step of each file; totals, and words that say it has done all."""
MoveName: TypeAlias = Literal[
    "launch",
    "step",
    "sign of life",
    "evaluation",
    "checkpoint",
    "end of a pause",
    "silence",
    "crash",
    "kill",
    "finish",
    "loss",
]
PHASES: Final = frozenset(RUN_STATES) - {"stalled"}
TRAINS: Final = PHASES - ENDED_STATES


@dataclass(frozen=True, slots=True)
class Move:
    """What moves a run (`by`), from which states, and to which (None: it stays).

    From a state that is not in `leaves`, nothing moves and nothing is forgotten. Nor does it while
    the run has what `unless` names. A stalled run is still in the phase in which it stalled, and
    moves from that phase.
    """

    by: str
    leaves: frozenset[str]
    to: str | None
    forgets: frozenset[Kept] = frozenset()
    unless: Kept | None = None


MOVES: Final[dict[MoveName, Move]] = {
    "launch": Move(
        "another start in a file that has steps or an end (an event that means `start` or "
        "`restart`), a step that falls after an end or a stall, or with its loss to the first "
        "ones, a first epoch after an end",
        PHASES,
        "starting",
        frozenset({"silence", "pause", "doubtful end", "end", "place", "goal"}),
    ),
    "step": Move(
        "a step beyond all before it, or below the last of its file; later than a second after an "
        "end. It refutes a doubtful end if it comes late enough, or is one of several",
        PHASES,
        "running",
        frozenset({"silence", "pause", "end"}),
    ),
    "sign of life": Move(
        "a bar of an evaluation, or of batches that are skipped; a row whose step has never moved",
        PHASES,
        None,
        frozenset({"silence"}),
    ),
    "evaluation": Move(
        "an event whose `pause` begins an evaluation",
        TRAINS,
        "evaluating",
        frozenset({"silence"}),
    ),
    "checkpoint": Move(
        "an event whose `pause` begins a checkpoint",
        TRAINS,
        "checkpointing",
        frozenset({"silence"}),
    ),
    "end of a pause": Move(
        "an event whose `pause` is over with it",
        TRAINS - {"starting"},
        "running",
        frozenset({"silence"}),
    ),
    "silence": Move(
        "no sign of life for longer than is normal in the state, once the run trains",
        TRAINS,
        "stalled",
    ),
    "crash": Move(
        "an event that `ends` it `crashed`, or an uncaught exception, if no step refutes it in "
        "time; processes that are gone, with an exit code",
        TRAINS | {"finished", "ended"},
        "crashed",
        frozenset({"doubtful end"}),
    ),
    "kill": Move(
        "an event that `ends` it `killed`, a SIGTERM or a Ctrl-C, if no step refutes it in time; "
        "processes that are gone, by a signal or for their memory",
        TRAINS | {"ended"},
        "killed",
        frozenset({"doubtful end"}),
    ),
    "finish": Move(
        "the word of all its processes that they are done; all steps, or words of an end, and then "
        "silence or nobody who writes; processes that are gone, all with exit code 0",
        TRAINS | {"finished", "ended"},
        "finished",
        unless="doubtful end",
    ),
    "loss": Move(
        "nobody who writes its log any more, and no word of how it ended",
        TRAINS,
        "ended",
        frozenset({"doubtful end"}),
    ),
}
ENDS: Final[dict[str, MoveName]] = {
    "crashed": "crash",
    "killed": "kill",
    "finished": "finish",
    "ended": "loss",
}
"""The move to each state of a run that is over."""
PAUSES: Final[dict[str, MoveName]] = {
    "evaluating": "evaluation",
    "checkpointing": "checkpoint",
    "running": "end of a pause",
}
"""The move to each phase after an event that explains a pause."""
