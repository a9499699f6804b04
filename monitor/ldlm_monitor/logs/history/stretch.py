"""A part of a file, and the times of what it holds: of its lines, rows and steps."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from ldlm_monitor.base.chunk import Chunk, ClockMark
from ldlm_monitor.logs.history.arrival_times import (
    StepClock,
    Timeline,
    from_bars,
    from_rows,
    from_steps,
)
from ldlm_monitor.logs.history.file_head import Form, form_of
from ldlm_monitor.logs.history.line_clock import BEFORE_SECONDS, Place, with_ends
from ldlm_monitor.logs.history.row_moments import has_times, row_moments
from ldlm_monitor.logs.parse import bar_clocks, clock_marks, timed_reader_of
from ldlm_monitor.logs.parse.blocks import BLOCK_SECONDS
from ldlm_monitor.logs.parse.jsonl import EARLIEST, LATEST
from ldlm_monitor.logs.parse.stamps import Stamp, placed, stamps
from ldlm_monitor.logs.parse.tracebacks import MAX_TEXT_BYTES
from ldlm_monitor.logs.source.backlog import Backlog

BEFORE_BYTES = 64 * 1024
"""Bytes before a part to search for a progress bar: a choice; they hold 100s, and more is slow."""
BLOCK_BYTES = 4096
"""Bytes of lines without a time that are placed together: a choice; a traceback fits."""
LEAST_BLOCK = MAX_TEXT_BYTES
"""Least bytes of such lines that are spread: fewer may be a record of the line above, such as a
logger's traceback, which is not complete after `BLOCK_SECONDS` if its parts come later."""
_END_BYTES = 4096  # a choice: a row of many values fits
_MOST_TIMES = 100_000
"""Times kept of a text log: a choice; a day with one a second fits, more cost 100 bytes each."""
NOMINAL_ROWS = 3_600
"""Most times, a second apart, given to a file without times: a choice; more are finer, slower."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes `start` to `stop` of `backlog`; the last one was written at `written_at` (Unix s).

    `ends`: offsets at which the files of a rotated log end, and when each was written last.
    """

    backlog: Backlog
    start: int
    stop: int
    written_at: float
    ends: Sequence[Place] = ()

    def scan(self, start: int, stop: int) -> Iterator[Chunk]:
        """Chunks of bytes `start` to `stop`, also of an unfinished record."""
        return self.backlog.scan(start, stop)

    @property
    def form(self) -> Form:
        """The form of the file's content."""
        return form_of(self.backlog)

    def chunks(self) -> Iterator[Chunk]:
        """The bytes as chunks of whole records."""
        return self.scan(self.start, self.stop)

    def marks(self, *, rows: bool = False) -> Iterator[ClockMark]:
        """Positions of steps: with `rows` those in rows, otherwise those in progress bars."""
        for chunk in self.chunks():
            yield from clock_marks(chunk.data, chunk.offset, rows=rows)

    def marks_before(self) -> list[ClockMark]:
        """The progress bars in the last `BEFORE_BYTES` in front of the stretch."""
        start = max(0, self.start - BEFORE_BYTES)
        return clock_marks(self.backlog.part(start, self.start), start)

    def line_times(self, apart: float, *, spread: bool) -> list[tuple[int, float]]:
        """Offset and time (Unix s) of lines of text with a time, at least `apart` seconds apart.

        Of more than `_MOST_TIMES`, every second one is left out, again and again. `spread`: lines
        without a time are spread over the time up to `BEFORE_SECONDS` before the line below them:
        where only a launcher prints times, errors come with its report of them. Bars come by their
        elapsed seconds, of which the last are those `BEFORE_SECONDS`.
        """
        kept: list[Stamp] = []
        ends: dict[int, int] = {}
        clocks = _BarClocks()
        for chunk in self.chunks():
            if spread:
                clocks.read(chunk)
            for stamp in stamps(chunk.data, chunk.offset):
                if kept and 0 <= stamp.when - kept[-1].when < apart:
                    ends[kept[-1].offset] = stamp.offset
                    continue
                kept.append(stamp)
                if len(kept) > _MOST_TIMES:
                    del kept[1::2]
                    apart *= 2
        is_last = self.ends_with_a_time
        lines = placed(kept, self.written_at, _ahead_here, is_last=is_last)
        if spread:
            lines = with_ends(lines, self.ends)
        above = self.start, -math.inf
        found: list[tuple[int, float]] = []
        for (first, since), (last, until) in pairwise((above, *lines)):
            if spread:
                below = until - BEFORE_SECONDS
                bars = clocks.places(first, since, last, below)
                is_between = found and not bars
                others = self._spread(ends.get(first, first), since, last, below)
                found += others if is_between else bars
            found.append((last, until))
        return found

    def _spread(
        self, first: int, since: float, last: int, until: float
    ) -> Iterator[tuple[int, float]]:
        """Places, by offset, of lines below the one at `first`; those near `last` at `until`."""
        if until <= since or (last - first < LEAST_BLOCK and until - since > BLOCK_SECONDS):
            return
        offset, apart = first, 1
        for chunk in self.scan(first, last):
            while end := chunk.data.find(b"\n", max(offset + apart - 1 - chunk.offset, 0)) + 1:
                offset = chunk.offset + end
                if offset >= last:
                    return
                rest = max(last - first - BLOCK_BYTES, 1)
                yield offset, since + (until - since) * min((offset - first) / rest, 1.0)
                apart = max(BLOCK_BYTES, (last - first) // NOMINAL_ROWS)

    @property
    def ends_with_a_time(self) -> bool:
        """Whether the last line, or row, has a time of its own."""
        last = b""
        for chunk in self.scan(max(self.stop - _END_BYTES, self.start), self.stop):
            last = chunk.data.rstrip().rpartition(b"\n")[2]
        return has_times(last) or next(stamps(last), None) is not None

    def row_times(self, apart: float) -> Iterator[tuple[int, float]]:
        """First offset and last time (Unix s) of groups of rows between two multiples of `apart` s.

        Rows of equal time, or earlier than the row before, are in one group. The first row is a
        group of its own: bytes before it that have no time get its time. Times that the parser
        refuses are skipped.
        """
        begin, first, until, last = -1, -math.inf, -math.inf, -math.inf
        for at, when in self._row_times():
            if not EARLIEST <= when <= LATEST:  # also NaN; some loggers write milliseconds
                continue
            if when < until or when == first:
                last = max(last, when)
                continue
            if begin >= 0:
                yield begin, last
                first, until = when, (when // apart + 1) * apart if apart else when
            begin, last = at, when
        if begin >= 0:
            yield begin, last

    def _row_times(self) -> Iterator[tuple[int, float]]:
        reader = timed_reader_of(self.backlog.path, self.backlog.head)
        for chunk in self.chunks():
            if reader is not None:
                yield from reader.times(chunk)
            elif has_times(block := chunk.data):
                for at, when in row_moments(block):
                    yield chunk.offset + block.rfind(b"\n", 0, at) + 1, when

    def row_offsets(self) -> list[int]:
        """Offsets of all rows, or of `NOMINAL_ROWS` at most, evenly spaced, if there are more."""
        offsets, apart = [self.start], 1
        for chunk in self.chunks():
            while end := chunk.data.find(b"\n", max(offsets[-1] + apart - 1 - chunk.offset, 0)) + 1:
                offsets.append(chunk.offset + end)
                if len(offsets) > NOMINAL_ROWS:
                    del offsets[1::2]
                    apart = (offsets[-1] - self.start) // len(offsets)
        return offsets[:-1] if offsets[-1] >= self.stop else offsets


class _BarClocks:
    """The bars of a text, of one total at least a second apart."""

    def __init__(self) -> None:
        self._marks: list[tuple[int, int, ClockMark]] = []  # offset, total, mark
        self._seconds: dict[int, float | None] = {}
        self._placed: dict[int, tuple[float, float]] = {}  # by total: elapsed of the last, and time

    def read(self, chunk: Chunk) -> None:
        """Add the bars of the next bytes."""
        for total, mark in bar_clocks(chunk.data, chunk.offset):
            if self._seconds.get(total) != mark.elapsed:
                self._seconds[total] = mark.elapsed
                self._marks.append((mark.offset, total, mark))
        while len(self._marks) > _MOST_TIMES:
            del self._marks[1::2]

    def places(self, first: int, since: float, last: int, until: float) -> list[Place]:
        """Offset and time (Unix s) of bars between `first` and `last`, at `since` to `until`.

        They go on from the one before, or begin at `since`; above the first line, the last one
        comes at `until`. Of several totals, those of the one that took longest: the training's,
        between which an evaluation has bars of its own.
        """
        by_total: dict[int, list[ClockMark]] = {}
        begin = bisect_left(self._marks, (first, 0))
        for _, total, mark in self._marks[begin : bisect_left(self._marks, (last, 0))]:
            by_total.setdefault(total, []).append(mark)
        total = max(by_total, key=lambda each: _elapsed(by_total[each]), default=0)
        marks = by_total.get(total, [])
        placed = from_bars(marks, until) if len(marks) > 1 else None
        if placed is None:
            return []
        begun, *bars = placed[0].places
        if since == -math.inf:  # what stands above the first line came as its bars began
            bars.insert(0, begun)
        else:
            begins, (seconds, at) = _elapsed(marks[:1]), self._placed.get(total, (0.0, since))
            goes_on = at + begins - seconds if begins >= seconds else since + begins
            earlier = min(max(goes_on, since) - (begun[1] + begins), 0.0)
            bars = [(place, when + earlier) for place, when in bars if when + earlier > since]
        if bars:
            self._placed[total] = _elapsed(marks[-1:]), bars[-1][1]
        return bars


def _elapsed(marks: Sequence[ClockMark]) -> float:
    return max(mark.elapsed or 0.0 for mark in marks)


def _ahead_here(shown: float, again: bool) -> float:
    moment = datetime.fromtimestamp(shown, UTC).replace(tzinfo=None, fold=again)
    try:
        return shown - moment.timestamp()
    except (ValueError, OverflowError):  # the year 1
        return 0.0


def row_timeline(stretch: Stretch, clock: StepClock | None, apart: float) -> Timeline:
    """The times of rows.

    Their own times, `apart` as in `row_times`; otherwise those of their steps on the run's
    `clock` (None: no clock is known); otherwise nominal seconds, which show the order alone.
    """
    times = list(stretch.row_times(apart))
    if times:
        offsets = [0, *(offset for offset, _ in times[1:])]
        return Timeline(offsets, [when for _, when in times], dated=True)
    if clock is not None:
        return from_steps(stretch.marks(rows=True), clock)
    return nominal(stretch, together=5)  # as the seconds between two evaluations, by default


def nominal(stretch: Stretch, *, together: int = 1) -> Timeline:
    """The order of rows or lines without times: a nominal second each; of many, `together` come."""
    offsets = [0, *stretch.row_offsets()[1:]]
    apart = together if 2 * len(offsets) > NOMINAL_ROWS else 1
    return from_rows(offsets[::apart], stretch.written_at, float(apart))
