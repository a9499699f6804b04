"""Accepts an expression, or refuses it by the name of what is not supported.

`promql_parser` checks syntax and types; what passes it but is not evaluated here,
or is no PromQL of Prometheus 3 without feature flags, is refused when a rule is
loaded, so that nothing is ever evaluated to something else.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

import promql_parser

from ldlm_monitor.errors import RuleError
from ldlm_monitor.points import Labels, Matcher
from ldlm_monitor.promql.aggregation import AGGREGATIONS
from ldlm_monitor.promql.floats import ARITHMETIC, COMPARISON, INF
from ldlm_monitor.promql.functions import DATES, ELEMENTWISE, OVER_VECTOR, compile_pattern
from ldlm_monitor.promql.matching import SET_OPERATORS
from ldlm_monitor.promql.nodes import (
    LOOKBACK,
    NAME,
    Aggregation,
    Binary,
    Call,
    Matching,
    Negation,
    Node,
    Number,
    Range,
    Selector,
    Shift,
    Subquery,
    Text,
)
from ldlm_monitor.promql.ranges import OVER_RANGE

SPECIAL_FUNCTIONS = frozenset(
    {"time", "pi", "vector", "scalar", "timestamp", "absent", "absent_over_time"}
)
FUNCTIONS = frozenset({*ELEMENTWISE, *OVER_VECTOR, *OVER_RANGE, *SPECIAL_FUNCTIONS})
MAX_DEPTH = 200
"""How deep an expression may nest; evaluation takes a few stack frames a level."""
TIME_FUNCTIONS = frozenset({"time", "timestamp", *DATES})


@dataclass(frozen=True, slots=True)
class Expression:
    """An accepted expression: its text and what it is made of."""

    text: str
    root: Node

    def __str__(self) -> str:
        return self.text


def parse(text: str) -> Expression:
    """Accept `text` as an expression that yields an instant vector or a scalar.

    Raises RuleError: bad syntax, wrong types, or something that is not supported.
    """
    if re.search(r"@\s*-", _without_strings(text)):
        raise _unsupported("`@` with a time before 1970", text)
    try:
        tree = promql_parser.parse(text)
    except ValueError as problem:
        raise RuleError(str(problem), where=f"expression {_shown(text)}") from problem
    try:
        root = _translate(tree)
        if _depth(root) > MAX_DEPTH:
            raise RecursionError
    except RecursionError:
        where = f"expression {_shown(text)}"
        raise RuleError(f"nested deeper than {MAX_DEPTH} levels", where=where) from None
    except RuleError as problem:
        where = f"expression {_shown(text)}"
        raise RuleError(problem.what, where=where, remedy=problem.remedy) from None
    if isinstance(root, Text | Range | Subquery):
        kind = "a string" if isinstance(root, Text) else "a range vector"
        raise RuleError(
            f"the expression yields {kind}",
            where=f"expression {_shown(text)}",
            remedy="a rule needs an instant vector or a scalar",
        )
    return Expression(text, root)


def metric_names(expr: Expression) -> frozenset[str]:
    """The metric names that its selectors ask for literally."""
    return frozenset(
        matcher.value
        for node in walk(expr.root)
        if isinstance(node, Selector)
        for matcher in node.matchers
        if matcher.name == NAME and matcher.op == "="
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


def _depth(node: Node) -> int:
    return 1 + max((_depth(child) for child in _children(node)), default=0)


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


def _translate(tree: Any) -> Node:
    handler = _TRANSLATIONS.get(type(tree))
    if handler is None:
        raise _unsupported(type(tree).__name__)
    return _shared(handler(tree))


@lru_cache(maxsize=4096)
def _shared(node: Node) -> Node:
    """The first of all equal nodes: what is equal is then the same, and evaluated once."""
    return node


def _selector(tree: Any) -> Selector:
    if tree.matchers.or_matchers:
        raise _unsupported("`or` between label matchers")
    matchers = [Matcher(m.name, _MATCH_OPS[str(m.op)], m.value) for m in tree.matchers.matchers]
    for matcher in matchers:
        if matcher.op in {"=~", "!~"}:
            compile_pattern(matcher.value)
    if tree.name is not None:
        matchers.insert(0, Matcher(NAME, "=", tree.name))
    return Selector(tuple(matchers), _shift(tree))


def _shift(tree: Any) -> Shift:
    offset = _seconds(tree.offset) if tree.offset is not None else 0.0
    if tree.at is None:
        return Shift(offset)
    kind = str(tree.at.type).rpartition(".")[2]
    if kind == "Start":
        return Shift(offset, "start")
    if kind == "End":
        return Shift(offset, "end")
    try:
        return Shift(offset, tree.at.at.timestamp())
    except (ValueError, OverflowError):
        raise _unsupported("`@` with a time beyond the year 9999") from None


def _seconds(duration: timedelta) -> float:
    return duration.total_seconds()


def _matrix(tree: Any) -> Range:
    return Range(_selector(tree.vector_selector), _seconds(tree.range))


def _subquery(tree: Any) -> Subquery:
    step = None if tree.step is None else _seconds(tree.step)
    return Subquery(_translate(tree.expr), _seconds(tree.range), step, _shift(tree))


def _binary(tree: Any) -> Binary:
    operator = str(tree.op).lower()
    if operator not in ARITHMETIC and operator not in COMPARISON and operator not in SET_OPERATORS:
        raise _unsupported(f"operator {operator}")
    modifier = tree.modifier
    as_bool = modifier is not None and modifier.return_bool
    left, right = _translate(tree.lhs), _translate(tree.rhs)
    return Binary(operator, left, right, as_bool, _matching(modifier))


def _matching(modifier: Any) -> Matching:
    if modifier is None:
        return Matching()
    fill = modifier.fill_values
    if fill is not None and (fill.lhs is not None or fill.rhs is not None):
        raise _unsupported("modifier fill")
    on = modifier.matching is not None and str(modifier.matching.type).endswith("Include")
    labels = tuple(modifier.matching.labels) if modifier.matching is not None else ()
    card = str(modifier.card).rpartition(".")[2]
    include = tuple(modifier.group_labels or ())
    if card == "ManyToOne":
        return Matching(on, labels, "left", include)
    if card == "OneToMany":
        return Matching(on, labels, "right", include)
    return Matching(on, labels)


def _aggregation(tree: Any) -> Aggregation:
    operator = str(tree.op).lower()
    if operator not in AGGREGATIONS:
        raise _unsupported(f"aggregation {operator}")
    modifier = tree.modifier
    without = modifier is not None and str(modifier.type).endswith("Without")
    labels = tuple(modifier.labels) if modifier is not None else ()
    parameter = None if tree.param is None else _translate(tree.param)
    return Aggregation(operator, _translate(tree.expr), parameter, without, labels)


def _call(tree: Any) -> Call:
    name = tree.func.name
    if name not in FUNCTIONS:
        raise _unsupported(f"function {name}")
    arguments = tuple(_translate(argument) for argument in tree.args)
    if name in DATES and not arguments:
        arguments = (Call("vector", (Call("time", ()),)),)
    if name == "round" and len(arguments) == 1:
        arguments = (*arguments, Number(1.0))
    if name == "label_replace" and isinstance(arguments[4], Text):
        compile_pattern(arguments[4].value)
    return Call(name, arguments)


_MATCH_OPS: dict[str, Any] = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}
_TRANSLATIONS: dict[type, Callable[[Any], Node]] = {
    promql_parser.NumberLiteral: lambda tree: Number(tree.val),
    promql_parser.StringLiteral: lambda tree: Text(tree.val),
    promql_parser.ParenExpr: lambda tree: _translate(tree.expr),
    promql_parser.UnaryExpr: lambda tree: Negation(_translate(tree.expr)),
    promql_parser.VectorSelector: _selector,
    promql_parser.MatrixSelector: _matrix,
    promql_parser.SubqueryExpr: _subquery,
    promql_parser.BinaryExpr: _binary,
    promql_parser.AggregateExpr: _aggregation,
    promql_parser.Call: _call,
}

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`')


def _without_strings(text: str) -> str:
    return _STRING.sub('""', text)


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return f"`{line}`" if len(line) <= 120 else f"`{line[:119]}…`"


def _unsupported(feature: str, text: str = "") -> RuleError:
    return RuleError(
        f"{feature} is not supported",
        where=f"expression {_shown(text)}" if text else "",
        remedy="rewrite the rule without it, or evaluate it in Prometheus",
    )
