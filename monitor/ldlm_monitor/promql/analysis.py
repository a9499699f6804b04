"""An accepted expression, and what it tells of itself without being evaluated."""

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
"""Less than this a time is rounded that an offset has moved: see `selection.exact`."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An accepted expression: its text and what it is made of."""

    text: str
    root: Node

    def __str__(self) -> str:
        return self.text


def metric_names(expr: Expression) -> frozenset[str]:
    """The metric names that its selectors ask for literally."""
    return _named(expr.root)


def _named(node: Node) -> frozenset[str]:
    return frozenset(
        matcher.value
        for selector in _selectors(node)
        for matcher in selector.matchers
        if matcher.name == NAME and matcher.op == "="
    )


def speaks_of(expr: Expression) -> tuple[Selector, ...]:
    """The selectors whose series its result is made of: not those that only let through."""
    return tuple(_speaks_of(expr.root))


def _speaks_of(node: Node) -> Iterator[Selector]:
    if isinstance(node, Selector):
        yield node
    elif isinstance(node, Binary) and node.operator in ("and", "unless"):
        yield from _speaks_of(node.left)
    else:
        for child in children(node):
            yield from _speaks_of(child)


def names_its_metrics(expr: Expression) -> bool:
    """Whether each of its selectors asks for one metric by name, so that others cannot matter."""
    return all(names_one_metric(selector) for selector in _selectors(expr.root))


def _selectors(node: Node) -> Iterator[Selector]:
    return (each for each in walk(node) if isinstance(each, Selector))


@dataclass(frozen=True, slots=True)
class Dependence:
    """What the value of a node depends on, where time alone cannot change it.

    Once `metrics` have not changed, begun or ended for longer than `seconds`, neither has
    the value: each selector shows its metric as it is, or as it was a fixed time ago.
    """

    metrics: tuple[str, ...]
    seconds: float


def dependence(node: Node) -> Dependence | None:
    """What the node's value depends on; None: on time, on a window of it, or on any metric."""
    if is_of_time(node):
        return None
    for each in walk(node):
        if isinstance(each, Range | Subquery):
            return None
        if isinstance(each, Selector) and not names_one_metric(each):
            return None
    metrics = _named(node)
    return Dependence(tuple(sorted(metrics)), _settles_after(node)) if metrics else None


def settles_after(expr: Expression) -> float:
    """How long (seconds) after the last change of its metrics its value still may change.

    Where a storage tells that a series has ended, no selector looks back for longer than it
    says. Infinite for a fixed `@` time.
    """
    return _settles_after(expr.root)


def _settles_after(node: Node) -> float:
    return _reach(node, 0.0) + ROUNDING_SECONDS


def asks(expr: Expression) -> Callable[[str, Labels], bool]:
    """Whether one of its selectors picks the series of a given name and labels."""
    selectors = [selector.matchers for selector in _selectors(expr.root)]

    def asked(name: str, labels: Labels) -> bool:
        told = {**dict(labels), NAME: name}
        return any(
            all(_holds(matcher, told.get(matcher.name, "")) for matcher in matchers)
            for matchers in selectors
        )

    return asked


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
    """Whether it asks what time it is, so that its value changes without a new sample."""
    return is_of_time(expr.root)


def counts_samples(expr: Expression) -> bool:
    """Whether it matters how many samples there are, of series that do not change as well."""
    return any(
        isinstance(node, Call) and node.function in COUNTING_FUNCTIONS for node in walk(expr.root)
    )


def is_of_time(node: Node) -> bool:
    """Whether anything in it asks what time it is."""
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
    """The comparisons by which alone time can change which samples there are.

    Each compares what rises (or falls) with the time to what does not move, such as
    `time() - x > 60`; so while nothing else changes, a sample comes or goes but once.
    None: time may change them in other ways too.
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
    """Which way time alone moves the node's values: up (1), down (-1), not (0); None: unknown.

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


class Memory:
    """The last value of one node: `value` at the time `at`, and as long as it holds."""

    __slots__ = ("_changed_at", "_metrics", "_seconds", "at", "value")

    def __init__(self, on: Dependence, changed_at: ChangedAt) -> None:
        self.value: Value = 0.0
        self.at = math.inf
        self._metrics = on.metrics
        self._seconds = on.seconds
        self._changed_at = changed_at

    def holds(self, at: float) -> bool:
        """Whether the value at `at` is the last one."""
        return at >= self.at and self._changed_at(self._metrics) < self.at - self._seconds

    def keep(self, value: Value, at: float) -> None:
        """The node's value at `at`."""
        self.value, self.at = value, at


class Memo:
    """The memories of all nodes that an evaluator is asked, and which of them never fail.

    `changed_at` must tell of a change from the evaluation on in which it shows.
    """

    __slots__ = ("_changed_at", "_harmless", "_held", "_memories")

    def __init__(self, changed_at: ChangedAt) -> None:
        self._changed_at = changed_at
        self._memories: dict[int, Memory | None] = {}
        self._harmless: dict[int, bool] = {}
        self._held: list[Node] = []  # so that no other node gets the identity of one

    def of(self, node: Node) -> Memory | None:
        """The node's memory; None where its value may change by itself, or is quickly found."""
        try:
            return self._memories[id(node)]
        except KeyError:
            return self._begin(node)

    def _begin(self, node: Node) -> Memory | None:
        on = dependence(node) if isinstance(node, Aggregation | Binary | Call) else None
        memory = None if on is None else Memory(on, self._changed_at)
        self._held.append(node)
        self._memories[id(node)] = memory
        return memory

    def may_skip(self, node: Node) -> bool:
        """Whether the node need not be evaluated where its value does not matter."""
        harmless = self._harmless.get(id(node))
        if harmless is None:
            self._held.append(node)
            harmless = self._harmless[id(node)] = never_fails(node)
        return harmless
