"""Round values along an axis, and their labels: one choice for charts of screen and reports."""

import math
from collections.abc import Sequence

from ldlm_monitor.base.text.format import number

_ROUND = (1.0, 2.0, 5.0, 10.0)  # multiples of a power of ten that people read at a glance
LABEL_CELLS = 8
"""Characters beside an axis, such as `-1.2e-05`: of a longer label the exponent stands apart."""
_CLOCK = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between ticks of a time axis, so that labels are whole units."""


def ticks(low: float, high: float, about: int) -> list[float]:
    """About so many round values from `low` to `high`, at equal distances."""
    if not (high > low and about > 0 and math.isfinite(high - low)):
        return []
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    nearest = sorted(_ROUND, key=lambda each: abs(math.log(each * power / rough)))
    found = [_multiples(low, high, each * power) for each in nearest]
    return next((each for each in found if len(each) > 1), found[0])  # one alone gives no scale


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Logarithms of round values between the logarithms `low` and `high` (base 10)."""
    decades = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    if len(decades) >= 3:
        stride = -(-len(decades) // max(most, 1))
        return [float(each) for each in decades[::stride]]
    values = (each * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1)
              for each in (1, 2, 5))  # fmt: skip
    return [math.log10(value) for value in values if low <= math.log10(value) <= high]


def time_ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` times in seconds that are whole minutes, hours or days."""
    rough = (high - low) / max(most, 1)
    by = next((each for each in _CLOCK if each >= rough), None)
    return _multiples(low, high, by) if by else ticks(low, high, most)


def _multiples(low: float, high: float, by: float) -> list[float]:
    first, last = math.ceil(low / by - 1e-9), math.floor(high / by + 1e-9)
    return [count * by for count in range(first, last + 1)]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Labels with as few digits, from 4 to a float's 15, as keep them different."""
    for digits in range(4, 16):
        labels = [_label(value, digits) for value in values]
        if len(set(labels)) == len(labels):
            break
    return labels


def _label(value: float, digits: int) -> str:
    text = number(value, digits)
    if len(text) <= LABEL_CELLS or not math.isfinite(value):
        return text
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
