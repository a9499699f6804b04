"""A file that is read on after a restart: what it got since, and when that came."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.run.timeline import Timeline, at_once
from ldlm_monitor.source import Continuation
from ldlm_monitor.source.split import PEEK_SECONDS
from ldlm_monitor.state.read_log import Arrival

Piece: TypeAlias = tuple[float, tuple[float, int], Chunk]
"""Bytes with their time (Unix seconds) and their order among those of the same time."""
UNSEEN = (math.inf, 0)
"""The order of what nobody saw arrive: behind what was seen at that time."""


@dataclass(slots=True)
class ResumedFile:
    """What was read after the checkpoint comes as it came then; what nobody saw, as estimated.

    `arrivals` are those of this file. `run` is the file's. `now`: when it is read.
    `was_named`: its name led to it before the restart.
    """

    continuation: Continuation
    arrivals: Sequence[Arrival]
    run: str
    now: float
    was_named: bool = True
    timeline: Timeline = field(default_factory=lambda: at_once(0.0))

    @property
    def path(self) -> str:
        """The followed name."""
        return self.continuation.path

    @property
    def _records(self) -> list[Arrival]:
        return [each for each in self.arrivals if each.kind == "records"]

    @property
    def seen_to(self) -> int:
        """Up to which byte the file was read when the process ended."""
        return max((each.stop for each in self._records), default=self.continuation.offset)

    @property
    def is_rows(self) -> bool:
        """Whether it is JSON lines."""
        return self.continuation.start.lstrip().startswith(b"{")

    def seen_at(self, offset: int) -> float | None:
        """When a byte was read, None: before the checkpoint, or by nobody yet."""
        times = (each.at for each in self._records if each.start <= offset < each.stop)
        return next(times, None)

    def place(self, estimate: Timeline, floor: float) -> None:
        """Place it in time; what was not seen came as estimated, and not before `floor`."""
        seen = [(each.start, each.at) for each in self._records]
        self.timeline = estimate.following(seen, self.seen_to, floor)

    def pieces(self) -> Iterator[Piece]:
        """Pieces with their times, and their order among those of the same time."""
        others = [each for each in self.arrivals if each.kind != "records"]
        orders = {each.start: each.order for each in self._records}
        for chunk in self.continuation.chunks(self.now):
            for when, piece in self.timeline.split(chunk):
                order = orders.get(piece.offset, UNSEEN)
                while others and others[0].order < order:
                    yield from self._other(others.pop(0), piece)
                yield when, order, piece
        rest = self.continuation.unfinished()
        for each in others:
            yield from self._other(each, rest)
        shown_at = self.continuation.modified + PEEK_SECONDS
        if rest is not None and not self.continuation.was_shown and shown_at <= self.now:
            yield max(shown_at, self.timeline.end), UNSEEN, self.continuation.show()

    def _other(self, arrival: Arrival, near: Chunk | None) -> Iterator[Piece]:
        """A record that was shown unfinished, or the end of the file."""
        if arrival.kind == "final":
            yield arrival.at, arrival.order, self.continuation.finish()
        elif near is not None and arrival.start == near.offset:
            data = self.continuation.part(arrival.start, arrival.stop)
            self.continuation.note_shown(arrival.stop)
            shown = replace(near, data=data, peek=True, age=PEEK_SECONDS)
            yield arrival.at, arrival.order, shown
