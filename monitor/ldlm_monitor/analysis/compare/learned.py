"""Losses and accuracies of several runs at the same step, and after the same time."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from ldlm_monitor.analysis.column import Column
from ldlm_monitor.analysis.compare.intervals import (
    LEAST_VALUES,
    Difference,
    mean_of,
    of_means,
    of_pairs,
    unknown,
)
from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.text.format import duration

WINDOW = 0.1
"""A loss is the mean over the last tenth of what lies before the point."""
ENOUGH = 2 * LEAST_VALUES
"""Twice the least, so that thinning and blocks leave enough."""
REACH = 0.5
"""Where a tenth holds fewer than `ENOUGH` values, up to half of it is taken."""
PAIRED = 0.9
"""Runs that share so many of their steps are compared step by step."""
_POINT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(s|min|h)?")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class ComparisonPoint:
    """At a step, or after so many seconds of training."""

    unit: Literal["step", "time"]
    value: float

    def __str__(self) -> str:
        return f"step {self.value:g}" if self.unit == "step" else duration(self.value)


@dataclass(frozen=True, slots=True)
class Place:
    """From where to where, in steps or in seconds since the run's first step."""

    point: ComparisonPoint
    start: float

    def __str__(self) -> str:
        if self.point.unit == "step":
            return f"at equal step, {self.start:.0f} to {self.point.value:.0f}"
        return f"at equal time, {duration(self.start)} to {duration(self.point.value)}"


@dataclass(frozen=True, slots=True)
class Seen:
    """One run's value of a row, of `count` values; `difference` is None where it is not known.

    `why` then says why not.
    """

    value: float | None
    count: int
    difference: Difference | None = None
    why: str = ""


def point_of(text: str) -> ComparisonPoint:
    """`500`: a step; `90s`, `30min`, `2h`: a time. Raises `UsageError`."""
    match = _POINT.fullmatch(text.strip())
    if match is None or (match[2] is None and "." in match[1]):
        raise UsageError(
            f'cannot read "{text}"', where="--at", remedy="write a step (500) or a time (30min)"
        )
    value = float(match[1])
    return (
        ComparisonPoint("step", value)
        if match[2] is None
        else ComparisonPoint("time", value * _SECONDS[match[2]])
    )


def places(
    columns: Sequence[Column | None], starts: Sequence[float], at: Sequence[ComparisonPoint]
) -> Iterator[Place]:
    """Where the runs with this quantity are compared: at the end of what they share, and
    at the points asked for. `starts`: when each run began.
    """
    known = [(column, start) for column, start in zip(columns, starts, strict=True) if column]
    if not known:
        return
    asked = [point for point in at if point.unit == "step"]
    scales: list[Sequence[float]] = [column.steps for column, _ in known]
    yield from _in_range(
        scales, [ComparisonPoint("step", min(scale[-1] for scale in scales)), *asked]
    )
    clocks = [[when - start for when in column.times] for column, start in known]
    if all(math.isfinite(clock[-1]) for clock in clocks):
        asked = [point for point in at if point.unit == "time"]
        yield from _in_range(
            clocks, [ComparisonPoint("time", min(clock[-1] for clock in clocks)), *asked]
        )


def look(
    columns: Sequence[Column | None], starts: Sequence[float], place: Place, confidence: float
) -> Iterator[Seen]:
    """Each run's mean there, and how it differs from the first run's."""
    parts = [
        None if column is None else _part(column, start, place)
        for column, start in zip(columns, starts, strict=True)
    ]
    base = parts[0]
    for index, part in enumerate(parts):
        if part is None or not len(part):
            yield Seen(None, 0)
            continue
        value = fmean(part.values)
        if index == 0 or base is None:
            yield Seen(value, len(part))
            continue
        found, why = _difference(base, part, place.point.unit, confidence)
        yield Seen(value, len(part), found, why)


def _difference(
    base: Column, part: Column, unit: str, confidence: float
) -> tuple[Difference | None, str]:
    """Step by step where they share their steps, which leaves out what both have in common.

    Where there is no difference to give, the text says why.
    """
    found = None
    shared = sorted(set(base.steps) & set(part.steps)) if unit == "step" else []
    if len(shared) >= PAIRED * max(len(base), len(part)):
        a, b = (dict(zip(each.steps, each.values, strict=True)) for each in (base, part))
        moved = mean_of([b[step] - a[step] for step in shared])
        why = unknown(moved, len(shared))
        if moved is not None:
            found = of_pairs(moved, fmean(base.values), confidence)
    else:
        first, second = mean_of(base.values), mean_of(part.values)
        why = unknown(second, len(part)) or unknown(first, len(base), " of the baseline")
        if first is not None and second is not None:
            found = of_means(first, second, confidence)
    return found, "" if found else why or "the baseline is 0 there"


def _in_range(
    scales: Sequence[Sequence[float]], points: Sequence[ComparisonPoint]
) -> Iterator[Place]:
    """Places where all runs have been; so wide that each has enough values, where that helps."""
    first = max(scale[0] for scale in scales)
    last = min(scale[-1] for scale in scales)
    for point in points:
        if not first < point.value <= last:
            continue
        start = point.value - WINDOW * (point.value - first)
        for scale in scales:
            stop = bisect_right(scale, point.value)
            start = min(start, scale[max(stop - ENOUGH, 0)])
        yield Place(point, max(start, point.value - REACH * (point.value - first)))


def _part(column: Column, started: float, place: Place) -> Column:
    if place.point.unit == "step":
        scale: Sequence[float] = column.steps
    else:
        scale = [at - started for at in column.times]
    return column.part(bisect_left(scale, place.start), bisect_right(scale, place.point.value))
