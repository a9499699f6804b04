"""Quantities that stand at exactly 0: learning rate, gradient norm, spread of rewards."""

from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

from ldlm_monitor.judge.detect.detector import Detector, Gauges
from ldlm_monitor.judge.detect.window import RecentValues, Values, finite

WINDOW = 200
"""Last values other than 0, which show the resolution. A choice: of fewer it is known badly."""
KNOWN = 10
"""Values other than 0 needed before the resolution is known."""
LEAST_UNITS = 20
"""A value of so many units of the resolution does not become 0 by rounding."""
LEAST_SHARE = 1000
"""Where values so many times smaller than the largest are logged, what is logged as 0 has no
effect: less than a thousandth of the largest."""
LEAST_ROWS = 20
"""Least zeros in a row. A choice: more alert later; a schedule ends with fewer, and a batch without
a gradient is followed by one that has it."""
SCHEDULE_END = 0.1
"""The share of all logged steps that the end of a schedule may stand at 0: a cosine is below a
thousandth of its peak for its last 2 %, a polynomial of third degree for 10 %."""


class ZeroRows:
    """The zeros at the end of a quantity's values, and whether its log shows small values.

    `rows`: how many of the last values in a row are 0. `count`: how many values there were.
    """

    def __init__(self) -> None:
        self.rows = self.count = 0
        self._others = RecentValues(WINDOW)
        self._largest = 0.0

    def extend(self, values: Values) -> None:
        """Add the next values; NaN and infinities are ignored."""
        zeros = values.count(0.0)
        self.count += len(values)
        self.rows = self.rows + zeros if zeros == len(values) else _at_end(values)
        others = finite(values)
        if zeros:
            others = [value for value in others if value]
        if others:
            self._others.extend(others)
            self._largest = max(self._largest, *others)

    def is_exact(self) -> bool:
        """Whether the zeros cannot be small values that the log rounds."""
        if len(self._others) < KNOWN:
            return False
        ranked = sorted(set(self._others.values))
        unit = min(later - earlier for earlier, later in pairwise([0.0, *ranked]))
        small = abs(ranked[0]) * LEAST_SHARE <= self._largest
        return small or self._others.values[-1] >= LEAST_UNITS * unit


def _at_end(values: Values) -> int:
    """How many zeros in a row there are at the end."""
    return next((place for place, value in enumerate(reversed(values)) if value), len(values))


class LearningRateDetector(Detector):
    """`learning_rate_zero_ratio`: logged steps in a row at 0, over what a schedule's end explains.

    That is the least of rows / 20 and rows / (0.1 count), if the zeros are no rounded values.
    `learning_rate_zero_rows` counts them in any case: a rate that is 0 from the first step on, or
    one that is logged with four decimals, shows nothing alone.
    """

    quantity = "learning_rate"
    gauges: ClassVar[Gauges] = {
        "learning_rate_zero_rows": "Last logged steps in a row with a learning rate of 0.",
        "learning_rate_zero_ratio": (
            "Logged steps in a row with a learning rate of 0 over those that a schedule explains."
        ),
    }

    def __init__(self) -> None:
        self._zeros = ZeroRows()

    def update(self, values: Values) -> None:
        """Add the next learning rates."""
        self._zeros.extend(values)

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges without their prefix `ldlm_detect_`; none while the rate is above 0."""
        rows = self._zeros.rows
        if rows >= LEAST_ROWS:
            yield "learning_rate_zero_rows", rows
            if self._zeros.is_exact():
                explained = max(LEAST_ROWS, SCHEDULE_END * self._zeros.count)
                yield "learning_rate_zero_ratio", rows / explained


class GradientZeroDetector(Detector):
    """Logged steps in a row whose gradient norm is 0: `grad_norm_zero_rows` counts them.

    `grad_norm_zero_ratio` is that number over 20 if the zeros are no rounded values. Some trainers
    log 0 where they have no norm: a norm that was never above 0 shows nothing alone.
    """

    quantity = "grad_norm"
    gauges: ClassVar[Gauges] = {
        "grad_norm_zero_rows": "Last logged steps in a row with a gradient norm of 0.",
        "grad_norm_zero_ratio": (
            "Logged steps in a row with a gradient norm of 0 over those that chance explains."
        ),
    }

    def __init__(self) -> None:
        self._zeros = ZeroRows()

    def update(self, values: Values) -> None:
        """Add the next gradient norms."""
        self._zeros.extend(values)

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges without their prefix `ldlm_detect_`; none while the norm is above 0."""
        rows = self._zeros.rows
        if rows >= LEAST_ROWS:
            yield "grad_norm_zero_rows", rows
            if self._zeros.is_exact():
                yield "grad_norm_zero_ratio", rows / LEAST_ROWS
