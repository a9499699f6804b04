"""Whether the loss ever left the level of a model that has learned nothing."""

import math
from collections.abc import Iterator
from typing import ClassVar

from ldlm_monitor.judge.detect.detector import Detector, Gauges
from ldlm_monitor.judge.detect.window import Groups, RecentValues, Values, finite, median, spread

SETTLED = 20
"""First logged steps that are left out: the first updates of a wrong scale move the loss."""
LEVEL = 100
"""Logged steps whose median is a level. A choice: more find it later, the noise moves fewer."""
LEAST = 600
"""Logged steps without a fall. A choice: more find it later, fewer are the first of a warm-up."""
FALL = 0.01
"""A level that differs by so much has left the start. The median of 100 values with a spread of
`QUIET` errs by a quarter of it; a warm-up from 0 lets a loss fall by more before `LEAST`."""
UNTRAINED = (5.0, 12.7)
"""Cross-entropies of a guess among 150 to 320,000 classes: no trained model has them, and more have
only sums of losses."""
CLASSES = (*range(2, 11), 20, 100)
"""Numbers of classes, of which a guess has the cross-entropy ln(n): 0.693, 1.099, ... A choice:
of more numbers one is near to any loss."""
NEAR = 0.001
"""Greatest distance from ln(n), as a share of it: a choice; with a larger one other flat losses are
near to one of `CLASSES` by chance."""
QUIET = 0.02
"""Greatest spread, as a share of the level: a guess has the same loss for all data, but for what
its first weights make of it."""


class StartDetector(Detector):
    """`loss_start_ratio`: logged steps at the level of a guess, over those that learning takes.

    A guess among n classes has the cross-entropy ln(n). The level is the median of the logged steps
    21 to 120; it is one of a guess if it lies in `UNTRAINED`, or is ln(n) of a usual n, with hardly
    any spread. The gauge is count / 600 until the median of 100 steps differs by 1 %; then, or
    where the level is another, there is none.
    """

    quantity = "loss"
    gauges: ClassVar[Gauges] = {
        "loss_start_ratio": "Logged steps at the loss of a guess over those that learning takes.",
    }

    def __init__(self) -> None:
        self._first = RecentValues(SETTLED + LEVEL)
        self._levels = Groups(LEVEL)
        self._level: float | None = None
        self._count = 0
        self._left = False

    def update(self, values: Values) -> None:
        """Add the next values; those that are not finite are ignored."""
        if self._left:
            return
        values = finite(values)
        self._count += len(values)
        if self._level is None:
            rest = SETTLED + LEVEL - len(self._first)
            self._first.extend(values[:rest])
            if len(self._first) < SETTLED + LEVEL:
                return
            values = values[rest:]
            first = self._first.values[SETTLED:]
            self._level = median(first)
            self._left = not _is_a_guess(self._level, spread(first, self._level))
        for hundred in self._levels.extend(values):
            self._left = self._left or abs(median(hundred) / self._level - 1) > FALL

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauge without its prefix `ldlm_detect_`, and its value, while it is at its start."""
        if self._level is not None and not self._left:
            yield "loss_start_ratio", self._count / LEAST


def _is_a_guess(level: float, noise: float) -> bool:
    if noise > QUIET * level:
        return False
    guesses = (math.log(classes) for classes in CLASSES)
    low, high = UNTRAINED
    return low <= level <= high or any(abs(level / each - 1) < NEAR for each in guesses)
