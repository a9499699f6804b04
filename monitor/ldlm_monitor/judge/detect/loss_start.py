"""Whether the loss ever left its start, and whether that is the level of a guess."""

import math
from array import array
from collections.abc import Iterator
from typing import ClassVar

from ldlm_monitor.judge.detect.detector import Detector, Gauges
from ldlm_monitor.judge.detect.window import Groups, RecentValues, Values, finite, median, spread

SETTLED = 20
"""First logged steps that are left out: the first updates of a wrong scale move the loss."""
GROUP = 20
"""Logged steps whose median is compared with the level. A choice: more find a fall later, the noise
moves fewer."""
LEVEL = 100
"""Most logged steps whose median is the level. A choice: of more, a slow fall is in the level."""
FALL = 0.01
"""A median that differs by so much from the level, and by `SURE` of its errors, has left it."""
SURE = 2.0
"""Standard errors of a median that are no difference: one in twenty is larger by chance."""
MEDIAN_ERROR = 1.25
"""Standard error of the median of n normal values, times the root of n, over their deviation."""
UNTRAINED = (5.0, 12.7)
"""Cross-entropies of a guess among 150 to 320,000 classes: no trained model has them, and more have
only sums of losses."""
CLASSES = (*range(2, 11), 20, 100)
"""Numbers of classes, of which a guess has the cross-entropy ln(n): 0.693, 1.099, ... A choice:
of more numbers one is near to any loss."""
NEAR = 0.001
"""Greatest distance from ln(n), as a share of it, and beyond it the error of the level, up to as
much again: a choice; with a larger one other flat losses are near to one of `CLASSES` by chance."""
QUIET = 0.02
"""Greatest spread, as a share of the level: a guess has the same loss for all data, but for what
its first weights make of it."""

SHORT = 600
"""First logged steps of which thirds are compared. A choice: more cost memory in every run."""
LEAST_SHORT = 30
"""Of fewer, ten in each third, nothing is said: a choice."""
UNMOVED = 2.6
"""Standard errors by which two means of the same loss differ in one log of a hundred."""


class StartDetector(Detector):
    """Logged steps for which the loss stands where it began: `loss_flat_rows` counts them.

    The level is the median of the logged steps 21 to 120, or of those that there are, once its
    standard error is below a quarter of 1 %. They are 0 once the median of 20 steps differs by 1 %
    and two of its errors. `loss_start_rows` is the same count where the level is that of a guess,
    which has the cross-entropy ln(n) among n classes: it lies in `UNTRAINED`, or is ln(n) of a
    usual n, with hardly any spread. `loss_unmoved_rows` counts all logged steps while the means of
    the first and the last third do not differ by more than their noise: that shows something beside
    a rate or a gradient of 0, and nothing alone.
    """

    quantity = "loss"
    gauges: ClassVar[Gauges] = {
        "loss_flat_rows": "Logged steps for which the loss stands where it began.",
        "loss_start_rows": "Logged steps for which the loss stands at the level of a guess.",
        "loss_unmoved_rows": "Logged steps, while the loss neither fell nor rose beyond its noise.",
    }

    def __init__(self) -> None:
        self._first = RecentValues(SETTLED + LEVEL)
        self._short = array("d")
        self._groups = Groups(GROUP)
        self._medians: list[float] = []
        self._level = self._noise = 0.0
        self._count = self._total = 0
        self._left = self._stood = self._guessed = False

    def update(self, values: Values) -> None:
        """Add the next values; those that are not finite are ignored."""
        values = finite(values)
        self._total += len(values)
        self._short.extend(values[: SHORT - len(self._short)])
        if self._left:
            return
        rest = values[max(SETTLED - self._count, 0) :]
        self._count += len(values)
        grows = len(self._first) < SETTLED + LEVEL
        self._first.extend(values[: SETTLED + LEVEL - len(self._first)])
        self._medians += map(median, self._groups.extend(rest))
        if not self._medians:
            return
        if grows:
            first = self._first.values[SETTLED:]
            self._level = median(first)
            self._noise = spread(first, self._level) / max(abs(self._level), math.ulp(1.0))
        if self._level <= 0:
            self._left = len(self._first) == SETTLED + LEVEL
            return
        # A level of few steps is not yet sure, so what was compared with it is compared again.
        limit = FALL + SURE * _error(self._noise, GROUP)
        self._left = any(abs(each / self._level - 1) > limit for each in self._medians)
        if not grows:
            self._medians = self._medians[-1:]

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges without their prefix `ldlm_detect_`, and their values, while it is there."""
        known = len(self._first) - SETTLED
        rows = 0 if self._left else self._count
        if rows and self._medians and self._level > 0:
            error = _error(self._noise, known)
            self._stood = error <= FALL / 4
            self._guessed = self._stood and _is_a_guess(self._level, self._noise, SURE * error)
        if self._stood:
            yield "loss_flat_rows", rows
        if self._guessed:
            yield "loss_start_rows", rows
        if self._total >= LEAST_SHORT and not self._left and _is_unmoved(self._short):
            yield "loss_unmoved_rows", self._total


def _is_unmoved(values: Values) -> bool:
    """Whether the means of the first and the last third differ by no more than their noise."""
    count, largest = len(values) // 3, max(map(abs, values)) or 1.0
    values = [value / largest for value in values]  # whose squares are floats
    (first, spread_1), (last, spread_2) = map(_mean, (values[:count], values[-count:]))
    return abs(first - last) <= UNMOVED * math.sqrt((spread_1 + spread_2) / count)


def _mean(values: Values) -> tuple[float, float]:
    """The mean and the variance of values."""
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _error(noise: float, count: int) -> float:
    return MEDIAN_ERROR * noise / math.sqrt(count)


def _is_a_guess(level: float, noise: float, error: float) -> bool:
    low, high = UNTRAINED
    guesses = (math.log(classes) for classes in CLASSES)
    far = NEAR + min(error, NEAR)
    is_near = low <= level <= high or any(abs(level / each - 1) < far for each in guesses)
    return noise <= QUIET and is_near
