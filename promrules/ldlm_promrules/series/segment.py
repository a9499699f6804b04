"""The stored form of a series: its changes in each period in which it existed."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Segment:
    """A period in which a series existed; each of `values` holds from its time in `times` on.

    `born`, `ended` and `times` are Unix seconds; `ended` is None while the series exists.
    """

    born: float
    ended: float | None = None
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def since(self, start: float) -> Segment:
        """The part after `start`, preceded by the change to the value that held at `start`."""
        old = max(bisect_right(self.times, start) - 1, 0)
        times = self.times[old:]
        return Segment(times[0], self.ended, times, self.values[old:])

    def at(self, grid: Sequence[float]) -> Sequence[float]:
        """The value at each time of `grid`, in which no time of a change may be missing."""
        first = bisect_right(self.times, grid[0]) - 1
        last = bisect_right(self.times, grid[-1])
        if last - first == len(grid):
            return self.values[first:last]
        values: list[float] = []
        for index in range(first, last):
            until = bisect_left(grid, self.times[index + 1]) if index + 1 < last else len(grid)
            values += [self.values[index]] * (until - len(values))
        return values

    def put(self, value: float, at: float) -> bool:
        """Store the value that holds from `at` on; return False if it is unchanged."""
        if self.times:
            old = self.values[-1]
            if old == value or (math.isnan(old) and math.isnan(value)):
                return False
        if self.times and self.times[-1] == at:
            self.values[-1] = value
        else:
            self.values.append(value)  # first: a `StoreView` reads by `times` in another thread
            self.times.append(at)
        return True


def held(
    segments: Sequence[Segment], slots: Sequence[float], until: Sequence[float]
) -> list[float | None]:
    """The values at rising `slots`; those of a segment that has ended by a time of `until` not."""
    column: list[float | None] = []
    for segment in segments:
        begin = bisect_left(slots, segment.born, len(column))
        end = len(slots) if segment.ended is None else bisect_left(until, segment.ended)
        if begin < end:
            times, values = segment.times, segment.values
            column += [None] * (begin - len(column))
            column += [values[bisect_right(times, slot) - 1] for slot in slots[begin:end]]
    return column + [None] * (len(slots) - len(column))
