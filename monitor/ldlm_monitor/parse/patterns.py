"""Patterns over log text: google-re2 on bytes, so that no line can make one slow.

Bytes are read as Latin-1: text that is not valid UTF-8 matches like any other,
and every index is a byte index. `{{number}}` in a pattern stands for the number
grammar of `vocabulary`, `{{quantity}}` for that of `quantities`, `{{nccl_warn}}` for the
header of NCCL's warnings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import re2

from ldlm_monitor.parse.quantities import QUANTITY
from ldlm_monitor.parse.vocabulary import NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterator


_NCCL_WARN = (
    r"(?:(?P<host>[\w.\-]+):(?P<pid>\d+):(?P<tid>\d+) \[(?P<cuda_device>\d+)\] "
    r"(?:(?P<source>[\w./\-]+:\d+) )?(?:\((?P<function>[\w:~]+)\) )?NCCL WARN )"
)
"""`{host}:{pid}:{tid} [{device}] {file}:{line} ({function}) NCCL WARN` (NCCL src/debug.cc)."""
_PHRASES = {"{{number}}": NUMBER, "{{quantity}}": QUANTITY, "{{nccl_warn}}": _NCCL_WARN}
_WORD_BYTES = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_+-."


class Found(Protocol):
    """A match, as re2 gives it."""

    def span(self, group: int = 0) -> tuple[int, int]:
        """Byte indices of a group; (-1, -1) where it took no part."""
        ...

    def groups(self) -> tuple[bytes | None, ...]:
        """The text of every group."""
        ...


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern; `groups` are its named groups by index."""

    text: str
    groups: tuple[tuple[str, int], ...]
    _compiled: Any

    def match(self, text: bytes, start: int = 0) -> Found | None:
        """A match that begins exactly at `start`."""
        found: Found | None = self._compiled.match(text, start)
        return found

    def search(self, text: bytes, start: int = 0) -> Found | None:
        """The first match at or after `start`."""
        found: Found | None = self._compiled.search(text, start)
        return found

    def finditer(self, text: bytes) -> Iterator[Found]:
        """Every match, front to back."""
        found: Iterator[Found] = self._compiled.finditer(text)
        return found

    def named(self, match: Found, until: int | None = None) -> dict[str, bytes]:
        """The named groups that took part in a match; `until`: only those that end by there."""
        values = match.groups()
        return {
            name: value
            for name, index in self.groups
            if (value := values[index - 1]) is not None
            and (until is None or match.span(index)[1] <= until)
        }


def certain(text: bytes, *, closed: bool) -> int:
    """Up to where a text is sure: without its end of line, the last word may be cut short."""
    return len(text) if closed else len(text.rstrip(_WORD_BYTES + b","))


def compile_pattern(text: str) -> Pattern:
    """Compile a pattern. Raises `re2.error`."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    source = text
    for name, phrase in _PHRASES.items():
        source = source.replace(name, phrase)
    compiled = re2.compile(source.encode(), options)
    groups = tuple(
        (name.decode(), index)
        for name, index in sorted(compiled.groupindex.items(), key=lambda item: item[1])
    )
    return Pattern(text, groups, compiled)
