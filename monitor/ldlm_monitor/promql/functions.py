"""Functions of instant vectors: mathematics, dates, labels, order.

Semantics: Prometheus 3 `promql/functions.go`.
"""

import calendar
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import re2

from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.model.points import Labels
from ldlm_monitor.promql.floats import (
    INF,
    NAN,
    ceil,
    divide,
    floor,
    greater,
    lesser,
    logarithm,
    rising,
    total,
)
from ldlm_monitor.promql.labels import with_label
from ldlm_monitor.promql.nodes import Node, Range, Selector, Vector


def _round(value: float, multiple: float) -> float:
    inverse = divide(1.0, multiple)
    return divide(floor(value * inverse + 0.5), inverse)


def _sign(value: float) -> float:
    return 1.0 if value > 0 else -1.0 if value < 0 else value


def _sinh(value: float) -> float:
    try:
        return math.sinh(value)
    except OverflowError:
        return math.copysign(INF, value)


def _atanh(value: float) -> float:
    return math.copysign(INF, value) if abs(value) == 1 else total(math.atanh)(value)


def _date(part: Callable[[datetime], int]) -> Callable[[float], float]:
    """A part of the UTC date that lies `value` seconds after the epoch."""

    def of(value: float) -> float:
        try:
            return float(part(datetime.fromtimestamp(math.trunc(value), UTC)))
        except (ValueError, OverflowError, OSError):  # beyond the years 1 to 9999, NaN, Inf
            return NAN

    return of


DATES: dict[str, Callable[[float], float]] = {
    "days_in_month": _date(lambda date: calendar.monthrange(date.year, date.month)[1]),
    "day_of_month": _date(lambda date: date.day),
    "day_of_week": _date(lambda date: date.isoweekday() % 7),
    "day_of_year": _date(lambda date: date.timetuple().tm_yday),
    "hour": _date(lambda date: date.hour),
    "minute": _date(lambda date: date.minute),
    "month": _date(lambda date: date.month),
    "year": _date(lambda date: date.year),
}
ELEMENTWISE: dict[str, Callable[..., float]] = {
    "abs": abs,
    "ceil": ceil,
    "floor": floor,
    "round": _round,
    "sgn": _sign,
    "exp": total(math.exp),
    "ln": logarithm(math.log),
    "log2": logarithm(math.log2),
    "log10": logarithm(math.log10),
    "sqrt": total(math.sqrt),
    "clamp_min": greater,
    "clamp_max": lesser,
    "deg": math.degrees,
    "rad": math.radians,
    "sin": total(math.sin),
    "cos": total(math.cos),
    "tan": total(math.tan),
    "asin": total(math.asin),
    "acos": total(math.acos),
    "atan": math.atan,
    "sinh": _sinh,
    "cosh": total(math.cosh),
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": total(math.acosh),
    "atanh": _atanh,
    **DATES,
}
"""Of each value (and scalar arguments) on its own; the metric name is dropped."""


def _clamp(vector: Vector, least: float, most: float) -> Vector:
    if most < least:
        return []
    return [(labels, greater(least, lesser(most, value))) for labels, value in vector]


def _sort(vector: Vector) -> Vector:
    return sorted(vector, key=lambda sample: (math.isnan(sample[1]), rising(sample[1])))


def _sort_descending(vector: Vector) -> Vector:
    return sorted(vector, key=lambda sample: rising(sample[1]), reverse=True)


def _label_replace(vector: Vector, target: str, template: str, source: str, pattern: str) -> Vector:
    regex = compile_pattern(pattern)
    result: Vector = []
    for labels, value in vector:
        match = regex.fullmatch(dict(labels).get(source, ""))
        if match is None:
            result.append((labels, value))
            continue
        result.append((with_label(labels, target, _expand(template, match)), value))
    return result


def _label_join(vector: Vector, target: str, separator: str, *sources: str) -> Vector:
    result: Vector = []
    for labels, value in vector:
        present = dict(labels)
        joined = separator.join(present.get(source, "") for source in sources)
        result.append((with_label(labels, target, joined), value))
    return result


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Any:
    """An RE2 pattern in which `.` also matches a line feed.

    Raises RuleError where it is no regular expression.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(f"(?s:{pattern})", options)
    except re2.error as problem:
        raise RuleError(f"invalid regular expression {pattern!r}") from problem


_REFERENCE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))", re.ASCII)


def _expand(template: str, match: Any) -> str:
    """The template with `$1`, `${name}` and `$$` filled in as Go's `Regexp.Expand` does."""

    def filled(reference: re.Match[str]) -> str:
        if reference[1]:
            return "$"
        name = reference[2] or reference[3]
        if name.isdecimal():
            number = int(name)
            return (match.group(number) or "") if number <= match.re.groups else ""
        return match.groupdict().get(name) or ""

    return _REFERENCE.sub(filled, template)


OVER_VECTOR: dict[str, Callable[..., Vector]] = {
    "clamp": _clamp,
    "sort": _sort,
    "sort_desc": _sort_descending,
    "label_replace": _label_replace,
    "label_join": _label_join,
}
"""Of a vector as a whole and literal arguments."""
KEEPS_NAME = frozenset({"sort", "sort_desc", "label_replace", "label_join", "last_over_time"})


def labels_of_absent(operand: Node) -> Labels:
    """The labels that `absent` can tell from a selector: those that must equal one value."""
    selector = operand.selector if isinstance(operand, Range) else operand
    if not isinstance(selector, Selector):
        return ()
    known: dict[str, str] = {}
    seen: set[str] = {"__name__"}
    for matcher in selector.matchers:
        if matcher.op == "=" and matcher.name not in seen:
            known[matcher.name] = matcher.value
            seen.add(matcher.name)
        elif matcher.name != "__name__":
            known.pop(matcher.name, None)
    return tuple(sorted((name, value) for name, value in known.items() if value))
