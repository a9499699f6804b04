"""Bytes of one file whose times are to be estimated, and the times in them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from ldlm_monitor.model.chunk import Chunk, ClockMark
from ldlm_monitor.model.frames import form_of as frames_of
from ldlm_monitor.parse import METRIC_TIME, clock_marks, frame_times, metric_of
from ldlm_monitor.parse.patterns import compile_pattern
from ldlm_monitor.run.timeline import StepClock, Timeline, from_rows, from_steps
from ldlm_monitor.source import Backlog

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
NOMINAL_ROWS = 3_600
"""Rows of a file without times are spread over this many nominal seconds at most."""
ROW_BYTES = 4096
"""Of a long file, rows that begin within so many bytes of an even place: a row is shorter."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes `start` to `stop` of a file, of which the last was written at `written_at`."""

    backlog: Backlog
    start: int
    stop: int
    written_at: float

    @property
    def form(self) -> Form:
        """What the file holds."""
        return form_of(self.backlog)

    @property
    def is_stamped(self) -> bool:
        """Whether its lines begin with a time and its zone."""
        return self.form == "text" and _LINE_TIME.match(self.backlog.head) is not None

    def chunks(self) -> Iterator[Chunk]:
        """Its records."""
        return self.backlog.scan(self.start, self.stop)

    def marks(self, *, rows: bool = False) -> Iterator[ClockMark]:
        """Steps of rows, or of bars with their elapsed times."""
        for chunk in self.chunks():
            yield from clock_marks(chunk.data, chunk.offset, rows=rows)

    def marks_before(self) -> list[ClockMark]:
        """The bars that stand before it, as far as a progress bar is worth looking for."""
        start = max(0, self.start - BEFORE_BYTES)
        return clock_marks(self.backlog.part(start, self.start), start)

    def row_times(self, apart: float) -> Iterator[tuple[int, float]]:
        """Where rows begin that span less than `apart` seconds, and their last time.

        Rows of the very same time stay together.

        The first row is alone: what comes before it without a time takes its time.
        """
        begin, first, last = -1, -math.inf, -math.inf
        for at, when in self._row_times():
            if when - first < apart or when == first:
                last = max(last, when)
                continue
            if begin >= 0:
                yield begin, last
            first, last = -math.inf if begin < 0 else when, when
            begin = at
        if begin >= 0:
            yield begin, last

    def _row_times(self) -> Iterator[tuple[int, float]]:
        """The offset and time of each row that has a time."""
        form, is_stamped = self.form, self.is_stamped
        for chunk in self.chunks():
            offset, block = chunk.offset, chunk.data
            if form == "frames":
                yield from frame_times(chunk)
            elif form == "metric":
                for match in METRIC_TIME.finditer(block):
                    yield offset + match.start(), int(match[1]) / 1000
            elif is_stamped:
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
        offsets = [self.start]
        for chunk in self.chunks():
            offsets += (chunk.offset + end for end in _line_ends(chunk.data))
            if len(offsets) > NOMINAL_ROWS:
                return self._spaced_rows()
        return iter(offsets[:-1] if offsets[-1] >= self.stop else offsets)

    def _spaced_rows(self) -> Iterator[int]:
        yield self.start
        last, size = self.start, self.stop - self.start
        for index in range(1, NOMINAL_ROWS):
            place = self.start + index * size // NOMINAL_ROWS
            offset = place + self.backlog.part(place, place + ROW_BYTES).find(b"\n") + 1
            if max(last, place) < offset < self.stop:
                last = offset
                yield offset


def _line_ends(data: bytes) -> Iterator[int]:
    end = 0
    while end := data.find(b"\n", end) + 1:
        yield end


def _moment(stamp: bytes) -> float | None:
    """Unix seconds of a date and time with its zone."""
    try:
        return datetime.fromisoformat(stamp.decode().replace(",", ".")).timestamp()
    except ValueError:
        return None


def form_of(backlog: Backlog) -> Form:
    """What a file is, by its name and its first bytes."""
    if frames_of(backlog.head):
        return "frames"
    if backlog.head.lstrip()[:1] == b"{":
        return "rows"
    return "text" if metric_of(backlog.path, backlog.head) is None else "metric"


def row_timeline(stretch: Stretch, clock: StepClock | None, apart: float) -> Timeline:
    """The times of rows or lines: their own, by the bars of their run, or their order only."""
    times = list(stretch.row_times(apart))
    if times:
        return Timeline([0, *(offset for offset, _ in times[1:])], [when for _, when in times])
    if clock is not None:
        return from_steps(stretch.marks(rows=True), clock)
    offsets = list(stretch.row_offsets())
    return from_rows([0, *offsets[1:]], stretch.written_at)
