"""The last values of a quantity, and robust statistics of them."""

import math
import sys
from array import array
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
    ranked = sorted(values)
    middle = len(ranked) // 2
    return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2


def spread(values: Values, center: float) -> float:
    """The standard deviation, estimated by the median absolute deviation from `center`."""
    return MAD_SIGMA * median([abs(value - center) for value in values])


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
