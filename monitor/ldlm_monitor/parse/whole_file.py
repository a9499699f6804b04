"""Files that are not text logs, and their readers.

Here: JSON lines, CSV tables with a header, and MLflow's file store. TensorBoard's and W&B's
files have modules of their own. A file is recognised by its name or its first bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ldlm_monitor.parse import jsonl
from ldlm_monitor.parse.columns import RowShape, offsets_of, shape_of, signature
from ldlm_monitor.parse.event_file import EventFileReader
from ldlm_monitor.parse.events import RecordPlace
from ldlm_monitor.parse.framing import MAX_RECORD_BYTES
from ldlm_monitor.parse.patterns import compile_pattern, number
from ldlm_monitor.parse.samples import Numbers
from ldlm_monitor.parse.vocabulary import EPOCH_KEYS, STEP_KEYS, is_training, measure, plain
from ldlm_monitor.parse.wandb_file import WandbReader

if TYPE_CHECKING:
    from ldlm_monitor.model.chunk import Chunk, Origin
    from ldlm_monitor.model.records import Record, SampleBlock


class RowReader:
    """Reads the rows of a JSON-lines file: similar ones as blocks, others one by one.

    `errors` counts lines that are not JSON objects, `truncated` lines longer than 1 MiB;
    the caller resets them.
    """

    name = "JSON lines"

    def __init__(self) -> None:
        self.errors = 0
        self.truncated = 0
        self._rank: int | None = None
        self._shape: RowShape | None = None
        self._alone: tuple[int, tuple[str, ...]] = (-1, ())  # line and keys of the last such row
        self._shown = -1  # where an unfinished row began that was read

    def feed(self, chunk: Chunk, origin: Origin) -> list[Record | SampleBlock]:
        """The records of a chunk's rows, in order of position."""
        raws = chunk.data.split(b"\n")
        if not raws[-1]:
            raws.pop()
        offsets = offsets_of(raws, chunk.offset)
        if chunk.offset == self._shown:
            raws[:1] = [b""]
        if len(chunk.data) > MAX_RECORD_BYTES:
            self.truncated += sum(len(raw) > MAX_RECORD_BYTES for raw in raws)
            raws = [raw if len(raw) <= MAX_RECORD_BYTES else b"" for raw in raws]
        found: list[Record | SampleBlock] = []
        at = 0
        while at < len(raws):
            alike = self._shape.decode(raws, at) if self._shape is not None else []
            stop = at + len(alike)
            owner = origin if self._rank is None else replace(origin, rank=self._rank)
            place = RecordPlace.of(chunk, chunk.line + at, offsets[at], owner)
            blocks = (
                self._shape.blocks(alike, place, offsets[at:stop])
                if self._shape is not None and alike
                else []
            )
            for block in blocks or ():
                found += (block,) if len(block) > 1 else block.samples()
            first = at if blocks is None else stop
            for index in range(first, min(stop + 1, len(raws))):
                place = RecordPlace.of(chunk, chunk.line + index, offsets[index], owner)
                found += self._row(raws[index], place)
            at = stop + 1
        return found

    def peek(self, chunk: Chunk, origin: Origin) -> list[Record]:
        """The records of an unfinished last row that is a whole object; they come once."""
        if chunk.offset == self._shown or not chunk.data.rstrip().endswith(b"}"):
            return []
        errors = self.errors
        rank = origin.rank if self._rank is None else self._rank
        place = RecordPlace(chunk.path, chunk.line, chunk.offset, origin, rank, None)
        found = self._row(chunk.data, place)
        if self.errors == errors:
            self._shown = chunk.offset
        self.errors = errors  # the rest of the row may come
        return found

    def _row(self, raw: bytes, place: RecordPlace) -> list[Record]:
        """The records of a row that is read alone."""
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
        """Make a reader of similar rows, after two rows with the same keys were read alone."""
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


_MAX_LINE = 1 << 16
"""Longer lines are not rows: a table of 500 columns has lines of about 10 KiB."""
_HEADER = compile_pattern(r"\s*[A-Za-z_][\w/.@%() \-]*(?:,\s*[A-Za-z_][\w/.@%() \-]*)+$")


def header_of(line: bytes) -> list[str] | None:
    """The columns of a line that is the header of a table of metrics, else None.

    A header has names separated by commas; one counts steps or epochs, another is a metric.
    """
    line = line.rstrip(b"\r")
    if len(line) > _MAX_LINE or b"," not in line or _HEADER.match(line) is None:
        return None
    names = [name.strip() for name in line.decode("latin-1").split(",")]
    counted = any(plain(name) in STEP_KEYS or plain(name) in EPOCH_KEYS for name in names)
    metrics = is_training({measure(name).name: 0.0 for name in names})
    return names if counted and metrics else None


class LineReader:
    """Reads a file whose every line can be a sample. The caller resets `errors`."""

    name = ""
    truncated = 0

    def __init__(self) -> None:
        self.errors = 0

    def feed(self, chunk: Chunk, origin: Origin) -> list[Record]:
        """The records of a chunk's rows, in order of position."""
        found: list[Record] = []
        offset, lines = chunk.offset, chunk.data.split(b"\n")
        for index, line in enumerate(lines):
            numbers = self.read(line, closed=index < len(lines) - 1)
            if numbers is not None and numbers.values:
                found.append(numbers.at(RecordPlace.of(chunk, chunk.line + index, offset, origin)))
            offset += len(line) + 1
        return found

    def read(self, line: bytes, *, closed: bool) -> Numbers | None:
        """The numbers of a line; None if it is not a row. `closed`: it has its terminator."""
        raise NotImplementedError


class TableReader(LineReader):
    """Reads the rows of a CSV file: those of Lightning, Keras, timm and ultralytics.

    The header can come again with other columns: after a restart, or for a late metric.
    """

    name = "CSV table"

    def __init__(self) -> None:
        super().__init__()
        self._columns: list[str] = []

    def read(self, line: bytes, *, closed: bool) -> Numbers | None:
        """The numbers of a row, without the last cell of an unfinished one."""
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
"""The time of a row of MLflow's file store, in milliseconds."""
_NAME = re.compile(r"(?:^|/)metrics/(?P<name>[^\n]{1,250})$")
_METRIC_ROW = re.compile(
    rb"(?P<time>\d{12,14}) (?P<value>\S{1,40}) (?P<step>\d{1,18})"
    rb"(?: \S{1,512} \S{1,512})?\r?(?:\n|$)"
)


def metric_of(path: str, data: bytes) -> str | None:
    """The metric of a file of MLflow's file store, by its path and first line, else None."""
    if "metrics/" not in path or _METRIC_ROW.match(data) is None:
        return None
    named = _NAME.search(path)
    return None if named is None else named["name"]


class MetricFileReader(LineReader):
    """Reads one metric's rows from MLflow's file store (mlflow/store/tracking/file_store.py).

    `mlruns/{experiment}/{run}/metrics/{metric}` has lines of time (Unix milliseconds), value
    and step, and since MLflow 3 the name and digest of a dataset. A metric `train/loss` is
    a file in a folder. Metrics can have steps of their own (system metrics do), so only the
    loss gives the run's step. `errors` counts lines that are not rows.
    """

    name = "MLflow metric"

    def __init__(self, metric: str) -> None:
        super().__init__()
        self._metric = metric
        self._has_steps = measure(metric).name == "loss"

    def read(self, line: bytes, *, closed: bool) -> Numbers | None:
        """Time, value and step. Without its terminator, the last number can be cut."""
        if not closed or not line.strip():
            return None
        row = _METRIC_ROW.match(line)
        value = number(row["value"].decode("latin-1")) if row else None
        if row is None or value is None:
            self.errors += 1
            return None
        step = int(row["step"]) if self._has_steps else None
        numbers = Numbers(step=step, time=int(row["time"]) / 1000)
        numbers.add(self._metric, value)
        return numbers


ROW_SUFFIXES = (".jsonl", ".ndjson")
"""The suffixes of files of JSON lines."""
_MARK_BYTES = 3
"""A file's first record may stand behind a byte order mark."""
READERS = (
    (RowReader.name, "metric rows with any key names, one object a line; ldlm.health/1"),
    (TableReader.name, "a header with a step or epoch and a metric: Lightning, Keras, ultralytics"),
    (EventFileReader.name, "event files of torch, TensorFlow 2 and JAX: scalars, CRC checked"),
    (WandbReader.name, "run-ID.wandb: history, config and exit code, CRC checked"),
    (MetricFileReader.name, "the file store: mlruns/EXPERIMENT/RUN/metrics/METRIC"),
)
"""The formats of whole files, each with a description."""


class WholeFile(Protocol):
    """Reads one file that is not text. `errors` and `truncated` count what it could not read."""

    name: str
    errors: int
    truncated: int

    def feed(self, chunk: Chunk, origin: Origin) -> Sequence[Record | SampleBlock]:
        """The records of the next bytes, in order of position."""
        ...


def may_be_text(path: str) -> bool:
    """Whether a file with this name may be text."""
    return not path.endswith(ROW_SUFFIXES)


def reader_of(chunk: Chunk) -> WholeFile | None:
    """The reader of the file that begins with this chunk; None if it is text."""
    if chunk.framed == "tfrecord":
        return EventFileReader(chunk.path)
    if chunk.framed == "wandb":
        return WandbReader()
    if not may_be_text(chunk.path):
        return RowReader()
    if chunk.offset <= _MARK_BYTES and header_of(chunk.data[: _MAX_LINE + 1].partition(b"\n")[0]):
        return TableReader()
    metric = metric_of(chunk.path, chunk.data)
    return None if metric is None else MetricFileReader(metric)


def frame_times(chunk: Chunk) -> Iterator[tuple[int, float]]:
    """The offset of each frame that has a time, and its time (Unix seconds)."""
    reader = WandbReader if chunk.framed == "wandb" else EventFileReader
    return reader.times(chunk)
