"""An accepted expression, and what it tells of itself without being evaluated."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ldlm_monitor.model.points import Labels, Matcher
from ldlm_monitor.promql.floats import INF
from ldlm_monitor.promql.functions import DATES, compile_pattern
from ldlm_monitor.promql.labels import NAME
from ldlm_monitor.promql.nodes import (
    LOOKBACK,
    Aggregation,
    Binary,
    Call,
    Negation,
    Node,
    Range,
    Selector,
    Shift,
    Subquery,
)

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


def names_one_metric(selector: Selector) -> bool:
    """Whether it asks for one metric by name."""
    return any(matcher.name == NAME and matcher.op == "=" for matcher in selector.matchers)


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


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def depth(node: Node) -> int:
    """How many levels of nodes there are from this one down."""
    return 1 + max((depth(child) for child in children(node)), default=0)


def children(node: Node) -> tuple[Node, ...]:
    """The nodes that it is made of."""
    match node:
        case Range(selector=selector):
            return (selector,)
        case Subquery(operand=operand) | Negation(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Aggregation(operand=operand, parameter=parameter):
            return (operand,) if parameter is None else (parameter, operand)
        case Call(arguments=arguments):
            return arguments
    return ()


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
