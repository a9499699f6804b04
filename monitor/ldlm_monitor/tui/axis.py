"""Axes of a chart: round ticks, their labels, and what runs along them: steps, time or tokens."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from ldlm_monitor.model.view import CurveView
from ldlm_monitor.text.format import duration, si_number

Along: TypeAlias = Literal["step", "time", "tokens"]
"""What runs along the horizontal axis: steps, seconds since the run's first, tokens since then."""
ALONG: tuple[Along, ...] = ("step", "time", "tokens")
_ROUND = (1.0, 2.0, 5.0, 10.0)  # multiples of a power of ten that people read at a glance
_CLOCK = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between ticks of a time axis, so that labels are whole units."""


def ticks(low: float, high: float, most: int) -> list[float]:
    """About `most` round values from `low` to `high`, at equal distances."""
    if not (high > low and most > 0 and math.isfinite(high - low)):
        return []
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    by = min((power * each for each in _ROUND), key=lambda each: abs(math.log(each / rough)))
    return _multiples(low, high, by)


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Logarithms of round values between the logarithms `low` and `high` (base 10)."""
    decades = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    if len(decades) >= 2:
        stride = -(-len(decades) // max(most, 1))
        return [float(each) for each in decades[::stride]]
    values = (each * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1)
              for each in (1, 2, 3, 5, 7))  # fmt: skip
    found = sorted({math.log10(value) for value in values if low <= math.log10(value) <= high})
    return found[:: -(-len(found) // max(most, 1))] if found else []


def time_ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` times in seconds that are whole minutes, hours or days."""
    rough = (high - low) / max(most, 1)
    by = next((each for each in _CLOCK if each >= rough), None)
    return _multiples(low, high, by) if by else ticks(low, high, most)


def _multiples(low: float, high: float, by: float) -> list[float]:
    first, last = math.ceil(low / by - 1e-9), math.floor(high / by + 1e-9)
    return [number * by for number in range(first, last + 1)]


def label(value: float, by: float) -> str:
    """A tick's value, with as many digits as the distance `by` to the next one needs."""
    if value == 0 or abs(value) < abs(by) * 1e-6:
        return "0"
    size = math.floor(math.log10(abs(value)))
    digits = max(size - math.floor(math.log10(by)) + 1, 1) if by > 0 else 4
    if -4 <= size < 6:
        return f"{value:.{max(digits - 1 - size, 0)}f}"
    return f"{value:.{digits - 1}e}".replace("e-0", "e-").replace("e+0", "e")


def label_along(value: float, along: Along) -> str:
    """A place on the horizontal axis in its unit."""
    if along == "time":
        return duration(max(value, 0.0) if value < 10 else round(value))
    return si_number(value) if along == "tokens" else f"{round(value)}"


def along_axis(curve: CurveView, along: Along, rate: CurveView | None) -> CurveView:
    """The curve with seconds or tokens since its first sample in place of steps.

    `rate`: the run's tokens per second, whose integral over time gives the tokens; without it the
    axis has none. A curve without times stays as it is.
    """
    if along == "step" or not curve.times:
        return curve
    if along == "time":
        return replace(curve, steps=[round(at - curve.times[0]) for at in curve.times])
    if rate is None or not rate.times:
        return replace(curve, **dict.fromkeys(_COLUMNS, ()))
    summed = _integral(rate)
    return replace(curve, steps=[round(_tokens(rate.times, summed, at)) for at in curve.times])


_COLUMNS = ("steps", "times", "lows", "highs", "means", "nonfinite", "lines", "offsets", "origins")


def _integral(rate: CurveView) -> list[float]:
    total, sums = 0.0, [0.0]
    for index in range(1, len(rate.times)):
        mean = rate.means[index - 1]
        total += (mean if math.isfinite(mean) else 0.0) * (
            rate.times[index] - rate.times[index - 1]
        )
        sums.append(total)
    return sums


def _tokens(times: Sequence[float], sums: Sequence[float], at: float) -> float:
    """The tokens until `at`, between two buckets by the share of time."""
    index = bisect_right(times, at) - 1
    if index < 0:
        return 0.0
    if index + 1 >= len(times) or times[index + 1] <= times[index]:
        return sums[index]
    share = (at - times[index]) / (times[index + 1] - times[index])
    return sums[index] + (sums[index + 1] - sums[index]) * share
