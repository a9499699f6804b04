"""One file of a history: its bytes, each with the time when it was read before, or else written."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

from ldlm_monitor.base.arrival import Arrival
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.logs.history.arrival_times import Timeline, at_once, joined_repaints
from ldlm_monitor.logs.history.file_head import Form, form_of
from ldlm_monitor.logs.history.row_moments import last_moment
from ldlm_monitor.logs.history.stretch import Stretch
from ldlm_monitor.logs.parse import framing_of
from ldlm_monitor.logs.source.backlog import Backlog
from ldlm_monitor.logs.source.file_identity import FilePosition
from ldlm_monitor.logs.source.file_system import Disk
from ldlm_monitor.logs.source.log_parts import ByteSpan, excerpt, skipped_note
from ldlm_monitor.logs.source.split import PEEK_SECONDS

ROWS_BUDGET = 8
"""Factor of `budget` for JSON lines, which are parsed faster. A choice: a larger one reads more of
a long history, a smaller one starts sooner."""
SKEW_SECONDS = 0.2
"""Rows that say a time later than that of their reading by no more count as read then. A choice:
the clocks of nodes that NTP keeps differ by less."""
TimedChunk: TypeAlias = tuple[float, float, Chunk]
"""Time (Unix seconds), order among pieces of the same time, and bytes."""
UNSEEN = math.inf
"""The order of bytes that are not in the read log: behind those of the same time that are in it."""


@dataclass(frozen=True, slots=True)
class JudgedBefore:
    """What the state store has of a file that was followed before a restart.

    The file was judged up to `position`. `arrivals`: the read log's rows of this file. `judged`:
    the `order` of the last row that was judged.
    """

    position: FilePosition
    arrivals: Sequence[Arrival]
    judged: int


class HistoryFile:
    """A file whose bytes come at the read log's times, otherwise at estimated ones.

    `run`: the name of the file's run. `now`: Unix seconds. `seen`: None if no daemon read the
    file before. `budget`: bytes; of a longer file only the start and the end are read, and `note`,
    otherwise empty, is a line about that; None reads all. `disk` reads. `continues`: the path of
    the older file of the same log; `is_continued`: there is a newer one. `joins_repaints`: those of
    a bar come in one piece, with their times. Raises `OSError`.
    """

    def __init__(
        self,
        backlog: Backlog,
        run: str,
        *,
        now: float,
        seen: JudgedBefore | None = None,
        budget: int | None = None,
        disk: Disk,
    ) -> None:
        self.backlog = backlog
        self.path = backlog.path
        self.run = run
        self.seen = seen
        self.form: Form = form_of(backlog)
        self.timeline = at_once(0.0)
        self.continues, self.is_continued = "", False
        self.joins_repaints = False
        self._now = now
        arrivals = () if seen is None else seen.arrivals
        self._others = [each for each in arrivals if each.kind in ("peek", "final")]
        self._rows = sorted(
            (each for each in arrivals if each.kind in ("records", "backlog")),
            key=lambda each: each.start,
        )
        self._records = [each for each in self._rows if each.kind == "records"]
        starts, times = [each.start for each in self._records], [each.at for each in self._records]
        self._read = Timeline(starts, times)
        # What precedes the rows of a copy was read, and counted, as its original.
        begun = self._rows[0].start if self._rows else 0
        self._kept = 0 if seen is None else max(seen.position.offset, begun)
        self._begin = max((each.stop for each in arrivals if each.kind == "skipped"), default=0)
        self._spans = self._choose_spans(budget, disk)
        self.note = skipped_note(self._spans)
        backlog.rest()

    @property
    def is_followed(self) -> bool:
        """Whether the file is read because a daemon follows it."""
        return self._now < math.inf

    @property
    def seen_to(self) -> int:
        """The offset up to which the file was read before the restart; 0 if it was not read."""
        read = max((each.stop for each in self._rows), default=self._begin)
        return max(read, self._kept)

    @property
    def size(self) -> int:
        """The number of bytes that are read."""
        return sum(span.size for span in self._spans)

    def whole(self) -> Stretch:
        """The bytes that are read; if only start and end are read, those of the end."""
        return Stretch(
            self.backlog, self._spans[-1].start, self._spans[-1].end, self.backlog.modified
        )

    def stretches(self, apart: float) -> Iterator[tuple[int, Stretch | Timeline]]:
        """First offset and part: the read log's `Timeline`, otherwise a `Stretch` to estimate.

        `apart`: what was read of rows between two multiples of these seconds has one time.
        """
        end = self._begin
        for is_seen, group in groupby(self._rows, lambda each: each.kind == "records"):
            rows = list(group)
            if rows[0].start > end:  # the read log dropped the rows of these bytes
                yield end, self._stretch(end, rows[0].start, rows[0].at)
            if is_seen:
                yield rows[0].start, self._as_read(rows, apart)
            else:
                for each in rows:
                    yield each.start, self._stretch(each.start, each.stop, each.at)
            end = max(each.stop for each in rows)
        modified = self.backlog.modified
        if self.seen_to > end:
            yield end, self._stretch(end, self.seen_to, modified)
        if self.backlog.size > self.seen_to or self.seen_to == self._begin:
            yield self.seen_to, self._stretch(self.seen_to, self.backlog.size, modified)

    def seen_at(self, offset: int) -> float | None:
        """When the byte at `offset` was read (Unix seconds); None if the read log lacks it."""
        index = bisect_right(self._records, offset, key=lambda each: each.start) - 1
        row = self._records[index] if index >= 0 else None
        return row.at if row is not None and offset < row.stop else None

    def is_news(self, chunk: Chunk, order: float) -> bool:
        """Whether a piece was not judged before the restart; `order` as from `pieces`."""
        if self.seen is None or math.isinf(order):
            return chunk.offset >= self._kept
        return order > self.seen.judged

    def position(self) -> FilePosition | None:
        """Up to where the file was read, and not before the stored position.

        Reading may have ended earlier, because the file's mount stopped answering. None if the file
        was read to its end and was deleted, so that nothing can be appended by name.
        """
        reached = self.backlog.position()
        is_behind = reached is not None and reached.offset < self._kept
        return self.seen.position if self.seen is not None and is_behind else reached

    def pieces(self, *, ends: bool) -> Iterator[TimedChunk]:
        """The bytes as pieces; `ends`: no more will follow, so an unfinished record is complete."""
        orders = {each.start: each.order for each in self._records}
        for chunk in self._chunks():
            if chunk.offset == self._spans[0].start:
                chunk.continues = self.continues
            pieces = self._split(chunk)
            for when, piece in joined_repaints(pieces) if self.joins_repaints else pieces:
                order = orders.get(piece.offset, UNSEEN)
                while self._others and self._is_before(self._others[0], order, piece):
                    yield from self._other(self._others.pop(0), piece)
                yield when, order, piece
        if ends:
            last = self.backlog.tail.finish()
            for when, piece in self.timeline.split(last):
                if last.data or not self.is_continued:  # a record may go on in the newer file
                    yield when, UNSEEN, piece
        else:
            yield from self._unfinished()
        self.backlog.rest()

    def _as_read(self, rows: Sequence[Arrival], apart: float) -> Timeline:
        """The times of reading; of rows those between two multiples of `apart` seconds are one."""
        if self.form == "rows" and apart:
            judged = math.inf if self.seen is None else self.seen.judged
            slots = groupby(rows, lambda each: (each.at // apart, each.order > judged))
            groups = [[*group] for _, group in slots]
        else:
            groups = [[each] for each in rows]
        return Timeline([each[0].start for each in groups], [each[-1].at for each in groups])

    def _split(self, chunk: Chunk) -> Iterator[tuple[float, Chunk]]:
        """The chunk in pieces, each with its time; rows without times as they were read."""
        for when, piece in self.timeline.split(chunk):
            if self.form == "rows" and self.seen_at(piece.offset) is not None:
                own = last_moment(piece.data)
                if own is None or own > when + SKEW_SECONDS:
                    yield from self._read.split(piece)
                    continue
            yield when, piece

    def _unfinished(self) -> Iterator[TimedChunk]:
        splitter = self.backlog.tail.splitter
        rest = splitter.rest() if splitter.unfinished else None
        for each in self._others:
            yield from self._other(each, rest)
        shown_at = self.backlog.modified + PEEK_SECONDS
        if splitter.peek_at() is not None and shown_at <= self._now:
            yield max(shown_at, self.timeline.end), UNSEEN, splitter.peek()

    @staticmethod
    def _is_before(other: Arrival, order: float, piece: Chunk) -> bool:
        return other.order < order and (order < UNSEEN or other.start <= piece.offset)

    def _chunks(self) -> Iterator[Chunk]:
        for span in self._spans:
            self.backlog.begin_at(span.start, span.line)
            yield from self.backlog.chunks(self._now, span.end)

    def _choose_spans(self, budget: int | None, disk: Disk) -> list[ByteSpan]:
        """The parts to read, within `budget`; after a restart, also all that was not judged yet."""
        size, line = self.backlog.size, 1
        start = 0 if self.seen is None else size
        if budget is None or framing_of(self.backlog.head) is not None:
            budget = size
        elif self.form == "rows":
            budget *= ROWS_BUDGET
        if self.seen is not None:
            start, line = self._choose_start(self.seen.position, size - budget)
        rest = ByteSpan(start, max(size, start), line)
        before = start if self.seen is not None else size
        if self._begin or before == 0:
            return [rest]
        head = excerpt(self.backlog.descriptor(), before, budget=budget, disk=disk)
        return head if self.seen is None else [*head, rest]

    def _choose_start(self, kept: FilePosition, least: int) -> tuple[int, int]:
        """Offset (from `least` on, or `kept`) and line of the record from which all is read."""
        places = {each.start: each.line for each in self._records}
        places[kept.offset] = kept.line
        if self._begin == 0:
            places[0] = 1
        fitting = [place for place in places if place >= max(least, self._begin)]
        start = min(fitting, default=kept.offset)
        return start, places[start]

    def _stretch(self, start: int, stop: int, written_at: float) -> Stretch:
        """Bytes `start` to `stop`; of a file that is read in two parts, those of the second."""
        parts = (span.start for span in self._spans if start < span.start < stop)
        if start == 0 and self.note:
            start = next(parts, start)
        return Stretch(self.backlog, start, stop, written_at)

    def _other(self, arrival: Arrival, near: Chunk | None) -> Iterator[TimedChunk]:
        """A piece judged before: an unfinished record at the start of `near`, or the file's end."""
        if arrival.kind == "final":
            yield arrival.at, arrival.order, self.backlog.tail.finish()
        elif near is not None and arrival.start == near.offset:
            data = self.backlog.part(arrival.start, arrival.stop)
            splitter = self.backlog.tail.splitter
            splitter.shown = max(splitter.shown, arrival.stop)
            shown = replace(near, data=data, peek=True, age=PEEK_SECONDS)
            yield arrival.at, arrival.order, shown


@dataclass(slots=True)
class StreamFile:
    """A stream that ends, such as standard input of `--once`; all its bytes have one time."""

    path: str
    run: str
    timeline: Timeline
    chunks: Iterable[Chunk]

    def pieces(self, *, ends: bool) -> Iterator[TimedChunk]:
        """The bytes as pieces of one time; `ends` makes no difference."""
        del ends
        for chunk in self.chunks:
            for when, piece in self.timeline.split(chunk):
                yield when, UNSEEN, piece
