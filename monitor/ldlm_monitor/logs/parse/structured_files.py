"""The choice of a reader for files that are not text logs, and two of the readers.

The two read CSV tables with a header and MLflow's file store; JSON lines, TensorBoard's files and
W&B's have their own modules. A file is recognised by its name or first bytes.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from ldlm_monitor.base.chunk import Chunk, Origin, rotated_from
from ldlm_monitor.base.records import Record
from ldlm_monitor.logs.parse import jsonl
from ldlm_monitor.logs.parse.event_file import EventFileReader
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.numbers import Numbers
from ldlm_monitor.logs.parse.patterns import compile_pattern, number
from ldlm_monitor.logs.parse.row_reader import RowReader
from ldlm_monitor.logs.parse.text_lines import WholeFile
from ldlm_monitor.logs.parse.vocabulary import MAX_KEY, is_count, is_training, measure
from ldlm_monitor.logs.parse.wandb_file import WandbReader

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


class LineReader(WholeFile):
    """Reads a file in which every line can be a sample."""

    def feed(self, chunk: Chunk, origin: Origin) -> list[Record]:
        """The records of a chunk's rows, in order of position."""
        found: list[Record] = []
        offset, lines = chunk.offset, chunk.data.split(b"\n")
        for index, line in enumerate(lines):
            place = RecordPlace.of(chunk, chunk.line + index, offset, origin)
            try:
                numbers = self.read(line, closed=index < len(lines) - 1)
                if numbers is not None and numbers.values:
                    found.append(numbers.at(place))
            except Exception as fault:  # noqa: BLE001 # a bug of ours costs this row alone
                self.on_fault(place.position, fault)
            offset += len(line) + 1
        return found

    def read(self, line: bytes, *, closed: bool) -> Numbers | None:
        """The numbers of a line; None if it is no row. `closed`: the line has its terminator."""
        raise NotImplementedError


class TableReader(LineReader):
    """Reads the rows of a CSV file, as Lightning, Keras, timm and ultralytics write them.

    A header can follow again, with other columns: after a restart, or for a late metric.
    """

    name = "CSV table"

    def __init__(self) -> None:
        self._columns: list[str] = []

    def fits(self, chunk: Chunk) -> bool:
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


ROW_TIME = re.compile(rb"^(\d{12,14}) ", re.MULTILINE)
"""The time of a row of MLflow's file store, in Unix milliseconds: 13 digits from 2001 to 2286; 12
and 14 are accepted too, as the reader of the rows drops impossible times."""
# MLflow allows names of 250 characters; the other lengths are choices above what MLflow writes.
_NAME = re.compile(r"(?:^|/)metrics/(?P<name>[^\n]{1,250})$")
_METRIC_ROW = re.compile(  # `WHEN VALUE STEP`, since MLflow 3 with a dataset's name and digest
    rb"(?P<time>\d{12,14}) (?P<value>\S{1,40}) (?P<step>\d{1,18})"
    rb"(?: \S{1,512} \S{1,512})?\r?(?:\n|$)"
)


def metric_of(path: str, data: bytes) -> str | None:
    """The metric of a file of MLflow's file store, by path and first line; None for other files."""
    if "metrics/" not in path or _METRIC_ROW.match(data) is None:
        return None
    named = _NAME.search(path)
    return None if named is None else named["name"]


class MetricFileReader(LineReader):
    """Reads one metric's rows from MLflow's file store (mlflow/store/tracking/file_store.py).

    `mlruns/{experiment}/{run}/metrics/{metric}` has lines of time (Unix milliseconds), value
    and step, and since MLflow 3 the name and digest of a dataset. The metric `train/loss` is
    the file `loss` in a folder `train`. Metrics can count steps of their own (system metrics
    do), so only the loss gives the run's step. `errors` counts lines that are no rows.
    """

    name = "MLflow metric"

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._has_steps = measure(metric).name == "loss"

    def read(self, line: bytes, *, closed: bool) -> Numbers | None:
        """Time, value, the loss's step; None for other lines, and if the last number may be cut."""
        if not closed or not line.strip():
            return None
        row = _METRIC_ROW.match(line)
        value = number(row["value"].decode("latin-1")) if row else None
        if row is None or value is None:
            self.errors += 1
            return None
        step = int(row["step"]) if self._has_steps else None
        numbers = Numbers(step=step, time=jsonl.unix_time(int(row["time"]) / 1000))
        numbers.add(self._metric, value)
        return numbers


_MARK_BYTES = 3
"""Bytes of UTF-8's byte order mark, which may precede a file's first record."""
READERS = (
    (RowReader.name, "metric rows with any key names, one object a line; ldlm.health/1"),
    (TableReader.name, "a header with a step or epoch and a metric: Lightning, Keras, ultralytics"),
    (EventFileReader.name, "event files of torch, TensorFlow 2 and JAX: scalars, CRC checked"),
    (WandbReader.name, "run-ID.wandb: history, config and exit code, CRC checked"),
    (MetricFileReader.name, "the file store: mlruns/EXPERIMENT/RUN/metrics/METRIC"),
)
"""The formats of files with a reader, each with a description for `formats list`."""


@lru_cache(maxsize=4096)  # paths. A choice: each costs 200 bytes, and each record asks
def is_rows(path: str) -> bool:
    """Whether a file is one of JSON lines by its name, also if compressed or rotated."""
    return rotated_from(path)[0].endswith((".jsonl", ".ndjson"))


def reader_of(chunk: Chunk) -> WholeFile | None:
    """The reader for the file whose chunk this is; None if the file is text."""
    if chunk.framed == "tfrecord":
        return EventFileReader(chunk.path)
    if chunk.framed == "wandb":
        return WandbReader()
    if is_rows(chunk.path):
        return RowReader()
    if chunk.offset <= _MARK_BYTES and header_of(chunk.data[: _MAX_LINE + 1].partition(b"\n")[0]):
        return TableReader()
    metric = metric_of(chunk.path, chunk.data)
    return None if metric is None else MetricFileReader(metric)


def frame_times(chunk: Chunk) -> Iterator[tuple[int, float]]:
    """Offset and time (Unix seconds) of each frame with a time, in W&B or TensorBoard files."""
    reader = WandbReader if chunk.framed == "wandb" else EventFileReader
    return reader.times(chunk)
