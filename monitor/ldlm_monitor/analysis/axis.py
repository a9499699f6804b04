"""The axis of a chart: its ends, its labelled values, and the place of a value on it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ldlm_monitor.text.ticks import log_ticks, ticks

LOG_FROM = 10.0
"""Greatest / least value that makes an axis logarithmic: a choice; more flattens, less distorts."""
TICKS = 5
"""Labels of an axis, about: a choice; more crowd `HEIGHT` pixels, fewer leave values unread."""
GREATEST = 1e300
"""Ends of an axis are cut to +/- this: sums and differences of two ends are floats (to 1.8e308)."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` to `high`; `ticks` are the labelled values between them."""

    low: float
    high: float
    logarithmic: bool
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """The place of a value: 0 at `low` or below, 1 at `high` or above."""
        if self.logarithmic:
            # Logarithms are subtracted because the quotient may overflow a float.
            least = math.log(self.low)
            share = (math.log(max(value, self.low)) - least) / (math.log(self.high) - least)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0)


def axis_of(values: Iterable[float], *, straight: bool = False) -> Axis:
    """An axis for the finite values. `straight`: steps or times, which are never logarithmic."""
    known = sorted(max(-GREATEST, min(value, GREATEST)) for value in values if math.isfinite(value))
    low, high = (known[0], known[-1]) if known else (0.0, 1.0)
    if straight:
        low, high = (low, high) if high > low else (low - 1, high + 1)
        places = tuple(ticks(low, high, TICKS))
        # Steps are whole numbers, so fractional ticks are left out unless no tick would remain.
        return Axis(low, high, False, tuple(filter(float.is_integer, places)) or places)
    if low > 0 and high / low >= LOG_FROM:
        low, high = low * 0.9, high * 1.1
        powers = log_ticks(math.log10(low), math.log10(high), TICKS)
        return Axis(low, high, True, tuple(10.0**power for power in powers))
    # Choices: margins keep curves off the frame; a `low` below 30 % of `high` is 0, to show ratios.
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    low, high = (0.0 if 0 <= low < 0.3 * high else low - room), high + room
    return Axis(low, high, False, tuple(ticks(low, high, TICKS)))
