r"""Parts of a big log: those that decide its verdict, and those that a screen shows.

`excerpt` chooses the parts to read of a log of, say, 100 GB: its start (configuration, world
size) and its end decide the verdict. `LogReader` reads only the part that a screen shows.
Records end at `\n`, `\r\n` or a bare `\r`, as in `split`.
"""

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ldlm_monitor.base.text.format import byte_size
from ldlm_monitor.logs.source.file_system import BLOCK_BYTES, DIRECT, Disk
from ldlm_monitor.logs.source.split import RECORD_BYTES, after_first_end

START_BYTES = 1024 * 1024
"""Bytes of a big log's start that are read: a launch prints its configuration and world size well
within the first MiB."""


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """Bytes `start` to `end` of a file; both lie between records.

    `line` (1-based, counts `\\n`) is the line at `start`; after skipped bytes, an estimate.
    """

    start: int
    end: int
    line: int

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.end - self.start


def excerpt(descriptor: int, size: int, *, budget: int, disk: Disk = DIRECT) -> list[ByteSpan]:
    """The parts to read of a file of `size` bytes: all of it, or its start and its end.

    The parts have at most `budget` bytes, apart from the rest of the first part's last record. A
    file is not cut if it fits the budget, or if no record ends between the two parts. Reads about
    `START_BYTES`. Raises `OSError`.
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
    newlines = sum(data.count(b"\n") for data in disk.blocks(descriptor, 0, end))
    line = 1 + newlines + round((begin - end) * newlines / end)
    return [ByteSpan(0, end, 1), ByteSpan(begin, size, line)]


def skipped_note(spans: Sequence[ByteSpan]) -> str:
    """A note for the user about the bytes that are skipped; empty if there are none."""
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
    """Where the first record after `start` begins; None if that is not before `stop`."""
    at = start
    while at < stop:
        data = disk.pread(descriptor, min(BLOCK_BYTES, stop - at), at)
        if not data:
            return None
        found = after_first_end(data)
        if found:
            end = at + found
            end += disk.pread(descriptor, 2, end - 1) == b"\r\n"
            return end if end < stop else None
        at += len(data)
        if data.count(0) == len(data):
            at = _after_hole(disk, descriptor, at)
    return None


def _after_hole(disk: Disk, descriptor: int, at: int) -> int:
    """Where data begins at or after `at`; the end of the file if there is none."""
    with contextlib.suppress(OSError):
        return disk.lseek(descriptor, at, os.SEEK_DATA)
    return disk.fstat(descriptor).st_size


SEARCHED_BYTES = 64 * 1024 * 1024
"""The most bytes that one search of `LogReader` reads. A choice: more delay the answer to a key
press, fewer end more searches without a result."""
NUMBERED_BYTES = 32 * 1024 * 1024
"""Lines beyond so many bytes get no number. A choice: counting more would delay each screen."""
SHOWN_BYTES = 64 * 1024
"""The most bytes of a record that are returned. A choice: more slow the screen, which cuts them."""


@dataclass(frozen=True, slots=True)
class RawLine:
    r"""Bytes `offset` to `end` of a file: a record, whose `text` has no terminator.

    `newlines`: 1 if the terminator has a `\n`, otherwise 0. `overwritten`: it is a bare `\r`, so
    a terminal overwrites the record. `is_open`: there is no terminator yet.
    """

    offset: int
    end: int
    text: bytes
    newlines: int
    overwritten: bool
    is_open: bool


COUNTED_BYTES = 64 * 1024 * 1024
"""Bytes of a file whose matches are counted. A choice: more delay each step of a search."""


class LogReader:
    """An open file; its first `limit` bytes (inf: all) are read. Methods raise `OSError`."""

    def __init__(self, path: str, limit: float = math.inf) -> None:
        self._descriptor = DIRECT.open(Path(path), os.O_RDONLY | os.O_CLOEXEC)
        self.size = int(min(DIRECT.fstat(self._descriptor).st_size, limit))

    def close(self) -> None:
        """Close the file."""
        DIRECT.close(self._descriptor)

    def read(self, start: int, end: int) -> bytes:
        """Bytes `start` to `end` of the file; fewer if it has become shorter."""
        return DIRECT.pread(self._descriptor, end - start, start)

    def after(self, at: int) -> Iterator[RawLine]:
        """The records from byte `at` on, up to `SEARCHED_BYTES` further."""
        rest, offset = b"", at
        for block_at in range(at, min(self.size, at + SEARCHED_BYTES), BLOCK_BYTES):
            size = min(BLOCK_BYTES, self.size - block_at)
            data = rest + DIRECT.pread(self._descriptor, size, block_at)
            final = block_at + BLOCK_BYTES >= self.size
            pieces, rest = _split(data, final=final)
            for piece in pieces:
                yield _raw(offset, piece)
                offset += len(piece)

    def before(self, at: int) -> Iterator[RawLine]:
        """The records before byte `at`, the last one first, back to `SEARCHED_BYTES` before it."""
        end, rest, lowest = at, b"", max(at - SEARCHED_BYTES, 0)
        while end > lowest:
            start = max(end - BLOCK_BYTES, lowest)
            data = DIRECT.pread(self._descriptor, end - start, start) + rest
            pieces = data.splitlines(keepends=True)
            held = pieces[0] if start > 0 and pieces else b""
            offset = start + len(data)
            for piece in reversed(pieces[1:] if start > 0 else pieces):
                offset -= len(piece)
                yield _raw(offset, piece)
            rest, end = held, start
            if len(rest) > RECORD_BYTES:
                yield _raw(end, rest)
                rest = b""
        if rest and end > 0:
            yield _raw(end, rest)

    def line_number(self, at: int) -> int | None:
        """The number (from 1) of the line with the byte `at`; None beyond `NUMBERED_BYTES`."""
        if at > NUMBERED_BYTES:
            return None
        return 1 + sum(data.count(b"\n") for data in DIRECT.blocks(self._descriptor, 0, at))

    def offset_of(self, line: int) -> int:
        """Where a line (1-based) begins; the end of the file if it has fewer lines."""
        left, start = line - 1, 0
        for data in DIRECT.blocks(self._descriptor, 0, self.size):
            count = data.count(b"\n")
            if count >= left:
                place = 0
                for _ in range(left):
                    place = data.index(b"\n", place) + 1
                return start + place
            left, start = left - count, start + len(data)
        return self.size

    def find(self, text: str, at: int, *, backwards: bool) -> tuple[int | None, int]:
        """The offset of the next record that contains `text`, and where the search ended.

        The first is None if no record was found. Upper and lower case are not distinguished.
        """
        wanted = text.encode("utf-8", "surrogateescape").lower()
        searched = at
        for line in self.before(at) if backwards else self.after(at):
            searched = line.offset if backwards else line.end
            if wanted in line.text.lower():
                return line.offset, searched
        return None, searched

    def count(self, text: str, at: int) -> tuple[int, int] | None:
        """How often `text` occurs before byte `at`, and in all; None beyond `COUNTED_BYTES`."""
        if self.size > COUNTED_BYTES:
            return None
        wanted = text.encode("utf-8", "surrogateescape").lower()
        before = total = place = 0
        rest = b""
        for data in DIRECT.blocks(self._descriptor, 0, self.size):
            block = rest + data.lower()
            start = place - len(rest)
            before += block[: max(at - start, 0)].count(wanted)
            total += block.count(wanted)
            rest = block[len(block) - len(wanted) + 1 :] if len(wanted) > 1 else b""
            place += len(data)
        return before, total


def first_matching(
    lines: Iterator[RawLine], count: int, wanted: Callable[[RawLine], bool]
) -> tuple[list[RawLine], RawLine | None]:
    """The first `count` wanted records, and the last record that was read (None if none was)."""
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
    if not pieces[-1].endswith(b"\n") and len(pieces[-1]) < RECORD_BYTES:
        return pieces[:-1], pieces[-1]
    return pieces, b""


def _raw(offset: int, piece: bytes) -> RawLine:
    text = piece.rstrip(b"\r\n")[:SHOWN_BYTES]
    ends = piece.endswith(b"\n"), piece.endswith(b"\r")
    return RawLine(offset, offset + len(piece), text, int(ends[0]), ends[1], not any(ends))
