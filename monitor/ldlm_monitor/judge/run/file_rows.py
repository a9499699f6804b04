"""Rows of one file and rank, as a run's owners of steps get them: a sample is a block of one."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Literal

from ldlm_monitor.base.records import Position, Sample, SampleBlock, row_source
from ldlm_monitor.logs.parse import is_rows, is_tracker

_ALONE = (0,)  # the place of a sample among its rows
LEAST_FALL = 0.01
"""A step that falls by this share of the last one, and by more than 1, falls back. A choice: bars
and lines of one file count from 1 and from 0, and ranks print at slightly different steps."""
COMPARED = 20
"""Last losses that show what was learned. A choice: the range of fewer misses a bad batch, a first
attempt of fewer rows has hardly learned."""

FALLEN, GOES_ON = 0.9, 0.25
"""A loss below this share of the first one shows what was learned; within this share of its fall it
goes on where it was. A choice: noise and a lost optimizer state are within it, weights that begin
from nothing are not."""

Fall = Literal["", "back", "begin", "kept", "anew"]
"""Where a step falls to: nowhere; a step after the first, which is a resume; the first, as where
steps count within an epoch; the first, though the loss goes on, so that what was learned is kept;
the first, and with it the loss: another training, untrained."""


class ValueSource(IntEnum):
    """Where a value comes from, the best first (contract: "One value, one source")."""

    CALLBACK = 0  # rows of our callback: exact values of each rank
    JSONL = 1  # rows of a trainer
    TRACKER = 2  # event files of TensorBoard and W&B, written up to two minutes late
    TEXT = 3  # lines of a log, rounded
    BAR = 4  # progress bars, rounded and smoothed
    INFERRED = 5  # lines of an unknown format


def source_of(sample: Sample) -> ValueSource:
    """The source of a sample, by its file's name and its values."""
    known = _source_by_name(sample.position.path)
    if known is not None:
        return known
    if sample.source == "inferred":
        return ValueSource.INFERRED
    return ValueSource.BAR if "progress" in sample.values else ValueSource.TEXT


@lru_cache(maxsize=4096)  # a choice: as many files as a fleet writes at once
def _source_by_name(path: str) -> ValueSource | None:
    if is_rows(path):
        return ValueSource.CALLBACK if row_source(path) == "callback" else ValueSource.JSONL
    return ValueSource.TRACKER if is_tracker(path.rsplit("/", 1)[-1]) else None


@dataclass(slots=True)
class FileRows:
    """Consecutive rows of one file and rank, in the order of their times.

    `steps` rise, and are empty where the record has none. `times`: when each row was logged, Unix
    seconds if `timed`, else only an order. `previous`: the step before the first row. `block` has
    all rows, `last` among them; it is None for a single record. `fall`: of the first row.
    """

    last: Sample
    source: ValueSource
    steps: Sequence[int]
    times: Sequence[float]
    previous: int | None
    timed: bool = True
    block: SampleBlock | None = None
    fall: Fall = ""

    def __len__(self) -> int:
        return len(self.times)

    @property
    def falls(self) -> bool:
        """Whether the first step is below the one before it: a resume."""
        return bool(self.steps) and self.previous is not None and self.steps[0] < self.previous

    @property
    def key(self) -> tuple[str, int | None]:
        """The file and the rank."""
        return self.last.position.path, self.last.rank

    def columns(self) -> Iterator[tuple[str, Sequence[float], Sequence[int]]]:
        """Each quantity, its values, and the places of the rows that have them."""
        if self.block is None:
            for quantity, value in self.last.values.items():
                yield quantity, (value,), _ALONE
            return
        everywhere = range(len(self.times))
        for quantity, column in self.block.values.items():
            yield quantity, column, everywhere
        for quantity, cells in self.block.sparse.items():
            yield quantity, tuple(cells.values()), tuple(cells)

    def places(self, quantity: str) -> Sequence[int]:
        """The places of the rows that have the quantity, rising."""
        if self.block is None:
            return _ALONE if quantity in self.last.values else ()
        if quantity in self.block.values:
            return range(len(self.times))
        return tuple(self.block.sparse.get(quantity, ()))

    def column(self, quantity: str) -> Sequence[float]:
        """The quantity's value in each row; empty if not each row has it."""
        if self.block is not None:
            return self.block.values.get(quantity, ())
        value = self.last.values.get(quantity)
        return () if value is None else (value,)

    def own_times(self) -> Sequence[float] | None:
        """The rows' own times (Unix seconds); None if they have none."""
        if self.block is not None:
            return self.block.times
        return None if self.last.time is None else (self.last.time,)

    @property
    def came_at_once(self) -> bool:
        """Whether the rows are several without times, of which the last one shows the pace.

        The repaints of a bar come as they are drawn.
        """
        return self.own_times() is None and not self.is_of_bar and len(self) > 1

    @property
    def is_of_bar(self) -> bool:
        """Whether the rows are repaints of a progress bar."""
        return self.last.source == "bar"

    def sample(self, place: int) -> Sample:
        """The sample of the row at a place, from 0."""
        if self.block is None or place == len(self.times) - 1:
            return self.last
        return self.block.sample(place)

    def position(self, place: int) -> Position:
        """Where the row at a place stands."""
        return self.last.position if self.block is None else self.block.place(place)

    def singly(self) -> Iterator["FileRows"]:
        """The same rows, each alone."""
        return map(self._alone, range(len(self)))

    def first(self) -> "FileRows":
        """The first row, alone."""
        return self if len(self) == 1 else self._alone(0)

    def last_alone(self) -> "FileRows":
        """The last row, alone."""
        return self if len(self) == 1 else self._alone(len(self) - 1)

    def rest(self) -> "FileRows | None":
        """The rows behind the first; None if there are none."""
        if self.block is None or len(self) == 1:
            return None
        block = self.block.part(1, len(self))
        return replace(
            self,
            steps=block.steps,
            times=self.times[1:],
            previous=self.steps[0],
            block=block,
            fall="",
        )

    def _alone(self, place: int) -> "FileRows":
        previous = self.steps[place - 1] if place else self.previous
        steps, times = self.steps[place : place + 1], self.times[place : place + 1]
        sample, fall = self.sample(place), self.fall if place == 0 else ""
        return FileRows(sample, self.source, steps, times, previous, self.timed, fall=fall)


class FileSteps:
    """What the files of a run have of its present attempt.

    `last`: the last step of each file and rank. `lived`: the files that have steps or an end.
    """

    def __init__(self) -> None:
        self.last: dict[tuple[str, int | None], int] = {}
        self.lived: set[str] = set()
        self._reached: dict[tuple[str, int | None], int] = {}  # the last steps, of any attempt
        self._first: int | None = None  # the training's first step
        self._untrained: float | None = None  # its first loss
        self._losses: deque[float] = deque(maxlen=COMPARED)

    def __bool__(self) -> bool:
        return bool(self.last)

    def note(self, key: tuple[str, int | None], step: int) -> None:
        """Store the last step of a file and rank."""
        self.last[key] = step
        self.lived.add(key[0])

    def rows(self, item: Sample | SampleBlock, times: Sequence[float], *, timed: bool) -> FileRows:
        """A sample or a block, logged at `times`, as rows after the stored ones of its file."""
        if isinstance(item, SampleBlock):
            block, last, steps = item, item.sample(len(item) - 1), item.steps
        else:
            block, last, steps = None, item, () if item.step is None else (item.step,)
        previous = self.last.get((last.position.path, last.rank))
        rows = FileRows(last, source_of(last), steps, times, previous, timed, block)
        if steps:
            rows.fall = self._fall(rows.first())
            self._learn(rows)
        return rows

    def _fall(self, first: FileRows) -> Fall:
        """Where the step of a row falls to from the last one of its file and rank."""
        (step,), last = first.steps, self._reached.get(first.key)
        if last is None or last - step <= max(1, LEAST_FALL * last):
            return ""
        total = first.last.values.get("total_steps", 0)
        if self._first is None or step > self._first:
            return "back"
        untrained, loss = self._untrained, first.last.values.get("loss")
        if loss is not None and untrained is not None and len(self._losses) == COMPARED:
            least, most = min(self._losses), max(self._losses)
            if min(loss, untrained) > most + (most - least):
                return "anew"
        if last < total:
            return "back"
        if loss is not None and untrained is not None and self._losses:
            present = self._losses[-1]
            goes_on = abs(loss - present) < GOES_ON * (untrained - present)
            if present < FALLEN * untrained and goes_on:
                return "kept"
        return "begin"

    def _learn(self, rows: FileRows) -> None:
        """Store the steps and losses of rows."""
        self._reached[rows.key] = rows.steps[-1]
        if rows.fall == "anew":
            self._first = self._untrained = None
            self._losses.clear()
        if self._first is None:
            self._first = rows.steps[0]
        if losses := rows.column("loss"):
            if self._untrained is None:
                self._untrained = losses[0]
            self._losses.extend(losses[-COMPARED:])

    def clear(self) -> None:
        """Forget the steps: others begin."""
        self.last.clear()

    def continue_file(self, before: str, path: str) -> None:
        """See `Fleet.continue_file`."""
        for steps in (self.last, self._reached):
            for file, rank in [key for key in steps if key[0] == before]:
                steps[path, rank] = steps.pop((file, rank))
        if before in self.lived:
            self.lived.add(path)
