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

    `nonfinite`: at which x a value was NaN or infinite.
    """

    name: str
    xs: Sequence[float]
    means: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    nonfinite: Sequence[float] = ()


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


def bucketed(
    name: str, steps: Sequence[float], values: Sequence[float], nonfinite: Sequence[float] = ()
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
    )
