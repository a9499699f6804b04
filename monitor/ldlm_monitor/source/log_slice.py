r"""Reads only the part of a log that is looked at, whatever the file's size.

Records end at `\n`, `\r\n` or a bare `\r`, as when they are followed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

BLOCK = 256 * 1024
LOOKED_AT = 64 * 1024 * 1024
"""Bytes that one question looks at, at most."""
COUNTED = 32 * 1024 * 1024
"""Lines are counted from the start of the file where it is no further than this."""
LONGEST = 64 * 1024
"""A record is cut there, for the screen."""
ENDLESS = 1024 * 1024
"""Bytes without the end of a record count as one."""


@dataclass(frozen=True, slots=True)
class RawLine:
    r"""One record's bytes without its end; `newlines` is 1 where that end is a `\n`.

    A terminal overwrites what ends with a bare `\r`. `is_open`: no end was written yet.
    """

    offset: int
    end: int
    text: bytes
    newlines: int
    overwritten: bool
    is_open: bool


class OpenLog:
    """A file that is open for looking into it, up to byte `limit`. Raises `OSError`."""

    def __init__(self, path: str, limit: float = math.inf) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = int(min(os.fstat(self._descriptor).st_size, limit))

    def close(self) -> None:
        """Release the file."""
        os.close(self._descriptor)

    def after(self, at: int) -> Iterator[RawLine]:
        """The records from byte `at` on."""
        rest, offset = b"", at
        for block_at in range(at, min(self.size, at + LOOKED_AT), BLOCK):
            size = min(BLOCK, self.size - block_at)
            data = rest + os.pread(self._descriptor, size, block_at)
            final = block_at + BLOCK >= self.size
            pieces, rest = _split(data, final=final)
            for piece in pieces:
                yield _raw(offset, piece)
                offset += len(piece)

    def before(self, at: int) -> Iterator[RawLine]:
        """The records before byte `at`, the last one first."""
        end, rest, lowest = at, b"", max(at - LOOKED_AT, 0)
        while end > lowest:
            start = max(end - BLOCK, lowest)
            data = os.pread(self._descriptor, end - start, start) + rest
            pieces = data.splitlines(keepends=True)
            held = pieces[0] if start > 0 and pieces else b""
            offset = start + len(data)
            for piece in reversed(pieces[1:] if start > 0 else pieces):
                offset -= len(piece)
                yield _raw(offset, piece)
            rest, end = held, start
            if len(rest) > ENDLESS:  # no end of a record in sight: what is there is shown
                yield _raw(end, rest)
                rest = b""
        if rest and end > 0:
            yield _raw(end, rest)

    def line_number(self, at: int) -> int | None:
        """The number of the line in which byte `at` stands, None where that is far."""
        if at > COUNTED:
            return None
        count = 0
        for start in range(0, at, BLOCK):
            size = min(BLOCK, at - start)
            count += os.pread(self._descriptor, size, start).count(b"\n")
        return count + 1

    def offset_of(self, line: int) -> int:
        """Where a line (1-based) begins; the end of the file where it has fewer lines."""
        left = line - 1
        for start in range(0, self.size, BLOCK):
            data = os.pread(self._descriptor, BLOCK, start)
            count = data.count(b"\n")
            if count >= left:
                place = 0
                for _ in range(left):
                    place = data.index(b"\n", place) + 1
                return start + place
            left -= count
        return self.size

    def find(self, text: str, at: int, *, backwards: bool) -> tuple[int | None, int]:
        """Where the next record that holds `text` begins, and how far was looked."""
        wanted = text.encode("utf-8", "surrogateescape").lower()
        looked = at
        for line in self.before(at) if backwards else self.after(at):
            looked = line.offset if backwards else line.end
            if wanted in line.text.lower():
                return line.offset, looked
        return None, looked


def take(
    lines: Iterator[RawLine], count: int, wanted: Callable[[RawLine], bool]
) -> tuple[list[RawLine], RawLine | None]:
    """Up to `count` records that are wanted, and the last one that was looked at."""
    kept: list[RawLine] = []
    last: RawLine | None = None
    while len(kept) < count and (line := next(lines, None)) is not None:
        last = line
        if wanted(line):
            kept.append(line)
    return kept, last


def _split(data: bytes, *, final: bool) -> tuple[list[bytes], bytes]:
    """Whole records, and what may go on in the next block."""
    pieces = data.splitlines(keepends=True)
    if final or not pieces:
        return pieces, b""
    if not pieces[-1].endswith(b"\n") and len(pieces[-1]) < ENDLESS:
        return pieces[:-1], pieces[-1]
    return pieces, b""


def _raw(offset: int, piece: bytes) -> RawLine:
    text = piece.rstrip(b"\r\n")[:LONGEST]
    ends = piece.endswith(b"\n"), piece.endswith(b"\r")
    return RawLine(offset, offset + len(piece), text, int(ends[0]), ends[1], not any(ends))
