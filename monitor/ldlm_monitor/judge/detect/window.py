"""The last values of a quantity, and robust statistics of them."""

import math
import sys
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import TypeAlias

Values: TypeAlias = Sequence[float]  # of one quantity, oldest first

MAD_SIGMA = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation: 1 / 0.6745."""
_LARGEST_LOGARITHM = math.log(sys.float_info.max)  # 709.78, of the largest float


class RecentValues:
    """The last `size` values (`values`), and the number of all values so far (`count`)."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = 0
        self.values = array("d")

    def __len__(self) -> int:
        return len(self.values)

    def extend(self, values: Values) -> None:
        """Add the newest values, oldest first."""
        self.count += len(values)
        self.values.extend(values[-self.size :])
        del self.values[: -self.size]


_SORTED_ANEW = 128
"""Changes of a window after which it is sorted anew: 2 x 128 insertions take as long as that."""


class ComparedValues(RecentValues):
    """The last `size` values: the last `recent` of them, and those `before`, which are sorted.

    They are sorted as they come and go: to sort hundreds of values at each evaluation would be
    most of what a detector takes.
    """

    def __init__(self, size: int, recent: int) -> None:
        super().__init__(size)
        self._recent = recent
        self.before = array("d")

    @property
    def recent(self) -> Values:
        """The last values, oldest first."""
        return self.values[-self._recent :]

    def extend(self, values: Values) -> None:
        """Add the newest values, oldest first."""
        joined = self.values + array("d", values)
        come = joined[len(self.before) : max(len(joined) - self._recent, len(self.before))]
        gone = joined[: max(len(joined) - self.size, 0)]
        super().extend(values)
        if len(come) > _SORTED_ANEW:
            self.before = array("d", sorted(self.values[: -self._recent]))
            return
        for value in come:
            insort(self.before, value)
        for value in gone:
            del self.before[bisect_left(self.before, value)]


def pieces(values: Values, size: int, window: int) -> Iterator[Values]:
    """Values that came at once: those before the last `window` together, then `size` at a time.

    Where many steps are logged between two evaluations, what rises and falls in some of them
    has gone from a detector's last values before it is asked.
    """
    early = max(len(values) - window, 0)
    if early:
        yield values[:early]
    for start in range(early, len(values), size):
        yield values[start : start + size]


class Groups:
    """Cuts values into consecutive groups of `size`; the rest waits for the next values."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._rest = array("d")

    def extend(self, values: Values) -> Iterator[Values]:
        """Add values; yields the complete groups. Only an exhausted iterator has kept the rest."""
        joined = self._rest + array("d", values)
        for start in range(0, len(joined) - self.size + 1, self.size):
            yield joined[start : start + self.size]
        self._rest = joined[len(joined) // self.size * self.size :]


def median(values: Values) -> float:
    """The median of at least one value; the mean of the middle two of an even number."""
    return middle_of(sorted(values))


def middle_of(ranked: Values) -> float:
    """The median of at least one value, sorted."""
    middle = len(ranked) // 2
    return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2


def spread(values: Values, center: float) -> float:
    """The standard deviation, estimated by the median absolute deviation from `center`."""
    return MAD_SIGMA * median([abs(value - center) for value in values])


def spread_of(ranked: Values, center: float) -> float:
    """As `spread`, of sorted values."""
    half = len(ranked) // 2
    upper = _distance(ranked, center, half + 1)
    if len(ranked) % 2:
        return MAD_SIGMA * upper
    return MAD_SIGMA * ((_distance(ranked, center, half) + upper) / 2)


def _distance(ranked: Values, center: float, count: int) -> float:
    """How far the `count` values that are nearest to the center are from it."""
    low, high = 0, len(ranked) - count  # the nearest stand together: where they begin
    while low < high:
        start = (low + high) // 2
        if center - ranked[start] > ranked[start + count] - center:
            low = start + 1
        else:
            high = start
    return max(abs(ranked[low] - center), abs(ranked[low + count - 1] - center))


def exp(logarithm: float) -> float:
    """The number with this natural logarithm; infinite beyond floats, where `math.exp` raises."""
    return math.exp(logarithm) if logarithm < _LARGEST_LOGARITHM else math.inf


def finite(values: Values) -> Values:
    """The values that are neither NaN nor infinite."""
    # A fast path: the sum is finite only if all values are, which is nearly always so.
    if math.isfinite(sum(values)):
        return values
    return [value for value in values if math.isfinite(value)]


def positive(values: Values) -> list[float]:
    """The values that are finite and above 0."""
    return [value for value in values if 0 < value < math.inf]
