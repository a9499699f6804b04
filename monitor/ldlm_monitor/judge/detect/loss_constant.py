"""Whether the loss repeats one value to the last digit more often than its resolution explains."""

import math
from array import array
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import groupby, pairwise
from operator import eq
from typing import ClassVar

from ldlm_monitor.judge.detect.detector import Detector, Gauges
from ldlm_monitor.judge.detect.window import Values, finite

WINDOW = 100
"""Logged steps in which equal values are counted. A choice: more resolve later, fewer need a larger
share of equal values."""
ROWS = 200
"""Rows of equal values kept, to compare with. A choice: more follow learning later, of fewer the
resolution is known badly."""
LEAST_EQUAL = 20
"""Least equal values needed. A choice: more alert later, fewer are chance in logs of 3 digits."""
KNOWN_ROWS = 10
"""Rows of other values needed to know spread and resolution. A choice: more delay their use."""
UNKNOWN_EQUAL = 200
"""Equal values needed before that: a loss of few digits can begin with many."""
EXACT_DIGITS, EXACT_EQUAL = 4, 60
"""The same of a loss of so many digits, which no update leaves as it is; some logs repeat it until
there is a new one. A choice: more miss short logs, fewer alert about such logs."""
FEW_UNITS = 100
"""A value of fewer units of the resolution has less than three digits: losses end at such values by
learning, as 0.01 of two decimals, or have a floor there, as hinge and policy losses at 0."""
ROW_FACTOR = 3
"""How many times the longest earlier row such a value needs. A choice: more alert later; fewer
alert about healthy rows, which grow late in training."""
CHANCE = 1e-9
"""Accepted probability that it is chance: about one false alarm in 10**9 logged steps."""


class ConstantDetector(Detector):
    """How often the loss is one value, against how often that happens by chance.

    The value is the most common of the last 100 logged steps, where it is c of n. Of the last 200
    rows of equal values, those of other values give the resolution r, the smallest difference
    between two values; the spread d, the distance of a quarter of them from the value; and the
    length h of nine in ten rows, since some logs repeat a value until there is a new one. By
    chance, a value falls on this one with the probability q = r / d, and

        loss_constant_ratio = min(c / (20 h), n / h * KL(c / n, q) / ln(1e9))

    with the Chernoff bound exp(-n KL) of a binomial's tail. If values are near each other in units
    of the resolution (bf16 has 8 bits, logs have few digits), q is 1 and nothing is found; a
    clamp or a constant in place of NaN is far from the values around it. A value of less than 100
    units, such as 0, must not be left again: c = n is its present row, q is at least the
    share of repeats, and the row must be three times the longest before. Until 10 rows of other
    values are known, the gauge is c / 200 over all rows, or c / 60 of four digits or more.

    `loss_constant_lead_ratio` says for how much of the run: of all values so far, the share of the
    value that has the majority, less that of all others, at least (Boyer and Moore 1981); 0
    without a majority, and for the value 0, which some losses are by their making.
    """

    quantity = "loss"
    gauges: ClassVar[Gauges] = {
        "loss_constant_ratio": "Losses of one value over the number that chance could explain.",
        "loss_constant_lead_ratio": "Share of one value in all losses less that of all others.",
    }

    def __init__(self) -> None:
        self._values = array("d")  # of each row
        self._lengths = array("q")
        self._leader, self._lead, self._count = 0.0, 0, 0

    def update(self, values: Values) -> None:
        """Add the next values; those that are not finite are ignored."""
        values = finite(values)
        self._vote(values)
        if values and self._values and values[0] == self._values[-1]:
            same = next((at for at, value in enumerate(values) if value != values[0]), len(values))
            self._lengths[-1] += same
            values = values[same:]
        if any(map(eq, values, values[1:])):
            for value, row in groupby(values):
                self._values.append(value)
                self._lengths.append(sum(1 for _ in row))
        else:  # as in most batches
            self._values.extend(values)
            self._lengths.extend([1] * len(values))
        del self._values[:-ROWS], self._lengths[:-ROWS]

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauge without its prefix `ldlm_detect_`, and its value, once there are values."""
        if self._values:
            yield "loss_constant_ratio", self._measure()
            yield "loss_constant_lead_ratio", self._lead / self._count if self._leader else 0.0

    def _vote(self, values: Values) -> None:
        self._count += len(values)
        self._lead += 2 * values.count(self._leader) - len(values)
        if self._lead < 0:
            self._leader, self._lead = values[-1], 0

    def _measure(self) -> float:
        present, equal, count = self._most_common()
        if equal < LEAST_EQUAL:
            return equal / LEAST_EQUAL
        rows = list(zip(self._values, self._lengths, strict=True))
        others = [(value, length) for value, length in rows if value != present]
        if len(others) < KNOWN_ROWS:
            count = sum(length for value, length in rows if value == present)
            is_exact = len(rows) == 1 and _digits(present) >= EXACT_DIGITS
            return count / (EXACT_EQUAL if is_exact else UNKNOWN_EQUAL)
        unit, distance = _scale(present, [value for value, _ in others])
        chance = min(1.0, unit / distance)
        hold = float(sorted(length for _, length in others)[len(others) * 9 // 10])
        if abs(present) < FEW_UNITS * unit:
            equal = count = self._lengths[-1] if self._values[-1] == present else 0
            before = self._lengths[:-1]
            hold = max(1.0, ROW_FACTOR * max(before) / LEAST_EQUAL)
            chance = max(chance, 1 - len(before) / sum(before))
        surprise = _surprise(equal / count, chance) if equal else 0.0
        return min(equal / hold / LEAST_EQUAL, count / hold * surprise / -math.log(CHANCE))

    def _most_common(self) -> tuple[float, int, int]:
        """The most common of the last values, how often it occurs, and in how many values."""
        lengths = self._lengths[-WINDOW:]
        counts = Counter(self._values[-WINDOW:])
        count = len(lengths)
        if max(lengths) > 1:
            counts, count = Counter(), 0
            for value, length in zip(reversed(self._values), reversed(lengths), strict=False):
                # The last row counts whole: a value can be held for longer than the window.
                used = length if not count else min(length, WINDOW - count)
                counts[value] += used
                count += used
                if count >= WINDOW:
                    break
        equal = max(counts.values())
        return next(value for value, times in counts.items() if times == equal), equal, count


def _digits(value: float) -> int:
    """Of its shortest decimal form, without zeros at both ends."""
    return len(Decimal(repr(value)).normalize().as_tuple().digits)


def _scale(present: float, others: Values) -> tuple[float, float]:
    """The smallest difference of two values, and the distance of a quarter of `others`."""
    unit = min(later - earlier for earlier, later in pairwise(sorted({present, *others})))
    return unit, sorted(abs(value - present) for value in others)[len(others) // 4]


def _surprise(share: float, chance: float) -> float:
    """The Kullback-Leibler divergence of two shares; 0 for a share that is not above `chance`."""
    if share <= chance:
        return 0.0
    rest = (1 - share) * math.log((1 - share) / (1 - chance)) if share < 1 else 0.0
    return share * math.log(share / chance) + rest
