"""Accelerator memory that keeps growing, and checkpoints that stop coming."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ldlm_monitor.detect.window import RecentValues, Values, finite, median

MEMORY_WINDOW = 400
QUARTERS = 4
"""A leak grows in each quarter of the window; one growth of a cache falls into one of them."""
WARM_UP = 100
"""Logged steps in which the caching allocator and the optimizer's state reach their size."""


class MemoryDetector:
    """`memory_growth_ratio`: how steadily the memory of one rank grows.

    The smallest growth from one quarter of the last 400 logged steps to the next, by
    their medians, relative to the first quarter's: above 0 only if each quarter lies above
    the one before. A cache that fills up, or a step to a new level, grows in one of them.
    """

    def __init__(self) -> None:
        self._window = RecentValues(MEMORY_WINDOW)
        self._skipped = 0

    def update(self, values: Values) -> None:
        """The next values in bytes."""
        values = finite(values)
        warm_up = min(WARM_UP - self._skipped, len(values))
        self._skipped += warm_up
        self._window.extend(values[warm_up:])

    def measures(self) -> Iterator[tuple[str, float]]:
        """Names without their prefix, and values."""
        if len(self._window) == MEMORY_WINDOW:
            length = MEMORY_WINDOW // QUARTERS
            starts = range(0, MEMORY_WINDOW, length)
            levels = [median(self._window.values[start : start + length]) for start in starts]
            if levels[0] > 0:
                growth = min(later - earlier for earlier, later in pairwise(levels))
                yield "memory_growth_ratio", growth / levels[0]


LEAST_CHECKPOINTS = 4
"""Checkpoints, so three intervals, before one is late: the last save of an epoch is early."""


class CheckpointDetector:
    """`checkpoint_age_ratio`: steps since the last checkpoint over the longest interval before.

    Counted in steps, so that no pause of the run makes a checkpoint late.
    """

    def __init__(self) -> None:
        self._ratio: float | None = None

    def update(self, step: int, saved: Sequence[int]) -> None:
        """The run is at `step`; the last checkpoints were saved at steps `saved`."""
        intervals = [later - earlier for earlier, later in pairwise(saved)]
        known = len(saved) >= LEAST_CHECKPOINTS and min(intervals) > 0 and step >= saved[-1]
        self._ratio = (step - saved[-1]) / max(intervals) if known else None

    def measures(self) -> Iterator[tuple[str, float]]:
        """Names without their prefix, and values."""
        if self._ratio is not None:
            yield "checkpoint_age_ratio", self._ratio
