"""The values of one quantity, each with its step and time."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Resume:
    """Training went back to `step`; times are Unix seconds, NaN if unknown."""

    time_before: float
    time: float
    step: int


@dataclass(slots=True)
class Column:
    """Finite values of one quantity in the order of their steps.

    `times`: Unix seconds, NaN where none is known. `nonfinite`: the steps of NaN and
    infinities. `resumes`: where the step fell; of steps trained again, the last values stay.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    nonfinite: list[int] = field(default_factory=list)
    resumes: list[Resume] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: int, at: float, value: float) -> None:
        """Add a value at Unix time `at` or NaN. A repeated step is ignored, a lower is a resume."""
        if self.steps and step <= self.steps[-1]:
            if step == self.steps[-1]:
                return
            self.resumes.append(Resume(self.times[-1], at, step))
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
        """The values from index `start` to before `stop`, all of `nonfinite`, and no resumes."""
        return Column(
            self.steps[start:stop], self.times[start:stop], self.values[start:stop], self.nonfinite
        )
