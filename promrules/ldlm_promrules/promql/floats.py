"""Arithmetic as Go's float64 has it: IEEE 754, never an exception.

Python raises on division by zero, overflow and domain errors; here they give Inf or NaN.
"""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial

from ldlm_promrules.golang import not_finite

NAN = math.nan
INF = math.inf


def divide(left: float, right: float) -> float:
    """`left / right`; 0/0 and NaN/0 are NaN, all else divided by 0 is Inf or -Inf by the signs."""
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return NAN
    return math.copysign(INF, left) * math.copysign(1.0, right)


def modulo(left: float, right: float) -> float:
    """The remainder, signed as `left` (Go's `math.Mod`); NaN if `left` is infinite or `right` 0."""
    if right == 0 or math.isinf(left):
        return NAN
    return math.fmod(left, right)


def power(left: float, right: float) -> float:
    """`left ** right`, as Go's `math.Pow`: NaN outside its domain, +-Inf where it overflows."""
    odd = right % 2 == 1
    try:
        return math.pow(left, right)
    except OverflowError:
        return -INF if left < 0 and odd else INF
    except ValueError:
        if left == 0:  # to a negative power
            return math.copysign(INF, left) if odd else INF
        return NAN


ARITHMETIC: dict[str, Callable[[float, float], float]] = {  # by PromQL's operator
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": divide,
    "%": modulo,
    "^": power,
    "atan2": math.atan2,
}
COMPARISON: dict[str, Callable[[float, float], bool]] = {  # by operator; NaN compares as in Go
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


def add_compensated(addend: float, total: float, lost: float) -> tuple[float, float]:
    """One step of Neumaier's summation: new total, and new sum of the low-order parts lost."""
    new = total + addend
    if math.isinf(new):
        return new, 0.0
    if abs(total) >= abs(addend):
        return new, lost + ((total - new) + addend)
    return new, lost + ((addend - new) + total)


CANCELLED = 1e-12
"""A sum below this share of the sum of its terms' magnitudes has cancelled: Prometheus' result may
have other digits. A choice, 5000 times a float's precision: less misses sums, more is slower."""


def _exact_sum(values: Sequence[float]) -> float | None:
    """The sum by `fsum`, which is faster; None if Prometheus' result may have other digits.

    It may have if terms almost cancel (`CANCELLED`), the sum overflows, or with Inf and -Inf.
    """
    try:
        total = math.fsum(values)
    except (OverflowError, ValueError):
        return None
    return None if abs(total) < CANCELLED * sum(map(abs, values)) else total


def sum_of(values: Sequence[float]) -> float:
    """The sum by Neumaier's compensated summation, as Prometheus computes it."""
    exact = _exact_sum(values)
    if exact is not None:
        return exact
    total = lost = 0.0
    for value in values:
        total, lost = add_compensated(value, total, lost)
    return total + lost


def mean_of(values: Sequence[float]) -> float:
    """The mean; if the sum overflows, each value is divided by the count before the summation."""
    count = len(values)
    total = sum_of(values)
    if math.isinf(total):
        return sum_of([value / count for value in values])
    return total / count


def variance_of(values: Sequence[float]) -> float:
    """The population variance; NaN if a value or the mean is not finite."""
    mean = mean_of(values)
    if not math.isfinite(mean):
        return NAN
    if min(values) == max(values):
        return 0.0
    return sum_of([(value - mean) * (value - mean) for value in values]) / len(values)


def has_nan(values: Iterable[float]) -> bool:
    """Whether a value is NaN; also True for values with Inf of both signs, whose sum is NaN."""
    return math.isnan(sum(values))


def extreme_of(pick: Callable[..., float], values: Sequence[float]) -> float:
    """The smallest (`pick` is `min`) or greatest (`max`) value; NaN only if all values are NaN."""
    if not has_nan(values):
        return pick(values)
    return pick((value for value in values if not math.isnan(value)), default=NAN)


def nan_last(value: float) -> tuple[bool, float]:
    """A sort key that puts NaN after all numbers."""
    return (True, 0.0) if math.isnan(value) else (False, value)


def quantile_of(rank: float, values: Sequence[float]) -> float:
    """The quantile `rank` (0 to 1) by linear interpolation; NaN counts as smallest.

    As in Prometheus: -Inf for a rank below 0, Inf above 1, NaN for no values or a rank of NaN.
    """
    ordered = sorted(values)
    if has_nan(values):
        ordered = sorted(values, key=lambda value: (not math.isnan(value), value))
    if not ordered or math.isnan(rank):
        return NAN
    if rank < 0:
        return -INF
    if rank > 1:
        return INF
    position = rank * (len(ordered) - 1)
    lower = math.floor(position)
    upper = min(len(ordered) - 1, lower + 1)
    weight = position - lower
    return ordered[lower] * (1 - weight) + ordered[upper] * weight


def decimal_text(value: float) -> str:
    """As Prometheus spells it: the fewest digits that keep it, no exponent, no fraction of 0."""
    text = repr(value)
    if "e" in text:
        return format(Decimal(text), "f")
    if "n" in text:
        return not_finite(value)
    return text.removesuffix(".0")


def clamped(pick: Callable[..., float], left: float, right: float) -> float:
    """`pick` (`max` or `min`) as in Go: NaN if a value is NaN, unless an Inf decides."""
    wins = pick(INF, -INF)
    if wins in (left, right):
        return wins
    if math.isnan(left) or math.isnan(right):
        return NAN
    return pick(left, right)


def whole(rounded: Callable[[float], int], value: float) -> float:
    """The value, rounded to an integer by `rounded`; NaN, Inf and the sign of zero stay."""
    if not math.isfinite(value):
        return value
    return math.copysign(float(rounded(value)), value) if abs(value) < 1 else float(rounded(value))


def total(function: Callable[[float], float]) -> Callable[[float], float]:
    """`function` that does not raise: NaN outside its domain, and Inf where it overflows."""

    def computed(value: float) -> float:
        try:
            return function(value)
        except ValueError:
            return NAN
        except OverflowError:
            return INF

    return computed


def logarithm(function: Callable[[float], float]) -> Callable[[float], float]:
    """The logarithm `function`, with -Inf at 0 and NaN below."""
    defined = total(function)
    return lambda value: -INF if value == 0 else defined(value)


# By name: `sum` reduces the values of a group, and `sum_over_time` those of a range.
REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": sum_of,
    "avg": mean_of,
    "min": partial(extreme_of, min),
    "max": partial(extreme_of, max),
    "count": lambda values: float(len(values)),
    "stddev": lambda values: math.sqrt(variance_of(values)),
    "stdvar": variance_of,
}
