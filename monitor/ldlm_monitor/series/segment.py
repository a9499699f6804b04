"""A stretch of one series: its values, of which only changes are kept."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import re2

from ldlm_monitor.model.points import Labels, Matcher


@dataclass(slots=True)
class Segment:
    """A stretch in which the series was there; values hold until the next change."""

    born: float
    ended: float | None = None
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def reaches(self, start: float) -> bool:
        """Whether any of it lies behind `start`."""
        return self.ended is None or self.ended > start

    def since(self, start: float) -> Segment:
        """What of it lies behind `start`, and the value that still held then."""
        old = max(bisect_right(self.times, start) - 1, 0)
        times = self.times[old:]
        return Segment(times[0], self.ended, times, self.values[old:])

    def at(self, grid: Sequence[float]) -> Sequence[float]:
        """The value at each time of the grid, which holds every time of a change."""
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
        """Keep a value from `at` on; False if it is the last one."""
        if self.times and _same(self.values[-1], value):
            return False
        if self.times and self.times[-1] == at:
            self.values[-1] = value
        else:
            self.times.append(at)
            self.values.append(value)
        return True


def _same(old: float, new: float) -> bool:
    return old == new or (math.isnan(old) and math.isnan(new))


def is_matched(labels: Labels, matchers: Sequence[Matcher]) -> bool:
    """Whether a series of these labels satisfies all matchers."""
    return all(satisfies(matcher, labels) for matcher in matchers)


def satisfies(matcher: Matcher, labels: Labels) -> bool:
    """Whether a series of these labels (with `__name__`) is one that the matcher lets through."""
    value = next((v for name, v in labels if name == matcher.name), "")
    if matcher.op == "=":
        return value == matcher.value
    if matcher.op == "!=":
        return value != matcher.value
    found = _compiled(matcher.value).fullmatch(value) is not None
    return found == (matcher.op == "=~")


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    return re2.compile(f"(?s:{pattern})")  # `.` matches a line feed, as in Prometheus 3
