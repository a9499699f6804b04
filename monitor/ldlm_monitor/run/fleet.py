"""All runs together: which run a record belongs to, what is due, what is exported."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from ldlm_monitor.model.names import SEVERITIES
from ldlm_monitor.model.points import Point
from ldlm_monitor.model.records import Position, Record
from ldlm_monitor.model.view import Health
from ldlm_monitor.run.pace import StallSettings
from ldlm_monitor.run.training_run import TrainingRun


@dataclass(frozen=True, slots=True)
class ProbeCandidate:
    """A run whose host may be asked why no step comes; times in Unix seconds.

    `stalls_at`: when it will count as stalled, None once it ended. `pids` by rank, with
    the host that they are on, and `dumps` of flight recorders are what its logs tell.
    """

    run: str
    state: str
    last_progress_at: float
    stalls_at: float | None
    ended_at: float | None
    files: tuple[str, ...]
    pids: dict[int | None, tuple[str, int]]
    dumps: tuple[str, ...]
    world_size: int | None
    position: Position


def probe_candidates(
    runs: Fleet, until: float, ended_since: float, since: float = -math.inf
) -> Iterator[ProbeCandidate]:
    """The runs that stall by `until` (Unix seconds), that did, or that ended of late.

    None whose step advanced last before `since`.
    """
    for run in runs.nearing(until, ended_since):
        life = run.life
        if life.last_progress_at < since:
            continue
        yield ProbeCandidate(
            run=run.name,
            state=life.state,
            last_progress_at=life.last_progress_at,
            stalls_at=None if life.ended else life.last_progress_at + life.stall_limit,
            ended_at=life.ended_at,
            files=tuple(run.files),
            pids=dict(run.findings.pids),
            dumps=tuple(run.findings.dumps.values()),
            world_size=run.told.world_size,
            position=life.progress_position,
        )


HEALTH: tuple[Health, ...] = ("HEALTHY", "WARNING", "UNHEALTHY", "CRITICAL")


def worse(health: Health, severity: str) -> Health:
    """The health that remains where an alert of this severity fires (unknown words: info)."""
    rank = SEVERITIES.index(severity) if severity in SEVERITIES else 0
    return HEALTH[max(HEALTH.index(health), rank)]


DUE_SECONDS = 0.25


class RunStanding(NamedTuple):
    """The little that following a run's files depends on."""

    state: str
    has_steps: bool
    has_ended: bool


class Fleet:
    """The runs by name. `end_after`: seconds that an ended run's series stay."""

    def __init__(self, stall: StallSettings, end_after: float) -> None:
        self._stall = stall
        self._end_after = end_after
        self._runs: dict[str, TrainingRun] = {}
        self._dues: dict[str, float | None] = {}
        self._queue: list[tuple[float, str]] = []
        self._news: dict[str, TrainingRun] = {}
        self._last_healths: dict[str, Health] = {}

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

    def standing(self, name: str) -> RunStanding | None:
        """How a run stands, None before its first record."""
        run = self._runs.get(name)
        if run is None:
            return None
        return RunStanding(run.life.state, run.life.progress_step is not None, run.life.ended)

    def going_on(self) -> set[str]:
        """Names of the runs that take steps."""
        return {run.name for run in self if run.life.can_stall}

    def verdict(self, name: str) -> str | None:
        """What became of a run that takes no step, in words; None where nothing was found."""
        run = self._runs.get(name)
        found = None if run is None else run.verdict
        return None if found is None else str(found)

    def set_stall(self, stall: StallSettings) -> None:
        """Other stall settings, for the runs that are there too."""
        self._stall = stall
        for run in self:
            run.life.pace.settings = stall
            self.touch(run)

    def touch(self, run: TrainingRun) -> None:
        """A record reached the run: when its state changes by itself may have changed."""
        self._news[run.name] = run
        if self._last_healths and not run.life.ended:
            self._last_healths.pop(run.name, None)
        due = run.life.due()
        if due != self._dues.get(run.name):
            self._dues[run.name] = due
            if due is not None:
                heappush(self._queue, (due, run.name))

    def take_news(self) -> list[TrainingRun]:
        """The runs that records reached since the last call."""
        news, self._news = self._news, {}
        return list(news.values())

    def tick(self, at: float) -> bool:
        """Let time pass; whether a state changed."""
        changed = False
        while (first := self._first()) is not None and first[0] < at:
            heappop(self._queue)
            run = self._runs[first[1]]
            changed = run.tick(at) or changed
            self._dues[run.name] = None
            self.touch(run)
        return changed

    def nearing(self, until: float, ended_since: float) -> Iterator[TrainingRun]:
        """The runs that stall by `until` (Unix seconds), that did, or that ended of late."""
        for run in self:
            due = self._dues.get(run.name)
            ended = run.life.ended_at
            if (
                (due is not None and due <= until and run.life.can_stall)
                or run.life.state == "stalled"
                or (ended is not None and ended >= ended_since)
            ):
                yield run

    def finish(self, at: float) -> None:
        """Nothing more will come of any run."""
        for run in self:
            run.finish(at)
            self.touch(run)

    def due(self) -> float:
        """When states change by themselves next, at most `DUE_SECONDS` late; inf: never.

        Many runs that stall together are then judged together.
        """
        first = self._first()
        return math.inf if first is None else (math.floor(first[0] / DUE_SECONDS) + 1) * DUE_SECONDS

    def _first(self) -> tuple[float, str] | None:
        """The earliest due time and its run; entries that a later record overtook are dropped."""
        while self._queue and self._dues.get(self._queue[0][1]) != self._queue[0][0]:
            heappop(self._queue)
        return self._queue[0] if self._queue else None

    @property
    def active(self) -> bool:
        """Whether some run has not ended."""
        return any(not run.life.ended for run in self)

    def keep_healths(self, healths: Mapping[str, Health]) -> None:
        """The alerts of a run that has ended will end, too: keep the worst that they meant."""
        for name, health in healths.items():
            if self.has_ended(name):
                known = self._last_healths.get(name, "HEALTHY")
                self._last_healths[name] = max(health, known, key=HEALTH.index)

    def health(self, run: TrainingRun, firing: Health) -> Health:
        """The run's health, where its alerts that fire mean `firing`."""
        return max(firing, self._last_healths.get(run.name, firing), key=HEALTH.index)

    def points(self, at: float, healths: Mapping[str, Health]) -> list[list[Point]]:
        """What is exported of all runs, a list each; `healths` are those that are not HEALTHY.

        The list of a run that nothing happened to is the same object as before.
        """
        groups: list[list[Point]] = []
        states: list[Point] = []
        for run in self.shown(at):
            groups.append(run.points())
            health = float(HEALTH.index(healths.get(run.name, "HEALTHY")))
            states.append(Point("ldlm_run_health", run.labels, health))
        return [*groups, states]

    def shown(self, at: float) -> Iterator[TrainingRun]:
        """The runs that have not ended, or not long ago."""
        for run in self:
            ended = run.life.ended_at
            if ended is None or at - ended <= self._end_after:
                yield run
