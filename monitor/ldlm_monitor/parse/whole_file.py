"""Files that are something else than text, as a whole: what they are, and who reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from ldlm_monitor.parse.csv_rows import TableReader, begins_table
from ldlm_monitor.parse.event_file import EventFileReader, event_times
from ldlm_monitor.parse.metric_file import MetricFileReader, metric_of
from ldlm_monitor.parse.rows import RowReader
from ldlm_monitor.parse.wandb_file import WandbReader, history_times

if TYPE_CHECKING:
    from ldlm_monitor.model.chunk import Chunk, Origin
    from ldlm_monitor.model.records import Record, SampleBlock

ROW_SUFFIXES = (".jsonl", ".ndjson")
"""How the names of files end that hold JSON lines."""
READERS = (
    (RowReader.name, "metric rows with any key names, one object a line; ldlm.health/1"),
    (TableReader.name, "a header with a step or epoch and a metric: Lightning, Keras, ultralytics"),
    (EventFileReader.name, "event files of torch, TensorFlow 2 and JAX: scalars, CRC checked"),
    (WandbReader.name, "run-ID.wandb: history, config and exit code, CRC checked"),
    (MetricFileReader.name, "the file store: mlruns/EXPERIMENT/RUN/metrics/METRIC"),
)
"""What is recognised of whole files, each with what it is."""


class WholeFile(Protocol):
    """Reads one file. `errors`: what it could not read, `truncated`: what was too long for it."""

    name: str
    errors: int
    truncated: int

    def feed(self, chunk: Chunk, origin: Origin) -> Sequence[Record | SampleBlock]:
        """What the next bytes tell, in order of position."""
        ...


def reads_lines(path: str) -> bool:
    """Whether a file of this name may be text."""
    return not path.endswith(ROW_SUFFIXES)


def reader_of(chunk: Chunk) -> WholeFile | None:
    """Who reads the file that these bytes are of; None: it is text."""
    if chunk.framed == "tfrecord":
        return EventFileReader(chunk.path)
    if chunk.framed == "wandb":
        return WandbReader()
    if not reads_lines(chunk.path):
        return RowReader()
    if chunk.offset == 0 and begins_table(chunk.data):
        return TableReader()
    metric = metric_of(chunk.path, chunk.data)
    return None if metric is None else MetricFileReader(metric)


def frame_times(chunk: Chunk) -> Iterator[tuple[int, float]]:
    """Where each frame begins in a file that tells when it was written (Unix seconds)."""
    if chunk.framed == "wandb":
        yield from history_times(chunk.data, chunk.offset)
    else:
        yield from ((chunk.offset + at, when) for at, when in event_times(chunk.data))
