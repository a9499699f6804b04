"""The typed records that a log is parsed into.

Times are Unix seconds (UTC), sizes bytes, rates per second; numbers may be NaN or
infinite. A field is None if the log lacks it; `time` is None if the line itself lacks one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.names import Severity

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Scalar: TypeAlias = str | int | float | bool | None  # a JSON value that is no array or object
SampleSource: TypeAlias = Literal["callback", "jsonl", "text", "bar", "inferred"]
"""What gave a sample: the callback's rows, other rows, a line or a bar of a known format, or a line
of an unknown one. Files of experiment trackers count as rows."""
FieldValue: TypeAlias = (
    Scalar
    | list[Scalar]
    | list[dict[str, Scalar]]
    | list[dict[str, Scalar | list[Scalar]]]
    | dict[str, Scalar]
)
"""A value that a definition of an event takes from the log: text, numbers, lists, table rows."""

CALLBACK_FILE = "health_rank"  # prefix of the callback's files, health_rank*.jsonl


def row_source(path: str) -> SampleSource:
    """The source of the rows of a file: those of our callback are in files of its name."""
    return "callback" if path.rsplit("/", 1)[-1].startswith(CALLBACK_FILE) else "jsonl"


MAX_COUNT = 10**18
"""Steps, counts and ranks are below this: 64 signed bits hold them, and the sum of nine of them."""


def as_count(value: float) -> int | None:
    """The number as an integer; None if it is not whole, or beyond +/-`MAX_COUNT`."""
    return int(value) if -MAX_COUNT < value < MAX_COUNT and value == int(value) else None


@dataclass(frozen=True, slots=True)
class Position:
    """Where a record's text begins in a file: `line` counts `\\n` from 1, `offset` bytes from 0."""

    path: str
    line: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Numbers that one line reports, by name: one of `CANONICAL_VALUES`, or the log's own key."""

    type: Literal["sample"] = "sample"
    run: str
    rank: int | None = None
    step: int | None = None
    epoch: float | None = None
    time: float | None = None
    values: dict[str, float]
    source: SampleSource = "text"
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What lines, a probe or an alert report; `kind` says what it is, and which `fields` it has."""

    type: Literal["event"] = "event"
    kind: str
    severity: Severity
    run: str
    rank: int | None = None
    node: str | None = None
    time: float | None = None
    message: str
    fields: dict[str, FieldValue] = field(default_factory=dict)
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A line that the callback writes regularly: a rank is alive, at a step and in a phase."""

    type: Literal["heartbeat"] = "heartbeat"
    run: str
    rank: int
    host: str
    pid: int
    step: int
    phase: str
    time: float
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleBlock:
    """Samples of consecutive rows of one file with the same names, stored as columns.

    Item `i` of every column belongs to the row that begins at byte `offsets[i]`. Rows are lines,
    from `first_line` on; or, with `repaints`, a progress bar's on this one line. `sparse` has the
    values that only some rows have, by name and rising `i`. All numbers are finite, steps rise
    strictly, times never fall; other rows of a file become several blocks, or single samples.
    """

    run: str
    rank: int | None
    path: str
    first_line: int
    offsets: Sequence[int]
    steps: Sequence[int]
    epochs: Sequence[float] | None
    times: Sequence[float] | None
    values: dict[str, Sequence[float]]
    sparse: dict[str, dict[int, float]] = field(default_factory=dict)
    repaints: bool = False

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def position(self) -> Position:
        """Where the first row stands."""
        return self.place(0)

    def place(self, index: int) -> Position:
        """Where one row stands (0 <= index < len)."""
        line = self.first_line if self.repaints else self.first_line + index
        return Position(self.path, line, self.offsets[index])

    def sample(self, index: int) -> Sample:
        """The sample of one row (0 <= index < len)."""
        values = {name: column[index] for name, column in self.values.items()}
        for name, cells in self.sparse.items():
            if index in cells:
                values[name] = cells[index]
        return Sample(
            run=self.run,
            rank=self.rank,
            step=self.steps[index],
            epoch=None if self.epochs is None else self.epochs[index],
            time=None if self.times is None else self.times[index],
            values=values,
            source="bar" if self.repaints else row_source(self.path),
            position=self.place(index),
        )

    def samples(self) -> Iterator[Sample]:
        """Every row's sample, in order."""
        return map(self.sample, range(len(self)))

    def part(self, start: int, stop: int) -> SampleBlock:
        """The rows from `start` up to, not including, `stop` (0 <= start <= stop <= len)."""
        if stop - start == len(self):
            return self
        sparse = {
            name: {index - start: value for index, value in cells.items() if start <= index < stop}
            for name, cells in self.sparse.items()
        }
        return replace(
            self,
            first_line=self.place(start).line if start < len(self) else self.first_line,
            offsets=self.offsets[start:stop],
            steps=self.steps[start:stop],
            epochs=None if self.epochs is None else self.epochs[start:stop],
            times=None if self.times is None else self.times[start:stop],
            values={name: column[start:stop] for name, column in self.values.items()},
            sparse={name: cells for name, cells in sparse.items() if cells},
        )


Record: TypeAlias = Sample | Event | Heartbeat  # `type` says which


class TimedRows(NamedTuple):
    """Rows of a file, or one record, and when each is judged (Unix seconds, never falling).

    `chunk`, if known, has their bytes.
    """

    item: SampleBlock | Record
    times: Sequence[float]
    chunk: Chunk | None = None

    @property
    def first(self) -> Record:
        """The record of the first row."""
        return self.item.sample(0) if isinstance(self.item, SampleBlock) else self.item

    def singly(self) -> Iterator[TimedRows]:
        """The same rows, each alone."""
        records = self.item.samples() if isinstance(self.item, SampleBlock) else (self.item,)
        for record, at in zip(records, self.times, strict=True):
            yield TimedRows(record, (at,), self.chunk)


@cache
def adapter() -> TypeAdapter[Record]:
    """Validates and writes records as JSON. Imports pydantic here, since parsing works without."""
    from pydantic import ConfigDict, Field, TypeAdapter

    return TypeAdapter(
        Annotated[Record, Field(discriminator="type")],
        config=ConfigDict(ser_json_inf_nan="strings"),
    )


def to_json(record: Record) -> bytes:
    """One JSON object; NaN and infinities, which JSON lacks, become strings."""
    return adapter().dump_json(record)


def from_json(text: bytes | str) -> Record:
    """The record that `to_json` wrote; raises `pydantic.ValidationError` for another text."""
    return adapter().validate_json(text)
