"""The loss against its own past: a spike that passes, a rise that stays, a trend, a plateau."""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

from ldlm_monitor.judge.detect.detector import Detector, Gauges
from ldlm_monitor.judge.detect.window import (
    ComparedValues,
    Groups,
    RecentValues,
    Values,
    finite,
    median,
    middle_of,
    pieces,
    spread_of,
)

LOSS_WINDOW = 500
"""Logged steps that a value is compared with. A choice: the median of more lags behind learning,
that of fewer follows a spike."""
RECENT = 20
"""Last logged steps, which are compared with those before. A choice: more find a change later, a
bad batch moves the median of fewer."""
LEAST = 30
"""Steps needed before the recent ones. A choice: more delay gauges, fewer give a noisy spread."""
HALVES = 50
"""Logged steps whose halves are compared, a choice: more show a rise later, fewer compare noise."""
GROUP = 40
"""Logged steps of a group. A choice: more find a plateau later; medians of fewer are correlated, as
neighbouring losses are, but Mann-Kendall's test assumes independent values."""
TREND_GROUPS = 25
"""Groups of Mann-Kendall's test, which is over 1000 logged steps. A choice: more find a plateau
later, fewer miss a slow trend."""
LEVEL = 100
"""Logged steps whose median is a level. A choice: more delay it, a spike can be half of fewer."""
UNSURE = 1.4
"""Factor of the noise of the first steps, which 20 values give with an error of a quarter. Without
it, 1 in 150 simulated runs alarms whose loss scatters by half of itself; with it, none in 300."""
PEAK_LEAST = 0.5
"""Lowest earlier loss for `loss_peak_ratio`. A choice: a higher one misses rises of small
losses; below this one, healthy losses grow by factors, as in reinforcement learning from 0."""
PEAK_SURE = 5.0
"""An earlier loss this high counts from the first step on: such a cross-entropy (a random choice
among 150 tokens) is that of an untrained model, and does not rise by chance."""
PEAK_KNOWN = 10
"""Values before a loss below `PEAK_SURE` counts. A choice: more delay it, first losses jump, and
the highest of fewer is soon passed three times over."""
FINEST = 0.01
"""Least noise as a share of the loss: the last of the 3 digits that logs print is up to 1 %."""
LEARNED = 0.01
"""Share of the first level below which a loss has no lower level: nearer to 0, it rises by factors
from batch to batch. A choice: more misses rises of what was learned, less reports such batches."""
JUMP = 0.15
"""Least spike as a share of the loss. A choice: more misses spikes, less reports harmless ones."""
SPIKE_SIGMA = 4
"""Least spike in units of the noise s: normal noise passes 4 s in one value of 30,000."""


class LossDetector(Detector):
    """The loss of one rank against its past, as these gauges.

    With m and s the median and 1.4826 median absolute deviations (at least 0.01 |m|) of the up to
    480 logged steps before the last 20:

    - `loss_zscore`: (last - m) / s.
    - `loss_spike_ratio`: how far two neighbouring losses of the last 20 steps were both above
      m, over max(highest - m, 4 s, 0.15 |m|), with the highest of the up to 480 losses. One bad
      batch is no spike, nor is a value that noise reached before. The highest since the last
      update, if two neighbours were above all losses before.
    - `loss_peak_ratio`: the highest ratio of a loss of the last 20 steps to the highest loss
      before it. It finds a divergence in the first steps, before m and s are known.
    - `loss_rise_ratio`, `loss_rise_zscore`: the median of the last 20 steps against the lowest
      median of 100 consecutive steps, or of 20 among the first 100, as their ratio (of levels of at
      least 1 % of the first median) and as their difference over the s of those 100, or of the
      first up to those 20. Of losses above 0 the z-score is that of the logarithms if it is lower:
      near 0, batches differ by factors. A divergence raises them for good; a spike, or the jump of
      the first updates, does not.
    - `loss_trend_ratio`: mean of the second half of the last 50 steps over that of the first.
    - `loss_trend_zscore`: Mann-Kendall's Z of the medians of the last 25 groups of 40 steps (Mann
      1945, Kendall 1975); `loss_slope_ratio`: relative change by their Theil-Sen slope (Sen 1968).

    The peak, rise and trend ratios exist for losses above 0 only; differences over the noise do for
    all, as a negative loss (of a density or a policy) is no fault.
    """

    quantity = "loss"
    gauges: ClassVar[Gauges] = {
        "loss_zscore": "The last loss above the median of the losses before, in robust deviations.",
        "loss_spike_ratio": "Height of two high losses in a row over the usual range before.",
        "loss_peak_ratio": "The highest recent loss over the highest before it.",
        "loss_rise_ratio": "The recent level of the loss over its lowest level.",
        "loss_rise_zscore": "That rise in robust deviations of single losses.",
        "loss_trend_ratio": "Mean loss of the last 25 logged steps over the mean of the 25 before.",
        "loss_trend_zscore": "Mann-Kendall Z of the last 1000 logged losses.",
        "loss_slope_ratio": "Theil-Sen change of the loss over the last 1000 logged steps.",
    }

    def __init__(self) -> None:
        self._window = ComparedValues(LOSS_WINDOW, RECENT)
        self._groups = Groups(GROUP)
        self._levels = RecentValues(TREND_GROUPS)
        self._early = Groups(RECENT)
        self._first = array("d")
        self._hundreds = Groups(LEVEL)
        self._lowest = math.inf
        self._start: float | None = None
        self._noise = 0.0
        self._factor = 0.0  # the noise of the logarithms
        self._highest = -math.inf
        self._trend = (0, 0.0, 0.0)
        self._spike = 0.0
        self._usual = (0.0, 0.0)  # the median of the losses before the recent ones, and their noise

    def update(self, values: Values) -> None:
        """Add the next values; those that are not finite are ignored."""
        self._spike = 0.0
        values, before = finite(values), self._window.before
        near = [*self._window.recent[-1:], *values]
        # Where no two neighbours are above all before, none of them can be a spike.
        calm = len(before) >= LEAST and max(map(min, near, near[1:]), default=0.0) <= before[-1]
        for piece in pieces(values, max(len(values), 1) if calm else RECENT - 1, LOSS_WINDOW):
            self._add(piece)
            if len(self._window.before) >= LEAST:
                middle = middle_of(self._window.before)
                self._usual = middle, _noise(self._window.before, middle)
                self._spike = max(self._spike, self._jump(*self._usual))

    def _add(self, values: Values) -> None:
        # `_highest` is the highest value of all steps before the recent ones.
        first = values[: max(0, LEVEL - self._window.count)]
        older = [*self._window.recent, *values][:-RECENT]
        self._highest = max(self._highest, max(older, default=-math.inf))
        self._window.extend(values)
        self._levels.extend([median(group) for group in self._groups.extend(values)])
        for group in self._early.extend(first):
            self._first.extend(group)
            if self._start is None:
                self._start = median(group)
            if (level := median(group)) < self._lowest:
                self._set_lowest(level, sorted(self._first), UNSURE)
        for hundred in map(sorted, self._hundreds.extend(values)):
            if (level := middle_of(hundred)) < self._lowest:
                self._set_lowest(level, hundred, 1.0)

    def _set_lowest(self, level: float, ranked: Values, unsure: float) -> None:
        """Store the lowest level and the noise of the sorted values around it."""
        self._lowest, self._noise = level, unsure * _noise(ranked, middle_of(ranked))
        if level > 0:
            logarithms = [math.log(value) for value in ranked if value > 0]
            scatter = spread_of(logarithms, middle_of(logarithms))
            self._factor = unsure * max(scatter, FINEST)

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges with enough values: each name without `ldlm_detect_`, and its value."""
        values = self._window.values
        if not values:
            return
        before, recent = self._window.before, self._window.recent
        if (peak := self._peak(recent)) is not None:
            yield "loss_peak_ratio", peak
        if len(before) >= LEAST:
            middle, noise = self._usual
            yield "loss_zscore", (values[-1] - middle) / noise
            yield "loss_spike_ratio", self._spike
        yield from self._rise(recent)
        yield from self._trends(values)

    def _jump(self, middle: float, noise: float) -> float:
        """How far up two neighbours of the recent losses were, over what is usual."""
        highest = self._window.before[-1]
        usual = max(highest - middle, SPIKE_SIGMA * noise, JUMP * abs(middle))
        twice = max(min(pair) for pair in pairwise(self._window.recent))
        return (twice - middle) / usual

    def _peak(self, recent: Values) -> float | None:
        found = None
        highest = self._highest
        before = self._window.count - len(recent)
        if before >= PEAK_KNOWN and highest >= max(PEAK_LEAST, *recent):  # as mostly
            return max(0.0, max(recent) / highest)
        for index, value in enumerate(recent):
            least = PEAK_LEAST if before + index >= PEAK_KNOWN else PEAK_SURE
            if highest >= least:
                found = max(found or 0.0, value / highest)
            highest = max(highest, value)
        return found

    def _rise(self, recent: Values) -> Iterator[tuple[str, float]]:
        if self._lowest < math.inf:
            level = median(recent)
            zscore = (level - self._lowest) / self._noise
            if self._lowest > 0:
                least = LEARNED * (self._start or 0.0)
                ratio = max(level, least) / max(self._lowest, least)
                yield "loss_rise_ratio", ratio
                if level > self._lowest:
                    zscore = min(zscore, math.log(level / self._lowest) / self._factor)
            yield "loss_rise_zscore", zscore

    def _trends(self, values: Values) -> Iterator[tuple[str, float]]:
        if len(values) >= HALVES:
            half = HALVES // 2
            first, second = sum(values[-HALVES:-half]), sum(values[-half:])
            if first > 0 and second > 0:
                yield "loss_trend_ratio", second / first
        if len(self._levels) == TREND_GROUPS:
            if self._trend[0] != self._levels.count:
                self._trend = (self._levels.count, *trend(self._levels.values))
            yield "loss_trend_zscore", self._trend[1]
            yield "loss_slope_ratio", self._trend[2]


def trend(values: Values) -> tuple[float, float]:
    """Z of the Mann-Kendall test of two or more values (below -1.64 they fall, 95 % sure); and
    their Theil-Sen slope, times their count, over their absolute median."""
    count = len(values)
    slopes = sorted(
        (later - earlier) / apart
        for apart in range(1, count)
        for earlier, later in zip(values, values[apart:], strict=False)
    )
    score = len(slopes) - bisect_right(slopes, 0.0) - bisect_left(slopes, 0.0)  # rises less falls
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    zscore = (score - (score > 0) + (score < 0)) / deviation
    return zscore, middle_of(slopes) * count / max(abs(median(values)), math.ulp(1.0))


def _noise(ranked: Values, middle: float) -> float:
    """The deviation of sorted values, and at least an ulp, as callers divide by it."""
    return max(spread_of(ranked, middle), FINEST * abs(middle), math.ulp(1.0))
