"""The runs of a comparison: the input that a user names, its values, and its warm-up steps."""

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import fmean, median

from ldlm_monitor.base.errors import InputError
from ldlm_monitor.finished.bench_record import read_record
from ldlm_monitor.finished.compare.difference_words import SPEED_BY
from ldlm_monitor.finished.compare.intervals import LEAST_VALUES
from ldlm_monitor.finished.playback.log_replay import ReplaySettings, gather, refuse_unreadable
from ldlm_monitor.finished.readings import Column, Readings, RunReadings
from ldlm_monitor.logs.history.merge import History
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.run_names import RunNames

_BATCH = ("global_batch_size", "global_train_batch_size", "total_batch_size")
"""Settings with the samples of a step over all ranks, by several trainers; the first set counts."""
GROUP = 5
"""Values that `steady_from` averages into one first, as the MSER-5 rule does."""
OUTLIER = 5.0
"""Median absolute deviations at which values are capped: a choice; higher, pauses seem warm-up."""
NEAR = 1.05
"""Multiple of the least error to accept: a choice; more keeps warm-up steps, less drops others."""
WORTH = 0.5
"""Share to which the squared error must fall: a choice; more drops steps by luck, less too few."""


class Side:
    """A run under the name it has in the table.

    `warm_up`: the start that is left out of pace and memory: below 1 a share of the steps,
    otherwise a number of steps; None: the steps before the pace becomes steady.
    """

    def __init__(self, name: str, readings: RunReadings, warm_up: float | None = None) -> None:
        self.name = name
        self.readings = readings
        self._paces = dict(self._pace_columns())
        pace = self._pace() if warm_up is None else None
        self._from = self._warm_until(warm_up, pace)
        # `steady_from` leaves out a half at most: near that, it has found no steady part.
        self.is_settled = pace is None or bisect_left(pace.steps, self._from) < 0.45 * len(pace)
        """Whether the run's pace became steady in its first half."""

    def steady(self, quantity: str) -> Sequence[float]:
        """A quantity's values above 0 after the warm-up; empty if there are none."""
        column = self.column(quantity) or Column()
        first = bisect_left(column.steps, self._from)
        return [value for value in column.values[first:] if value > 0]

    @property
    def warm_up_steps(self) -> int:
        """The number of steps that are left out as warm-up."""
        first = self.readings.first_step
        return 0 if first is None else max(0, self._from - first)

    def notes(self) -> Iterator[str]:
        """Remarks for users: values that are not finite, a pace that kept changing."""
        for quantity in self.readings.quantities():
            column = self.readings.column(quantity)
            if column is not None and column.nonfinite:
                steps = column.nonfinite
                more = f" and {len(steps) - 1} later ones" if len(steps) > 1 else ""
                yield f"{self.name}: {quantity} was not finite at step {steps[0]}{more}"
        if self._paces and not self.is_settled:
            yield f"{self.name}: its pace kept changing up to half of the run"

    def column(self, quantity: str) -> Column | None:
        """The values of a quantity, logged or derived from others; None if there are none."""
        return self._paces.get(quantity) or self.readings.column(quantity)

    def _pace_columns(self) -> Iterator[tuple[str, Column]]:
        """Rates and times as logged, otherwise derived from each other or from the steps' times."""
        logged = self.readings.column
        rate = logged("steps_per_second")
        step = logged("step_seconds") or self.readings.durations() or _mapped(rate, _inverse)
        if step is None or not len(step):
            return
        yield "step_seconds", step
        yield "steps_per_second", rate or _mapped(step, _inverse) or step
        samples = logged("samples_per_second")
        size = _batch_size(self.readings.settings)
        if samples is None and size.isdecimal():
            samples = _mapped(step, lambda seconds: float(size) * _inverse(seconds))
        if samples is not None:
            yield "samples_per_second", samples

    def _warm_until(self, warm_up: float | None, pace: Column | None) -> int:
        first, last = self.readings.first_step, self.readings.last_step
        if first is None or last is None:
            return 0
        if warm_up is not None:
            return first + math.ceil(warm_up * (last - first + 1) if warm_up < 1 else warm_up)
        return first if pace is None else pace.steps[steady_from(pace.values)]

    def _pace(self) -> Column | None:
        """The values above 0 that measure the speed; None for fewer than `LEAST_VALUES`."""
        found = next((col for name in SPEED_BY if (col := self.column(name))), None)
        if found is None:
            return None
        kept = Column()
        for step, at, value in zip(found.steps, found.times, found.values, strict=True):
            if value > 0:
                kept.add(step, at, value)
        return kept if len(kept) >= LEAST_VALUES else None


def _batch_size(settings: Mapping[str, str]) -> str:
    """Samples of a step over all ranks; `batch_size` counts only beside a size per device."""
    names = (*_BATCH, *(("batch_size",) if "batch_size_per_device" in settings else ()))
    return next((settings[name] for name in names if name in settings), "")


def _mapped(column: Column | None, change: Callable[[float], float]) -> Column | None:
    if column is None:
        return None
    return Column(column.steps, column.times, array("d", map(change, column.values)))


def _inverse(value: float) -> float:
    return 1 / value if value else math.inf


def steady_from(values: Sequence[float]) -> int:
    """The number of values at the start that are warm-up, at most half; all are above 0.

    The marginal standard error rule (K. P. White, M. J. Cobb and S. C. Spratt, 2000), applied to
    logarithms: the cut is where the standard error of the mean of the rest is least.
    """
    logs = [math.log(value) for value in values]
    center = median(logs)
    reach = OUTLIER * median(abs(value - center) for value in logs)
    if reach == 0:
        return 0
    held = [min(max(value, center - reach), center + reach) for value in logs]
    groups = [fmean(held[at : at + GROUP]) for at in range(0, len(held) - GROUP + 1, GROUP)]
    if len(groups) < 4:  # `LEAST_VALUES` gives 4; fewer show no trend
        return 0
    total = squares = 0.0
    errors: dict[int, float] = {}
    for left in range(len(groups) - 1, -1, -1):
        total += groups[left]
        squares += groups[left] ** 2
        count = len(groups) - left
        if left <= len(groups) // 2:
            errors[left] = max(squares - total * total / count, 0.0) / count**2
    least = min(errors.values())
    best = min(left for left, error in errors.items() if error <= NEAR * least)
    return best * GROUP if errors[best] < WORTH * errors[0] else 0


def sides_of(
    inputs: Sequence[ReplaySettings],
    warm_up: float | None,
    notice: Callable[[str], None],
    reading: Callable[[History], AbstractContextManager[object]] = nullcontext,
) -> list[Side]:
    """One side for each input, uniquely named. `warm_up`: as for `Side`. `notice` gets remarks.

    `reading`: a context in which a history is played.
    Raises `InputError`, or `FormatError` for a bad format file.
    """
    found = [_read(each, notice, reading) for each in inputs]
    names = [readings.name for readings in found]
    if len(set(names)) < len(names):
        names = [each.files[0] for each in inputs]
    unique = [
        name if name not in names[:index] else f"{name} ({index + 1})"
        for index, name in enumerate(names)
    ]
    return [Side(name, each, warm_up) for name, each in zip(unique, found, strict=True)]


def _read(
    settings: ReplaySettings,
    notice: Callable[[str], None],
    reading: Callable[[History], AbstractContextManager[object]],
) -> RunReadings:
    named = settings.files[-1]  # of a run's log, rotated or not
    if record := read_record(Path(named)):
        return record.readings()
    names = RunNames(settings.run)
    history, notices = gather(settings, names)
    for text in notices:
        notice(text)
    readings = Readings(Parser(settings.formats), names)
    with reading(history):
        for when, chunk, file in history.play():
            readings.feed(chunk, when, timed=file.timeline.timed)
    refuse_unreadable(history)
    readings.finish(file.path for file in history.all)
    found = [run for run in readings.runs.values() if run.first_step is not None]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(
            "has no steps with numbers",
            where=named,
            remedy="name the log of a training; `ldlm-monitor parse --stats` shows what is read",
        )
    listed = ", ".join(sorted(run.name for run in found)[:4])  # 4: the message stays readable
    raise InputError(
        f"holds {len(found)} runs ({listed}{', …' if len(found) > 4 else ''})",
        where=named,
        remedy="name one file of each run to compare",
    )
