"""Checkpoints that stop coming."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

LEAST = 4
"""Checkpoints, and so three intervals, that make a rhythm."""


class CheckpointDetector:
    """`checkpoint_age_ratio`: steps since the last checkpoint over the longest interval before.

    Counted in steps, so that no pause of the run makes a checkpoint late.
    """

    __slots__ = ("_ratio",)

    def __init__(self) -> None:
        self._ratio: float | None = None

    def take(self, step: int, saved: Sequence[int]) -> None:
        """The run is at `step`; the last checkpoints were saved at the steps of `saved`."""
        intervals = [later - earlier for earlier, later in pairwise(saved)]
        known = len(saved) >= LEAST and min(intervals) > 0 and step >= saved[-1]
        self._ratio = (step - saved[-1]) / max(intervals) if known else None

    def measures(self) -> Iterator[tuple[str, float]]:
        """Names without their prefix, and values."""
        if self._ratio is not None:
            yield "checkpoint_age_ratio", self._ratio
