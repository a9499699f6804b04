"""How much the values of a series remember of those before them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

LONGEST = 0.97
"""A stronger memory is not told from a drift."""
_ROUNDS = 4


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
        near, next_ = (told + (1 - told) * bias for told in (first, second))
        near += margin * math.sqrt(max(1 - near * near, 0.0) / count)
        near = min(max(near, 0.0), LONGEST)
        # Of a memory that may be none, the ratio tells nothing.
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
