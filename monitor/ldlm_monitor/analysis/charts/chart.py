"""What a chart shows, apart from how it is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

BUCKETS = 400
"""More are not told apart on any screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One quantity of one run: mean, least and greatest value of each bucket (NaN: none).

    `nonfinite`: at which x a value was NaN or infinite. `color`: its number, from 0; None: by
    its place in the chart.
    """

    name: str
    xs: Sequence[float]
    means: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    nonfinite: Sequence[float] = ()
    color: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at `x`."""

    x: float
    text: str
    kind: Literal["incident", "resume"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over the same axes. `unit` is written beside the title."""

    title: str
    lines: Sequence[Line]
    unit: str = ""
    x_title: str = "step"
    marks: Sequence[Mark] = field(default=())

    @property
    def colored(self) -> list[tuple[int, Line]]:
        """The lines, each with the number of its colour."""
        return [
            (index if line.color is None else line.color, line)
            for index, line in enumerate(self.lines)
        ]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Where values were not finite, so close together that no eye tells them apart."""

    first: float
    last: float
    count: int

    def __str__(self) -> str:
        if self.count == 1:
            return f"not finite at {self.first:g}"
        return f"not finite from {self.first:g} to {self.last:g} ({self.count} times)"


def stretches(nonfinite: Sequence[float], reach: float) -> list[Stretch]:
    """What lies no further than `reach` apart belongs together."""
    found: list[Stretch] = []
    for x in sorted(nonfinite):
        if found and x - found[-1].last <= reach:
            found[-1] = Stretch(found[-1].first, x, found[-1].count + 1)
        else:
            found.append(Stretch(x, x, 1))
    return found


def bucketed(
    name: str,
    steps: Sequence[float],
    values: Sequence[float],
    nonfinite: Sequence[float] = (),
    *,
    color: int | None = None,
) -> Line:
    """Finite values in at most `BUCKETS` buckets, of which none loses a spike."""
    width = math.ceil(len(values) / BUCKETS) or 1
    parts = [values[at : at + width] for at in range(0, len(values), width)]
    return Line(
        name=name,
        xs=list(steps[::width]),
        means=[sum(part) / len(part) for part in parts],
        lows=[min(part) for part in parts],
        highs=[max(part) for part in parts],
        nonfinite=nonfinite,
        color=color,
    )
