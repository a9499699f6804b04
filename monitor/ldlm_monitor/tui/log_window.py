"""Which records of a log the screen shows: a filter, and a window that grows at both ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ldlm_monitor.model.queries import Level, LogLine, LogQuery, LogSlice, Source

MAX_LINES = 3000
"""Records that are held; those on the far side are dropped first."""
_MERGED_LINES = 1000
"""Records of all merged files together, approximately."""

_LEVELS: tuple[Level | None, ...] = (None, "warning", "error")


@dataclass(slots=True)
class LogFilter:
    """Records of one rank only, from a level on; `bars`: also what a terminal overwrote."""

    rank: int | None = None
    level: Level | None = None
    bars: bool = False
    _ranks: set[int] = field(default_factory=set)

    def next_rank(self, seen: set[int]) -> None:
        """The next of the ranks that were `seen`, then all."""
        # While one rank is shown, the others are known from before only.
        self._ranks = seen if self.rank is None else self._ranks | seen
        later = [rank for rank in sorted(self._ranks) if self.rank is None or rank > self.rank]
        self.rank = later[0] if later else None

    def next_level(self) -> None:
        """Warnings and errors, errors, all."""
        self.level = _LEVELS[(_LEVELS.index(self.level) + 1) % len(_LEVELS)]

    def query(
        self,
        path: str,
        *,
        at: int | None = None,
        at_line: int | None = None,
        before: int = 0,
        after: int = 0,
    ) -> LogQuery:
        """The query for records around byte `at`."""
        return LogQuery(
            path=path, at=at, at_line=at_line, before=before, after=after,
            rank=self.rank, level=self.level, bars=self.bars,
        )  # fmt: skip

    def labels(self) -> list[str]:
        """The filters in use, as the title names them."""
        found = [f"rank {self.rank}"] if self.rank is not None else []
        found += [f"{self.level} and worse"] if self.level else []
        return found + (["bars"] if self.bars else [])


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """A record and its file."""

    path: str
    line: LogLine


@dataclass(slots=True)
class LogWindow:
    """Consecutive records of one file of `size` bytes: the bytes from `start` to `end`."""

    lines: list[PlacedLine] = field(default_factory=list)
    size: int = 0
    start: int = 0
    end: int = 0

    def line_at(self, offset: int | None) -> int | None:
        """The number of the line at the window's first byte; None elsewhere."""
        first = self.lines[0].line if self.lines else None
        return first.line if first is not None and first.offset == offset else None

    def replace(self, path: str, found: LogSlice) -> None:
        """Hold these records only."""
        self.lines = _placed(path, found)
        self.size, self.start, self.end = found.size, found.start, found.end

    def index_at(self, offset: int) -> int:
        """The record that contains a byte, or the last one."""
        indices = (i for i, each in enumerate(self.lines) if each.line.end > offset)
        return next(indices, len(self.lines) - 1)

    def find(self, text: str, index: int, *, backwards: bool) -> int | None:
        """The next record after `index` (or before it) that contains a text, in either case."""
        after = range(index - 1, -1, -1) if backwards else range(index + 1, len(self.lines))
        wanted = text.lower()
        return next((i for i in after if wanted in self.lines[i].line.text.lower()), None)

    def put_above(self, path: str, found: LogSlice) -> int:
        """Add records before the first; returns how many rows the others move down."""
        placed = _placed(path, found)
        self.size, self.start = found.size, found.start
        self.lines = [*placed, *self.lines][:MAX_LINES]
        if len(self.lines) == MAX_LINES:
            self.end = self.lines[-1].line.end
        return len(placed)

    def put_below(self, path: str, found: LogSlice) -> int | None:
        """Add records after the last; returns how many rows the others move up.

        None: the records are there already.
        """
        placed = _placed(path, found)
        self.size = found.size
        if self.lines and self.lines[-1].line.is_open and found.start <= self.lines[-1].line.offset:
            self.lines.pop()  # it was continued or overwritten
        if self.lines and placed and placed[0].line.offset < self.lines[-1].line.end:
            return None
        self.end = max(found.end, self.end)
        dropped = max(len(self.lines) + len(placed) - MAX_LINES, 0)
        if dropped:
            self.start = self.lines[min(dropped, len(self.lines)) - 1].line.end
        self.lines = [*self.lines, *placed][dropped:]
        return dropped


def _placed(path: str, found: LogSlice) -> list[PlacedLine]:
    return [PlacedLine(path, line) for line in found.lines]


def merged(source: Source, paths: Sequence[str], shown: LogFilter) -> list[PlacedLine]:
    """The last records of each file, by time.

    A record without a time follows the one before it in its file; files without any time stand
    one after the other. Raises as `Source.log` does.
    """
    found: list[tuple[float, int, int, PlacedLine]] = []
    each = max(_MERGED_LINES // max(len(paths), 1), 20)
    for number, path in enumerate(paths):
        time = -math.inf
        for index, line in enumerate(source.log(shown.query(path, before=each)).lines):
            time = line.time if line.time is not None else time
            found.append((time, number, index, PlacedLine(path, line)))
    found.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in found]
