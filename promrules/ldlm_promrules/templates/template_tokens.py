"""The tokens of Go's templates. Source: Go's `text/template/parse/lex.go`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_SPACE = " \t\r\n"
_OPEN = re.compile(r"\{\{(?P<trim>-(?=[ \t\r\n]))?")
_CLOSE = re.compile(r"[ \t\r\n]*\}\}|(?P<trim>[ \t\r\n]+-)\}\}")
_COMMENT = re.compile(r"/\*(?:(?!\*/).)*\*/(?P<trim>[ \t\r\n]-)?\}\}", re.DOTALL)
_END = r"(?=[ \t\r\n.,|:)(]|\}\}|$)"  # what may follow a word (`atTerminator`)
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]*)(?:"
    r'(?P<string>"(?:[^"\\\n]|\\[^\n])*"|`[^`]*`)'
    r"|(?P<char>'(?:[^'\\\n]|\\[^\n])+')"
    rf"|(?P<variable>\$\w*){_END}"
    rf"|(?P<field>\.[^\W\d]\w*){_END}"
    r"|(?P<number>[+-]?(?:0[xX][\da-fA-F_]*(?:\.[\da-fA-F_]*)?(?:[pP][+-]?\d+)?|0[oO][0-7_]+"
    r"|0[bB][01_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?))(?!\w)"
    rf"|(?P<dot>\.){_END}"
    rf"|(?P<word>[^\W\d]\w*){_END}"
    r"|(?P<sign>:=|[=|(),]))"
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token of an action, or a text between actions."""

    kind: str  # a group of `_TOKEN`, or `text`, `close` or `end`
    text: str
    spaced: bool = False  # whether space precedes it


def tokens(source: str) -> Iterator[Token]:
    """The tokens of a template in order. Raises ValueError where Go's lexer reports an error."""
    position, trim = 0, False
    while (opened := _OPEN.search(source, position)) is not None:
        text = source[position : opened.start()]
        text = text.lstrip(_SPACE) if trim else text
        yield Token("text", text.rstrip(_SPACE) if opened["trim"] else text)
        position = opened.end()
        inside = position + bool(opened["trim"])
        if source.startswith("/*", inside):
            closed = _COMMENT.match(source, inside)
            if closed is None:
                raise ValueError("a comment is not closed by */}}")
        else:
            closed = yield from _action(source, position)
        position, trim = closed.end(), closed["trim"] is not None
    yield Token("text", source[position:].lstrip(_SPACE) if trim else source[position:])


def _action(source: str, position: int) -> Any:
    """Yields the tokens of an action, and returns the match of its end."""
    while (closed := _CLOSE.match(source, position)) is None:
        found = _TOKEN.match(source, position)
        if found is None:
            rest = source[position : position + 20].strip()
            raise ValueError(f"{rest!r} is no part of an action" if rest else "{{ is not closed")
        position = found.end()
        kind = str(found.lastgroup)
        yield Token(kind, found[kind], spaced=bool(found["space"]))
    yield Token("close", "}}")
    return closed
