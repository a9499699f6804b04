"""Functions of instant vectors: mathematics, dates, labels, order, quantiles of histograms.

Semantics: Prometheus 3 `promql/functions.go` and `promql/quantile.go`.
"""

import calendar
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

from ldlm_promrules.golang import compile_pattern, expanded
from ldlm_promrules.promql.floats import (
    INF,
    NAN,
    clamped,
    divide,
    logarithm,
    nan_last,
    total,
    whole,
)
from ldlm_promrules.promql.nodes import (
    Node,
    Range,
    Selector,
    Vector,
    unmarked,
    with_label,
    without_name,
)
from ldlm_promrules.promql.vector_columns import present
from ldlm_promrules.samples import Column, Labels


def _round(value: float, multiple: float) -> float:
    inverse = divide(1.0, multiple)
    return divide(whole(math.floor, value * inverse + 0.5), inverse)


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
    """A function from Unix seconds to a part of their UTC date; NaN outside the years 1 to 9999."""

    def of(value: float) -> float:
        try:
            return float(part(datetime.fromtimestamp(math.trunc(value), UTC)))
        except (ValueError, OverflowError, OSError):  # NaN, Inf, or no year that a date can have
            return NAN

    return of


DATES: dict[str, Callable[[float], float]] = {  # functions of Unix seconds, by name
    "days_in_month": _date(lambda date: calendar.monthrange(date.year, date.month)[1]),
    "day_of_month": _date(lambda date: date.day),
    "day_of_week": _date(lambda date: date.isoweekday() % 7),
    "day_of_year": _date(lambda date: date.timetuple().tm_yday),
    "hour": _date(lambda date: date.hour),
    "minute": _date(lambda date: date.minute),
    "month": _date(lambda date: date.month),
    "year": _date(lambda date: date.year),
}
ELEMENTWISE: dict[str, Callable[..., float]] = {  # of a sample's value and scalars
    "abs": abs,
    "ceil": partial(whole, math.ceil),
    "floor": partial(whole, math.floor),
    "round": _round,
    "sgn": _sign,
    "exp": total(math.exp),
    "ln": logarithm(math.log),
    "log2": logarithm(math.log2),
    "log10": logarithm(math.log10),
    "sqrt": total(math.sqrt),
    "clamp_min": partial(clamped, max),
    "clamp_max": partial(clamped, min),
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


def _clamp(vector: Vector, least: Sequence[float], most: Sequence[float]) -> Vector:
    def within(low: float, high: float, value: float | None) -> float | None:
        if value is None or high < low:
            return None
        return clamped(max, low, clamped(min, high, value))

    return present([(labels, [*map(within, least, most, column)]) for labels, column in vector])


def _sorted(vector: Vector, sign: float) -> Vector:
    """By the value of the one time; a range query has no order, as in Prometheus."""
    if not vector or len(vector[0][1]) > 1:
        return vector
    return sorted(vector, key=lambda sample: nan_last(sign * (sample[1][0] or 0.0)))


def _label_replace(vector: Vector, target: str, template: str, source: str, pattern: str) -> Vector:
    regex = compile_pattern(pattern)
    result: Vector = []
    for labels, value in vector:
        if (match := regex.fullmatch(dict(labels).get(source, ""))) is None:
            result.append((labels, value))
        else:
            result.append((with_label(labels, target, expanded(template, match)), value))
    return result


def _label_join(vector: Vector, target: str, separator: str, *sources: str) -> Vector:
    def joined(present: dict[str, str]) -> str:
        return separator.join(present.get(source, "") for source in sources)

    return [(with_label(each, target, joined(dict(each))), value) for each, value in vector]


OVER_VECTOR: dict[str, Callable[..., Vector]] = {  # of a vector, scalars and string literals
    "clamp": _clamp,
    "sort": lambda vector: _sorted(vector, 1.0),
    "sort_desc": lambda vector: _sorted(vector, -1.0),
    "label_replace": _label_replace,
    "label_join": _label_join,
}
RELABELS = frozenset({"label_replace", "label_join"})  # of texts, each series for itself
KEEPS_NAME = frozenset({"sort", "sort_desc", "label_replace", "label_join", "last_over_time"})
"""Functions that keep the metric name, as in Prometheus."""


def labels_of_absent(operand: Node) -> Labels:
    """The labels of `absent`'s result: those whose last matcher is `=` and their only `=`."""
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


BOUND = "le"  # in a classic histogram of Prometheus, the label with a bucket's upper bound
SMALL_DELTA = 1e-12  # of the counts' sum: a smaller difference is rounding (`smallDeltaTolerance`)


Buckets: TypeAlias = list[tuple[float, float]]
"""Bounds and counts of a classic histogram at one time, unordered."""


def buckets_at_each(
    vector: Vector, ranks: Sequence[float]
) -> Iterator[tuple[Labels, list[tuple[float, Buckets]]]]:
    """For each classic histogram the rank and the buckets at each time; no series without `le`."""
    histograms: dict[Labels, list[tuple[float, Column]]] = {}
    for labels, counts in vector:
        if (bound := bound_of(labels)) is not None:
            rest = tuple(pair for pair in unmarked(labels) if pair[0] != BOUND)
            histograms.setdefault(rest, []).append((bound, counts))
    for labels, members in histograms.items():
        yield (
            labels,
            [
                (rank, [(bound, x) for bound, column in members if (x := column[at]) is not None])
                for at, rank in enumerate(ranks)
            ],
        )


def bound_of(labels: Labels) -> float | None:
    """The upper bound of a classic histogram's bucket; None where `le` is no number."""
    text = dict(labels).get(BOUND, "").lower()
    try:
        if "x" in text:  # Go takes a hexadecimal number with its exponent only
            return float.fromhex(text) if "p" in text else None
        return float(text) if text.isascii() and text == text.strip() else None
    except (ValueError, OverflowError):
        return None


def histogram_quantile(ranks: Sequence[float], vector: Vector) -> Vector:
    """The quantile (0 to 1) of each classic histogram; skips series without a valid `le`."""
    return [
        (
            without_name(labels),
            [_quantile(rank, buckets) if buckets else None for rank, buckets in each],
        )
        for labels, each in buckets_at_each(vector, ranks)
    ]


def _quantile(rank: float, buckets: Buckets) -> float:
    """Interpolates in the rank's bucket, as Prometheus' `BucketQuantile`; +-Inf outside 0 to 1."""
    if math.isnan(rank):
        return NAN
    if not 0 <= rank <= 1:
        return math.copysign(INF, rank)
    bounds, counts, _ = merged_buckets(buckets)
    if bounds[-1] != INF or len(bounds) < 2 or counts[-1] == 0:
        return NAN
    wanted = rank * counts[-1]
    # With NaN among the counts, the result depends on the search: this one is as in Go.
    index = bisect_left(range(len(bounds) - 1), True, key=lambda i: counts[i] >= wanted)
    if index == len(bounds) - 1:
        return bounds[-2]
    if index == 0 and bounds[0] <= 0:
        return bounds[0]
    start, below = (bounds[index - 1], counts[index - 1]) if index else (0.0, 0.0)
    return start + (bounds[index] - start) * divide(wanted - below, counts[index] - below)


def merged_buckets(buckets: Buckets) -> tuple[list[float], list[float], dict[float, float]]:
    """Bounds, rising; counts, where those of equal bounds are added and one that falls is raised.

    Third, by how much which was raised, but for what rounding explains.
    """
    bounds: list[float] = []
    counts: list[float] = []
    for bound, count in sorted(buckets, key=lambda bucket: bucket[0]):
        if bounds and bounds[-1] == bound:
            counts[-1] += count
        else:
            bounds.append(bound)
            counts.append(count)
    reached, raised = counts[0], {}
    for index in range(1, len(counts)):
        count = counts[index]
        rounding = SMALL_DELTA * (abs(count) + abs(reached))
        if count - reached < rounding:
            counts[index] = reached
            if reached - count >= rounding and count != reached:
                raised[bounds[index]] = reached - count
        else:
            reached = count
    return bounds, counts, raised
