"""Every number of a run, for comparing two runs and for accounting for time.

The monitor keeps only what it needs to judge the present. This module keeps each value with its
step and time, from the same parser.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.names import RATES
from ldlm_monitor.base.records import Event, Record, Sample, SampleBlock
from ldlm_monitor.judge.run.file_rows import ValueSource, source_of
from ldlm_monitor.judge.run.lifecycle import SETTINGS
from ldlm_monitor.judge.run.pace import StepDurations
from ldlm_monitor.judge.run.quantity import is_of_its_rank
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.meanings import meaning_of
from ldlm_monitor.logs.parse.run_names import RunNames

STEPS = "steps"
"""The quantity that holds every step of a source, with its time."""
MOSTLY = 0.9
"""Least share of timed steps in an exact run: a choice; less distorts medians, more bars logs."""
# Quantities whose every value is kept, as `compare` shows them: speed, memory, what is learned.
_PACE = frozenset({"step_seconds", *RATES, "gpu_utilization_ratio"})
_MEMORY = frozenset({"memory_allocated_bytes", "memory_reserved_bytes"})  # of the GPU
_LEARNED = ("loss_", "accuracy_", "eval_loss", "eval_accuracy")  # prefixes of what is learned


def is_kept(quantity: str) -> bool:
    """Whether the values of a quantity are kept: pace, memory, losses, accuracies."""
    known = quantity in _PACE or quantity in _MEMORY or quantity in ("loss", "accuracy")
    return known or quantity.startswith(_LEARNED)


@dataclass(slots=True)
class Column:
    """Finite values of one quantity, each with its step and time, in the order of their steps.

    `times`: Unix seconds, NaN where none is known. `nonfinite`: the steps of NaN and
    infinities. Of steps that were trained again, the last values stay.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    nonfinite: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: int, at: float, value: float) -> None:
        """Add a value at Unix time `at` or NaN. A repeated step is ignored, a lower is a resume."""
        if self.steps and step == self.steps[-1]:
            return
        while self.steps and self.steps[-1] >= step:
            for column in (self.steps, self.times, self.values):
                column.pop()
        if not math.isfinite(value):
            if not self.nonfinite or self.nonfinite[-1] != step:
                self.nonfinite.append(step)
            return
        self.steps.append(step)
        self.times.append(at)
        self.values.append(value)

    def extend(self, steps: Sequence[int], times: Sequence[float], values: Sequence[float]) -> None:
        """Add finite values, at least one, whose steps rise strictly."""
        if self.steps and steps[0] <= self.steps[-1]:
            for step, at, value in zip(steps, times, values, strict=True):
                self.add(step, at, value)
            return
        self.steps.extend(steps)
        self.times.extend(times)
        self.values.extend(values)

    def part(self, start: int, stop: int) -> Column:
        """The values from index `start` to before `stop`, all of `nonfinite`."""
        return Column(
            self.steps[start:stop], self.times[start:stop], self.values[start:stop], self.nonfinite
        )


@dataclass(slots=True)
class RunReadings:
    """The numbers of one run, and the settings that its log names."""

    name: str
    files: dict[str, None] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    _exact: Counter[tuple[ValueSource, int | None]] = field(default_factory=Counter)
    _columns: dict[str, dict[tuple[ValueSource, int | None], Column]] = field(default_factory=dict)
    _epochs: dict[str, tuple[float, int, int]] = field(default_factory=dict)
    _at: dict[str, tuple[bool, int]] = field(default_factory=dict)

    def quantities(self) -> list[str]:
        """Quantities with at least one value."""
        return [name for name in self._columns if name != STEPS]

    def column(self, quantity: str) -> Column | None:
        """The values of a quantity by its best source; None if there are none.

        Of several ranks: the lowest rank's; of memory, those of the rank with the most; of rates
        that each rank measures of itself, the sum.
        """
        found = self._columns.get(quantity)
        if not found:
            return None
        best = min(source for source, _ in found)
        ranks = {rank: column for (source, rank), column in found.items() if source is best}
        if quantity in _MEMORY:
            return max(ranks.values(), key=lambda column: max(column.values, default=0.0))
        if is_of_its_rank(quantity, best) and None not in ranks:
            return self._summed(list(ranks.values()))
        return ranks[min(ranks, key=lambda rank: -1 if rank is None else rank)]

    def _summed(self, ranks: Sequence[Column]) -> Column:
        """The sum at the steps that all ranks have, scaled up for ranks without a file."""
        size = self.settings.get("world_size", "")
        share = max(float(size) if size.isdecimal() else 0, len(ranks)) / len(ranks)
        first = ranks[0]
        rest = [dict(zip(each.steps, each.values, strict=True)) for each in ranks[1:]]
        total = Column(nonfinite=first.nonfinite)
        for step, at, value in zip(first.steps, first.times, first.values, strict=True):
            others = [known[step] for known in rest if step in known]
            if len(others) == len(rest):
                total.add(step, at, share * (value + sum(others)))
        return total

    @property
    def steps(self) -> Column:
        """Every step, from the best source, with its time."""
        found = self._columns.get(STEPS)
        return found[self._leader()] if found else Column()

    @property
    def first_step(self) -> int | None:
        """The first step; None if the run has no step."""
        return self.steps.steps[0] if len(self.steps) else None

    @property
    def last_step(self) -> int | None:
        """The last step; None if the run has no step."""
        return self.steps.steps[-1] if len(self.steps) else None

    @property
    def taken(self) -> int:
        """The last step minus the first; 0 without steps."""
        steps = self.steps.steps
        return steps[-1] - steps[0] if steps else 0

    @property
    def seconds(self) -> float | None:
        """Seconds from the first step to the last; None if no times are known."""
        times = self.steps.times
        spent = times[-1] - times[0] if len(times) else math.nan
        return spent if math.isfinite(spent) else None

    @property
    def is_exact(self) -> bool:
        """Whether the share `MOSTLY` of the steps or more have times of their own."""
        count = len(self.steps)
        return count > 0 and self._exact[self._leader()] >= MOSTLY * count

    def durations(self) -> Column:
        """Seconds per step, from the times of the steps; empty if no times are known."""
        result, meter, exact = Column(), StepDurations(), self.is_exact
        for step, at in zip(self.steps.steps, self.steps.times, strict=True):
            if math.isfinite(at):
                meter.advance((at,), (step,), exact=exact)
                if meter.fresh:
                    result.add(step, at, meter.fresh.pop())
        return result

    def _leader(self) -> tuple[ValueSource, int | None]:
        return min(self._columns[STEPS], key=lambda key: (key[0], -1 if key[1] is None else key[1]))

    def put(self, quantity: str, column: Column, *, exact: bool = False) -> None:
        """Set a quantity's values from a bench record; `exact`: each value has its own time."""
        key = ValueSource.CALLBACK, None
        self._columns.setdefault(quantity, {})[key] = column
        if exact:
            self._exact[key] += len(column)

    def add_sample(self, sample: Sample, at: float, *, exact: bool = False) -> None:
        """Add a sample logged about `at` (Unix seconds; NaN: unknown), or at `at` if `exact`."""
        if sample.step is None and not any(map(is_kept, sample.values)):
            return
        self.files[sample.position.path] = None
        source = source_of(sample)
        key = source, sample.rank
        exact = exact or sample.time is not None
        self._exact[key] += exact
        when = sample.time if sample.time is not None else at
        step = self._step_of(sample, key)
        self._of(STEPS, key).add(step, when, 0.0)
        for quantity, value in sample.values.items():
            if is_kept(quantity):
                self._of(quantity, key).add(step, when, value)

    def add_block(self, block: SampleBlock, at: float) -> None:
        """Add rows, logged at `at` (Unix seconds; NaN: unknown) unless they have times."""
        self.files[block.path] = None
        key = source_of(block.sample(0)), block.rank
        self._exact[key] += len(block) if block.times is not None else 0
        times = array("d", block.times if block.times is not None else [at] * len(block))
        self._of(STEPS, key).extend(block.steps, times, array("d", bytes(8 * len(block))))
        for quantity, column in block.values.items():
            if is_kept(quantity):
                self._of(quantity, key).extend(block.steps, times, column)
        for quantity, cells in block.sparse.items():
            if is_kept(quantity):
                kept = self._of(quantity, key)
                for row, value in cells.items():
                    kept.add(block.steps[row], times[row], value)

    def add_settings(self, event: Event) -> None:
        """Add the settings that an event names."""
        if event.kind == SETTINGS or meaning_of(event).begins_run:
            for name, value in event.fields.items():
                if name not in ("family", "role") and isinstance(value, str | int | float):
                    self.settings[name] = str(value)

    def _of(self, quantity: str, key: tuple[ValueSource, int | None]) -> Column:
        return self._columns.setdefault(quantity, {}).setdefault(key, Column())

    def _step_of(self, sample: Sample, key: tuple[ValueSource, int | None]) -> int:
        """The sample's step; if it has none, the file's last one; if no step is logged, a count."""
        path = sample.position.path
        has_steps, last = self._at.get(path, (False, -1))
        if sample.step is not None:
            if not has_steps and last >= 0:
                for columns in self._columns.values():
                    columns.pop(key, None)  # the steps in these columns were counted, not logged
            has_steps, last = True, self._counted_on(sample, sample.step)
        elif not has_steps:
            last += 1
        self._at[path] = has_steps, last
        return last

    def _counted_on(self, sample: Sample, step: int) -> int:
        """The step over all epochs, of a log whose steps begin anew with each epoch."""
        if sample.epoch is None:
            return step
        path = sample.position.path
        epoch, offset, last = self._epochs.get(path, (sample.epoch, 0, step))
        if step < last and sample.epoch > epoch:
            offset += last
        self._epochs[path] = sample.epoch, offset, step
        return step + offset


class Readings:
    """All runs of some files, from their bytes; `live`: fed as written, so that times are exact."""

    def __init__(self, parser: Parser, names: RunNames, *, live: bool = False) -> None:
        self.runs: dict[str, RunReadings] = {}
        self._parser = parser
        self._names = names
        self._live = live

    def feed(self, chunk: Chunk, now: float, *, timed: bool = True) -> None:
        """Add bytes of one file, written at `now` (Unix seconds).

        `timed`: `now` is a real time; otherwise only the order of calls counts.
        """
        origin: Origin = self._names.origin(chunk.path)
        at = now - chunk.age if timed and chunk.timed else math.nan
        self.add(self._parser.feed_blocks(chunk, origin, now), at)

    def finish(self, paths: Iterable[str]) -> None:
        """Add the last records of files that have ended."""
        for path in paths:
            self.add(self._parser.finish(path), math.nan)

    def add(self, found: Iterable[Record | SampleBlock], at: float) -> None:
        """Add records logged at `at` (Unix seconds), NaN where only their order is known."""
        for item in found:
            run = self.runs.setdefault(item.run, RunReadings(item.run))
            if isinstance(item, SampleBlock):
                if item.repaints:
                    for sample in item.samples():
                        run.add_sample(sample, at, exact=self._live)
                else:
                    run.add_block(item, at)
            elif isinstance(item, Sample):
                run.add_sample(item, at, exact=self._live)
            elif isinstance(item, Event):
                run.add_settings(item)
