"""The reader of JSON-lines files: similar rows are read as columns, others one by one."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Self

from ldlm_monitor.base.chunk import Chunk, Origin, rotated_from
from ldlm_monitor.base.records import Record, SampleBlock
from ldlm_monitor.logs.parse import jsonl
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.jsonl import BadRowError
from ldlm_monitor.logs.parse.row_columns import RowShape, shape_of, signature
from ldlm_monitor.logs.parse.row_decoders import RowColumns
from ldlm_monitor.logs.parse.whole_file import WholeFile


@lru_cache(maxsize=4096)  # paths. A choice: each costs 200 bytes, and each record asks
def is_rows(path: str) -> bool:
    """Whether a file is one of JSON lines by its name, also if compressed or rotated."""
    return rotated_from(path)[0].endswith((".jsonl", ".ndjson"))


class RowReader(WholeFile):
    """Reads the rows of a JSON-lines file: consecutive rows with the same keys as blocks.

    `errors` counts lines that are not JSON objects, and callback records that lack a field.
    """

    name = "JSON lines"
    about = "metric rows with any key names, one object a line; ldlm.health/1"

    def __init__(self) -> None:
        self._rank: int | None = None
        self._shape: RowShape | None = None
        self._alone: tuple[int, tuple[str, ...]] = (-1, ())  # line, keys of the last single row
        self._shown = -1  # offset of an unfinished row whose records `peek` has returned

    @classmethod
    def of(cls, chunk: Chunk) -> Self | None:
        """A reader of a file with the name of such rows."""
        return cls() if is_rows(chunk.path) else None

    def feed(self, chunk: Chunk, origin: Origin) -> list[Record | SampleBlock]:
        """The records of a chunk's rows, in order of position."""
        found: list[Record | SampleBlock] = []
        data, line, at = chunk.data, chunk.line, 0
        if chunk.offset == self._shown:
            line, at = line + 1, _end(data, 0) + 1
        while at < len(data):
            owner = origin if self._rank is None else Origin(origin.run, origin.node, self._rank)
            place = RecordPlace.of(chunk, line, chunk.offset + at, owner)
            if self._shape is not None:
                rows = self._shape.read(data, at, chunk.offset)
                found += self._of_shape(self._shape, rows, chunk, place)
                line, at = line + len(rows), rows.stop
                place = RecordPlace.of(chunk, line, chunk.offset + at, owner)
            raw = data[at : _end(data, at)]
            found += self._row(raw, place)
            line, at = line + 1, at + len(raw) + 1
        return found

    def _of_shape(
        self, shape: RowShape, rows: RowColumns, chunk: Chunk, place: RecordPlace
    ) -> Iterator[Record | SampleBlock]:
        """The blocks of a chunk's rows of a shape, which begin at `place`; else their records."""
        if not rows:
            return
        self.singly += rows.singly
        try:
            blocks = shape.blocks(rows, place)
        except Exception as fault:  # noqa: BLE001 # after a bug of ours, read them one by one
            self.on_fault(place.position, fault)
            blocks = None
        for block in blocks or ():
            yield from (block,) if len(block) > 1 else block.samples()
        for index, offset in enumerate(rows.offsets if blocks is None else ()):
            at = offset - chunk.offset
            raw = chunk.data[at : _end(chunk.data, at)]
            yield from self._row(raw, replace(place, line=place.line + index, offset=offset))

    def peek(self, chunk: Chunk, origin: Origin) -> list[Record]:
        """The records of a last row that lacks only its newline; `feed` then skips the row."""
        if chunk.offset == self._shown or not chunk.data.rstrip().endswith(b"}"):
            return []
        errors = self.errors
        place = RecordPlace.of(chunk, chunk.line, chunk.offset, origin)
        found = self._row(chunk.data, place.known(self._rank, None))
        if self.errors == errors:
            self._shown = chunk.offset
        self.errors = errors  # the row may be unfinished, which is no error
        return found

    def _row(self, raw: bytes, place: RecordPlace) -> list[Record]:
        if not raw or raw.isspace():
            return []
        self.singly += 1
        try:
            row = jsonl.decode(raw)
            found = jsonl.records(row, place)
            if row.get("type") == "run" and found:
                self._rank = found[0].rank
            self._learn(row, place.line)
        except BadRowError:
            self.errors += 1
            return []
        except Exception as fault:  # noqa: BLE001 # a bug of ours costs this row alone
            self.on_fault(place.position, fault)
            return []
        return found

    def _learn(self, row: dict[str, Any], line: int) -> None:
        """Make a reader of similar rows once two rows with the same keys were read one by one."""
        before, self._alone = self._alone, (line, tuple(row))
        if before[1] != self._alone[1]:
            return
        signed, shape = signature(row), self._shape
        if signed is None or (shape is not None and shape.signature == signed):
            return
        wider = None if shape is None else shape.with_more(signed)
        if wider is None and before[0] == line - 1:
            wider = shape_of(signed)
        self._shape = wider or shape


def _end(data: bytes, start: int) -> int:
    """Where the line at `start` ends, without its newline."""
    found = data.find(b"\n", start)
    return len(data) if found < 0 else found
