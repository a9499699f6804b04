"""A loss that does not change any more, to the last digit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from operator import eq

from ldlm_monitor.detect.window import Values

LEAST = 20
"""Fewer equal values in a row are no sign."""
UNKNOWN = 200
"""So many are needed before `CHANGES` changes have shown how often this run repeats itself."""
CHANGES = 20
CHANCE = 1e-9
"""How unlikely a row of equal values must be."""
ROWS = 3
"""And how many times longer than any earlier one."""


class ConstantDetector:
    """How long the loss has been one value, against how long that happens by itself.

    `loss_constant_ratio` = equal values in a row / needed, with p the share of values
    that equalled the one before, in all that went before this row:

        needed = max(20, 3 * longest row so far, ln(1e-9) / ln(p))

    and 200 before 20 changes were seen. A loss in bf16 has 8 significant bits: late in
    training many values are equal (p = 0.5 needs 30, p = 0.9 needs 197). A trainer that
    shows a constant in place of NaN goes far beyond.
    """

    __slots__ = ("_changes", "_equal", "_longest", "_row", "_value")

    def __init__(self) -> None:
        self._value = math.nan
        self._row = 0
        self._longest = 0
        self._changes = 0
        self._equal = 0

    def take(self, values: Values) -> None:
        """The next values. What is not finite ends a row: it is told by other means."""
        # Most of what comes has no two equal neighbours: one quick look says so.
        if values and values[0] != self._value and not any(map(eq, values, values[1:])):
            self._end_row()
            self._changes += len(values) - 1
            self._longest = max(self._longest, 1 if len(values) > 1 else 0)
            self._value, self._row = values[-1], 1
            return
        for value, row in groupby(values):
            if value != self._value:
                self._end_row()
                self._value, self._row = value, 0
            self._row += sum(1 for _ in row)

    def measures(self) -> Iterator[tuple[str, float]]:
        """Names without their prefix, and values."""
        if self._row and math.isfinite(self._value):
            yield "loss_constant_ratio", self._row / self._needed()

    def _end_row(self) -> None:
        if self._row:
            self._changes += 1
            self._equal += self._row - 1
            self._longest = max(self._longest, self._row)

    def _needed(self) -> float:
        if self._changes < CHANGES:
            return max(UNKNOWN, ROWS * self._longest)
        repeats = (self._equal + 1) / (self._equal + self._changes + 2)
        return max(LEAST, ROWS * self._longest, math.log(CHANCE) / math.log(repeats))
