"""Properties of an accepted expression by which evaluations with the same result are skipped."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ldlm_promrules.promql.floats import INF
from ldlm_promrules.promql.functions import DATES, ELEMENTWISE, RELABELS
from ldlm_promrules.promql.nodes import (
    LOOKBACK,
    NAME,
    Aggregation,
    Binary,
    Call,
    Matching,
    Node,
    Number,
    Range,
    Selector,
    Shift,
    Subquery,
    children,
    is_scalar,
    walk,
)

TIME_FUNCTIONS = frozenset({"time", "timestamp", *DATES})  # may depend on the evaluation time
_COUNTING_FUNCTIONS = frozenset({"count_over_time", "sum_over_time"})  # even equal samples add up
_OF_EACH = ELEMENTWISE.keys() - DATES.keys()
ROUNDING_SECONDS = 0.001
"""Seconds added to a range, because `ranges.exact` rounds its ends to milliseconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """An accepted expression: its text and its tree. Only the object itself equals it."""

    text: str
    root: Node

    def __str__(self) -> str:
        return self.text


def metric_names(expr: Expression) -> frozenset[str]:
    """The metric names that the expression's selectors match by `=`."""
    return frozenset(each.metric for each in selectors(expr)) - {""}


def result_selectors(node: Node) -> Iterator[Selector]:
    """The selectors whose series may be in the result: none right of `and` or `unless`."""
    if isinstance(node, Selector):
        yield node
    elif isinstance(node, Binary) and node.operator in ("and", "unless"):
        yield from result_selectors(node.left)
    else:
        for child in children(node):
            yield from result_selectors(child)


def names_its_metrics(expr: Expression) -> bool:
    """Whether each selector of the expression matches one metric by its name."""
    return all(each.metric for each in selectors(expr))


def selectors(expr: Expression) -> Iterator[Selector]:
    """All selectors of the expression."""
    return (each for each in walk(expr.root) if isinstance(each, Selector))


def settles_after(expr: Expression, past_times: Collection[str] = ()) -> float:
    """Seconds for which the value may still change after the last change of the metrics it reads.

    Infinite for a fixed `@` time. The storage must mark series that ended as stale: otherwise
    selectors find their last samples for the lookback longer. `past_times`: see `age_limit`.
    """
    return _reach(expr.root, 0.0, past_times) + ROUNDING_SECONDS


def max_range(expr: Expression, past_times: Collection[str] = ()) -> float:
    """The age (seconds) of the oldest samples that are read; infinite for a fixed `@` time.

    `past_times`: see `age_limit`.
    """
    return _reach(expr.root, LOOKBACK, past_times)


def uses_time(expr: Expression, past_times: Collection[str] = ()) -> bool:
    """Whether it calls `time`, `timestamp` or a date function: it may change without samples.

    A limit on how long ago something happened passes within the time that it settles in.
    `past_times`: see `age_limit`.
    """
    return _uses_time(expr.root, past_times)


def _uses_time(node: Node, past_times: Collection[str]) -> bool:
    if age_limit(node, past_times) is not None:
        return False
    is_time = isinstance(node, Call) and node.function in TIME_FUNCTIONS
    return is_time or any(_uses_time(each, past_times) for each in children(node))


def age_limit(node: Node, past_times: Collection[str]) -> float | None:
    """N (seconds) of `time() - X < N` or `>= N`, if X is of `past_times`, or its aggregation.

    `past_times`: metrics whose values are Unix seconds that have passed when they are stored.
    """
    match node:
        case Binary("<" | ">=", Binary("-", Call("time"), last), Number(seconds)):
            selector = last.operand if isinstance(last, Aggregation) else last
            if isinstance(selector, Selector) and selector.shift == Shift():
                return seconds if selector.metric in past_times else None
    return None


def never_fails(node: Node) -> bool:
    """Whether the node cannot raise an error on any data; False where that is not certain."""
    match node:
        case Selector() | Range():
            return bool((node.selector if isinstance(node, Range) else node).metric)
        case Call(function, (Selector() | Range() as operand, *others)) if function in _OF_EACH or (
            isinstance(operand, Range) and not others
        ):
            return never_fails(operand) and all(isinstance(each, Number) for each in others)
        case Aggregation(operand=operand, parameter=None):
            return never_fails(operand)
        case Binary(operator="and" | "or" | "unless", left=left, right=right):
            return never_fails(left) and never_fails(right)
        case Binary(left=left, right=right, matching=matching):
            pair = not isinstance(left, Number) and not isinstance(right, Number)
            return all(
                isinstance(side, Number)
                or (_is_distinct(side, matching if pair else Matching()) and never_fails(side))
                for side in (left, right)
            )
    return isinstance(node, Number)


def _is_distinct(node: Node, matching: Matching) -> bool:
    """Whether no two elements of the node, if it does not fail, are in the same match group."""
    if matching == Matching():
        # Series of an `or` may differ by their names only.
        return isinstance(node, Selector | Aggregation | Call)
    if not isinstance(node, Aggregation) or node.without or NAME in node.labels:
        return False
    return matching.on and set(node.labels) <= set(matching.labels)


_MIXES = frozenset({"absent", "absent_over_time", "scalar", *RELABELS})


def keeps_apart(node: Node, label: str) -> bool:
    """Whether what the result has of a value of the label depends on its series alone."""
    match node:
        case Binary(left=left, right=right, matching=matching) if not (
            is_scalar(left) or is_scalar(right)
        ):
            matched = (label in matching.labels) is matching.on
        case Aggregation(operator, parameter=parameter, without=without, labels=labels):
            matched = (label in labels) is not without and operator != "count_values"
            matched = matched and (parameter is None or isinstance(parameter, Number))
        case _:
            matched = not (isinstance(node, Call) and node.function in _MIXES)
    return matched and all(keeps_apart(each, label) for each in children(node))


def counts_samples(expr: Expression, interval: float) -> bool:
    """Whether the value depends on the number of samples, even if all samples are equal.

    True for a subquery: if its range is shorter than its step, it has samples at some times only.
    So has a range of less than two intervals (seconds) of scrapes, of which some are more frequent.
    """
    return any(
        isinstance(node, Subquery)
        or (isinstance(node, Range) and node.seconds < 2 * interval)
        or (isinstance(node, Call) and node.function in _COUNTING_FUNCTIONS)
        for node in walk(expr.root)
    )


def _reach(node: Node, lookback: float, past_times: Collection[str]) -> float:
    if (limit := age_limit(node, past_times)) is not None:
        return limit + lookback
    match node:
        case Selector(shift=shift):
            return _shift_reach(shift) + lookback
        case Range(selector=selector, seconds=seconds):
            return _shift_reach(selector.shift) + seconds
        case Subquery(operand=operand, seconds=seconds, shift=shift):
            return _shift_reach(shift) + seconds + _reach(operand, lookback, past_times)
    return max((_reach(each, lookback, past_times) for each in children(node)), default=0.0)


def _shift_reach(shift: Shift) -> float:
    return INF if isinstance(shift.anchor, float) else max(shift.offset, 0.0)
