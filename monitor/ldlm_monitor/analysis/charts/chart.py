"""What a chart shows, apart from how it is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

BUCKETS = 400
"""A chart is at most about this many pixels wide on screens where it is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One quantity of one run: mean, least and greatest value of each bucket (NaN: none).

    `nonfinite`: at which x a value was NaN or infinite. `color`: its number, from 0.
    """

    name: str
    xs: Sequence[float]
    means: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    nonfinite: Sequence[float] = ()
    color: int = 0


@dataclass(frozen=True, slots=True)
class FigureMark:
    """Something that happened at `x`."""

    x: float
    text: str
    kind: Literal["incident", "resume"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Lines over the same axes. `unit` is written beside the title."""

    title: str
    lines: Sequence[Line]
    unit: str = ""
    x_title: str = "step"
    marks: Sequence[FigureMark] = field(default=())


@dataclass(frozen=True, slots=True)
class Stretch:
    """Where values were not finite, so close together that they are drawn as one."""

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
    color: int = 0,
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


LOG_FROM = 10.0
"""Where the greatest value is so many times the least, a linear axis would press most flat."""
GREATEST = 1e300
"""No axis goes beyond, so that sums and differences of its ends stay finite."""


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`; `ticks` lie between."""

    low: float
    high: float
    logarithmic: bool
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """0 at `low`, 1 at `high`; what lies beyond stands at the edge."""
        if self.logarithmic:
            # A quotient of the two may be beyond what a float holds.
            least = math.log(self.low)
            share = (math.log(max(value, self.low)) - least) / (math.log(self.high) - least)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0)

    def holds(self, value: float) -> bool:
        """Whether it lies within."""
        return self.low <= value <= self.high


def axis_of(values: Iterable[float], ticks: int = 5, *, straight: bool = False) -> Axis:
    """An axis for finite values. `straight`: of steps or times, never logarithmic."""
    known = sorted(max(-GREATEST, min(value, GREATEST)) for value in values if math.isfinite(value))
    low, high = (known[0], known[-1]) if known else (0.0, 1.0)
    if straight:
        low, high = (low, high) if high > low else (low - 1, high + 1)
        places = _linear(low, high, ticks)
        # Steps are whole numbers.
        return Axis(low, high, False, tuple(filter(float.is_integer, places)) or places)
    if low > 0 and high / low >= LOG_FROM:
        return Axis(low * 0.9, high * 1.1, True, _decades(low * 0.9, high * 1.1, ticks))
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    low, high = (0.0 if 0 <= low < 0.3 * high else low - room), high + room
    return Axis(low, high, False, _linear(low, high, ticks))


def _linear(low: float, high: float, count: int) -> tuple[float, ...]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.8)
    first = math.ceil(low / step)
    return tuple(n * step for n in range(first, math.floor(high / step) + 1))


def _decades(low: float, high: float, count: int) -> tuple[float, ...]:
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    powers = [10.0**power for power in range(first, last + 1)]
    if len(powers) > count:
        return tuple(powers[:: math.ceil(len(powers) / count)])
    if len(powers) < 3:
        powers = [m * 10.0**p for p in range(first - 1, last + 1) for m in (1, 2, 5)]
        return tuple(value for value in powers if low <= value <= high)
    return tuple(powers)
