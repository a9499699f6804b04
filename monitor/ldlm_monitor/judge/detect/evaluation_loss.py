"""The evaluation loss against its lowest value: whether the model fits the training data alone."""

import math
from array import array
from collections.abc import Iterator
from typing import ClassVar

from ldlm_monitor.judge.detect.detector import Detector, Gauges
from ldlm_monitor.judge.detect.window import MAD_SIGMA, Values, finite, median

LAST = 3
"""Least evaluations that must all be above the lowest. A choice: fewer are noise."""
PART = 3
"""Of more evaluations, the last third: the lowest of many is far below its neighbours by chance.
Of 720 simulated runs of 8, 20 or 60 evaluations whose noise is 0.3, 1, 2 or 5 % of the loss, two
alarm where none overfits; where each does, all are found with up to 2 %, 57 to 82 % with 5 %."""
LEAST = 5
"""Evaluations needed: three differences of differences give a first idea of the noise."""
KEPT = 200
"""Last evaluations that are compared. A choice: more follow a change of their noise later."""
LEAST_RISE = 0.03
"""Least rise as a share of the lowest loss. A choice: less rings where nobody would act."""
NOISE_FACTOR = 2.0
"""Least rise in units of the noise."""


class EvaluationDetector(Detector):
    """`eval_loss_rise_ratio`: how far the last evaluations are all above the lowest one.

    With e the lowest of the last third of evaluations, and at least of three, b the lowest of
    all, and s the noise of one evaluation: the gauge is (e - b) / max(2 s, 0.03 |b|). s is 1.4826
    median absolute second differences over the root of 6, the deviation of a second difference
    of independent values: what falls or rises steadily is no noise.
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
        """The gauges without their prefix `ldlm_detect_`, once there are five evaluations."""
        if len(self._values) < LEAST:
            return
        last = max(LAST, len(self._values) // PART)
        rise = min(self._values[-last:]) - self._lowest
        usual = max(NOISE_FACTOR * _noise(self._values), LEAST_RISE * abs(self._lowest))
        yield "eval_loss_rise_ratio", rise / max(usual, math.ulp(1.0))
        yield "eval_loss_rising_evaluations", self._since


def _noise(values: Values) -> float:
    bends = [abs(first - 2 * second + third) for first, second, third in _triples(values)]
    return MAD_SIGMA * median(bends) / math.sqrt(6)


def _triples(values: Values) -> Iterator[tuple[float, float, float]]:
    yield from zip(values, values[1:], values[2:], strict=False)
