"""Tables of comma-separated values, with a header that names a step or epoch and a metric."""

from typing import Self

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.logs.parse.numbers import Numbers
from ldlm_monitor.logs.parse.patterns import compile_pattern, number
from ldlm_monitor.logs.parse.vocabulary import MAX_KEY, is_count, is_training, measure
from ldlm_monitor.logs.parse.whole_file import LineReader

_MARK_BYTES = 3
"""Bytes of UTF-8's byte order mark, which may precede a file's first record."""
_MAX_LINE = 1 << 16
"""Most bytes of a table's row. A choice: 500 columns of 20 bytes have 10 KiB, more costs time."""
# Two or more names of columns, separated by commas.
_HEADER = compile_pattern(r"\s*[A-Za-z_][\w/.@%() \-]*(?:,\s*[A-Za-z_][\w/.@%() \-]*)+$")


def header_of(line: bytes) -> list[str] | None:
    """The column names of a line if one is a step or epoch and one a metric; otherwise None."""
    line = line.rstrip(b"\r")
    if len(line) > _MAX_LINE or b"," not in line or _HEADER.match(line) is None:
        return None
    names = [name.strip()[:MAX_KEY] for name in line.decode("latin-1").split(",")]
    metrics = is_training({measure(name).name: 0.0 for name in names})
    return names if metrics and any(map(is_count, names)) else None


class TableReader(LineReader):
    """Reads the rows of a CSV file, as Lightning, Keras, timm and ultralytics write them.

    A header can follow again, with other columns: after a restart, or for a late metric.
    """

    name = "CSV table"
    about = "a header with a step or epoch and a metric: Lightning, Keras, ultralytics"

    def __init__(self) -> None:
        self._columns: list[str] = []

    @classmethod
    def of(cls, chunk: Chunk) -> Self | None:
        """A reader of a file that begins with a header."""
        first = chunk.data[: _MAX_LINE + 1].partition(b"\n")[0]
        return cls() if chunk.offset <= _MARK_BYTES and header_of(first) else None

    def continues(self, chunk: Chunk) -> bool:
        """Whether the first line of a chunk may be a row or a header of this table."""
        first = chunk.data.partition(b"\n")[0]
        return first.count(b",") + 1 == len(self._columns) or header_of(first) is not None

    def read(self, line: bytes, *, closed: bool) -> Numbers | None:
        """The numbers of a row, without a last cell that may be cut; None for any other line."""
        columns = header_of(line)
        if columns is not None:
            self._columns = columns
        if columns is not None or not self._columns or len(line) > _MAX_LINE:
            return None
        cells = line.decode("latin-1").split(",")
        if len(cells) != len(self._columns):
            return None
        numbers = Numbers()
        for name, cell in zip(self._columns, cells if closed else cells[:-1], strict=False):
            value = number(cell.strip())
            if value is not None:
                numbers.add(name, value)
        return numbers
