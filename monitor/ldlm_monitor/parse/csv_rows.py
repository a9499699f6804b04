"""Tables of metrics with a header: what Lightning, Keras, timm and ultralytics write as CSV.

A file is one by its first line, whatever it is called: names with commas between them,
of which one counts steps or epochs and another is a metric. The header may come again
with other columns: after a restart, and where a metric appears late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ldlm_monitor.parse.events import Place
from ldlm_monitor.parse.patterns import compile_pattern
from ldlm_monitor.parse.samples import Numbers
from ldlm_monitor.parse.vocabulary import (
    EPOCH_KEYS,
    STEP_KEYS,
    measure,
    number,
    plain,
    tells_of_training,
)

if TYPE_CHECKING:
    from ldlm_monitor.model.chunk import Chunk, Origin
    from ldlm_monitor.model.records import Record

_MAX_LINE = 1 << 16
_HEADER = compile_pattern(r"\s*[A-Za-z_][\w/.@%() \-]*(?:,\s*[A-Za-z_][\w/.@%() \-]*)+$")


def header_of(line: bytes) -> list[str] | None:
    """The columns that a line names, if it is the header of a table of metrics."""
    line = line.rstrip(b"\r")
    if len(line) > _MAX_LINE or b"," not in line or _HEADER.match(line) is None:
        return None
    names = [name.strip() for name in line.decode("latin-1").split(",")]
    counted = any(plain(name) in STEP_KEYS or plain(name) in EPOCH_KEYS for name in names)
    return names if counted and _has_metric(names) else None


def begins_table(data: bytes) -> bool:
    """Whether the first line of a file is such a header."""
    end = data.find(b"\n", 0, _MAX_LINE)
    return header_of(data[: end if end >= 0 else _MAX_LINE]) is not None


class TableReader:
    """Reads one file's rows, from its header on."""

    name = "CSV table"
    errors = truncated = 0

    def __init__(self) -> None:
        self._columns: list[str] = []

    def feed(self, chunk: Chunk, origin: Origin) -> list[Record]:
        """What a chunk's rows tell, in order of position."""
        found: list[Record] = []
        offset, lines = chunk.offset, chunk.data.split(b"\n")
        for index, line in enumerate(lines):
            columns = header_of(line)
            if columns is not None:
                self._columns = columns
            elif self._columns and len(line) <= _MAX_LINE:
                place = Place(chunk.path, chunk.line + index, offset, origin, origin.rank, None)
                numbers = self._row(line, closed=index < len(lines) - 1)
                if numbers.values:
                    found.append(numbers.at(place))
            offset += len(line) + 1
        return found

    def _row(self, line: bytes, *, closed: bool) -> Numbers:
        """The numbers of a row; the last cell of an unfinished one may be cut short."""
        cells = line.decode("latin-1").split(",")
        numbers = Numbers()
        if len(cells) != len(self._columns):
            return numbers
        for name, cell in zip(self._columns, cells if closed else cells[:-1], strict=False):
            value = number(cell.strip())
            if value is not None:
                numbers.add(name, value)
        return numbers


def _has_metric(names: list[str]) -> bool:
    return tells_of_training({measure(name).name: 0.0 for name in names})
