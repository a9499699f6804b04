"""Accepts an expression, or refuses it by the name of what is not supported.

`promql_parser` checks syntax and types. What it accepts but is not evaluated here, or is no
PromQL of Prometheus 3 without feature flags, is refused when a rule is loaded.
"""

import re
from collections.abc import Sequence
from typing import Any

import promql_parser

from ldlm_monitor.model.errors import RuleError, UnsupportedError
from ldlm_monitor.promql.analysis import Expression
from ldlm_monitor.promql.nodes import Range, Subquery, Text, depth
from ldlm_monitor.promql.translate import translate, unsupported

MAX_DEPTH = 200
"""Limit of nesting: evaluation uses 3 to 5 of Python's 1000 stack frames a level."""

_EXPERIMENTAL: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"\[[^\]]*?(::)"), "an aligned subquery"),
    (re.compile(r"\[[^\]]*?([-+*/%^(]|\b(?:step|range|min|max)\b)"), "a duration expression"),
    (re.compile(r"\boffset\s*[-+]?\s*(\(|\w+\s*\()", re.IGNORECASE), "a duration expression"),
    (re.compile(r"[\])}\w]\s*\b(anchored|smoothed)\b"), "the modifier {}"),
    (re.compile(r"\b(fill(?:_left|_right)?)\s*\("), "the modifier {}"),
    (re.compile(r"(</|>/)"), "the operator {}"),
)
"""What needs a feature flag of Prometheus: the parser calls it bad syntax."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`', re.DOTALL)
_COMMENT = re.compile(r"#[^\n]*")
_HIGH_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\(?:x[89a-fA-F][\da-fA-F]|[23][0-7]{2})")


def parse(text: str) -> Expression:
    """Accept `text` as an expression that yields an instant vector or a scalar.

    Raises RuleError: bad syntax, wrong types; UnsupportedError: what we do not evaluate.
    """
    try:
        root = translate(_parsed(text))
        if depth(root) > MAX_DEPTH:
            raise RecursionError
        if isinstance(root, Text | Range | Subquery):
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


def _parsed(text: str) -> Any:
    """The parser's tree. Refuses first what the parser misreads."""
    strings = _STRING.findall(text)
    rest = _COMMENT.sub("", _STRING.sub('""', text))
    if re.search(r"@\s*-", rest):
        raise unsupported("`@` with a time before 1970")
    if any(_HIGH_BYTE.search(string) for string in strings if string[0] != "`"):
        raise unsupported("a byte above 127 that is written as an escape")
    try:
        return promql_parser.parse(text)
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
    line = " ".join(text.split())
    return f"expression `{line}`" if len(line) <= 120 else f"expression `{line[:119]}…`"
