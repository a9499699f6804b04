"""How much one value differs from another, relatively, with its confidence interval.

Student's distribution is computed here, in 30 lines: `scipy` would be a dependency of 40 MB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from ldlm_monitor.analysis.compare.bootstrap import Location

LEAST_FREEDOM = 3
"""With fewer degrees of freedom, Student's interval is too wide to be of use."""
_GREATEST = 700.0
"""exp() overflows above 709."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`change` is candidate / baseline - 1, between `low` and `high`; `p` is two-sided."""

    change: float
    low: float
    high: float
    p: float

    def inverted(self) -> Difference:
        """The change of the inverse: of speed, where this is of time."""
        low, high = _inverse(self.high), _inverse(self.low)
        return Difference(_inverse(self.change), low, high, self.p)


def unknown(found: Location | None, count: int, whose: str = "") -> str:
    """Why `count` values give no interval; empty where they do. `whose`: whose they are."""
    if found is None:
        return f"too few steps{whose} ({count} values)"
    if found.freedom < LEAST_FREEDOM:
        return f"too few independent steps among the {count} values{whose}"
    return ""


def of_logarithms(a: Location, b: Location, confidence: float) -> Difference | None:
    """Between exp(a) and exp(b): Welch's interval (B. L. Welch, 1947) on logarithms."""
    if min(a.freedom, b.freedom) < LEAST_FREEDOM:
        return None
    error, freedom = _together(a, b)
    reach = quantile(confidence, freedom) * error
    moved = b.value - a.value
    p = _p(moved, error, freedom)
    return Difference(_share(moved), _share(moved - reach), _share(moved + reach), p)


def of_means(a: Location, b: Location, confidence: float) -> Difference | None:
    """Between two means, relative to the first, by the delta method."""
    if min(a.freedom, b.freedom) < LEAST_FREEDOM:
        return None
    share = b.value / a.value if a.value else 1.0
    scaled = Location(a.value, abs(share) * a.error, a.freedom, a.count)
    error, freedom = _together(scaled, b)
    return _relative(b.value - a.value, error, freedom, abs(a.value), confidence)


def of_pairs(moved: Location, baseline: float, confidence: float) -> Difference | None:
    """From differences step by step, relative to the mean of the baseline there."""
    if moved.freedom < LEAST_FREEDOM:
        return None
    return _relative(moved.value, moved.error, moved.freedom, abs(baseline), confidence)


def _inverse(change: float) -> float:
    return 1 / (1 + change) - 1 if change > -1 else math.inf


def _share(moved: float) -> float:
    """Of a change of the logarithm."""
    return math.expm1(moved) if moved < _GREATEST else math.inf


def _relative(
    moved: float, error: float, freedom: int, scale: float, confidence: float
) -> Difference | None:
    """None where there is nothing to relate it to."""
    if moved == error == 0:
        return Difference(0.0, 0.0, 0.0, 1.0)
    if scale == 0:
        return None
    reach = quantile(confidence, freedom) * error
    p = _p(moved, error, freedom)
    return Difference(moved / scale, (moved - reach) / scale, (moved + reach) / scale, p)


def _together(a: Location, b: Location) -> tuple[float, int]:
    """The standard error of a difference, and its degrees of freedom by Satterthwaite."""
    error = math.hypot(a.error, b.error)
    if error == 0:
        return 0.0, min(a.freedom, b.freedom)
    parts = a.error**4 / a.freedom + b.error**4 / b.freedom
    return error, max(1, int(error**4 / parts)) if parts else min(a.freedom, b.freedom)


def _p(moved: float, error: float, freedom: int) -> float:
    if error == 0:
        return 1.0 if moved == 0 else 0.0
    return max(0.0, 1 - inside(moved / error, freedom))


@dataclass(frozen=True, slots=True)
class Seen:
    """One run's value of a row, of `count` values; `difference` is None where it is not known.

    `why` then says why not.
    """

    value: float | None
    count: int
    difference: Difference | None = None
    why: str = ""


def inside(t: float, freedom: int) -> float:
    """P(|T| <= t) with `freedom` >= 1 degrees of freedom.

    The finite series of Abramowitz and Stegun, Handbook of Mathematical Functions (1964),
    26.7.3 and 26.7.4.
    """
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    if freedom == 1:
        return 2 * angle / math.pi
    term = cosine if odd else 1.0
    total = term
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@lru_cache(maxsize=1024)
def quantile(confidence: float, freedom: int) -> float:
    """The t within which a share `confidence` of the distribution lies, by bisection."""
    low, high = 0.0, 2.0
    while inside(high, freedom) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if inside(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return high
