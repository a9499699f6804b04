"""How uncertain a median or a mean is when neighbouring values are alike.

A step after a slow one is likely slow too, so values are resampled in blocks (circular
block bootstrap: D. N. Politis and J. P. Romano, 1992) of the length that the series' own
correlation requires (D. N. Politis and H. White, 2004). `Memory` corrects for what blocks
miss beyond their ends and for the uncertainty of a short series' correlation. `scipy` and
`arch` have neither correction; `arch` has the block length, but needs pandas.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean, median, pstdev

REPLICATES = 400
"""The error of a standard error from 400 draws is 3.5 %, below that of its estimation."""
SERIES = 1000
"""A longer series is thinned to about this many values, which bounds the cost of a resample."""
LEAST_VALUES = 20
"""Fewer values give no interval: their spread and memory cannot be estimated."""
SEED = 20260129
"""Fixed, so that the same logs give the same verdict."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where the values lie: `error` is the standard error, `freedom` its degrees of freedom.

    `freedom` is 0 where the values are so correlated that the error is unknown.
    """

    value: float
    error: float
    freedom: int
    count: int


def median_of(values: Sequence[float], replicates: int = REPLICATES) -> Location | None:
    """The median; None of fewer than `LEAST_VALUES` values."""
    if len(values) < LEAST_VALUES:
        return None
    taken = _thinned(values)
    center = median(taken)
    # A median moves with the side on which values fall, not with how far they lie.
    sides = [float((value > center) - (value < center)) for value in taken]
    length = block_length(sides)
    ranked = sorted(taken)
    ranks = [bisect_left(ranked, value) for value in taken]
    # Ranks have the memory of the values without the weight of outliers.
    levels = [rank + bisect_right(ranked, ranked[rank]) for rank in ranks]
    draws = (sorted(_drawn(ranks, starts, length)) for starts in _starts(taken, length, replicates))
    found = [(ranked[draw[len(draw) // 2]] + ranked[draw[~(len(draw) // 2)]]) / 2 for draw in draws]
    whole = Location(median(values), pstdev(found), 1, len(values))
    return _widened(whole, len(taken), length, lambda margin: memory_of(levels, margin))


def mean_of(values: Sequence[float], replicates: int = REPLICATES) -> Location | None:
    """The mean; None of fewer than `LEAST_VALUES` values."""
    if len(values) < LEAST_VALUES:
        return None
    taken = _thinned(values)
    length = block_length(taken)
    sums = list(accumulate([*taken, *taken[:length]], initial=0.0))
    blocks = [(sums[at + length] - sums[at]) / length for at in range(len(taken))]
    found = [fmean([blocks[at] for at in starts]) for starts in _starts(taken, length, replicates)]
    whole = Location(fmean(values), pstdev(found), 1, len(values))
    return _widened(whole, len(taken), length, lambda margin: memory_of(taken, margin))


def block_length(values: Sequence[float]) -> int:
    """So many neighbours are drawn together (Politis and White 2004, circular blocks).

    At most a tenth of the values: fewer than ten blocks show no spread.
    """
    count = len(values)
    center = fmean(values)
    moved = [value - center for value in values]
    power = sum(value * value for value in moved) / count
    if power == 0:
        return 1
    longest = max(1, count // 10)

    def covariance(lag: int) -> float:
        return sum(map(float.__mul__, moved[lag:], moved[: count - lag])) / count

    bound = 2 * math.sqrt(math.log10(count) / count) * power
    quiet = max(5, math.ceil(math.sqrt(math.log10(count))))
    known = [power]
    memory = 0
    for lag in range(1, min(count // 2, 2 * longest) + 1):
        known.append(covariance(lag))
        if abs(known[lag]) >= bound:
            memory = lag
        elif lag - memory >= quiet:
            break
    window = min(2 * max(memory, 1), len(known) - 1)
    weights = [min(1.0, 2 * (1 - lag / window)) for lag in range(window + 1)]
    spectrum = known[0] + 2 * sum(weights[k] * known[k] for k in range(1, window + 1))
    slope = 2 * sum(weights[k] * k * known[k] for k in range(1, window + 1))
    if spectrum <= 0:
        return 1
    best = math.cbrt(2 * slope**2 / (4 / 3 * spectrum**2) * count)
    return max(1, min(max(math.ceil(best), round(math.cbrt(count))), longest))


def _thinned(values: Sequence[float]) -> list[float]:
    stride = max(1, len(values) // SERIES)
    return [float(value) for value in values[::stride]]


def _starts(taken: Sequence[float], length: int, replicates: int) -> list[list[int]]:
    chance = random.Random(SEED)
    places = range(len(taken))
    blocks = math.ceil(len(taken) / length)
    return [chance.choices(places, k=blocks) for _ in range(replicates)]


def _drawn(ranks: Sequence[int], starts: Sequence[int], length: int) -> list[int]:
    if length == 1:
        return [ranks[at] for at in starts]
    circle = [*ranks, *ranks[:length]]
    return [rank for at in starts for rank in circle[at : at + length]]


def _widened(
    found: Location, count: int, length: int, memory: Callable[[float], Memory]
) -> Location:
    """With what blocks of `length` miss of the memory of `count` values beyond their ends."""
    blocks = count / length
    likely, cautious = memory(0.0), memory(1.0)
    missed = max(likely.whole / likely.within(length), 1.0) * blocks / (blocks - 1)
    # The variance of an AR(1)'s mean, as it is estimated, has about so many degrees of freedom:
    # of its logarithm the variance is (2 + 4 whole) / count, by the delta method.
    freedom = min(blocks - 1, count / (1 + 2 * cautious.whole))
    return replace(found, error=found.error * math.sqrt(missed), freedom=int(freedom))


LONGEST = 0.97
"""A stronger correlation cannot be distinguished from a drift."""
_ROUNDS = 4
"""Rounds of a fixed-point iteration; the bias is capped at a half, so it converges fast."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Correlation of neighbours, and by which factor it falls with each step further apart.

    That of an ARMA(1,1): slow changes, as in an AR(1), with jitter of each value above them.
    """

    near: float
    decay: float

    @property
    def whole(self) -> float:
        """By how much the variance of a mean is greater than without memory."""
        return 1 + 2 * self.near / (1 - self.decay)

    def within(self, length: int) -> float:
        """So much of it is seen inside blocks of that length."""
        seen = sum((1 - lag / length) * self.decay ** (lag - 1) for lag in range(1, length))
        return 1 + 2 * self.near * seen


def memory_of(values: Sequence[float], margin: float) -> Memory:
    """The memory; `margin`: so many standard errors more than it seems.

    The mean is that of the series itself, by which every autocovariance comes out too small by
    the variance of that mean (F. H. C. Marriott and J. A. Pope, 1954); that is put back.
    """
    count = len(values)
    first, second = _correlations(values)
    found = Memory(0.0, 0.0)
    for _ in range(_ROUNDS):
        bias = min(found.whole / count, 0.5)
        near, next_ = (each + (1 - each) * bias for each in (first, second))
        near += margin * math.sqrt(max(1 - near * near, 0.0) / count)
        near = min(max(near, 0.0), LONGEST)
        # Where the correlation may be zero, the ratio is noise.
        ratio = next_ / near if near > 2 / math.sqrt(count) else near
        found = Memory(near, min(max(near, ratio), LONGEST))
    return found


def _correlations(values: Sequence[float]) -> tuple[float, float]:
    """Of neighbours, and of values two apart."""
    center = fmean(values)
    moved = [value - center for value in values]
    power = math.fsum(value * value for value in moved)
    if power == 0:
        return 0.0, 0.0
    near, next_ = (
        math.fsum(a * b for a, b in zip(moved, moved[lag:], strict=False)) / power for lag in (1, 2)
    )
    return near, next_
