"""Where the warm-up of a series ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

GROUP = 5
"""Values that are looked at together (MSER-5)."""
OUTLIER = 5.0
"""So many MADs from the median a value is taken to lie at most: a pause is no warm-up."""
NEAR = 1.05
"""Of cuts that are nearly as good the first is taken."""
WORTH = 0.5
"""The mean must become better known by so much, or nothing is left out."""


def steady_from(values: Sequence[float]) -> int:
    """How many of the first values are warm-up, at most half of them; values above 0.

    The marginal standard error rule: what is left out at the start makes the mean of the rest
    best known (K. P. White, M. J. Cobb and S. C. Spratt, 2000), on logarithms.
    """
    logs = [math.log(value) for value in values]
    center = median(logs)
    reach = OUTLIER * median(abs(value - center) for value in logs)
    if reach == 0:
        return 0
    held = [min(max(value, center - reach), center + reach) for value in logs]
    groups = [fmean(held[at : at + GROUP]) for at in range(0, len(held) - GROUP + 1, GROUP)]
    if len(groups) < 4:
        return 0
    total = squares = 0.0
    errors: dict[int, float] = {}
    for left in range(len(groups) - 1, -1, -1):
        total += groups[left]
        squares += groups[left] ** 2
        count = len(groups) - left
        if left <= len(groups) // 2:
            errors[left] = max(squares - total * total / count, 0.0) / count**2
    least = min(errors.values())
    best = min(left for left, error in errors.items() if error <= NEAR * least)
    return best * GROUP if errors[best] < WORTH * errors[0] else 0
