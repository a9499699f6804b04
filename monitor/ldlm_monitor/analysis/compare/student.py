"""Student's t distribution for whole degrees of freedom, in closed form."""

import math
from functools import lru_cache


def inside(t: float, freedom: int) -> float:
    """P(|T| <= t) with `freedom` >= 1 degrees of freedom.

    The finite series of Abramowitz and Stegun, Handbook of Mathematical Functions (1964),
    26.7.3 and 26.7.4.
    """
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    if freedom == 1:
        return 2 * angle / math.pi
    term = cosine if odd else 1.0
    total = term
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@lru_cache(maxsize=1024)
def quantile(confidence: float, freedom: int) -> float:
    """The t within which a share `confidence` of the distribution lies, by bisection."""
    low, high = 0.0, 2.0
    while inside(high, freedom) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if inside(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return high
