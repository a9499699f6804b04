r"""Parts of a big log: those to read first, and those that a screen shows.

`excerpt` chooses what to read of a log of, say, 100 GB: its start (configuration, world
size) and its end decide the verdict.

`LogReader` reads only the part that a screen shows, whatever the file's size. Records end at
`\n`, `\r\n` or a bare `\r`, as in `split`.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ldlm_monitor.source.file_system import DIRECT, Disk
from ldlm_monitor.text.format import byte_size

START_BYTES = 1024 * 1024
"""A launch prints its configuration and world size well within the first MiB."""
BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """Bytes `start` to `end` of a file; both lie between records.

    `line` (1-based, counts `\\n`) is that of `start`; behind a gap it is an estimate.
    """

    start: int
    end: int
    line: int

    @property
    def size(self) -> int:
        """Bytes in it."""
        return self.end - self.start


def excerpt(descriptor: int, size: int, *, budget: int, disk: Disk = DIRECT) -> list[ByteSpan]:
    """The parts to read of a file of `size` bytes: all of it, or its start and its end.

    They have at most `budget` bytes and the rest of the record at the end of the first. A
    file is not cut if it fits the budget, or if there is no end of a record where it would
    be cut. Reads about `START_BYTES`. Raises `OSError`.
    """
    whole = [ByteSpan(0, size, 1)]
    if size <= budget:
        return whole
    start = min(START_BYTES, budget // 2)
    tail = size - (budget - start)
    end = _record_end(disk, descriptor, start, tail)
    begin = None if end is None else _record_end(disk, descriptor, max(tail, end), size)
    if end is None or begin is None or begin <= end:
        return whole
    blocks = range(0, end, BLOCK_BYTES)
    newlines = sum(
        disk.pread(descriptor, min(BLOCK_BYTES, end - at), at).count(b"\n") for at in blocks
    )
    line = 1 + newlines + round((begin - end) * newlines / end)
    return [ByteSpan(0, end, 1), ByteSpan(begin, size, line)]


def skipped_note(spans: Sequence[ByteSpan]) -> str:
    """What of a file is left out, for the user; empty if nothing is."""
    for before, after in pairwise(spans):
        if before.end < after.start:
            last = spans[-1].end - after.start
            return (
                f"its first {byte_size(before.end)} and last {byte_size(last)} are read; "
                f"{byte_size(after.start - before.end)} between them "
                f"(bytes {before.end} to {after.start}) are skipped"
            )
    return ""


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
        self._descriptor = DIRECT.open(Path(path), os.O_RDONLY | os.O_CLOEXEC)
        self.size = int(min(DIRECT.fstat(self._descriptor).st_size, limit))

    def close(self) -> None:
        """Release the file."""
        DIRECT.close(self._descriptor)

    def after(self, at: int) -> Iterator[RawLine]:
        """The records from byte `at` on."""
        rest, offset = b"", at
        for block_at in range(at, min(self.size, at + SEARCHED_BYTES), BLOCK):
            size = min(BLOCK, self.size - block_at)
            data = rest + DIRECT.pread(self._descriptor, size, block_at)
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
            data = DIRECT.pread(self._descriptor, end - start, start) + rest
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
            count += DIRECT.pread(self._descriptor, size, start).count(b"\n")
        return count + 1

    def offset_of(self, line: int) -> int:
        """Where a line (1-based) begins; the end of the file if it has fewer lines."""
        left = line - 1
        for start in range(0, self.size, BLOCK):
            data = DIRECT.pread(self._descriptor, BLOCK, start)
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
