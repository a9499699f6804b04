"""Accepts an expression, or refuses it by the name of what is not supported.

`promql_parser` checks syntax and types. What it accepts but is not evaluated here, or is no
PromQL of Prometheus 3 without feature flags, is refused when a rule is loaded. The parser's
errors have no position, so that it is searched for in the text.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import promql_parser

from ldlm_monitor.model.errors import RuleError, UnsupportedError
from ldlm_monitor.promql.analysis import Expression
from ldlm_monitor.promql.nodes import Range, Subquery, Text, depth
from ldlm_monitor.promql.translate import Refusal, translate, unsupported

Kind: TypeAlias = Literal["text", "comment", "word", "number", "sign"]

_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
    |(?P<comment>\#[^\n]*)
    |(?P<word>[a-zA-Z_:][\w:]*)
    |(?P<number>(?:\d[\w.]*|\.\d\w*)(?:(?<=[eE])[+-]?\d+)?)
    |(?P<sign>=~|!~|[=!<>]=|\S)""",
    re.VERBOSE | re.DOTALL,
)
_SYNTAX = re.compile(
    r"invalid promql query|unexpected |unclosed |bad number|not a valid duration"
    r"|unknown escape|ParseFloatError|vector selector must contain"
)
"""The parser's messages about syntax; all others are about types and names."""

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_ENDINGS = {
    "(": (")", "x)", "1)", "x[1m])", ") (x)", "x) (x)", "(x))", "(x) (x))", "1m)", "'x')"),
    "[": ("]", "1m]", ":]", "m]"),
    "{": ("}", "x='x'}", "='x'}", "'x'}", "~'x'}"),
    "": ("", " x", " 1", "(x)", " (x) x", " (x) (x)", "~'x'", "= x", " 1m", "m"),
}

_EXPERIMENTAL: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"\[[^\]]*?(::)"), "an aligned subquery"),
    (re.compile(r"\[[^\]]*?([-+*/%^(]|\b(?:step|range|min|max)\b)"), "a duration expression"),
    (re.compile(r"\boffset\s*[-+]?\s*(\(|\w+\s*\()", re.IGNORECASE), "a duration expression"),
    (re.compile(r"[\])}\w]\s*\b(anchored|smoothed)\b"), "the modifier {}"),
    (re.compile(r"\b(fill(?:_left|_right)?)\s*\("), "the modifier {}"),
    (re.compile(r"(</|>/)"), "the operator {}"),
)
_HIGH_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\(?:x[89a-fA-F][\da-fA-F]|[23][0-7]{2})")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of an expression and where it begins."""

    kind: Kind
    text: str
    offset: int


def tokens(text: str) -> list[Token]:
    """The pieces of an expression, comments left out."""
    found = (
        Token(cast(Kind, match.lastgroup), match[0], match.start())
        for match in _TOKEN.finditer(text)
    )
    return [token for token in found if token.kind != "comment"]


def place(text: str, offset: int) -> str:
    """`column 7`, or `line 2, column 7` where the text has several lines; both from 1."""
    line = text.count("\n", 0, offset)
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    return f"line {line + 1}, column {column}" if "\n" in text.strip() else f"column {column}"


def offset_of(text: str, word: str) -> int | None:
    """The offset of a string or token `word`; None unless there is exactly one."""
    found = tokens(text)
    quoted = [token.offset for token in found if token.kind == "text" and token.text[1:-1] == word]
    bare = [token.offset for token in found if token.text.lower() == word.lower()]
    places = quoted or bare
    return places[0] if len(places) == 1 else None


def experimental_feature(text: str) -> tuple[str, int] | None:
    """A feature in the text that needs a feature flag of Prometheus, and its offset."""
    blank = list(text)
    for token in tokens(text):
        if token.kind == "text":
            blank[token.offset : token.offset + len(token.text)] = '"' * len(token.text)
    for pattern, name in _EXPERIMENTAL:
        found = pattern.search("".join(blank))
        if found is not None:
            return name.format(found[1]), found.start(1)
    return None


def high_byte(text: str) -> int | None:
    """The offset of an escaped byte above 127 in a string: the parser reads it as a character."""
    for token in tokens(text):
        found = _HIGH_BYTE.search(token.text) if token.kind == "text" else None
        if found is not None and token.text[0] != "`":
            return token.offset + found.start()
    return None


def first_unexpected(text: str, parse: Callable[[str], object]) -> Token | None:
    """The first token after which no expression is possible; None if the text ends too early.

    It tries whether the tokens before it can be completed to an expression.
    """
    found = tokens(text)

    def is_dead_end(count: int) -> bool:
        end = found[count - 1].offset + len(found[count - 1].text) if count else 0
        return not any(_reads(parse, text[:end] + ending) for ending in _endings(found[:count]))

    count = bisect_left(range(len(found) + 1), True, key=is_dead_end)
    return found[count - 1] if count <= len(found) else None


def _endings(found: list[Token]) -> list[str]:
    """Texts that may complete the tokens, by the innermost open bracket."""
    opened: list[str] = []
    for token in found:
        if token.kind == "sign" and token.text in _CLOSING:
            opened.append(token.text)
        elif opened and token.text == _CLOSING[opened[-1]]:
            opened.pop()
    innermost = opened.pop() if opened else ""
    outer = "".join(_CLOSING[bracket] for bracket in reversed(opened))
    return [
        ending + outer + rest
        for ending in _ENDINGS[innermost]
        for rest in ("", " (x)", " (x) (x)")
        if innermost or not rest
    ]


def _reads(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError as problem:
        return _SYNTAX.search(str(problem)) is None
    return True


def is_syntax(message: str) -> bool:
    """Whether the parser's message is about syntax."""
    return _SYNTAX.search(message) is not None


MAX_DEPTH = 200
"""Limit of nesting: evaluation uses 3 to 5 of Python's 1000 stack frames a level."""

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
    Both have the position in the text, where it can be found.
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
    """The offset of the first call of a function."""
    calls = (token.offset for token in tokens(text) if token.text == function)
    return next(calls, None)


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`')


def _without_strings(text: str) -> str:
    return _STRING.sub('""', text)


def _where(text: str, offset: int | None) -> str:
    line = " ".join(text.split())
    shown = f"expression `{line}`" if len(line) <= 120 else f"expression `{line[:119]}…`"
    return shown if offset is None else f"{shown}, {place(text, offset)}"
