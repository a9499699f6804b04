"""Reinforcement learning: whether a policy's rewards, its entropy or its distance collapse."""

import math
from array import array
from collections.abc import Iterator
from typing import ClassVar

from ldlm_monitor.judge.detect.detector import Detector, Gauges
from ldlm_monitor.judge.detect.window import ComparedValues, Values, finite, median, middle_of
from ldlm_monitor.judge.detect.zero_rows import ZeroDetector

RECENT = 20
"""Last logged steps, whose median is compared. A choice: more alert later, fewer follow a batch."""
BEFORE = 480
"""Logged steps before them. A choice: the median of more lags behind learning."""
LEAST = 30
"""Steps needed before the recent ones, as for gradient norms."""


class RewardSpreadDetector(ZeroDetector):
    """`reward_std_zero_rows`: last logged steps in a row at which all rewards were equal.

    Group-relative advantages are 0 then, whatever the reward: nothing is learned of these steps.
    """

    quantity = "reward_std"
    gauges: ClassVar[Gauges] = {
        "reward_std_zero_rows": "Last logged steps in a row whose rewards were all equal.",
    }

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauge without its prefix `ldlm_detect_`; none before rewards were equal for long."""
        if self._zeros.were_many:
            yield "reward_std_zero_rows", self._zeros.rows


class EntropyDetector(Detector):
    """`entropy_ratio`: the median of the last 20 entropies over that of the first 20.

    That of a distribution over numbers, as of continuous actions, can be below 0: then a ratio
    means nothing, and there is none.
    """

    quantity = "entropy"
    gauges: ClassVar[Gauges] = {
        "entropy_ratio": "The recent entropy of the policy over that of the first logged steps.",
    }

    def __init__(self) -> None:
        self._first = array("d")
        self._lowest = math.inf
        self._window = ComparedValues(2 * RECENT, RECENT)

    def update(self, values: Values) -> None:
        """Add the next entropies; those that are not finite are ignored."""
        values = finite(values)
        self._first.extend(values[: RECENT - len(self._first)])
        self._lowest = min(self._lowest, *values, math.inf)
        self._window.extend(values)

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauge without its prefix `ldlm_detect_`, once 40 entropies are known."""
        if self._window.count < 2 * RECENT or self._lowest < 0:
            return
        if (start := median(self._first)) > 0:
            yield "entropy_ratio", median(self._window.recent) / start


class DriftDetector(Detector):
    """`kl_rise_ratio`: the median of the last 20 KL divergences over that of the 480 before."""

    quantity = "kl"
    gauges: ClassVar[Gauges] = {
        "kl_rise_ratio": "The recent KL divergence from the reference over its own median.",
    }

    def __init__(self) -> None:
        self._window = ComparedValues(BEFORE + RECENT, RECENT)

    def update(self, values: Values) -> None:
        """Add the next divergences; those that are not finite are ignored."""
        self._window.extend(finite(values))

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauge without its prefix `ldlm_detect_`, once 30 steps precede the recent ones."""
        before = self._window.before
        if len(before) >= LEAST and (usual := middle_of(before)) > 0:
            yield "kl_rise_ratio", median(self._window.recent) / usual
