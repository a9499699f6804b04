"""All runs together: who belongs to which, what falls due, what is exported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from ldlm_monitor.names import SEVERITIES
from ldlm_monitor.points import Point, make_labels
from ldlm_monitor.records import Record
from ldlm_monitor.run.pace import StallSettings
from ldlm_monitor.run.training_run import TrainingRun
from ldlm_monitor.view import Health

HEALTH: tuple[Health, ...] = ("HEALTHY", "WARNING", "UNHEALTHY", "CRITICAL")


def health_of(severities: Iterator[str]) -> Health:
    """The health that the worst of firing severities means (unknown words mean info)."""
    ranks = (SEVERITIES.index(word) for word in severities if word in SEVERITIES)
    return HEALTH[max(ranks, default=0)]


class Fleet:
    """The runs by name. `end_after`: seconds that an ended run's series stay."""

    def __init__(self, stall: StallSettings, end_after: float) -> None:
        self._stall = stall
        self._end_after = end_after
        self._runs: dict[str, TrainingRun] = {}

    def __iter__(self) -> Iterator[TrainingRun]:
        return iter(self._runs.values())

    def get(self, name: str) -> TrainingRun | None:
        """The run of that name, None if no record of it came yet."""
        return self._runs.get(name)

    def has_ended(self, name: str) -> bool:
        """Whether the run of that name finished, crashed or was killed."""
        run = self._runs.get(name)
        return run is not None and run.life.ended

    def of(self, record: Record, at: float) -> TrainingRun:
        """The run that a record belongs to; its first record starts it."""
        run = self._runs.get(record.run)
        if run is None:
            run = TrainingRun(record.run, at, self._stall, record.position)
            self._runs[record.run] = run
        return run

    def set_stall(self, stall: StallSettings) -> None:
        """Other stall settings, for the runs that are there too."""
        self._stall = stall
        for run in self:
            run.life.pace.settings = stall

    def tick(self, at: float) -> bool:
        """Let time pass; whether a state changed."""
        changed = [run.life.tick(at) for run in self]
        return any(changed)

    def finish(self, at: float) -> None:
        """Nothing more will come of any run."""
        for run in self:
            run.life.finish(at)

    def due(self) -> float:
        """Just after the earliest time at which a state changes by itself; inf if none does."""
        dues = (due for run in self if (due := run.life.due()) is not None)
        return math.nextafter(min(dues, default=math.inf), math.inf)

    @property
    def active(self) -> bool:
        """Whether some run has not ended."""
        return any(not run.life.ended for run in self)

    def points(self, at: float, health: Callable[[str], Health]) -> list[Point]:
        """What is exported of all runs; `health` tells that of a run by its name."""
        points: list[Point] = []
        for run in self:
            ended = run.life.ended_at
            if ended is None or at - ended <= self._end_after:
                told = make_labels(run=run.name)
                points += run.points()
                points.append(Point("ldlm_run_health", told, float(HEALTH.index(health(run.name)))))
        return points
