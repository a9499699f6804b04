"""MLflow's file store: a file for each metric of a run, named as the metric.

`mlruns/{experiment}/{run}/metrics/{metric}` holds lines of time (Unix milliseconds),
value and step, and since MLflow 3 the name and digest of a dataset where one is told
(mlflow/store/tracking/file_store.py). A metric `train/loss` is a file in a folder.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ldlm_monitor.parse.events import Place
from ldlm_monitor.parse.samples import Numbers, whole
from ldlm_monitor.parse.vocabulary import measure, number

if TYPE_CHECKING:
    from ldlm_monitor.model.chunk import Chunk, Origin
    from ldlm_monitor.model.records import Record

ROW_TIME = re.compile(rb"^(\d{12,14}) ", re.MULTILINE)
"""The time of a row, in milliseconds."""
_NAME = re.compile(r"(?:^|/)metrics/(?P<name>[^\n]{1,250})$")
_ROW = re.compile(rb"\d{12,14} \S{1,40} \d{1,18}(?: \S{1,512} \S{1,512})?\r?(?:\n|$)")
_MAX_LINE = 2048


def metric_of(path: str, data: bytes) -> str | None:
    """The metric whose file it is, by its path and its first line; None for another file."""
    if "metrics/" not in path or _ROW.match(data) is None:
        return None
    named = _NAME.search(path)
    return None if named is None else named["name"]


class MetricFileReader:
    """Reads one metric's rows.

    Each metric may count steps of its own (system metrics do), so only the loss tells
    where the run stands. `errors` counts lines that are no rows, until it is set to 0.
    """

    name = "MLflow metric"
    truncated = 0

    def __init__(self, metric: str) -> None:
        self.errors = 0
        self._metric = metric
        self._tells_steps = measure(metric).name == "loss"

    def feed(self, chunk: Chunk, origin: Origin) -> list[Record]:
        """What a chunk's rows tell, in order of position."""
        found: list[Record] = []
        offset = chunk.offset
        lines = chunk.data.split(b"\n")
        # Without its end, the last number may be cut short.
        for line_number, line in enumerate(lines[:-1], start=chunk.line):
            row = _row(line)
            if row is not None:
                time, value, step = row
                numbers = Numbers(step=step if self._tells_steps else None)
                numbers.add(self._metric, value)
                place = Place(chunk.path, line_number, offset, origin, origin.rank, time)
                if numbers.values:
                    found.append(numbers.at(place))
            elif line.strip():
                self.errors += 1
            offset += len(line) + 1
        return found


def _row(line: bytes) -> tuple[float, float, int] | None:
    """Time, value and step; None for a line that is no row."""
    cells = line.split(None, 3) if len(line) <= _MAX_LINE else []
    if len(cells) < 3:
        return None
    time, value, step = whole(cells[0]), number(cells[1].decode("latin-1")), whole(cells[2])
    if time is None or value is None or step is None:
        return None
    return time / 1000, value, step
