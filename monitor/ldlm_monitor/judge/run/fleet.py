"""All runs together: which run a record belongs to, what is due, what is exported."""

import math
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush

from ldlm_monitor.base.points import Point
from ldlm_monitor.base.records import Record, TimedRows
from ldlm_monitor.base.snapshot import GuessView
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.judge.run.training_run import TrainingRun
from ldlm_monitor.judge.run.verdict import ProbeCandidate

DUE_SECONDS = 0.25
"""Timers run at most this late, so that runs which stall together are evaluated together. A
quarter of the second within which the contract wants a stall's alert (section 4)."""


class Fleet:
    """All runs by name. `end_after`: seconds for which a run's series are exported after its
    end was sure.

    `untimed`: names of the runs with bytes of which only the order is known. `ends`: by name, when
    the files of finished runs end, if before those of others (`Lifecycle.ends_at`). `guesses`: of
    their times, by name.
    """

    def __init__(self, stall: Stall, end_after: float) -> None:
        self._stall = stall
        self._end_after = end_after
        self._runs: dict[str, TrainingRun] = {}
        self.untimed: set[str] = set()
        self.guesses: dict[str, GuessView] = {}
        self.ends: Mapping[str, float] = {}
        self._dues: dict[str, float | None] = {}
        self._queue: list[tuple[float, str]] = []
        self._touched: dict[str, TrainingRun] = {}
        self._read_to: Mapping[str, float] = {}

    def __iter__(self) -> Iterator[TrainingRun]:
        return iter(self._runs.values())

    def get(self, name: str) -> TrainingRun | None:
        """The run of that name; None if none of its records has arrived."""
        return self._runs.get(name)

    def has_ended(self, name: str) -> bool:
        """Whether the run of that name is over, however it ended."""
        run = self._runs.get(name)
        return run is not None and run.life.ended

    def attempt_began(self, name: str) -> float | None:
        """When (Unix seconds) a run's present attempt began; None in its first one."""
        run = self._runs.get(name)
        return None if run is None else run.attempt_began

    def of(self, record: Record, at: float) -> TrainingRun:
        """The run that a record belongs to; its first record creates it, with the start `at`."""
        run = self._runs.get(record.run)
        if run is None:
            run = TrainingRun(record.run, at, self._stall, record.position)
            run.read_to(self._read_to.get(record.run, math.inf))
            run.end_at(self.ends.get(record.run, math.inf))
            self._runs[record.run] = run
        return run

    def only_advance(self, found: Sequence[TimedRows]) -> bool:
        """Whether rows of one run only advance it, see `Lifecycle.only_advances`."""
        run = self._runs.get(found[0].item.run)
        return run is not None and run.life.only_advances(found)

    def continue_file(self, name: str, before: str, path: str) -> None:
        """Let the file `path` of a run go on as the older file `before` of its log ended."""
        if before and (run := self._runs.get(name)) is not None:
            run.life.continue_file(before, path)
            run.steps.continue_file(before, path)

    def training(self) -> set[str]:
        """Names of the runs that train and have not ended."""
        return {run.name for run in self if run.life.can_stall}

    def verdict(self, name: str) -> str | None:
        """Why a run takes no step, as text; None without evidence or for an unknown run."""
        run = self._runs.get(name)
        found = None if run is None else run.verdict
        return None if found is None else str(found)

    def set_stall(self, stall: Stall) -> None:
        """Change the stall settings of all runs, present and future."""
        self._stall = stall
        for run in self:
            run.set_stall(stall)
            self.touch(run)

    def hold(self, read_to: Mapping[str, float], judged: float) -> bool:
        """See `Monitor.hold`; returns whether it differs from the last call.

        A silence that was judged already, as all are up to `judged` (Unix seconds), stays so.
        """
        before = self._read_to
        held = {name: max(at, before.get(name, judged)) for name, at in read_to.items()}
        self._read_to = held
        for name in {**before, **held}:
            if before.get(name) != held.get(name) and (run := self._runs.get(name)):
                run.read_to(held.get(name, math.inf))
                self._schedule(run)
        return before != held

    def shift(self, seconds: float) -> None:
        """Leave out `seconds` by which the clock jumped forward: no run was silent for them."""
        for run in self:
            if not run.life.ended:
                run.shift(seconds)
                self.touch(run)

    def set_ends(self, ends: Mapping[str, float]) -> None:
        """Count the silence of these runs up to a time (Unix seconds) alone, until the next call.

        Unlike `hold`, what was read before counts as of its time, and paces are learned.
        """
        for name in {**self.ends, **ends}:
            if (run := self._runs.get(name)) is not None:
                run.end_at(ends.get(name, math.inf))
                self._schedule(run)
        self.ends = ends

    def leave_out_before(self, record: Record, seconds: float) -> None:
        """Leave out `seconds` of silence before the first record of a run's next launch."""
        run = self._runs.get(record.run)
        if run is None or seconds <= 0 or run.life.ended:
            return
        if run.life.attempts.is_relaunched_by(record):
            run.shift(seconds)
            self.touch(run)

    def touch(self, run: TrainingRun) -> None:
        """Add a run to those that `take_touched` returns, and schedule its next timer."""
        self._touched[run.name] = run
        self._schedule(run)

    def _schedule(self, run: TrainingRun) -> None:
        due = run.life.due()
        if due is not None and due >= run.life.read_to:
            due = None  # set when more was read
        if due != self._dues.get(run.name):
            self._dues[run.name] = due
            if due is not None:
                heappush(self._queue, (due, run.name))

    def take_touched(self, only: str | None = None) -> dict[str, TrainingRun]:
        """The runs by name that changed since the last call; with `only`, this one if it did."""
        if only is not None:
            return {only: self._touched.pop(only)} if only in self._touched else {}
        touched, self._touched = self._touched, {}
        return touched

    def tick(self, at: float) -> bool:
        """Run all timers that are due before `at`; returns whether a state changed."""
        changed = False
        while (first := self._first()) is not None and first[0] < at:
            heappop(self._queue)
            run = self._runs[first[1]]
            changed = run.tick(at) or changed
            self._dues[run.name] = None
            self.touch(run)
        return changed

    def probe_candidates(
        self, until: float, ended_since: float, since: float = -math.inf
    ) -> Iterator[ProbeCandidate]:
        """The runs that are stalled, stall by `until` (Unix seconds), or ended since `ended_since`.

        Runs whose last step is before `since` are left out.
        """
        for run in self:
            # The host is asked before the limit, so also while bytes may wait.
            waits = run.name in self._read_to or run.name in self.ends
            due = run.life.stalls_at if waits else self._dues.get(run.name)
            ended = run.life.ended_at
            near = due is not None and due <= until and run.life.can_stall
            late = near or run.life.state == "stalled"
            if (late or (ended is not None and ended >= ended_since)) and (
                run.life.last_progress_at >= since
            ):
                yield run.probe_candidate()

    def finish(self, at: float) -> None:
        """Process the end of all input: no run gets more records."""
        for run in self:
            run.finish(at)
            self.touch(run)

    def look(self, name: str, at: float) -> None:
        """Run the timers of one run at `at`, beyond the clock: its host was looked at then."""
        run = self._runs[name]
        run.end_at(math.inf)  # it has a process, which writes on
        run.tick(at)
        self.touch(run)

    def due(self) -> float:
        """Unix seconds of the next timer, rounded up to whole `DUE_SECONDS`; inf if none is set."""
        first = self._first()
        return math.inf if first is None else (math.floor(first[0] / DUE_SECONDS) + 1) * DUE_SECONDS

    def _first(self) -> tuple[float, str] | None:
        """The next timer's time and run, None without timers; drops outdated queue entries."""
        while self._queue and self._dues.get(self._queue[0][1]) != self._queue[0][0]:
            heappop(self._queue)
        return self._queue[0] if self._queue else None

    @property
    def active(self) -> bool:
        """Whether some run has not ended."""
        return any(not run.life.ended for run in self)

    def points(self, at: float) -> list[list[Point]]:
        """The exported series of each run; an unchanged list is the same object as before."""
        return [run.points(at) for run in self.shown(at)]

    def shown(self, at: float) -> Iterator[TrainingRun]:
        """The runs that have not ended, or whose end is known for at most `end_after` seconds."""
        return (run for run in self if self._is_shown(run, at))

    def _is_shown(self, run: TrainingRun, at: float) -> bool:
        known = run.life.end_known_at
        return known is None or at - known <= self._end_after

    def beyond(self, kept: int, at: float) -> list[str]:
        """Names of the runs whose series are over by `at`, but for the last `kept` of them."""
        if len(self._runs) <= kept:
            return []
        ended = sorted(
            (run.life.ended_at or at, run.name) for run in self if not self._is_shown(run, at)
        )
        return [name for _, name in ended[: max(len(ended) - kept, 0)]]

    def forget(self, name: str) -> TrainingRun:
        """Drop a run; a record of its name begins a new one."""
        for known in (self._dues, self._touched, self.guesses):
            known.pop(name, None)
        self.untimed.discard(name)
        return self._runs.pop(name)
