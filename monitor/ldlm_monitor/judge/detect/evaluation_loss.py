"""The evaluation loss against its lowest value: whether the model fits the training data alone."""

import math
from array import array
from collections.abc import Iterator
from typing import ClassVar

from ldlm_monitor.judge.detect.detector import Detector, Gauges
from ldlm_monitor.judge.detect.window import MAD_SIGMA, Values, finite, median

LAST = 3
"""Least evaluations of a level. A choice: the median of fewer is noise."""
LAST_PART, LOWEST_PART = 3, 4
"""Of more evaluations, the last level is that of a third, the lowest one of a quarter. Of 750
simulated runs of 8 to 60 evaluations whose noise is 0.3 to 10 % of the loss, none alarms where none
overfits. Where the loss would rise by 30 or 80 % in the length of a run, a third and three quarters
are found with a noise of 2 %, a fifth and 70 % with 5 %."""
KEPT = 200
"""Last evaluations that are compared. A choice: more follow a change of their noise later."""
LEAST_RISE = 0.03
"""Least rise as a share of the lowest level. A choice: less rings where nobody would act."""
SURE = 2.5
"""Least rise in standard errors of the two medians: the lowest of many is low by chance, too."""
MEDIAN_ERROR = 1.25
"""Standard error of the median of n normal values, times the root of n, over their deviation."""


class EvaluationDetector(Detector):
    """`eval_loss_rise_ratio`: how far the level of the last evaluations is above the lowest one.

    With e the median of the last third of evaluations, b the lowest median of a quarter of them in
    a row before these (of three at least), and d the standard error of e - b: the gauge is
    (e - b) / max(2.5 d, 0.03 |b|). d is made of the noise of one evaluation: 1.4826 median absolute
    second differences over the root of 6, the deviation of a second difference of independent
    values: what falls or rises steadily is no noise.
    `eval_loss_rising_evaluations`: how many evaluations followed the lowest one.
    """

    quantity = "eval_loss"
    gauges: ClassVar[Gauges] = {
        "eval_loss_rise_ratio": "Rise of the evaluation loss above its lowest, over its noise.",
        "eval_loss_rising_evaluations": "Evaluations since the one with the lowest loss.",
    }

    def __init__(self) -> None:
        self._values = array("d")
        self._lowest = math.inf
        self._since = 0

    def update(self, values: Values) -> None:
        """Add the next evaluations; those that are not finite are ignored."""
        for value in finite(values):
            self._since += 1
            if value < self._lowest:
                self._lowest, self._since = value, 0
            self._values.append(value)
        del self._values[:-KEPT]

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges without their prefix `ldlm_detect_`, once there are six evaluations."""
        values, count = self._values, len(self._values)
        last, part = max(LAST, count // LAST_PART), max(LAST, count // LOWEST_PART)
        if count < last + part:
            return
        before = count - last - part + 1
        lowest = min(median(values[start : start + part]) for start in range(before))
        rise = median(values[-last:]) - lowest
        error = MEDIAN_ERROR * _noise(values) * math.sqrt(1 / last + 1 / part)
        usual = max(SURE * error, LEAST_RISE * abs(lowest))
        yield "eval_loss_rise_ratio", rise / max(usual, math.ulp(1.0))
        yield "eval_loss_rising_evaluations", self._since


def _noise(values: Values) -> float:
    bends = [abs(first - 2 * second + third) for first, second, third in _triples(values)]
    return MAD_SIGMA * median(bends) / math.sqrt(6)


def _triples(values: Values) -> Iterator[tuple[float, float, float]]:
    yield from zip(values, values[1:], values[2:], strict=False)
