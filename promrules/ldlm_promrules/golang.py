"""Go's literals, how it prints numbers and texts, and the templates of its regular expressions."""

import math
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

import re2

from ldlm_promrules.errors import RuleError

LITERAL = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`'
"""A string literal of Go or PromQL, for `re` with DOTALL."""
_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"
}  # fmt: skip
# An escape of Go (`strconv.UnquoteChar`); the last group has any other character.
_ESCAPE = re.compile(
    r"\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-3][0-7]{2})|(.|$))", re.DOTALL
)
# `$$`, `${name}` or `$name` in a template: the grammar of Go's `Regexp.Expand`.
_REFERENCE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))", re.ASCII)

_QUOTED = {
    "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v",
    "\\": r"\\", '"': r"\"",
}  # fmt: skip


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


@lru_cache(maxsize=1024)
# Patterns: far more than the packaged rules and boards have. More would cost memory, since queries
# over HTTP may have ever new ones.
def compile_pattern(pattern: str) -> Any:
    """Compile a pattern of PromQL; `.` matches line feeds, as in Prometheus 3. Raises RuleError."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(f"(?s:{pattern})", options)
    except re2.error as problem:
        raise RuleError(f"invalid regular expression {pattern!r} (RE2)") from problem


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


def quoted(text: str) -> str:
    """Go's `%q`: in double quotes, what does not print escaped."""

    def escaped(character: str) -> str:
        if character in _QUOTED:
            return _QUOTED[character]
        if character.isprintable():
            return character
        code = ord(character)
        form = f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}"
        return form if code < 0x10000 else f"\\U{code:08x}"

    return f'"{"".join(map(escaped, text))}"'


def go_float(value: float) -> str:
    """Go's `%v`: the fewest digits that keep the value; an exponent from 1e+06 on or below 1e-4."""
    if not math.isfinite(value):
        return not_finite(value)
    exact = Decimal(repr(value)).normalize()
    if -4 <= exact.adjusted() < 6:
        return format(exact, "f")
    return f"{value:.{len(exact.as_tuple().digits) - 1}e}"


def not_finite(value: float) -> str:
    """NaN or an infinity."""
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"
