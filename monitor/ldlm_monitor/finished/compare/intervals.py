"""How uncertain a median or a mean is, and how much one differs from another.

A step after a slow one is likely slow too, so not all values of a series are independent. The
number of independent ones is estimated as for an ARMA(1,1), with corrections for a short series
that neither `scipy` nor `arch` has. Student's distribution is computed here, in 30 lines: `scipy`
would be a dependency of 40 MB.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean, median, pvariance

LEAST_VALUES = 20
"""Fewer values give no interval: a choice; spread and correlations of so few are mostly chance."""
SERIES = 5000
"""A series of twice this or more is thinned to about this: a choice; more is slow, less inexact."""
LEAST_FREEDOM = 3
"""With fewer degrees of freedom, Student's interval is too wide to be of use (t of 4.3 for 2)."""
LONGEST = 0.97
"""Correlation of neighbours at most: a choice; more looks like drift, less narrows intervals."""
_NORMAL = 1.96
"""Standard errors to each side that contain 95 % of a normal distribution."""
_ROUNDS = 4
"""Rounds of iteration in `memory_of`: a choice; the capped bias converges fast, more is slower."""
_GREATEST = 700.0
"""Change of a logarithm that is still converted: exp() of a float overflows above 709."""


@dataclass(frozen=True, slots=True)
class Location:
    """A mean or a median. `error`: its standard error. `freedom`: that error's degrees of freedom.

    `freedom` is 0 if the values are so correlated that the error is unknown.
    """

    value: float
    error: float
    freedom: int


def mean_of(values: Sequence[float]) -> Location | None:
    """The mean; None for fewer than `LEAST_VALUES` values."""
    if len(values) < LEAST_VALUES:
        return None
    taken = _thinned(values)
    count = len(taken)
    error = math.sqrt(pvariance(taken) * _inflation(memory_of(taken, 0.0), count) / count)
    return Location(fmean(values), error, _freedom(taken))


def median_of(values: Sequence[float]) -> Location | None:
    """The median; None for fewer than `LEAST_VALUES` values.

    Its error follows from the distance of two order statistics (J. W. McKean and R. M.
    Schrader, 1984), which are the further apart the more neighbours are correlated.
    """
    if len(values) < LEAST_VALUES:
        return None
    taken = _thinned(values)
    count, ranked = len(taken), sorted(taken)
    # Ranks have the memory of the values without the weight of outliers.
    ranks = [float(bisect_left(ranked, each) + bisect_right(ranked, each)) for each in taken]
    memory = memory_of(ranks, 0.0)
    # A value counts for the median only by its side. Sides of neighbours are less correlated than
    # their values, if normal: by the arcsine law (W. F. Sheppard, 1899).
    sides = replace(memory, near=2 / math.pi * math.asin(memory.near))
    spread = math.sqrt(count * _inflation(sides, count)) / 2
    first = max(0, math.floor(count / 2 - _NORMAL * spread))
    error = (ranked[~first] - ranked[first]) / (count - 1 - 2 * first) * spread
    return Location(median(values), error, _freedom(ranks))


def _thinned(values: Sequence[float]) -> Sequence[float]:
    return values[:: max(1, len(values) // SERIES)]


@dataclass(frozen=True, slots=True)
class Memory:
    """`near`: the correlation of neighbours; `decay`: its factor for each further step apart.

    This is an ARMA(1,1): slow changes as in an AR(1), plus independent jitter of each value.
    """

    near: float
    decay: float

    @property
    def whole(self) -> float:
        """The factor by which these correlations increase the variance of a mean."""
        return 1 + 2 * self.near / (1 - self.decay)


def _inflation(memory: Memory, count: int) -> float:
    """`whole`, corrected for the variance that is lost to the estimated mean, at most tenfold."""
    return memory.whole / max(1 - memory.whole / count, 0.1)


def _freedom(values: Sequence[float]) -> int:
    """Degrees of freedom of the estimated variance of an AR(1)'s mean.

    They are 2 / v, where v is the variance of that variance's logarithm: by the delta method
    (2 + 4 whole) / count.
    """
    return int(len(values) / (1 + 2 * memory_of(values, 1.0).whole))


def memory_of(values: Sequence[float], margin: float) -> Memory:
    """The memory of a series; `margin` standard errors are added to the correlation.

    The mean is estimated from the series, which makes every autocovariance too small by the
    variance of that mean (F. H. C. Marriott and J. A. Pope, 1954); each round adds it again.
    """
    count = len(values)
    first, second = _correlations(values)
    found = Memory(0.0, 0.0)
    for _ in range(_ROUNDS):
        bias = min(found.whole / count, 0.5)  # the cap keeps the iteration from diverging
        near, next_ = (each + (1 - each) * bias for each in (first, second))
        near += margin * math.sqrt(max(1 - near * near, 0.0) / count)
        near = min(max(near, 0.0), LONGEST)
        # Below two standard errors the correlation may be zero, and the ratio noise.
        ratio = next_ / near if near > 2 / math.sqrt(count) else near
        found = Memory(near, min(max(near, ratio), LONGEST))
    return found


def _correlations(values: Sequence[float]) -> tuple[float, float]:
    center = fmean(values)
    moved = [value - center for value in values]
    power = math.fsum(value * value for value in moved)
    if power == 0:
        return 0.0, 0.0
    near, next_ = (
        math.fsum(a * b for a, b in zip(moved, moved[lag:], strict=False)) / power for lag in (1, 2)
    )
    return near, next_


@dataclass(frozen=True, slots=True)
class Difference:
    """`change`: candidate / baseline - 1, between `low` and `high`; `p`: the two-sided p-value."""

    change: float
    low: float
    high: float
    p: float

    def inverted(self) -> Difference:
        """The change of the inverse: that of the speed, if this is that of a time."""
        low, high = _inverse(self.high), _inverse(self.low)
        return Difference(_inverse(self.change), low, high, self.p)


def _inverse(change: float) -> float:
    return 1 / (1 + change) - 1 if change > -1 else math.inf


def unknown(found: Location | None, count: int, whose: str = "") -> str:
    """Why `count` values give no interval; empty if they give one. `whose`: words on the run."""
    if found is None:
        return f"too few steps{whose} ({count} values)"
    if found.freedom < LEAST_FREEDOM:
        return f"too few independent steps among the {count} values{whose}"
    return ""


def of_logarithms(a: Location, b: Location, confidence: float) -> Difference | None:
    """The change from exp(a) to exp(b), by B. L. Welch's interval (1947); None: as `_interval`."""
    found = _interval(b.value - a.value, *_together(a, b), confidence)
    if found is None:
        return None
    return Difference(_share(found.change), _share(found.low), _share(found.high), found.p)


def of_means(a: Location, b: Location, confidence: float) -> Difference | None:
    """The change from mean a to b as a share of a, by the delta method; None: as `of_pairs`."""
    share = b.value / a.value if a.value else 1.0
    error, freedom = _together(replace(a, error=abs(share) * a.error), b)
    return _relative(_interval(b.value - a.value, error, freedom, confidence), a.value)


def of_pairs(moved: Location, baseline: float, confidence: float) -> Difference | None:
    """The mean `moved` of differences as a share of `baseline`; None as `_relative`."""
    return _relative(_interval(moved.value, moved.error, moved.freedom, confidence), baseline)


def _share(moved: float) -> float:
    return math.expm1(moved) if moved < _GREATEST else math.inf


def _relative(found: Difference | None, baseline: float) -> Difference | None:
    """`found` as a share of `baseline`; None without `found`, or if only the baseline is 0."""
    scale = abs(baseline)
    if found is None or found.low == found.high == 0:
        return found
    if scale == 0:
        return None
    return Difference(found.change / scale, found.low / scale, found.high / scale, found.p)


def _together(a: Location, b: Location) -> tuple[float, int]:
    """A difference's standard error, and its degrees of freedom by F. E. Satterthwaite (1946)."""
    error, least = math.hypot(a.error, b.error), min(a.freedom, b.freedom)
    if least < LEAST_FREEDOM:
        return error, least
    parts = a.error**4 / a.freedom + b.error**4 / b.freedom
    return error, max(least, int(error**4 / parts)) if parts else least


def _interval(moved: float, error: float, freedom: int, confidence: float) -> Difference | None:
    """The difference `moved` with its interval; None if `freedom` < `LEAST_FREEDOM`."""
    if freedom < LEAST_FREEDOM:
        return None
    if error == 0:
        return Difference(moved, moved, moved, 0.0 if moved else 1.0)
    reach = quantile(confidence, freedom) * error
    p = max(0.0, 1 - inside(moved / error, freedom))
    return Difference(moved, moved - reach, moved + reach, p)


def inside(t: float, freedom: int) -> float:
    """P(|T| <= |t|) of Student's distribution with `freedom` >= 1 degrees of freedom.

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


@lru_cache(maxsize=1024)  # more than the rows and runs of a table
def quantile(confidence: float, freedom: int) -> float:
    """The t for which `inside(t, freedom)` is `confidence` (0 to below 1), by bisection."""
    low, high = 0.0, 2.0
    while inside(high, freedom) < confidence:
        high *= 2
    for _ in range(60):  # halvings: beyond the 53 bits of a float
        middle = (low + high) / 2
        if inside(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return high
