"""Accepts an expression, or refuses it by the name of what is not supported.

`promql_parser` checks syntax and types; what passes it but is not evaluated here,
or is no PromQL of Prometheus 3 without feature flags, is refused when a rule is
loaded, so that nothing is ever evaluated to something else.
"""

import re
from typing import Any

import promql_parser

from ldlm_monitor.model.errors import RuleError, UnsupportedError
from ldlm_monitor.promql.expression import Expression, depth
from ldlm_monitor.promql.nodes import Range, Subquery, Text
from ldlm_monitor.promql.syntax import (
    experimental_feature,
    first_unexpected,
    high_byte,
    is_syntax,
    offset_of,
    place,
    tokens,
)
from ldlm_monitor.promql.translate import Refusal, translate, unsupported

MAX_DEPTH = 200
"""How deep an expression may nest; evaluation takes a few stack frames a level."""

promql_parser.register_extra_functions(
    [
        promql_parser.Function(
            "holt_winters",
            [
                promql_parser.ValueType.Matrix,
                promql_parser.ValueType.Scalar,
                promql_parser.ValueType.Scalar,
            ],
            promql_parser.ValueType.Vector,
        )
    ]
)


def parse(text: str) -> Expression:
    """Accept `text` as an expression that yields an instant vector or a scalar.

    Raises RuleError: bad syntax, wrong types; UnsupportedError: what we do not evaluate.
    Both name the place in the text where it can be told.
    """
    try:
        _refuse_what_the_parser_misreads(text)
        root = translate(_parsed(text))
        if depth(root) > MAX_DEPTH:
            raise RecursionError
    except RecursionError:
        raise RuleError(
            f"nested deeper than {MAX_DEPTH} levels",
            where=_where(text, None),
            remedy="split it with a recording rule",
        ) from None
    except Refusal as refusal:
        offset = refusal.offset
        if offset is None and refusal.word:
            offset = offset_of(text, refusal.word)
        error = UnsupportedError if refusal.unsupported else RuleError
        raise error(refusal.what, where=_where(text, offset), remedy=refusal.remedy) from None
    if isinstance(root, Text | Range | Subquery):
        kind = "a string" if isinstance(root, Text) else "a range vector"
        raise UnsupportedError(
            f"the expression yields {kind}",
            where=_where(text, None),
            remedy="a rule needs an instant vector or a scalar",
        )
    return Expression(text, root)


def _refuse_what_the_parser_misreads(text: str) -> None:
    found = re.search(r"@\s*-", _without_strings(text))
    if found is not None:
        raise unsupported("`@` with a time before 1970", offset=found.start())
    offset = high_byte(text)
    if offset is not None:
        raise unsupported("a byte above 127 that is written as an escape", offset=offset)


def _parsed(text: str) -> Any:
    try:
        return promql_parser.parse(text)
    except ValueError as problem:
        message = str(problem)
    feature = experimental_feature(text)
    if feature is not None:
        raise unsupported(feature[0], offset=feature[1])
    unknown = re.fullmatch(r"unknown function with name '(.*)'", message)
    if unknown is not None:
        raise Refusal(
            f"unknown function {unknown[1]}",
            offset=_call_of(text, unknown[1]),
            remedy="check its spelling",
            unsupported=True,
        )
    if is_syntax(message):
        token = first_unexpected(text, promql_parser.parse)
        if message == "invalid promql query":
            message = f"unexpected {token.text}" if token is not None else "unexpected end"
        raise Refusal(message, offset=len(text.rstrip()) if token is None else token.offset)
    named = re.search(r"(?:function|call to|illegal regex for) '?([^']+?)'?(?:,|$)", message)
    raise Refusal(message, word="" if named is None else named[1])


def _call_of(text: str, function: str) -> int | None:
    """Where a function is called first."""
    calls = (token.offset for token in tokens(text) if token.text == function)
    return next(calls, None)


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`')


def _without_strings(text: str) -> str:
    return _STRING.sub('""', text)


def _where(text: str, offset: int | None) -> str:
    line = " ".join(text.split())
    shown = f"expression `{line}`" if len(line) <= 120 else f"expression `{line[:119]}…`"
    return shown if offset is None else f"{shown}, {place(text, offset)}"
