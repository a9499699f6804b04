"""How uncertain a median or a mean is when neighbouring values are alike.

A step that follows a slow one is likely slow too, so values are drawn again in blocks
(circular block bootstrap: D. N. Politis and J. P. Romano, 1992), as long as the series'
own memory asks (D. N. Politis and H. White, 2004). What blocks miss, and how little a short
series knows of its own memory, is made good by `memory.py`.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean, median, pstdev

from ldlm_monitor.analysis.compare.memory import Memory, memory_of

REPLICATES = 400
SERIES = 1000
"""Of a longer series every n-th value is taken, so that about as many remain."""
LEAST_VALUES = 20
"""Of fewer values nothing is said."""
SEED = 20260129


@dataclass(frozen=True, slots=True)
class Location:
    """Where the values lie: `error` is the standard error, `freedom` its degrees of freedom.

    `freedom` is 0 where the values hang together so much that nothing is known of the error.
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
    # Ranks tell of memory what the values would, but for wild ones among them.
    levels = [rank + bisect_right(ranked, ranked[rank]) for rank in ranks]
    draws = (sorted(_drawn(ranks, starts, length)) for starts in _starts(taken, length, replicates))
    found = [(ranked[draw[len(draw) // 2]] + ranked[draw[~(len(draw) // 2)]]) / 2 for draw in draws]
    told = Location(median(values), pstdev(found), 1, len(values))
    return _widened(told, len(taken), length, lambda margin: memory_of(levels, margin))


def mean_of(values: Sequence[float], replicates: int = REPLICATES) -> Location | None:
    """The mean; None of fewer than `LEAST_VALUES` values."""
    if len(values) < LEAST_VALUES:
        return None
    taken = _thinned(values)
    length = block_length(taken)
    sums = list(accumulate([*taken, *taken[:length]], initial=0.0))
    blocks = [(sums[at + length] - sums[at]) / length for at in range(len(taken))]
    found = [fmean([blocks[at] for at in starts]) for starts in _starts(taken, length, replicates)]
    told = Location(fmean(values), pstdev(found), 1, len(values))
    return _widened(told, len(taken), length, lambda margin: memory_of(taken, margin))


def block_length(values: Sequence[float]) -> int:
    """So many neighbours are drawn together (Politis and White 2004, circular blocks).

    At most a tenth of the values: of fewer than ten blocks no spread can be learned.
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
