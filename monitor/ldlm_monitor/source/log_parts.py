"""The parts of a big log that are to be read first: its start and its end.

Of a log of 100 GB the start (configuration, world size) and the last part decide
what is to be said now. What lies between is read afterwards, or skipped and said so.

Byte offsets are always exact. Line numbers behind the middle are not known until the
middle's lines are counted: they are estimated from the length of the lines that were
seen, and say so (`Span.exact`), so that an offset can be shown in their place;
`count_lines` gives the true number at the speed of the disk.

Reads only the part of a log that is looked at, whatever the file's size.

Records end at `\n`, `\r\n` or a bare `\r`, as when they are followed.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ldlm_monitor.source.file_system import Disk

BUDGET_BYTES = 64 * 1024 * 1024
START_BYTES = 1024 * 1024
BLOCK_BYTES = 1024 * 1024
COUNTED_BYTES = 64 * 1024 * 1024
"""`count_lines` hands control back so often."""
_SIZES = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `start` to `end` of a file; both stand between records.

    `line` (1-based, counts `\\n`) is that of `start`; it is an estimate unless `exact`.
    """

    start: int
    end: int
    line: int
    exact: bool = True

    @property
    def size(self) -> int:
        """Bytes in it."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A file's first part, its last part, and what lies between; a short file is all `first`.

    Read `first` and `last` first. `middle` is read afterwards (its line is exact), or
    skipped.
    """

    first: Span
    middle: Span | None = None
    last: Span | None = None

    def spans(self) -> tuple[Span, ...]:
        """What is to be read first, in order."""
        return (self.first,) if self.last is None else (self.first, self.last)

    def counted(self, lines: int) -> Excerpt:
        """With the true line of `last`, when `lines` were counted in the middle."""
        if self.middle is None or self.last is None:
            return self
        return replace(self, last=replace(self.last, line=self.middle.line + lines, exact=True))

    def note(self, *, skipped: bool) -> str:
        """What to say of it; empty where the whole file is read in order."""
        if self.middle is None or self.last is None:
            return ""
        fate = "skipped" if skipped else "read afterwards"
        return (
            f"its first {_size(self.first.size)} and last {_size(self.last.size)} are read first; "
            f"{_size(self.middle.size)} between them (bytes {self.middle.start} to "
            f"{self.middle.end}) are {fate}"
        )


def excerpt(
    descriptor: int,
    size: int,
    *,
    budget: int = BUDGET_BYTES,
    start: int = START_BYTES,
    disk: Disk | None = None,
) -> Excerpt:
    """What to read first of a file of `size` bytes: at most `budget`, `start` of it at its start.

    A record that begins in the first part belongs to it, whole. A file that is not
    bigger, or that shows no end of a record where it would be cut, is not cut. Reads
    about `start` bytes. Raises `OSError`.
    """
    disk = Disk() if disk is None else disk
    whole = Excerpt(Span(0, size, 1))
    if size <= budget:
        return whole
    tail = size - max(budget - start, 0)
    end = _record_end(disk, descriptor, start, tail)
    begin = None if end is None else _record_end(disk, descriptor, max(tail, end), size)
    if end is None or begin is None or begin <= end:
        return whole
    newlines = sum(disk.pread(descriptor, n, at).count(b"\n") for at, n in _blocks(0, end))
    first, middle = Span(0, end, 1), Span(end, begin, 1 + newlines)
    guess = middle.line + round(middle.size * newlines / end)
    return Excerpt(first, middle, Span(begin, size, guess, exact=False))


def count_lines(descriptor: int, span: Span, *, disk: Disk | None = None) -> Iterator[int]:
    """`\\n` in `span`, counted so far, after every 64 MiB; the last one given is the answer.

    Holes are jumped over. Raises `OSError`.
    """
    disk = Disk() if disk is None else disk
    count, at, told = 0, span.start, span.start
    while at < span.end:
        data = disk.pread(descriptor, min(BLOCK_BYTES, span.end - at), at)
        if not data:  # truncated meanwhile
            break
        count += data.count(b"\n")
        at += len(data)
        if data.count(0) == len(data):
            at = min(_after_hole(disk, descriptor, at), span.end)
        if at - told >= COUNTED_BYTES:
            told = at
            yield count
    yield count


def _record_end(disk: Disk, descriptor: int, start: int, stop: int) -> int | None:
    """Where the first record that begins behind `start` begins, if before `stop`."""
    at = start
    while at < stop:
        data = disk.pread(descriptor, min(BLOCK_BYTES, stop - at), at)
        if not data:
            return None
        newline, carriage = data.find(b"\n"), data.find(b"\r")
        if newline < 0 and carriage < 0:
            at += len(data)
            if data.count(0) == len(data):
                at = _after_hole(disk, descriptor, at)
            continue
        found = newline if carriage < 0 else carriage if newline < 0 else min(newline, carriage)
        found = at + found
        if disk.pread(descriptor, 2, found) == b"\r\n":
            found += 1
        return found + 1 if found + 1 < stop else None
    return None


def _after_hole(disk: Disk, descriptor: int, at: int) -> int:
    """Where data begins again at or behind `at`; the file's end where there is none."""
    with contextlib.suppress(OSError):
        return disk.lseek(descriptor, at, os.SEEK_DATA)
    return disk.fstat(descriptor).st_size


def _blocks(start: int, end: int) -> Iterator[tuple[int, int]]:
    for at in range(start, end, BLOCK_BYTES):
        yield at, min(BLOCK_BYTES, end - at)


def _size(count: int) -> str:
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


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
