"""When a level changed: an online change-point detector."""

from __future__ import annotations

import math
from array import array

from ldlm_monitor.detect.window import Groups, Values, median, spread

LEARNED = 100
"""Values from which a level and its noise are learned."""
DRIFT = 1.25
LIMIT = 12.0
CLIP = 3.0
FINEST = 0.02
"""Values that vary by less than 2 % are taken to vary by that."""


class ChangePoint:
    """A two-sided CUSUM on values above 0, which outliers cannot carry (Page 1954).

    With m and s the median and 1.4826 MAD (at least 0.02) of the logarithms of the first
    100 values, and z = (ln(x) - m) / s clipped to [-3, 3], the sums

        up = max(0, up + z - 1.25)      down = max(0, down - z - 1.25)

    tell a change above 12. A shift by 3 s or more is found after 7 values, one by 2 s
    after 16, by 1.85 s after 20. Normal noise passes 12 once in about e^30 values
    (Siegmund 1985); an outlier counts 1.75, so it takes seven in a row. After a change the
    level is learned anew from the 100 values that follow.

    `ratio` is the level after the last change over that before it, 1 without a change.
    """

    __slots__ = ("_above", "_below", "_level", "_noise", "_unlearned", "changes", "ratio")

    def __init__(self) -> None:
        self.ratio = 1.0
        self.changes = 0
        self._unlearned = Groups(LEARNED)
        self._level = self._noise = 0.0
        self._above = _Excursion()
        self._below = _Excursion()

    def take(self, values: Values) -> None:
        """The next values, finite and above 0."""
        for value in map(math.log, values):
            if self._noise:
                self._watch(value)
            else:
                self._learn(value)

    def _learn(self, value: float) -> None:
        for group in self._unlearned.extend((value,)):
            self._level = median(group)
            self._noise = max(spread(group, self._level), FINEST)

    def _watch(self, value: float) -> None:
        score = min(max((value - self._level) / self._noise, -CLIP), CLIP)
        for excursion, step in ((self._above, score - DRIFT), (self._below, -score - DRIFT)):
            excursion.add(value, step)
            if excursion.total > LIMIT:
                self.ratio = math.exp(median(excursion.values) - self._level)
                self.changes += 1
                self._noise = 0.0
                self._above, self._below = _Excursion(), _Excursion()
                return


class _Excursion:
    """A sum that never falls below 0, and the values since it left 0."""

    __slots__ = ("total", "values")

    def __init__(self) -> None:
        self.total = 0.0
        self.values = array("d")

    def add(self, value: float, step: float) -> None:
        self.total = max(0.0, self.total + step)
        if self.total:
            self.values.append(value)
        elif self.values:
            self.values = array("d")
