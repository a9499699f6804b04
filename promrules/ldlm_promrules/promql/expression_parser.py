"""Parses an expression, or refuses it with the reason.

`promql_parser` checks syntax and types; its tree is copied into our nodes. Features that the
evaluator lacks, or that Prometheus 3 has only with a feature flag, are refused when a rule is
loaded.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import promql_parser

from ldlm_promrules.errors import RuleError, UnsupportedError, shorten
from ldlm_promrules.golang import compile_pattern
from ldlm_promrules.promql.expression import Expression
from ldlm_promrules.promql.expression_text import (
    APART,
    blanked,
    check_size,
    regex_of,
    without_regexes,
)
from ldlm_promrules.promql.floats import ARITHMETIC, COMPARISON
from ldlm_promrules.promql.functions import DATES, ELEMENTWISE, OVER_VECTOR
from ldlm_promrules.promql.nodes import (
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
    depth,
    walk,
)
from ldlm_promrules.promql.operators import AGGREGATIONS, SET_OPERATORS
from ldlm_promrules.promql.ranges import OVER_RANGE
from ldlm_promrules.promql.special import SPECIAL
from ldlm_promrules.samples import Matcher

FUNCTIONS = frozenset({*ELEMENTWISE, *OVER_VECTOR, *OVER_RANGE, *SPECIAL})  # all that are supported
EXPERIMENTAL = frozenset({"double_exponential_smoothing", "mad_over_time"})
"""Functions that Prometheus 3 has with `--enable-feature=promql-experimental-functions` alone."""


def unsupported(feature: str) -> UnsupportedError:
    """The error for a feature that Prometheus has, but this evaluator lacks."""
    return UnsupportedError(
        f"{feature} is not supported",
        remedy="rewrite the rule without it, or evaluate it in Prometheus",
    )


def translate(tree: Any) -> Node:
    """The node for a tree of `promql_parser`. Raises RuleError with the part that is refused."""
    handler = _TRANSLATIONS.get(type(tree))
    if handler is None:
        raise unsupported(type(tree).__name__)
    return handler(tree)


def _selector(tree: Any) -> Selector:
    if tree.matchers.or_matchers:
        raise unsupported("`or` between label matchers")
    matchers = []
    for each in tree.matchers.matchers:
        operator = _MATCH_OPS[str(each.op).rpartition(".")[2]]
        value = regex_of(each.value) if operator in {"=~", "!~"} else each.value
        matchers.append(Matcher(each.name, operator, value))
    if tree.name is not None:
        matchers.insert(0, Matcher(NAME, "=", tree.name))
    return Selector(tuple(matchers), _shift(tree))


def _shift(tree: Any) -> Shift:
    offset = tree.offset.total_seconds() if tree.offset is not None else 0.0
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


def _subquery(tree: Any) -> Subquery:
    step = None if tree.step is None else tree.step.total_seconds()
    return Subquery(translate(tree.expr), tree.range.total_seconds(), step, _shift(tree))


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
    many = _MANY.get(str(modifier.card).rpartition(".")[2])
    return Matching(on, labels, many, tuple(modifier.group_labels or ()) if many else ())


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
    name = tree.func.name
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
    """Refuse an empty name; since Prometheus 3 any other text may name a label."""
    if not label:
        raise RuleError(f"{function}: a label without a name", remedy="name the label")


# From names in the parser's enumerations to those of our nodes.
_MATCH_OPS: dict[str, Any] = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
_MANY: dict[str, Literal["left", "right"]] = {"ManyToOne": "left", "OneToMany": "right"}
_TRANSLATIONS: dict[type, Callable[[Any], Node]] = {
    promql_parser.NumberLiteral: lambda tree: Number(tree.val),
    promql_parser.StringLiteral: lambda tree: Text(tree.val),
    promql_parser.ParenExpr: lambda tree: translate(tree.expr),
    promql_parser.UnaryExpr: lambda tree: Negation(translate(tree.expr)),
    promql_parser.VectorSelector: _selector,
    promql_parser.MatrixSelector: lambda tree: Range(
        _selector(tree.vector_selector), tree.range.total_seconds()
    ),
    promql_parser.SubqueryExpr: _subquery,
    promql_parser.BinaryExpr: _binary,
    promql_parser.AggregateExpr: _aggregation,
    promql_parser.Call: _call,
}


MAX_DEPTH = 200
"""Levels of nesting at most. A choice: more would exceed Python's 1000 stack frames, of which each
level takes 3 to 5, and fewer could refuse a rule. Without enough frames, the error is the same."""
_EXPERIMENTAL: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"\[[^\[\]]*?(::)"), "an aligned subquery"),
    (re.compile(r"\[[^\[\]]*?([-+*/%^(]|\b(?:step|range|min|max)\b)"), "a duration expression"),
    (re.compile(r"\boffset\s*+[-+]?\s*+(\(|\w++\s*+\()", re.IGNORECASE), "a duration expression"),
    (re.compile(r"[\])}\w]\s*\b(anchored|smoothed)\b"), "the modifier {}"),
    (re.compile(r"\b(fill(?:_left|_right)?)\s*\("), "the modifier {}"),
    (re.compile(r"(</|>/)"), "the operator {}"),
)
"""Syntax that Prometheus accepts only with a feature flag, and `promql_parser` never: if
a pattern matches, its name replaces the parser's message, with group 1 of the match for `{}`."""
_HIGH_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\(?:x[89a-fA-F][\da-fA-F]|[23][0-7]{2})")
"""An escape above 127, such as `\\xff`, is refused: a byte in Prometheus, a character here."""
_SHOWN = 120  # characters of an expression in an error. A choice: more show more, fewer fit a line


def parse(
    text: str,
    *,
    any_type: bool = False,
    experimental: bool = False,
    ask: Callable[[], None] = lambda: None,
) -> Expression:
    """Parse `text` as an expression that yields an instant vector or a scalar.

    With `any_type` it may also yield a string or a range vector, as queries may; with
    `experimental` it may call the functions that Prometheus 3 has to switch on. Raises RuleError
    for wrong syntax, types, size or depth, UnsupportedError for features not supported, and what
    `ask` raises, which is called before each step that may take a quarter of a second.
    """
    try:
        check_size(text)
        root = translate(_parsed(text, ask))
        if depth(root) > MAX_DEPTH:
            raise RecursionError
        if not experimental:
            _check_stable(root)
        if isinstance(root, Text | Range | Subquery) and not any_type:
            kind = "a string" if isinstance(root, Text) else "a range vector"
            raise UnsupportedError(
                f"the expression yields {kind}", remedy="a rule needs an instant vector or a scalar"
            )
    except RecursionError:
        raise RuleError(
            f"nested deeper than {MAX_DEPTH} levels",
            where=_where(text),
            remedy="split it with a recording rule",
        ) from None
    except RuleError as problem:
        raise type(problem)(problem.what, where=_where(text), remedy=problem.remedy) from None
    return Expression(text, root)


def _check_stable(root: Node) -> None:
    for node in walk(root):
        if isinstance(node, Call) and node.function in EXPERIMENTAL:
            raise UnsupportedError(
                f"function {node.function} is experimental in Prometheus 3",
                remedy="allow it by `promql_experimental` in the settings, and in Prometheus by "
                "--enable-feature=promql-experimental-functions; or write it otherwise",
            )


def _parsed(text: str, ask: Callable[[], None]) -> Any:
    """The parser's tree. Text that Prometheus and the parser read differently is refused first."""
    rest = blanked(text)
    if re.search(r"(?<![\w:.])info\s*\(", rest):  # the parser takes its second argument for wrong
        raise unsupported("function info, which is experimental in Prometheus 3,")
    if re.search(r"@\s*-", rest):
        raise unsupported("`@` with a time before 1970")
    if any(each[0][0] not in "`#" and _HIGH_BYTE.search(each[0]) for each in APART.finditer(text)):
        raise unsupported("a byte above 127 that is written as an escape")
    try:
        return promql_parser.parse(without_regexes(text, ask))
    except ValueError as problem:
        message = str(problem)
    for pattern, name in _EXPERIMENTAL:
        if (found := pattern.search(rest)) is not None:
            raise unsupported(name.format(found[1]))
    unknown = re.fullmatch(r"unknown function with name '(.*)'", message)
    if unknown is not None:
        raise UnsupportedError(f"unknown function {unknown[1]}", remedy="check its spelling")
    raise RuleError(message.replace("invalid promql query", "bad syntax"))


def _where(text: str) -> str:
    return f"expression `{shorten(' '.join(text.split()), _SHOWN)}`"
