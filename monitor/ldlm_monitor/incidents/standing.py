"""What an incident asks about its run."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Standing:
    """A run as it stands when its incident is looked at. Times are Unix seconds.

    `spoken`: ranks of which any record came, ever. `rank_steps`: the last step of each rank
    that tells its own. `step`: the last step of the run.
    """

    state: str = "running"
    ended_at: float | None = None
    last_progress_at: float = float("-inf")
    step: int | None = None
    world_size: int | None = None
    spoken: AbstractSet[int] = field(default_factory=frozenset)
    rank_steps: dict[int, int] = field(default_factory=dict)
