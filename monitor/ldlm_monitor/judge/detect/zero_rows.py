"""Quantities that stand at exactly 0: learning rate, gradient norm, spread of rewards."""

import math
from array import array
from collections.abc import Iterator
from decimal import Decimal
from itertools import chain
from typing import ClassVar

from ldlm_monitor.judge.detect.detector import Detector, Gauges
from ldlm_monitor.judge.detect.window import RecentValues, Values, finite

WINDOW = 200
"""Last values other than 0, which show the resolution. A choice: of fewer it is known badly."""
FIRST = 50
"""First values other than 0, as a warm-up shows more digits than a constant. A choice, as above."""
KNOWN = 10
"""Values other than 0 needed before the resolution is known."""
LEAST_UNITS = 20
"""A value of so many units of the resolution does not become 0 by rounding."""
LEAST_SHARE = 10_000
"""Where values so many times smaller than the largest are logged, what is logged as 0 has no
effect. A choice: fewer take a last stage of a schedule for 0, which some end at a thousandth."""
LEAST_ROWS = 10
"""Least zeros in a row of a learning rate. A choice: more alert later, schedules end with fewer."""
GRADIENT_ROWS = 100
"""The same of a gradient norm: some phases of a training freeze what it is taken of."""
LEAST_GRADIENT_ROWS, GRADIENT_SHARE = 30, 0.6
"""The same of a short log, if they are so large a share of it. A choice: of phases that take turns
one is half of the first two."""
REPEATED = 3
"""Times the longest row of zeros that was over again: with gradient accumulation, or phases that
freeze a part, rows of zeros are usual."""
SCHEDULE_END = 0.1
"""The share of all logged steps that the end of a schedule may stand at 0: a cosine is below a
ten-thousandth of its peak for its last 1 %, a polynomial of third degree for 5 %."""


class ZeroRows:
    """The zeros at the end of a quantity's values, and whether its log shows small values.

    `rows`: how many of the last values in a row are 0; `longest`: of those that were followed by
    others. `count`: how many values there were. `were_many`: `rows` was once `LEAST_ROWS`.
    `negligible`: share of the largest value before, below which a value is a 0, too.
    """

    def __init__(self, negligible: float = 0.0) -> None:
        self._negligible = negligible
        self.rows = self.count = self.longest = 0
        self.were_many = False
        self._others = RecentValues(WINDOW)
        self._first = array("d")
        self._largest, self._smallest = 0.0, math.inf

    def extend(self, values: Values) -> None:
        """Add the next values; NaN and infinities are ignored."""
        others = [value for value in finite(values) if value]
        if others:
            self._smallest = min(self._smallest, *map(abs, others))
            before, self._largest = self._largest, max(self._largest, *others)
            if self._smallest < self._negligible * self._largest:
                values = self._without_negligible(values, before)
                others = [value for value in finite(values) if value]
        zeros = values.count(0.0)
        self.count += len(values)
        if zeros == len(values):
            self.rows += zeros
        elif zeros:
            for value in values:
                self.longest = max(self.longest, self.rows if value else 0)
                self.rows = 0 if value else self.rows + 1
        else:
            self.longest, self.rows = max(self.longest, self.rows), 0
        self.were_many = self.were_many or max(self.rows, self.longest) >= LEAST_ROWS
        self._others.extend(others)
        self._first.extend(others[: FIRST - len(self._first)])

    def _without_negligible(self, values: Values, highest: float) -> Values:
        """The values, 0 for each that is negligible beside the `highest` one up to it."""
        found = array("d")
        for value in values:
            highest = value if highest < value < math.inf else highest
            found.append(0.0 if abs(value) < self._negligible * highest else value)
        return found

    def is_exact(self) -> bool:
        """Whether the zeros cannot be small values that the log rounds.

        The last decimal of all values is the log's resolution.
        """
        others = self._others.values
        if len(others) < KNOWN:
            return False
        unit = 10.0 ** min(map(_exponent, chain(self._first, others)))
        return (
            self._smallest * LEAST_SHARE <= self._largest or abs(others[-1]) >= LEAST_UNITS * unit
        )


def _exponent(value: float) -> int:
    """That of the last decimal that is not 0: -4 of 0.0025."""
    return int(Decimal(repr(value)).normalize().as_tuple().exponent)


class ZeroDetector(Detector):
    """A detector of a quantity that stands at 0."""

    negligible: ClassVar[float] = 0.0

    def __init__(self) -> None:
        self._zeros = ZeroRows(self.negligible)

    def update(self, values: Values) -> None:
        """Add the next values; NaN and infinities are ignored."""
        self._zeros.extend(values)


class LearningRateDetector(ZeroDetector):
    """`learning_rate_zero_ratio`: logged steps in a row at 0, over what a schedule's end explains.

    That is the least of rows / 10 and rows / (0.1 count), if the zeros are no rounded values. A
    rate below a ten-thousandth of the highest before is one of 0.
    `learning_rate_zero_rows` counts them in any case: a rate that is 0 from the first step on, or
    one that is logged with four decimals, shows nothing alone.
    """

    quantity = "learning_rate"
    negligible = 1 / LEAST_SHARE
    gauges: ClassVar[Gauges] = {
        "learning_rate_zero_rows": "Last logged steps in a row with a learning rate of 0.",
        "learning_rate_zero_ratio": (
            "Logged steps in a row with a learning rate of 0 over those that a schedule explains."
        ),
    }

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges without their prefix `ldlm_detect_`; none before the rate was 0 for long."""
        if self._zeros.were_many:
            rows = self._zeros.rows
            explained = max(LEAST_ROWS, SCHEDULE_END * self._zeros.count)
            yield "learning_rate_zero_rows", rows
            yield "learning_rate_zero_ratio", rows / explained if self._zeros.is_exact() else 0.0


class GradientZeroDetector(ZeroDetector):
    """Logged steps in a row whose gradient norm is 0: `grad_norm_zero_rows` counts them.

    `grad_norm_zero_ratio` is that number over 100 (in a short log 60 % of it, 30 at least), or over
    three times the longest such row before, if the zeros are no rounded values. Some trainers log 0
    where they have no norm: a norm that was never above 0 shows nothing alone.
    """

    quantity = "grad_norm"
    gauges: ClassVar[Gauges] = {
        "grad_norm_zero_rows": "Last logged steps in a row with a gradient norm of 0.",
        "grad_norm_zero_ratio": (
            "Logged steps in a row with a gradient norm of 0 over those that chance explains."
        ),
    }

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges without their prefix `ldlm_detect_`; none before the norm was 0 for long."""
        if self._zeros.were_many:
            rows = self._zeros.rows
            share = max(LEAST_GRADIENT_ROWS, GRADIENT_SHARE * self._zeros.count)
            explained = max(min(GRADIENT_ROWS, share), REPEATED * self._zeros.longest)
            yield "grad_norm_zero_rows", rows
            yield "grad_norm_zero_ratio", rows / explained if self._zeros.is_exact() else 0.0
