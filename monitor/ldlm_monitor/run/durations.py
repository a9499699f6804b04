"""How long steps take, by when they were told."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

COARSE_SECONDS = 5.0
"""Bars tell whole seconds and are drawn now and then: only longer spans say what a step takes."""


class StepDurations:
    """Seconds a step, collected in `fresh` until they are taken.

    Where each step comes with its own time, it is the time between two of them, over the
    steps between; otherwise over at least 5 seconds. Spans with a pause in them (an
    evaluation, a checkpoint, the start) say nothing.
    """

    __slots__ = ("_last", "fresh", "resumed")

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None
        self.fresh = array("d")
        self.resumed = False

    def pause(self) -> None:
        """The next step does not follow the last one at the run's pace."""
        self._last = None

    def advance(self, at: float, step: int, *, exact: bool) -> None:
        """A step was told at `at`; `exact`: with its own time."""
        if self._last is None or step <= self._last[1] or at < self._last[0]:
            if self._last is not None and step < self._last[1]:
                self.resumed = True
            elif self._last is not None:
                return
            self._last = (at, step)
            return
        span = at - self._last[0]
        if span > 0 and (exact or span >= COARSE_SECONDS):
            self.fresh.append(span / (step - self._last[1]))
            self._last = (at, step)

    def advance_all(self, times: Sequence[float], steps: Sequence[int]) -> None:
        """Steps that rise, each with its own time; times never fall."""
        if self._last is None:
            self._last = (times[0], steps[0])
        moment, count = self._last
        for at, step in zip(times, steps, strict=True):
            if at > moment and step > count:
                self.fresh.append((at - moment) / (step - count))
                moment, count = at, step
        self._last = (moment, count)
