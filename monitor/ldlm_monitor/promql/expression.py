"""An accepted expression, and what it tells of itself without being evaluated."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ldlm_monitor.points import Labels, Matcher
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


@dataclass(frozen=True, slots=True)
class Expression:
    """An accepted expression: its text and what it is made of."""

    text: str
    root: Node

    def __str__(self) -> str:
        return self.text


def metric_names(expr: Expression) -> frozenset[str]:
    """The metric names that its selectors ask for literally."""
    return frozenset(
        matcher.value
        for node in walk(expr.root)
        if isinstance(node, Selector)
        for matcher in node.matchers
        if matcher.name == NAME and matcher.op == "="
    )


def names_its_metrics(expr: Expression) -> bool:
    """Whether each of its selectors asks for one metric by name, so that others cannot matter."""
    return all(
        any(matcher.name == NAME and matcher.op == "=" for matcher in node.matchers)
        for node in walk(expr.root)
        if isinstance(node, Selector)
    )


def asks(expr: Expression) -> Callable[[str, Labels], bool]:
    """Whether one of its selectors picks the series of a given name and labels."""
    selectors = [node.matchers for node in walk(expr.root) if isinstance(node, Selector)]

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
    return _reach(expr.root)


def uses_time(expr: Expression) -> bool:
    """Whether it asks what time it is, so that its value changes without a new sample."""
    return any(
        isinstance(node, Call) and node.function in TIME_FUNCTIONS for node in walk(expr.root)
    )


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    yield node
    for child in _children(node):
        yield from walk(child)


def depth(node: Node) -> int:
    """How many levels of nodes there are from this one down."""
    return 1 + max((depth(child) for child in _children(node)), default=0)


def _children(node: Node) -> tuple[Node, ...]:
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


def _reach(node: Node) -> float:
    match node:
        case Selector(shift=shift):
            return _shift_reach(shift) + LOOKBACK
        case Range(selector=selector, seconds=seconds):
            return _shift_reach(selector.shift) + seconds
        case Subquery(operand=operand, seconds=seconds, shift=shift):
            return _shift_reach(shift) + seconds + _reach(operand)
    return max((_reach(child) for child in _children(node)), default=0.0)


def _shift_reach(shift: Shift) -> float:
    return INF if isinstance(shift.anchor, float) else max(shift.offset, 0.0)
