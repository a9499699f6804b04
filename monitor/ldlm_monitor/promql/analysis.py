"""Properties of an accepted expression that need no evaluation, and reuse of earlier values."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ldlm_monitor.model.points import Labels, Matcher
from ldlm_monitor.promql.floats import COMPARISON, INF
from ldlm_monitor.promql.functions import DATES, compile_pattern
from ldlm_monitor.promql.nodes import (
    LOOKBACK,
    NAME,
    Aggregation,
    Binary,
    Call,
    Node,
    Range,
    Selector,
    Shift,
    Subquery,
    Value,
    children,
    names_one_metric,
    walk,
)
from ldlm_monitor.promql.operators import SET_OPERATORS, never_fails

TIME_FUNCTIONS = frozenset({"time", "timestamp", *DATES})
COUNTING_FUNCTIONS = frozenset({"count_over_time", "sum_over_time"})
ROUNDING_SECONDS = 0.001
"""Times moved by an offset are rounded by less than this: see `selection.exact`."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An accepted expression: its text and its tree."""

    text: str
    root: Node

    def __str__(self) -> str:
        return self.text


def metric_names(expr: Expression) -> frozenset[str]:
    """The metric names that its selectors match by `=`."""
    return _named(expr.root)


def _named(node: Node) -> frozenset[str]:
    return frozenset(
        matcher.value
        for selector in _selectors(node)
        for matcher in selector.matchers
        if matcher.name == NAME and matcher.op == "="
    )


def result_selectors(expr: Expression) -> tuple[Selector, ...]:
    """The selectors whose series are in its result. Excludes filter-only operands."""
    return tuple(_result_selectors(expr.root))


def _result_selectors(node: Node) -> Iterator[Selector]:
    if isinstance(node, Selector):
        yield node
    elif isinstance(node, Binary) and node.operator in ("and", "unless"):
        yield from _result_selectors(node.left)
    else:
        for child in children(node):
            yield from _result_selectors(child)


def names_its_metrics(expr: Expression) -> bool:
    """Whether each of its selectors matches one metric by name."""
    return all(names_one_metric(selector) for selector in _selectors(expr.root))


def _selectors(node: Node) -> Iterator[Selector]:
    return (each for each in walk(node) if isinstance(each, Selector))


@dataclass(frozen=True, slots=True)
class Dependence:
    """The metrics that the value of a node depends on, where time alone cannot change it.

    If `metrics` have not changed, begun or ended for longer than `seconds`, the value has not
    changed either: each selector reads its metric now, or a fixed time ago.
    """

    metrics: tuple[str, ...]
    seconds: float


def dependence(node: Node) -> Dependence | None:
    """The node's dependence; None: its value depends on time, on a range, or on any metric."""
    if is_of_time(node):
        return None
    for each in walk(node):
        if isinstance(each, Range | Subquery):
            return None
        if isinstance(each, Selector) and not names_one_metric(each):
            return None
    metrics = _named(node)
    return (
        Dependence(tuple(sorted(metrics)), _reach(node, 0.0) + ROUNDING_SECONDS)
        if metrics
        else None
    )


def settles_after(expr: Expression) -> float:
    """Seconds after the last change of its metrics in which its value may still change.

    It needs a storage that stores when a series ended: no selector looks back beyond that.
    Infinite for a fixed `@` time.
    """
    return _reach(expr.root, 0.0) + ROUNDING_SECONDS


def reads_series(expr: Expression) -> Callable[[str, Labels], bool]:
    """A predicate of name and labels: whether one of its selectors matches that series."""
    selectors = [selector.matchers for selector in _selectors(expr.root)]

    def reads(name: str, labels: Labels) -> bool:
        present = {**dict(labels), NAME: name}
        return any(
            all(_holds(matcher, present.get(matcher.name, "")) for matcher in matchers)
            for matchers in selectors
        )

    return reads


def _holds(matcher: Matcher, value: str) -> bool:
    if matcher.op in {"=~", "!~"}:
        same = compile_pattern(matcher.value).fullmatch(value) is not None
    else:
        same = value == matcher.value
    return same == (not matcher.op.startswith("!"))


def max_range(expr: Expression) -> float:
    """The furthest that it looks back, in seconds; infinite for a fixed `@` time."""
    return _reach(expr.root, LOOKBACK)


def uses_time(expr: Expression) -> bool:
    """Whether it uses `time()` or the like, so that its value changes without a new sample."""
    return is_of_time(expr.root)


def counts_samples(expr: Expression) -> bool:
    """Whether its value depends on the number of samples, also of series that do not change."""
    return any(
        isinstance(node, Call) and node.function in COUNTING_FUNCTIONS for node in walk(expr.root)
    )


def is_of_time(node: Node) -> bool:
    """Whether it contains a function of the evaluation time."""
    return any(isinstance(each, Call) and each.function in TIME_FUNCTIONS for each in walk(node))


def _reach(node: Node, lookback: float) -> float:
    match node:
        case Selector(shift=shift):
            return _shift_reach(shift) + lookback
        case Range(selector=selector, seconds=seconds):
            return _shift_reach(selector.shift) + seconds
        case Subquery(operand=operand, seconds=seconds, shift=shift):
            return _shift_reach(shift) + seconds + _reach(operand, lookback)
    return max((_reach(child, lookback) for child in children(node)), default=0.0)


def _shift_reach(shift: Shift) -> float:
    return INF if isinstance(shift.anchor, float) else max(shift.offset, 0.0)


def switches(expr: Expression) -> tuple[Expression, ...] | None:
    """The comparisons through which time alone can add or remove samples of the result.

    Each compares a side that rises (or falls) with time to a constant one, such as
    `time() - x > 60`: without new data, a sample appears or disappears at most once.
    None: time may change the samples in other ways, too.
    """
    found = _switches(expr.root)
    return None if found is None else tuple(Expression("", node) for node in found)


def _switches(node: Node) -> tuple[Node, ...] | None:
    if not is_of_time(node):
        return ()
    below = [_switches(child) for child in children(node)]
    match node:
        case Binary(operator=operator, as_bool=False) if operator in COMPARISON:
            return (node,) if _drift(node) is not None and operator not in ("==", "!=") else None
        case Binary(operator=operator) if operator in SET_OPERATORS:
            pass
        case Aggregation(operator="max" | "min" | "sum" | "count" | "group", parameter=None):
            pass
        case _:
            return None
    return None if None in below else tuple(each for some in below if some for each in some)


def _drift(node: Node) -> int | None:
    """Direction in which time moves the node's values: 1, -1, 0; None: unknown.

    Of a comparison: the difference of its sides.
    """
    if not is_of_time(node):
        return 0
    match node:
        case Call(function="time"):
            return 1
        case Binary(operator="+", left=left, right=right):
            moves = {_drift(left), _drift(right)}
        case Binary(operator=operator, left=left, right=right) if (
            operator == "-" or operator in COMPARISON
        ):
            moves = {_drift(left), _opposite(_drift(right))}
        case _:
            return None
    moves.discard(0)
    return moves.pop() if len(moves) == 1 else None


def _opposite(drift: int | None) -> int | None:
    return None if drift is None else -drift


ChangedAt: TypeAlias = Callable[[Iterable[str]], float]
"""When a series of one of these metrics last changed, began or ended (Unix seconds)."""


class CachedValue:
    """The last value of one node, and the metrics that it depends on."""

    __slots__ = ("_changed_at", "_metrics", "_seconds", "at", "value")

    def __init__(self, on: Dependence, changed_at: ChangedAt) -> None:
        self.value: Value = 0.0
        self.at = math.inf
        self._metrics = on.metrics
        self._seconds = on.seconds
        self._changed_at = changed_at

    def holds(self, at: float) -> bool:
        """Whether the value at `at` equals the stored one."""
        return at >= self.at and self._changed_at(self._metrics) < self.at - self._seconds

    def keep(self, value: Value, at: float) -> None:
        """Store the node's value at `at`."""
        self.value, self.at = value, at


class ValueCache:
    """Cached values of the nodes of an evaluator, and which nodes cannot fail.

    `changed_at` must include a change from the first evaluation on that reads it.
    """

    __slots__ = ("_cannot_fail", "_changed_at", "_held", "_values")

    def __init__(self, changed_at: ChangedAt) -> None:
        self._changed_at = changed_at
        self._values: dict[int, CachedValue | None] = {}
        self._cannot_fail: dict[int, bool] = {}
        self._held: list[Node] = []  # keeps the ids of nodes from being reused

    def of(self, node: Node) -> CachedValue | None:
        """The cached value of a node; None where time changes it, or where it is cheap."""
        try:
            return self._values[id(node)]
        except KeyError:
            return self._begin(node)

    def _begin(self, node: Node) -> CachedValue | None:
        on = dependence(node) if isinstance(node, Aggregation | Binary | Call) else None
        cached = None if on is None else CachedValue(on, self._changed_at)
        self._held.append(node)
        self._values[id(node)] = cached
        return cached

    def may_skip(self, node: Node) -> bool:
        """Whether a node whose value is not needed can be left out."""
        cannot_fail = self._cannot_fail.get(id(node))
        if cannot_fail is None:
            self._held.append(node)
            cannot_fail = self._cannot_fail[id(node)] = never_fails(node)
        return cannot_fail
