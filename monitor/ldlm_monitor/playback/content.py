"""The bytes of a file that is not followed yet, and what they tell of time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from ldlm_monitor.model.chunk import Chunk, ClockMark
from ldlm_monitor.model.frames import form_of as frames_of
from ldlm_monitor.parse import METRIC_TIME, clock_marks, frame_times, metric_of
from ldlm_monitor.parse.patterns import compile_pattern
from ldlm_monitor.run.timeline import StepClock, Timeline, from_rows, from_steps
from ldlm_monitor.source import Disk
from ldlm_monitor.source.log_parts import START_BYTES, ByteSpan, excerpt
from ldlm_monitor.source.split import CHUNK_BYTES, RECORD_BYTES, Splitter, after_last_end

Form: TypeAlias = Literal["text", "rows", "metric", "frames"]
"""What a file holds: text, JSON lines, one metric of MLflow, frames of TensorBoard or W&B."""

BEFORE_BYTES = 64 * 1024
_STAMP = rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"
_ROW_TIME = re.compile(
    rb'"(?:time|timestamp|_timestamp)":\s?(?:(\d{9,}(?:\.\d+)?)|"(' + _STAMP + rb')")'
)
_LINE_TIME = re.compile(rb"(?m)^(" + _STAMP + rb") ")
"""What containers put in front of each line: with its zone, it is a time and not only a clock."""
_TIME_KEY = compile_pattern(r'"(?:time|timestamp|_timestamp)":')
"""Where `_ROW_TIME` can be: re2 says no twice as fast, and yes half as fast."""
HEAD_BYTES = 2048
"""Enough to know a file's form."""
NOMINAL_ROWS = 3_600
"""Rows of a file without any time are told apart up to this many, one a nominal second."""


class Content:
    """The parts of a file that are read: all of it from `start` on, or its start and its end."""

    def __init__(
        self,
        path: Path,
        budget: int | None,
        disk: Disk,
        *,
        start: int = 0,
        stop: int | None = None,
        written_at: float | None = None,
    ) -> None:
        """`stop` and `written_at`: the file as it was when it was that long, and written then."""
        self.path = path
        self._disk = disk
        with disk.reader(path) as file:
            status = disk.fstat(file.fileno())
            self.written_at = status.st_mtime if written_at is None else written_at
            size = status.st_size if stop is None else min(stop, status.st_size)
            self._identity = (status.st_dev, status.st_ino, 0)
            self._spans: tuple[ByteSpan, ...] = (ByteSpan(start, max(start, size), 1),)
            self.note = ""
            head = file.read(HEAD_BYTES)
            self.form = form_of(str(path), head)
            self._framed = frames_of(head) or ""
            self.is_stamped = self.form == "text" and _LINE_TIME.match(head) is not None
            cuts = budget is not None and self.form != "frames"
            if cuts and budget is not None and size > budget:
                start = min(START_BYTES, budget // 2)
                parts = excerpt(file.fileno(), size, budget=budget, start=start, disk=disk)
                self._spans, self.note = parts.spans(), parts.note(skipped=True)

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(span.size for span in self._spans)

    @property
    def last(self) -> ByteSpan:
        """The part that ends where the file does."""
        return self._spans[-1]

    def before(self) -> bytes:
        """What stands before the last part, as far as a progress bar is worth looking for."""
        with self._disk.reader(self.path) as file:
            start = max(0, self.last.start - BEFORE_BYTES)
            file.seek(start)
            return file.read(self.last.start - start)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """The last part in blocks that end where a record ends, with their offsets."""
        with self._disk.reader(self.path) as file:
            offset, rest = self.last.start, b""
            file.seek(offset)
            while read := file.read(min(CHUNK_BYTES, self.last.end - offset - len(rest))):
                end = after_last_end(read)
                if not end and len(rest) < RECORD_BYTES:
                    rest += read
                    continue
                end = end or len(read)
                block = b"".join((rest, memoryview(read)[:end]))
                yield offset, block
                offset, rest = offset + len(block), read[end:]
            if rest:
                yield offset, rest

    def marks(self, *, rows: bool = False) -> Iterator[ClockMark]:
        """Steps of rows, or of bars and what they tell of time."""
        for offset, block in self.blocks():
            yield from clock_marks(block, offset, rows=rows)

    def row_times(self, apart: float) -> Iterator[tuple[int, float]]:
        """Where rows begin that span less than `apart` seconds, and the last time they tell.

        Rows of the very same time stay together.

        The first row is alone: what comes before it and tells no time takes its time.
        """
        begin, first, last = -1, -math.inf, -math.inf
        for at, when in self._told_times():
            if when - first < apart or when == first:
                last = max(last, when)
                continue
            if begin >= 0:
                yield begin, last
            first, last = -math.inf if begin < 0 else when, when
            begin = at
        if begin >= 0:
            yield begin, last

    def _told_times(self) -> Iterator[tuple[int, float]]:
        """Where each row begins that tells its time, and that time."""
        if self.form == "frames":
            for chunk in self.chunks():
                yield from frame_times(chunk)
            return
        for offset, block in self.blocks():
            if self.form == "metric":
                for match in METRIC_TIME.finditer(block):
                    yield offset + match.start(), int(match[1]) / 1000
            elif self.is_stamped:
                for match in _LINE_TIME.finditer(block):
                    if (when := _moment(match[1])) is not None:
                        yield offset + match.start(), when
            elif _TIME_KEY.search(block) is not None:
                for match in _ROW_TIME.finditer(block):
                    when = float(match[1]) if match[1] else _moment(match[2])
                    if when is not None:
                        yield offset + block.rfind(b"\n", 0, match.start()) + 1, when

    def row_offsets(self) -> Iterator[int]:
        """Where rows begin: every one of a short file, evenly spaced ones of a long file."""
        rows = 0
        for _, block in self.blocks():
            rows += block.count(b"\n")
            if rows > NOMINAL_ROWS:
                break
        start, size = self.last.start, self.last.size
        with self._disk.reader(self.path) as file:
            file.seek(start)
            if rows <= NOMINAL_ROWS:
                for line in file:
                    yield start
                    start += len(line)
                return
            last = -1
            for index in range(NOMINAL_ROWS):
                file.seek(start + index * size // NOMINAL_ROWS)
                offset = file.tell() + (len(file.readline()) if index else 0)
                if last < offset < self.last.end:
                    last = offset
                    yield offset

    def chunks(self) -> Iterator[Chunk]:
        """The parts in order; the last chunk is `final`."""
        with self._disk.reader(self.path) as file:
            for span in self._spans:
                file.seek(span.start)
                splitter = Splitter(
                    str(self.path),
                    self._identity,
                    offset=span.start,
                    line=span.line,
                    framed=self._framed,
                )
                for chunk in split(file, splitter, span.size):
                    if not chunk.final or span is self.last:
                        yield chunk


def _moment(stamp: bytes) -> float | None:
    """Unix seconds of a date and time with its zone."""
    try:
        return datetime.fromisoformat(stamp.decode().replace(",", ".")).timestamp()
    except ValueError:
        return None


def form_of(path: str, head: bytes) -> Form:
    """What a file is, by its name and its first bytes."""
    if frames_of(head):
        return "frames"
    if head.lstrip()[:1] == b"{":
        return "rows"
    return "text" if metric_of(path, head) is None else "metric"


def row_timeline(content: Content, clock: StepClock | None, apart: float) -> Timeline:
    """When rows or lines came: as they tell, by the clock of their run's bars, or in order only."""
    times = list(content.row_times(apart))
    if times:
        return Timeline([0, *(offset for offset, _ in times[1:])], [when for _, when in times])
    if clock is not None:
        return from_steps(content.marks(rows=True), clock)
    offsets = list(content.row_offsets())
    return from_rows([0, *offsets[1:]], content.written_at)


def split(file: BinaryIO, splitter: Splitter, size: int | None) -> Iterator[Chunk]:
    """The next `size` bytes (None: all) in chunks of whole records; the last is `final`."""
    left = size
    while data := file.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left)):
        left = None if left is None else left - len(data)
        yield from splitter.feed(data, 0.0)
    yield splitter.finish()
