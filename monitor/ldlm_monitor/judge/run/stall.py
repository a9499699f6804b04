"""How long a pause of a run may last: what the user can set of it."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from ldlm_monitor.base.setting_types import Seconds, Section, from_text, split_pairs

Phase: TypeAlias = Literal["starting", "running", "evaluating", "checkpointing"]
"""The states of a run in which a pause can be a stall."""
PhaseLimits: TypeAlias = Annotated[dict[Phase, Seconds], from_text(split_pairs)]


class Stall(Section):
    """How long a pause may last before the run counts as stalled."""

    # A choice: a checkpoint or a slow batch of a small model takes seconds, and nobody needs an
    # alert sooner.
    floor_seconds: Seconds = 30
    """No learned limit is shorter than this."""
    # PyTorch's default timeout of NCCL process groups: ranks that wait longer for each other fail.
    startup_seconds: Seconds = 600
    """The limit until enough steps were logged to learn the run's pace."""
    limit_seconds: PhaseLimits = Field(default={}, examples=[{"evaluating": 900}])
    """Your own limit for a phase (`starting`, `running`, `evaluating`, `checkpointing`); it
    replaces the learned one."""
