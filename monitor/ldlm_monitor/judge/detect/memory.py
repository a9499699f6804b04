"""The memory of an accelerator: whether it grows steadily."""

from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

from ldlm_monitor.judge.detect.detector import Detector, Gauges
from ldlm_monitor.judge.detect.window import RecentValues, Values, finite, median

MEMORY_WINDOW = 400
"""Logged steps, 100 in each quarter. A choice: more find a leak later, fewer compare noise."""
QUARTERS = 4
"""Parts of the window. A choice: fewer take a filling cache for a leak, more compare noise."""
WARM_UP = 100
"""First logged steps, which are ignored. A choice: more delay the gauge; in fewer, the caching
allocator and the optimizer's state may not have reached their size."""


class MemoryDetector(Detector):
    """`memory_growth_ratio`: how steadily the memory of one rank grows.

    Take the medians of the four quarters of the last 400 logged steps. The gauge is the smallest
    growth from a median to the next, divided by the first median. It is above 0 only if each
    median is above the one before. A cache that fills up, or a step to a new level, grows in one
    quarter.
    """

    quantity = "memory_allocated_bytes"
    gauges: ClassVar[Gauges] = {
        "memory_growth_ratio": (
            "Least growth of memory between quarters of the last 400 logged steps."
        ),
    }

    def __init__(self) -> None:
        self._window = RecentValues(MEMORY_WINDOW)
        self._skipped = 0

    def update(self, values: Values) -> None:
        """Add the next values, in bytes; those that are not finite are ignored."""
        values = finite(values)
        warm_up = min(WARM_UP - self._skipped, len(values))
        self._skipped += warm_up
        self._window.extend(values[warm_up:])

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges with enough values: each name without `ldlm_detect_`, and its value."""
        if len(self._window) == MEMORY_WINDOW:
            length = MEMORY_WINDOW // QUARTERS
            starts = range(0, MEMORY_WINDOW, length)
            levels = [median(self._window.values[start : start + length]) for start in starts]
            if levels[0] > 0:
                growth = min(later - earlier for earlier, later in pairwise(levels))
                yield "memory_growth_ratio", growth / levels[0]
