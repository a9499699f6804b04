"""The rows of one JSON-lines file: in blocks where they are alike, one by one where not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ldlm_monitor.parse import jsonl
from ldlm_monitor.parse.columns import Owner, Shape, offsets_of, shape_of, signature
from ldlm_monitor.parse.events import Place
from ldlm_monitor.parse.framing import MAX_RECORD_BYTES

if TYPE_CHECKING:
    from ldlm_monitor.model.chunk import Chunk, Origin
    from ldlm_monitor.model.records import Record, SampleBlock


class RowReader:
    """Reads one file's rows.

    `errors` and `truncated` count the lines that are no JSON objects and those that
    are longer than 1 MiB, until somebody sets them back to 0.
    """

    name = "JSON lines"

    def __init__(self) -> None:
        self.errors = 0
        self.truncated = 0
        self._rank: int | None = None
        self._shape: Shape | None = None
        self._alone: tuple[int, tuple[str, ...]] = (-1, ())  # line and keys of the last such row

    def feed(self, chunk: Chunk, origin: Origin) -> list[Record | SampleBlock]:
        """What a chunk's rows tell, in order of position."""
        raws = chunk.data.split(b"\n")
        if not raws[-1]:
            raws.pop()
        offsets = offsets_of(raws, chunk.offset)
        if len(chunk.data) > MAX_RECORD_BYTES:
            self.truncated += sum(len(raw) > MAX_RECORD_BYTES for raw in raws)
            raws = [raw if len(raw) <= MAX_RECORD_BYTES else b"" for raw in raws]
        found: list[Record | SampleBlock] = []
        at = 0
        while at < len(raws):
            alike = self._shape.decode(raws, at) if self._shape is not None else []
            stop = at + len(alike)
            owner = Owner(origin.run, chunk.path, origin.rank if self._rank is None else self._rank)
            blocks = (
                self._shape.blocks(alike, owner, chunk.line + at, offsets[at:stop])
                if self._shape is not None and alike
                else []
            )
            for block in blocks or ():
                found += (block,) if len(block) > 1 else block.samples()
            first = at if blocks is None else stop
            for index in range(first, min(stop + 1, len(raws))):
                place = Place(
                    chunk.path, chunk.line + index, offsets[index], origin, owner.rank, None
                )
                found += self._row(raws[index], place)
            at = stop + 1
        return found

    def _row(self, raw: bytes, place: Place) -> list[Record]:
        """A row that is read alone."""
        if not raw or raw.isspace():
            return []
        try:
            row = jsonl.decode(raw)
            found = jsonl.records(row, place)
        except jsonl.BadRowError:
            self.errors += 1
            return []
        if row.get("type") == "run" and found:
            self._rank = found[0].rank
        self._learn(row, place.line)
        return found

    def _learn(self, row: dict[str, Any], line: int) -> None:
        """What the next rows may look like, when two rows of the same keys were read alone."""
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
