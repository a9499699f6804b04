"""Files that are not text logs, and their readers.

Here: CSV tables with a header, MLflow's file store and W&B's log. JSON lines and TensorBoard's
files have modules of their own. A file is recognised by its name or its first bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ldlm_monitor.model.chunk import COMPRESSED_SUFFIXES
from ldlm_monitor.model.records import Sample
from ldlm_monitor.parse import jsonl
from ldlm_monitor.parse.event_file import EventFileReader, FrameReader, fields_of
from ldlm_monitor.parse.event_rules import RecordPlace
from ldlm_monitor.parse.line_rules import Numbers
from ldlm_monitor.parse.patterns import compile_pattern, number
from ldlm_monitor.parse.rows import RowReader
from ldlm_monitor.parse.text_lines import WholeFile
from ldlm_monitor.parse.vocabulary import EPOCH_KEYS, STEP_KEYS, is_training, measure, plain

if TYPE_CHECKING:
    from ldlm_monitor.model.chunk import Chunk, Origin
    from ldlm_monitor.model.records import FieldValue, Record


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


class LineReader(WholeFile):
    """Reads a file whose every line can be a sample."""

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


_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18
_UPDATE, _RUN_CONFIG, _RUN_START = 1, 4, 17
_RUN_TEXTS = {1: "run", 8: "run", 13: "host"}
_KEY, _NESTED_KEY, _VALUE = 1, 2, 16
_CALLS, _TIME = "_step", "_timestamp"
_INTERNAL = ("_wandb", "_runtime", "type")
"""Keys that are not metrics; a `type` would make the row one of the callback's."""
_INTERRUPTED = 255
"""The exit code that wandb's hook records for a KeyboardInterrupt (wandb/sdk/lib/exit_hooks.py)."""


class WandbReader(FrameReader):
    """Reads one run's log of W&B's transactions.

    A record (wandb/proto/wandb_internal.proto) contains one of: 2 history; 5 config; 17 run,
    whose 1 is its id, 4 its config, 8 its name, 13 its host and 17 when it began; 18 exit, whose
    1 is the code. An item of a history or config has 1 a key or 2 the parts of a nested key, and
    16 the value as Python's JSON, with `NaN` and `Infinity`. They are read like rows of JSON
    lines. `_step` counts calls of `log`, so it is the step only if the rows have no other.
    """

    name = "W&B"

    def __init__(self) -> None:
        self._has_steps = False

    def records(self, content: bytes, place: RecordPlace) -> list[Record]:
        """The records of one transaction."""
        for tag, value in fields_of(content):
            if not isinstance(value, bytes):
                continue
            if tag == _HISTORY:
                return self._row(_items(value), place)
            if tag == _CONFIG:
                return _run({"config": _items(value)}, place)[1:]
            if tag == _RUN:
                return _run(_run_row(value), place)
            if tag == _EXIT:
                return [_exit(value, place)]
        return []

    @staticmethod
    def time_of(content: bytes) -> float | None:
        """When a row of metrics was logged."""
        value = dict(fields_of(content)).get(_HISTORY)
        return jsonl.unix_time(_items(value).get(_TIME)) if isinstance(value, bytes) else None

    def _row(self, row: dict[str, Any], place: RecordPlace) -> list[Record]:
        """The sample of one step."""
        for key in _INTERNAL:
            row.pop(key, None)
        calls = row.pop(_CALLS, None)
        found = jsonl.records(row, place)
        rows = [each for each in found if isinstance(each, Sample)]
        self._has_steps |= any(each.step is not None for each in rows)
        if self._has_steps or not isinstance(calls, int):
            return found
        return [replace(each, step=calls) for each in rows]


def _items(content: bytes) -> dict[str, Any]:
    """The items of a history or config; the parts of a nested key are joined by `/`."""
    found: dict[str, Any] = {}
    for tag, item in fields_of(content):
        if tag != _UPDATE or not isinstance(item, bytes):
            continue
        key: list[str] = []
        value = b""
        for inner, part in fields_of(item):
            if inner in (_KEY, _NESTED_KEY) and isinstance(part, bytes):
                key.append(part.decode("utf-8", "replace"))
            elif inner == _VALUE and isinstance(part, bytes):
                value = part
        found["/".join(key)] = _value(value)
    return found


def _value(text: bytes) -> Any:
    """A JSON value; None for one that is nested too deeply. Most are numbers."""
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        pass
    try:
        return json.loads(text)
    except RecursionError:
        return None


def _run_row(content: bytes) -> dict[str, Any]:
    """A run, as a row of the callback."""
    row: dict[str, Any] = {"config": {}}
    for tag, value in fields_of(content):
        if not isinstance(value, bytes):
            continue
        if tag == _RUN_CONFIG:
            row["config"] = _items(value)
        elif tag in _RUN_TEXTS and value:
            row[_RUN_TEXTS[tag]] = value.decode("utf-8", "replace")
        elif tag == _RUN_START:
            row["time"] = dict(fields_of(value)).get(1)
    return row


def _run(row: dict[str, Any], place: RecordPlace) -> list[Record]:
    """The run's start, and its config if it has one."""
    row["config"].pop("_wandb", None)
    return jsonl.records({"type": "run", **row}, place)


def _exit(content: bytes, place: RecordPlace) -> Record:
    value = dict(fields_of(content)).get(1, 0)
    code = value if isinstance(value, int) else 0
    code -= 1 << 64 if code >= 1 << 63 else 0
    if code == 0:
        return place.lifecycle("run_finished", "exit code 0")
    fields: dict[str, FieldValue] = {"exitcode": code, "launcher": "wandb"}
    kind, family, role = "elastic_worker_failed", "elastic", "death"
    if code == _INTERRUPTED:
        kind, family, role = "python_exception", "process", "root"
        fields["exc_type"] = "KeyboardInterrupt"
    return place.event(kind, "error", f"exit code {code}", role, fields, family=family)


ROW_SUFFIXES = tuple(
    rows + compressed for rows in (".jsonl", ".ndjson") for compressed in ("", *COMPRESSED_SUFFIXES)
)
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


def reader_of(chunk: Chunk) -> WholeFile | None:
    """The reader of the file that begins with this chunk; None if it is text."""
    if chunk.framed == "tfrecord":
        return EventFileReader(chunk.path)
    if chunk.framed == "wandb":
        return WandbReader()
    if chunk.path.endswith(ROW_SUFFIXES):
        return RowReader()
    if chunk.offset <= _MARK_BYTES and header_of(chunk.data[: _MAX_LINE + 1].partition(b"\n")[0]):
        return TableReader()
    metric = metric_of(chunk.path, chunk.data)
    return None if metric is None else MetricFileReader(metric)


def frame_times(chunk: Chunk) -> Iterator[tuple[int, float]]:
    """The offset of each frame that has a time, and its time (Unix seconds)."""
    reader = WandbReader if chunk.framed == "wandb" else EventFileReader
    return reader.times(chunk)
