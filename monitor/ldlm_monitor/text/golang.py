"""Go's string literals and the templates of its regular expressions, which Prometheus uses."""

import re
from typing import Any

_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"
}  # fmt: skip
# An escape of Go (`strconv.UnquoteChar`); the last group has any other character.
_ESCAPE = re.compile(
    r"\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-3][0-7]{2})|(.|$))", re.DOTALL
)
# `$$`, `${name}` or `$name` in a template: the grammar of Go's `Regexp.Expand`.
_REFERENCE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))", re.ASCII)


def unquoted(literal: str) -> str:
    """The text of a literal in double, single or back quotes. Raises ValueError for bad escapes.

    Bytes that escapes such as `\\xff` write, and that are no UTF-8, become U+FFFD, as Prometheus
    makes them valid before it sends a text.
    """
    quote, inner = literal[0], literal[1:-1]
    if quote == "`":
        return inner.replace("\r", "")

    def plain(found: re.Match[str]) -> bytes:
        byte, short, long, octal, other = found.groups()
        if byte or octal:
            return bytes([int(byte, 16) if byte else int(octal, 8)])
        if short or long:
            code = int(short or long, 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise ValueError(f"the escape {found[0]} is no character")
            return chr(code).encode()
        if other == quote:
            return quote.encode()
        if other not in _SIMPLE:
            raise ValueError(f"the escape {found[0]} does not exist in Go")
        return _SIMPLE[other].encode()

    parts: list[bytes] = []
    position = 0
    for found in _ESCAPE.finditer(inner):
        parts += inner[position : found.start()].encode("utf-8", "replace"), plain(found)
        position = found.end()
    return b"".join([*parts, inner[position:].encode("utf-8", "replace")]).decode(
        "utf-8", "replace"
    )


def expanded(template: str, match: Any) -> str:
    """`template` with its references replaced by the groups of a match of RE2."""

    def filled(reference: re.Match[str]) -> str:
        if reference[1]:
            return "$"
        name = reference[2] or reference[3]
        if name.isdecimal():
            number = int(name)
            return (match.group(number) or "") if number <= match.re.groups else ""
        return match.groupdict().get(name) or ""

    return _REFERENCE.sub(filled, template)
