"""Losses and accuracies of several runs at the same step, and after the same time."""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias

from pydantic import Field

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.incident_view import View
from ldlm_monitor.base.text.format import duration
from ldlm_monitor.finished.compare.intervals import (
    LEAST_VALUES,
    Difference,
    mean_of,
    of_means,
    of_pairs,
    unknown,
)
from ldlm_monitor.finished.readings import Column

WINDOW = 0.1
"""Share of the steps before a point that average a loss: a choice; less is noisy, more is old."""
ENOUGH = 2 * LEAST_VALUES
"""Values that each average needs: twice the least, because neighbours are correlated."""
REACH = 0.5
"""Greatest share of steps in a window of too few values: a choice; more is old, less is noisy."""
PAIRED = 0.9
"""Least share of common steps for pairs of values: a choice; less wastes steps, more has noise."""
_POINT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(s|min|h)?")  # more digits are a typing error
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}  # of each unit that `_POINT` matches
Point: TypeAlias = tuple[Literal["step", "time"], float]
"""A step, or seconds since each run's first step."""


class Span(View):
    """The part of the runs over which losses and accuracies are compared."""

    unit: Literal["step", "time"]
    start: float = Field(description="a step, or seconds since each run's first step")
    end: float

    def __str__(self) -> str:
        if self.unit == "step":
            return f"at equal step, {self.start:.0f} to {self.end:.0f}"
        return f"at equal time, {duration(self.start)} to {duration(self.end)}"


@dataclass(frozen=True, slots=True)
class RunCell:
    """A run in a row: `value`, a mean or median of `count` values, the difference or why none."""

    value: float | None
    count: int
    difference: Difference | str = ""


def point_of(text: str) -> Point:
    """Parse a step (`500`), or a run's time (`90s`, `30min`, `2h`). Raises `UsageError`."""
    match = _POINT.fullmatch(text.strip())
    if match is None or (match[2] is None and "." in match[1]):
        raise UsageError(
            f'cannot read "{text}"', where="--at", remedy="write a step (500) or a time (30min)"
        )
    if match[2] is None:
        return "step", float(match[1])
    return "time", float(match[1]) * _SECONDS[match[2]]


def places(
    columns: Sequence[Column | None], starts: Sequence[float], at: Sequence[Point]
) -> Iterator[Span]:
    """Where the runs with this quantity are compared: at the end of what all share, and `at`
    points. `columns`: None for a run without it. `starts`: when each run began (Unix seconds).
    """
    known = [(column, start) for column, start in zip(columns, starts, strict=True) if column]
    if not known:
        return
    steps: list[Sequence[float]] = [column.steps for column, _ in known]
    yield from _in_range("step", steps, at)
    clocks = [[when - start for when in column.times] for column, start in known]
    if all(math.isfinite(clock[-1]) for clock in clocks):
        yield from _in_range("time", clocks, at)


def look(
    columns: Sequence[Column | None], starts: Sequence[float], span: Span, confidence: float
) -> Iterator[RunCell]:
    """Each run's mean in the span, and how it differs from the first run's mean; see `places`."""
    parts = [
        None if column is None else _part(column, start, span)
        for column, start in zip(columns, starts, strict=True)
    ]
    base = parts[0]
    for part in parts:
        if not part:
            yield RunCell(None, 0)
            continue
        found: Difference | str = ""
        if base is not None and part is not base:
            found = _difference(base, part, span.unit, confidence)
        yield RunCell(fmean(part.values), len(part), found)


def _difference(base: Column, part: Column, unit: str, confidence: float) -> Difference | str:
    """The difference by pairs of equal steps, which cancels common noise; otherwise by means."""
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
    return found or why or "the baseline is 0 there"


def _in_range(
    unit: Literal["step", "time"], scales: Sequence[Sequence[float]], at: Sequence[Point]
) -> Iterator[Span]:
    """Windows in the range that all runs have, widened until each run has `ENOUGH` values."""
    first = max(scale[0] for scale in scales)
    last = min(scale[-1] for scale in scales)
    for end in (last, *(place for each, place in at if each == unit)):
        if not first < end <= last:
            continue
        start = end - WINDOW * (end - first)
        for scale in scales:
            start = min(start, scale[max(bisect_right(scale, end) - ENOUGH, 0)])
        yield Span(unit=unit, start=max(start, end - REACH * (end - first)), end=end)


def _part(column: Column, started: float, span: Span) -> Column:
    if span.unit == "step":
        scale: Sequence[float] = column.steps
    else:
        scale = [at - started for at in column.times]
    return column.part(bisect_left(scale, span.start), bisect_right(scale, span.end))
