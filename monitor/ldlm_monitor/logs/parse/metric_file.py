"""MLflow's file store: a file for each metric, with a row for each value."""

import re
from collections.abc import Iterator
from typing import Self

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.logs.parse import jsonl
from ldlm_monitor.logs.parse.numbers import Numbers
from ldlm_monitor.logs.parse.patterns import number
from ldlm_monitor.logs.parse.vocabulary import measure
from ldlm_monitor.logs.parse.whole_file import LineReader

_ROW_TIME = re.compile(rb"^(\d{12,14}) ", re.MULTILINE)
"""The time of a row of MLflow's file store, in Unix milliseconds: 13 digits from 2001 to 2286; 12
and 14 are accepted too, as the reader of the rows drops impossible times."""
# MLflow allows names of 250 characters; the other lengths are choices above what MLflow writes.
_NAME = re.compile(r"(?:^|/)metrics/(?P<name>[^\n]{1,250})$")
_METRIC_ROW = re.compile(  # `WHEN VALUE STEP`, since MLflow 3 with a dataset's name and digest
    rb"(?P<time>\d{12,14}) (?P<value>\S{1,40}) (?P<step>\d{1,18})"
    rb"(?: \S{1,512} \S{1,512})?\r?(?:\n|$)"
)


class MetricFileReader(LineReader):
    """Reads one metric's rows from MLflow's file store (mlflow/store/tracking/file_store.py).

    `mlruns/{experiment}/{run}/metrics/{metric}` has lines of time (Unix milliseconds), value
    and step, and since MLflow 3 the name and digest of a dataset. The metric `train/loss` is
    the file `loss` in a folder `train`. Metrics can count steps of their own (system metrics
    do), so only the loss gives the run's step. `errors` counts lines that are no rows.
    """

    name = "MLflow metric"
    about = "the file store: mlruns/EXPERIMENT/RUN/metrics/METRIC"
    has_times = True

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._has_steps = measure(metric).name == "loss"

    @classmethod
    def of(cls, chunk: Chunk) -> Self | None:
        """A reader of a file of the store, by path and first line."""
        if "metrics/" not in chunk.path or _METRIC_ROW.match(chunk.data) is None:
            return None
        named = _NAME.search(chunk.path)
        return None if named is None else cls(named["name"])

    @classmethod
    def times(cls, chunk: Chunk) -> Iterator[tuple[int, float]]:
        """The offset and the time (Unix seconds) of each row."""
        for match in _ROW_TIME.finditer(chunk.data):
            yield chunk.offset + match.start(), int(match[1]) / 1000

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
