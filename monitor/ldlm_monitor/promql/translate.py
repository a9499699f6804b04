"""Copies the tree of `promql_parser` into our nodes, and refuses what is not evaluated here."""

from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from typing import Any

import promql_parser

from ldlm_monitor.model.errors import RuleError, UnsupportedError
from ldlm_monitor.model.points import Matcher
from ldlm_monitor.promql.floats import ARITHMETIC, COMPARISON
from ldlm_monitor.promql.functions import DATES, ELEMENTWISE, OVER_VECTOR, compile_pattern
from ldlm_monitor.promql.nodes import (
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
from ldlm_monitor.promql.operators import AGGREGATIONS, SET_OPERATORS
from ldlm_monitor.promql.ranges import OVER_RANGE
from ldlm_monitor.promql.selection import SPECIAL

FUNCTIONS = frozenset({*ELEMENTWISE, *OVER_VECTOR, *OVER_RANGE, *SPECIAL})

_ALIASES = {"holt_winters": "double_exponential_smoothing"}
"""Names of Prometheus 2, which the parser of Prometheus 3 must be given."""
_OLD = promql_parser.Function(
    "holt_winters",
    [promql_parser.ValueType.Matrix, *[promql_parser.ValueType.Scalar] * 2],
    promql_parser.ValueType.Vector,
)
promql_parser.register_extra_functions([_OLD])


def unsupported(feature: str) -> UnsupportedError:
    """The refusal of a feature that Prometheus evaluates."""
    return UnsupportedError(
        f"{feature} is not supported",
        remedy="rewrite the rule without it, or evaluate it in Prometheus",
    )


def translate(tree: Any) -> Node:
    """The node of a tree. Raises RuleError naming what is not supported."""
    handler = _TRANSLATIONS.get(type(tree))
    if handler is None:
        raise unsupported(type(tree).__name__)
    return _shared(handler(tree))


@lru_cache(maxsize=4096)
def _shared(node: Node) -> Node:
    """The first of all equal nodes, so that equal nodes are evaluated once.

    The bound is that of all nodes of a hundred rules; beyond it equal nodes are evaluated twice.
    """
    return node


def _selector(tree: Any) -> Selector:
    if tree.matchers.or_matchers:
        raise unsupported("`or` between label matchers")
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
        raise unsupported("`@` with a time beyond the year 9999") from None


def _seconds(duration: timedelta) -> float:
    return duration.total_seconds()


def _matrix(tree: Any) -> Range:
    return Range(_selector(tree.vector_selector), _seconds(tree.range))


def _subquery(tree: Any) -> Subquery:
    step = None if tree.step is None else _seconds(tree.step)
    return Subquery(translate(tree.expr), _seconds(tree.range), step, _shift(tree))


def _binary(tree: Any) -> Binary:
    operator = str(tree.op).lower()
    if operator not in ARITHMETIC and operator not in COMPARISON and operator not in SET_OPERATORS:
        raise unsupported(f"the operator {operator}")
    modifier = tree.modifier
    as_bool = modifier is not None and modifier.return_bool
    left, right = translate(tree.lhs), translate(tree.rhs)
    return Binary(operator, left, right, as_bool, _matching(modifier))


def _matching(modifier: Any) -> Matching:
    if modifier is None:
        return Matching()
    fill = modifier.fill_values
    if fill is not None and (fill.lhs is not None or fill.rhs is not None):
        raise unsupported("the modifier fill")
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
        raise unsupported(f"aggregation {operator}")
    modifier = tree.modifier
    without = modifier is not None and str(modifier.type).endswith("Without")
    labels = tuple(modifier.labels) if modifier is not None else ()
    parameter = None if tree.param is None else translate(tree.param)
    if isinstance(parameter, Text):
        _check_label(parameter.value, "count_values")
    return Aggregation(operator, translate(tree.expr), parameter, without, labels)


def _call(tree: Any) -> Call:
    name = _ALIASES.get(tree.func.name, tree.func.name)
    if name not in FUNCTIONS:
        raise unsupported(f"function {name}")
    arguments = tuple(translate(argument) for argument in tree.args)
    if name in DATES and not arguments:
        arguments = (Call("vector", (Call("time", ()),)),)
    if name == "round" and len(arguments) == 1:
        arguments = (*arguments, Number(1.0))
    if name in {"label_replace", "label_join"}:
        texts = [argument.value for argument in arguments if isinstance(argument, Text)]
        for label in texts[:1] if name == "label_replace" else (texts[0], *texts[2:]):
            _check_label(label, name)
        if name == "label_replace":
            compile_pattern(texts[3])
    return Call(name, arguments)


def _check_label(label: str, function: str) -> None:
    """Any text may name a label since Prometheus 3, but for the empty one."""
    if not label:
        raise RuleError(f"{function}: a label without a name")


_MATCH_OPS: dict[str, Any] = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}
_TRANSLATIONS: dict[type, Callable[[Any], Node]] = {
    promql_parser.NumberLiteral: lambda tree: Number(tree.val),
    promql_parser.StringLiteral: lambda tree: Text(tree.val),
    promql_parser.ParenExpr: lambda tree: translate(tree.expr),
    promql_parser.UnaryExpr: lambda tree: Negation(translate(tree.expr)),
    promql_parser.VectorSelector: _selector,
    promql_parser.MatrixSelector: _matrix,
    promql_parser.SubqueryExpr: _subquery,
    promql_parser.BinaryExpr: _binary,
    promql_parser.AggregateExpr: _aggregation,
    promql_parser.Call: _call,
}
