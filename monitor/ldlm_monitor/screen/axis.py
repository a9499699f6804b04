"""What a chart shows: a quantity, in the order of its keys, over steps, time or tokens."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from ldlm_monitor.base.names import RATES
from ldlm_monitor.base.snapshot import CurveView
from ldlm_monitor.base.text.format import duration, si_number

COLUMNS = ("steps", "times", "lows", "highs", "means", "nonfinite", "lines", "offsets", "origins")
"""Of a `CurveView`: what has a value for each bucket."""

Along: TypeAlias = Literal["step", "time", "tokens"]
"""What runs along the horizontal axis: steps, seconds since the run's first, tokens since then."""
ALONG: tuple[Along, ...] = ("step", "time", "tokens")


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
        return replace(curve, **dict.fromkeys(COLUMNS, ()))
    summed = _integral(rate)
    return replace(curve, steps=[round(_tokens(rate.times, summed, at)) for at in curve.times])


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


_FIRST = (
    *("loss", "grad_norm", "learning_rate"),
    *RATES,
    *("step_seconds", "memory_allocated_bytes"),
)


def is_loss(quantity: str) -> bool:
    """Whether the quantity is the loss or a component of it."""
    return quantity == "loss" or (quantity.startswith("loss_") and quantity != "loss_scale")


def metrics(known: Iterable[str]) -> list[str]:
    """The usual quantities first, the others by name; of the loss only the total."""
    found = (name for name in known if not is_loss(name) or name == "loss")
    return sorted(
        found, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)
    )
