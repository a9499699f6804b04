"""Rows of one file and rank as a run's owners of steps get them: a sample is a block of one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ldlm_monitor.base.records import Sample, SampleBlock
from ldlm_monitor.judge.run.quantity import ValueSource


@dataclass(slots=True)
class FileRows:
    """Consecutive rows of one file and rank; all but the last only advance the step.

    `steps` rise, and are empty where the record has none. `times`: when each row was logged, Unix
    seconds if `timed`, else only an order. `previous`: the step before the first row. `block` has
    the rows before `last`; it is None for a single record.
    """

    last: Sample
    source: ValueSource
    steps: Sequence[int]
    times: Sequence[float]
    previous: int | None
    timed: bool = True
    block: SampleBlock | None = None

    @property
    def falls(self) -> bool:
        """Whether the first step is below the one before it: a resume."""
        return bool(self.steps) and self.previous is not None and self.steps[0] < self.previous

    @property
    def key(self) -> tuple[str, int | None]:
        """The file and the rank."""
        return self.last.position.path, self.last.rank

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

    def sample(self, row: int) -> Sample:
        """The sample of one row, from 0."""
        return self.last if self.block is None else self.block.sample(row)

    def singly(self) -> Iterator["FileRows"]:
        """The same rows, each alone."""
        return map(self._alone, range(len(self.steps)))

    def ends(self) -> Iterator["FileRows"]:
        """The first and the last row, each alone; a row alone is both."""
        return map(self._alone, (0, len(self.steps) - 1))

    def _alone(self, row: int) -> "FileRows":
        previous = self.steps[row - 1] if row else self.previous
        sample, times = self.sample(row), self.times[row : row + 1]
        return FileRows(sample, self.source, (sample.step or 0,), times, previous, self.timed)


class FileSteps:
    """The last step of each file and rank in the present attempt: `last`."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, int | None], int] = {}

    def __bool__(self) -> bool:
        return bool(self.last)

    def note(self, rows: FileRows) -> None:
        """Store the last step of rows that have steps."""
        self.last[rows.key] = rows.steps[-1]

    def rows_of(self, sample: Sample, at: float, source: ValueSource, *, timed: bool) -> FileRows:
        """A sample that was logged at `at`, as rows."""
        steps = () if sample.step is None else (sample.step,)
        previous = self.last.get((sample.position.path, sample.rank))
        return FileRows(sample, source, steps, (at,), previous, timed)

    def rows_of_block(
        self,
        block: SampleBlock,
        last: Sample,
        times: Sequence[float],
        source: ValueSource,
        *,
        timed: bool,
    ) -> FileRows:
        """A block whose rows were logged at `times`, as rows; `last` is its last one."""
        previous = self.last.get((block.path, block.rank))
        return FileRows(last, source, block.steps, times, previous, timed, block)

    def clear(self) -> None:
        """Forget all steps: another attempt begins."""
        self.last.clear()

    def continue_file(self, before: str, path: str) -> None:
        """See `Fleet.continue_file`."""
        for file, rank in [key for key in self.last if key[0] == before]:
            self.last[path, rank] = self.last.pop((file, rank))
