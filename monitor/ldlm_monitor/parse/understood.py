"""What was understood of one file: `parse --stats`, and `formats test` with a log."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ldlm_monitor.parse.framing import Lines
from ldlm_monitor.parse.metric_like import MetricLike

if TYPE_CHECKING:
    from ldlm_monitor.model.chunk import Chunk, Origin
    from ldlm_monitor.model.records import Record, Sample
    from ldlm_monitor.parse.parser import Parser

KEPT_SAMPLES = 3
"""So many samples of each format are kept, to be shown."""
_RECENT = 1024
"""Records over several lines are known within so many."""


@dataclass(slots=True)
class Understood:
    """Counts of one file.

    `formats`: samples by the format that knew them. `lines`: those that `\\n` ends, and an
    unfinished last one. `with_records`: those of which a record, or a part of one, was
    made. `errors`: lines of a JSON-lines file that are no objects, and damaged records of
    a binary file. `steps`: the least and the greatest. `first`: each format's first samples.
    """

    path: str
    formats: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    with_records: int = 0
    errors: int = 0
    steps: tuple[int, int] | None = None
    unknown: MetricLike = field(default_factory=MetricLike)
    first: dict[str, list[Sample]] = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """Of the lines, those with records; None where there is no line."""
        return self.with_records / self.lines if self.lines else None


class Witness:
    """Feeds one file's chunks to a parser and keeps what came of every line."""

    def __init__(self, parser: Parser, path: str) -> None:
        self.found = Understood(path)
        self._parser = parser
        self._offsets: list[int] = []
        self._homes: list[str] = []
        self._places: set[int] = set()
        self._reader: str | None = None

    def feed(self, chunk: Chunk, origin: Origin, now: float) -> None:
        """Take in the next bytes of the file."""
        found, counters = self.found, self._parser.counters
        before = counters.parse_errors
        with self._parser.noting(self._note):
            records = self._parser.feed(chunk, origin, now)
        found.errors += counters.parse_errors - before
        self._reader = self._parser.reader(chunk.path)
        unfinished = chunk.final and chunk.data[-1:] not in (b"", b"\n", b"\r")
        found.lines += chunk.newlines + unfinished
        self._count(records)
        if self._reader is None:
            self._look_at_the_rest(chunk)
        del self._offsets[:-_RECENT], self._homes[:-_RECENT]

    def finish(self) -> Understood:
        """The file ended."""
        self._count(self._parser.finish(self.found.path))
        self.found.with_records = len(self._places)
        return self.found

    def _note(self, offset: int, home: str) -> None:
        self._offsets.append(offset)
        self._homes.append(home)

    def _count(self, records: Sequence[Record]) -> None:
        found = self.found
        for record in records:
            found.types[record.type] += 1
            self._places.add(record.position.line)
            if record.type == "event":
                found.kinds[record.kind] += 1
                continue
            if record.type == "sample":
                home = self._reader or self._home(record.position.offset)
                found.formats[home] += 1
                kept = found.first.setdefault(home, [])
                if len(kept) < KEPT_SAMPLES:
                    kept.append(record)
            if record.step is not None:
                least, greatest = found.steps or (record.step, record.step)
                found.steps = min(least, record.step), max(greatest, record.step)

    def _home(self, offset: int) -> str:
        """The format of the sample that begins at `offset`: an event's fields have none."""
        at = bisect_right(self._offsets, offset) - 1
        return (self._homes[at] if at >= 0 else "") or "event fields"

    def _look_at_the_rest(self, chunk: Chunk) -> None:
        known = dict(zip(self._offsets, self._homes, strict=True))
        for offset, line, raw in _lines(chunk):
            home = known.get(offset)
            if home == "":
                self._places.add(line)
            elif home is None and line not in self._places:
                self.found.unknown.take(raw, line)


def _lines(chunk: Chunk) -> Iterator[tuple[int, int, bytes]]:
    lines = Lines(chunk)
    while (line := lines.following()) is not None:
        if line.raw:
            yield line.offset, line.number, line.raw
