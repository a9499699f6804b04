r"""Parts of a big log: those to read first, and those that a screen shows.

`excerpt` chooses what to read first of a log of, say, 100 GB: its start (configuration,
world size) and its end decide the first verdict. The middle is read later, or skipped.
Byte offsets are exact. A line number after the middle is an estimate (`ByteSpan.exact` is
False) until `count_lines` has counted the middle, at the speed of the disk.

`LogReader` reads only the part that a screen shows, whatever the file's size. Records end at
`\n`, `\r\n` or a bare `\r`, as in `split`.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ldlm_monitor.source.file_system import Disk
from ldlm_monitor.text.format import byte_size

BUDGET_BYTES = 64 * 1024 * 1024
"""Read before the first verdict: a few seconds of parsing."""
START_BYTES = 1024 * 1024
"""A launch prints its configuration and world size well within the first MiB."""
BLOCK_BYTES = 1024 * 1024
COUNTED_BYTES = 64 * 1024 * 1024
"""`count_lines` yields after so many bytes: some 20 ms from the page cache."""


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """Bytes `start` to `end` of a file; both lie between records.

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

    first: ByteSpan
    middle: ByteSpan | None = None
    last: ByteSpan | None = None

    def spans(self) -> tuple[ByteSpan, ...]:
        """The spans to read first, in order."""
        return (self.first,) if self.last is None else (self.first, self.last)

    def counted(self, lines: int) -> Excerpt:
        """The excerpt with the exact line of `last`, given the `lines` in the middle."""
        if self.middle is None or self.last is None:
            return self
        return replace(self, last=replace(self.last, line=self.middle.line + lines, exact=True))

    def note(self, *, skipped: bool) -> str:
        """A note for the user; empty if the whole file is read in order."""
        if self.middle is None or self.last is None:
            return ""
        first, last = byte_size(self.first.size), byte_size(self.last.size)
        return (
            f"its first {first} and last {last} are read first; "
            f"{byte_size(self.middle.size)} between them (bytes {self.middle.start} to "
            f"{self.middle.end}) are {'skipped' if skipped else 'read afterwards'}"
        )


def excerpt(
    descriptor: int,
    size: int,
    *,
    budget: int = BUDGET_BYTES,
    start: int = START_BYTES,
    disk: Disk | None = None,
) -> Excerpt:
    """The parts of a file of `size` bytes to read first: at most `budget` bytes in all.

    The first part has `start` bytes and the rest of the record at its end. A file is not
    cut if it fits the budget, or if there is no end of a record where it would be cut.
    Reads about `start` bytes. Raises `OSError`.
    """
    disk = Disk() if disk is None else disk
    whole = Excerpt(ByteSpan(0, size, 1))
    if size <= budget:
        return whole
    tail = size - max(budget - start, 0)
    end = _record_end(disk, descriptor, start, tail)
    begin = None if end is None else _record_end(disk, descriptor, max(tail, end), size)
    if end is None or begin is None or begin <= end:
        return whole
    newlines = sum(disk.pread(descriptor, n, at).count(b"\n") for at, n in _blocks(0, end))
    first, middle = ByteSpan(0, end, 1), ByteSpan(end, begin, 1 + newlines)
    guess = middle.line + round(middle.size * newlines / end)
    return Excerpt(first, middle, ByteSpan(begin, size, guess, exact=False))


def count_lines(descriptor: int, span: ByteSpan, *, disk: Disk | None = None) -> Iterator[int]:
    """Counts `\\n` in `span`; yields the count so far every 64 MiB, and at last the result.

    Skips holes. Raises `OSError`.
    """
    disk = Disk() if disk is None else disk
    count, at, yielded_at = 0, span.start, span.start
    while at < span.end:
        data = disk.pread(descriptor, min(BLOCK_BYTES, span.end - at), at)
        if not data:  # truncated meanwhile
            break
        count += data.count(b"\n")
        at += len(data)
        if data.count(0) == len(data):
            at = min(_after_hole(disk, descriptor, at), span.end)
        if at - yielded_at >= COUNTED_BYTES:
            yielded_at = at
            yield count
    yield count


def _record_end(disk: Disk, descriptor: int, start: int, stop: int) -> int | None:
    """Where the first record after `start` begins, if before `stop`."""
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
    """Where data begins at or after `at`; the end of the file if there is none."""
    with contextlib.suppress(OSError):
        return disk.lseek(descriptor, at, os.SEEK_DATA)
    return disk.fstat(descriptor).st_size


def _blocks(start: int, end: int) -> Iterator[tuple[int, int]]:
    for at in range(start, end, BLOCK_BYTES):
        yield at, min(BLOCK_BYTES, end - at)


BLOCK = 256 * 1024
SEARCHED_BYTES = 64 * 1024 * 1024
"""One call reads at most so much; it bounds how long a key press can take."""
NUMBERED_BYTES = 32 * 1024 * 1024
"""Line numbers are counted from the start of the file up to here; beyond, counting would
delay each screen."""
SHOWN_BYTES = 64 * 1024
"""A record is cut there: more does not fit on a screen."""
ENDLESS = 1024 * 1024
"""So many bytes without a terminator count as a record; the reader's limit (`RECORD_BYTES`)."""


@dataclass(frozen=True, slots=True)
class RawLine:
    r"""One record's bytes without its end; `newlines` is 1 where that end is a `\n`.

    A terminal overwrites a record that ends with a bare `\r`. `is_open`: it has no end yet.
    """

    offset: int
    end: int
    text: bytes
    newlines: int
    overwritten: bool
    is_open: bool


class LogReader:
    """An open file to be browsed up to byte `limit`. Raises `OSError`."""

    def __init__(self, path: str, limit: float = math.inf) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = int(min(os.fstat(self._descriptor).st_size, limit))

    def close(self) -> None:
        """Release the file."""
        os.close(self._descriptor)

    def after(self, at: int) -> Iterator[RawLine]:
        """The records from byte `at` on."""
        rest, offset = b"", at
        for block_at in range(at, min(self.size, at + SEARCHED_BYTES), BLOCK):
            size = min(BLOCK, self.size - block_at)
            data = rest + os.pread(self._descriptor, size, block_at)
            final = block_at + BLOCK >= self.size
            pieces, rest = _split(data, final=final)
            for piece in pieces:
                yield _raw(offset, piece)
                offset += len(piece)

    def before(self, at: int) -> Iterator[RawLine]:
        """The records before byte `at`, the last one first."""
        end, rest, lowest = at, b"", max(at - SEARCHED_BYTES, 0)
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
            if len(rest) > ENDLESS:
                yield _raw(end, rest)
                rest = b""
        if rest and end > 0:
            yield _raw(end, rest)

    def line_number(self, at: int) -> int | None:
        """The number of the line that contains byte `at`; None beyond `NUMBERED_BYTES`."""
        if at > NUMBERED_BYTES:
            return None
        count = 0
        for start in range(0, at, BLOCK):
            size = min(BLOCK, at - start)
            count += os.pread(self._descriptor, size, start).count(b"\n")
        return count + 1

    def offset_of(self, line: int) -> int:
        """Where a line (1-based) begins; the end of the file if it has fewer lines."""
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
        """Where the next record that contains `text` begins, and how far was searched."""
        wanted = text.encode("utf-8", "surrogateescape").lower()
        searched = at
        for line in self.before(at) if backwards else self.after(at):
            searched = line.offset if backwards else line.end
            if wanted in line.text.lower():
                return line.offset, searched
        return None, searched


def first_matching(
    lines: Iterator[RawLine], count: int, wanted: Callable[[RawLine], bool]
) -> tuple[list[RawLine], RawLine | None]:
    """The first `count` records that are wanted, and the last one that was examined."""
    kept: list[RawLine] = []
    last: RawLine | None = None
    while len(kept) < count and (line := next(lines, None)) is not None:
        last = line
        if wanted(line):
            kept.append(line)
    return kept, last


def _split(data: bytes, *, final: bool) -> tuple[list[bytes], bytes]:
    """Whole records, and the rest that may continue in the next block."""
    pieces = data.splitlines(keepends=True)
    if final or not pieces:
        return pieces, b""
    if not pieces[-1].endswith(b"\n") and len(pieces[-1]) < ENDLESS:
        return pieces[:-1], pieces[-1]
    return pieces, b""


def _raw(offset: int, piece: bytes) -> RawLine:
    text = piece.rstrip(b"\r\n")[:SHOWN_BYTES]
    ends = piece.endswith(b"\n"), piece.endswith(b"\r")
    return RawLine(offset, offset + len(piece), text, int(ends[0]), ends[1], not any(ends))
