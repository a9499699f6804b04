"""A file that is read again after a restart: its bytes come when they came before."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.playback.content import Content
from ldlm_monitor.run.timeline import Timeline, at_once
from ldlm_monitor.source import Continuation, Disk, FilePosition
from ldlm_monitor.source.split import PEEK_SECONDS
from ldlm_monitor.state.read_log import Arrival

Piece: TypeAlias = tuple[float, float, Chunk]
"""Bytes with their time (Unix seconds) and their order among those of the same time."""
UNSEEN = math.inf
"""The order of bytes that no read log has: behind those of the same time that it has."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """Bytes from `start` on of which only an estimate says when they came.

    `stop` None: up to the file's end. `written_at` None: when the file was written last.
    """

    start: int
    stop: int | None = None
    written_at: float | None = None


class ResumedFile:
    """What the read log has comes as it came then; the rest as its content lets estimate.

    `arrivals` are those of this file; it was judged up to `kept`, and up to the number `judged`
    of the read log. `run` is the file's. `now`: when it is read. `was_named`: its name led to it
    before the restart. Of a file that is longer than `budget`, the start and the end are read.
    """

    def __init__(
        self,
        continuation: Continuation,
        arrivals: Sequence[Arrival],
        run: str,
        now: float,
        *,
        kept: FilePosition,
        judged: int,
        was_named: bool = True,
        budget: int | None = None,
        disk: Disk,
    ) -> None:
        self.continuation = continuation
        self.run = run
        self.was_named = was_named
        self.timeline = at_once(0.0)
        self._now = now
        self._kept = kept
        self._judged = judged
        self._disk = disk
        self._budget = budget
        self._others = [each for each in arrivals if each.kind in ("peek", "final")]
        self._rows = sorted(
            (each for each in arrivals if each.kind in ("records", "backlog")),
            key=lambda each: each.start,
        )
        self._records = [each for each in self._rows if each.kind == "records"]
        self._begin = max((each.stop for each in arrivals if each.kind == "skipped"), default=0)
        self.start = self._choose_start()

    @property
    def path(self) -> str:
        """The followed name."""
        return self.continuation.path

    @property
    def seen_to(self) -> int:
        """Up to which byte it was read before the restart."""
        read = max((each.stop for each in self._rows), default=self._begin)
        return max(read, self._kept.offset)

    @property
    def is_rows(self) -> bool:
        """Whether it is JSON lines."""
        return self.continuation.start.lstrip().startswith(b"{")

    @property
    def size(self) -> int:
        """Bytes that are read again, about."""
        return max(self.continuation.size - self.start, 0)

    def content(self, unseen: Unseen) -> Content:
        """The bytes whose time is to be estimated."""
        budget = self._budget if unseen.start == 0 else None
        return Content(
            self.continuation.place, budget, self._disk,
            start=unseen.start, stop=unseen.stop, written_at=unseen.written_at,
        )  # fmt: skip

    def stretches(self) -> Iterator[tuple[int, Unseen | Timeline]]:
        """From its start on, what was seen to come and what was not, each with its first byte."""
        end = self._begin
        for is_seen, group in groupby(self._rows, lambda each: each.kind == "records"):
            rows = list(group)
            if rows[0].start > end:  # its rows were dropped from the read log
                yield end, Unseen(end, rows[0].start, rows[0].at)
            if is_seen:
                starts, times = [each.start for each in rows], [each.at for each in rows]
                yield rows[0].start, Timeline(starts, times)
            else:
                yield from ((each.start, Unseen(each.start, each.stop, each.at)) for each in rows)
            end = max(each.stop for each in rows)
        if self.seen_to > end:
            yield end, Unseen(end, self.seen_to)
        yield self.seen_to, Unseen(self.seen_to)

    def seen_at(self, offset: int) -> float | None:
        """When a byte was read, None: the read log does not have it."""
        index = bisect_right(self._records, offset, key=lambda each: each.start) - 1
        row = self._records[index] if index >= 0 else None
        return row.at if row is not None and offset < row.stop else None

    def is_news(self, chunk: Chunk, order: float) -> bool:
        """Whether it was not judged before the restart."""
        return chunk.offset >= self._kept.offset if math.isinf(order) else order > self._judged

    def position(self) -> FilePosition | None:
        """Where reading stands now, not before `kept`: its mount may have stopped answering.

        None: it was finished, and nobody can write to it by name.
        """
        reached = self.continuation.position()
        is_behind = reached is not None and reached.offset < self._kept.offset
        return self._kept if is_behind else reached

    def pieces(self) -> Iterator[Piece]:
        """Pieces with their times, and their order among those of the same time."""
        orders = {each.start: each.order for each in self._records}
        for chunk in self._chunks():
            for when, piece in self.timeline.split(chunk):
                order = orders.get(piece.offset, UNSEEN)
                while self._others and self._is_before(self._others[0], order, piece):
                    yield from self._other(self._others.pop(0), piece)
                yield when, order, piece
        rest = self.continuation.unfinished()
        for each in self._others:
            yield from self._other(each, rest)
        shown_at = self.continuation.modified + PEEK_SECONDS
        if rest is not None and not self.continuation.was_shown and shown_at <= self._now:
            yield max(shown_at, self.timeline.end), UNSEEN, self.continuation.show()

    @staticmethod
    def _is_before(other: Arrival, order: float, piece: Chunk) -> bool:
        return other.order < order and (order < UNSEEN or other.start <= piece.offset)

    def _chunks(self) -> Iterator[Chunk]:
        if self.start > 0 and self._begin == 0:
            head = Content(self.continuation.place, self._budget, self._disk, stop=self.start)
            for chunk in head.chunks():
                if chunk.data:
                    yield replace(chunk, file=self.continuation.file, final=False)
        yield from self.continuation.chunks(self._now)

    def _choose_start(self) -> int:
        """From where on all is read: a record that the read log has, or the judged end."""
        places = {each.start: each.line for each in self._records}
        places[self._kept.offset] = self._kept.line
        if self._begin == 0:
            places[0] = 1
        least = 0 if self._budget is None else self.continuation.size - self._budget
        fitting = [place for place in places if place >= max(least, self._begin)]
        start = min(fitting, default=self._kept.offset)
        self.continuation.begin_at(start, places[start])
        return start

    def _other(self, arrival: Arrival, near: Chunk | None) -> Iterator[Piece]:
        """A record that was shown unfinished, or the end of the file."""
        if arrival.kind == "final":
            yield arrival.at, arrival.order, self.continuation.finish()
        elif near is not None and arrival.start == near.offset:
            data = self.continuation.part(arrival.start, arrival.stop)
            self.continuation.note_shown(arrival.stop)
            shown = replace(near, data=data, peek=True, age=PEEK_SECONDS)
            yield arrival.at, arrival.order, shown
