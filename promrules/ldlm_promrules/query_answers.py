"""Answers to queries in the form of Prometheus' HTTP API.

https://prometheus.io/docs/prometheus/latest/querying/api/#expression-query-result-formats
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from ldlm_promrules.durations import parse_duration
from ldlm_promrules.errors import RuleError
from ldlm_promrules.promql.annotations import Notes
from ldlm_promrules.promql.evaluator import Evaluator
from ldlm_promrules.promql.expression import Expression, metric_names, names_its_metrics
from ldlm_promrules.promql.floats import decimal_text
from ldlm_promrules.promql.nodes import Range, Subquery, Text
from ldlm_promrules.promql.ranges import QueryTimes, exact
from ldlm_promrules.promql.special import Budget
from ldlm_promrules.samples import Labels, Storage

MAX_STEPS = 11_000
"""Points of a range query at most: Prometheus' own limit, a week at one each minute."""
LAST = 253402300799.0  # the last second of the year 9999, after which no time is written

Answer: TypeAlias = dict[str, Any]  # with `resultType` and `result`


def metrics_of(expression: Expression) -> frozenset[str] | None:
    """The metrics that the expression reads; None if a selector names none."""
    return metric_names(expression) if names_its_metrics(expression) else None


def instant(
    storage: Storage,
    expression: Expression,
    at: float,
    notes: Notes | None = None,
    budget: Budget | None = None,
) -> Answer:
    """The value at `at` (Unix seconds): a scalar, string, vector or matrix. Raises RuleError.

    `notes`: filled with what there is to say beside it. `budget`: what it may take.
    """
    root = expression.root
    if isinstance(root, Text):
        return {"resultType": "string", "result": [_time(at), root.value]}
    evaluator = Evaluator(storage, notes=notes, budget=budget)
    if isinstance(root, Range | Subquery):
        found = evaluator.windows(root)(QueryTimes(at, at, (at,)))
        windows = ((labels, window) for labels, (window,) in found if window is not None)
        return _matrix((labels, each.times, each.values) for labels, each in windows)
    value = evaluator.value(expression, at)
    if isinstance(value, float):
        return {"resultType": "scalar", "result": [_time(at), decimal_text(value)]}
    result = [
        {"metric": dict(labels), "value": [_time(at), decimal_text(found)]}
        for labels, found in value
    ]
    return {"resultType": "vector", "result": result}


def over(
    storage: Storage,
    expression: Expression,
    start: float,
    end: float,
    step: float,
    *,
    notes: Notes | None = None,
    budget: Budget | None = None,
) -> Answer:
    """As `instant`, the values every `step` (above 0) seconds from `start` to `end`."""
    if isinstance(expression.root, Text | Range | Subquery):
        kind = "string" if isinstance(expression.root, Text) else "range vector"
        raise RuleError(f"a {kind} has no value over time", remedy="query an instant vector")
    evaluator = Evaluator(storage, notes=notes, budget=budget)
    found = evaluator.over(expression, steps(start, end, step), end)
    return _matrix((each.labels, each.times, each.values) for each in found)


def steps(start: float, end: float, step: float) -> list[float]:
    """The times of a range query (Unix seconds, `step` above 0), each in milliseconds."""
    count = math.floor(exact((end - start) / step)) + 1
    return [exact(start + index * step) for index in range(count)]


def _matrix(found: Iterable[tuple[Labels, Sequence[float], Sequence[float]]]) -> Answer:
    result, last, shown = [], None, []
    for labels, times, values in found:
        if times is not last:  # series without a gap share their times
            last, shown = times, [_time(at) for at in times]
        pairs = zip(shown, map(decimal_text, values), strict=True)
        result.append({"metric": dict(labels), "values": [*pairs]})
    return {"resultType": "matrix", "result": result}


def _time(at: float) -> float:
    """In milliseconds' precision, as Prometheus has it; whole seconds without a fraction."""
    return int(at) if at == int(at) else round(at, 3)


def moment(text: str) -> float:
    """Unix seconds, given as such or as RFC 3339. Raises ValueError."""
    try:
        at = float(text)
    except ValueError:
        written = datetime.fromisoformat(text)
        at = written.timestamp() if written.tzinfo else math.nan
    if not -LAST <= at <= LAST:
        raise ValueError("neither Unix seconds nor a time with its zone, as 2026-01-29T10:15:00Z")
    return at


def duration(text: str) -> float:
    """Seconds, given as such or as a duration such as `1m30s`. Raises ValueError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = parse_duration(text)
    if not abs(seconds) <= LAST:
        raise ValueError(f"{text!r} is not a duration such as 30s, 5m or 1h30m")
    return seconds
