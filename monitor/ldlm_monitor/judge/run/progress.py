"""The progress and speed of a run, the counts of its events, and its logged settings."""

from __future__ import annotations

import math
from array import array
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from ldlm_monitor.base.names import EXPECTED_VALUE, LAST_EVENT, RESTARTS, created
from ldlm_monitor.base.points import Labels, Point, make_labels
from ldlm_monitor.base.records import Event, Heartbeat, as_count
from ldlm_monitor.base.snapshot import RankView
from ldlm_monitor.base.text.format import mesh_text
from ldlm_monitor.judge.run.file_rows import FileRows, ValueSource
from ldlm_monitor.judge.run.lifecycle import Lifecycle
from ldlm_monitor.judge.run.pace import StepDurations
from ldlm_monitor.judge.run.quantity import SourceLine, labels_of
from ldlm_monitor.logs.parse.meanings import meaning_of

PACE_STEPS = 50
"""Logged steps of the estimate of seconds per step. A choice: more make the ETA lag behind a new
pace, fewer make it jump."""
FLUSH_SECONDS = 120.0  # TensorBoard's buffering: `flush_secs` of torch.utils.tensorboard's writer
_SKIPPED = 100
"""Last skipped steps kept: the detector asks which of the last 100 steps were skipped. They also
serve to count each once though every rank logs it: ranks are few steps apart."""
_CHECKPOINTS = 6
"""Last checkpoints kept. A choice: the detector of late checkpoints needs 4 of them; it compares
with their longest interval, so more would keep an interval that has since been shortened."""
_DIMENSIONS = 8  # of a mesh. A choice: trainings name up to 5; a forged row would fill titles
_DIMENSION = 16  # characters of a dimension's name, such as `dp_replicate`
_EXPORTED = ("dp", "tp", "pp")  # labels that every board can count on
_COORDINATE = 65536  # no training has as many ranks
_COUNTERS = {"skipped": "ldlm_train_skipped_steps_total", "restarts": RESTARTS}
"""The counters of the whole run that events raise, by `Meaning.counts`."""


class Progress:
    """Step, epoch, pace, skipped steps and checkpoints of the run whose states are in `life`.

    `rank_steps`: the last step of each rank that logs its own. `meshes`: coordinates of ranks in
    the dimensions of parallelism. `skipped`: the last steps that
    were skipped, as reported. `taken`: the steps of the present launch in its logs, also over
    epochs that each count their own. `checkpoints`: the steps of the last checkpoints, rising;
    `sound`: of the last that are to go back to.
    `saved`: how many were saved, the last one to `saved_to` ("": the log has no path).
    """

    def __init__(self, life: Lifecycle) -> None:
        self._life = life
        self.total_steps: int | None = None
        self.epoch: float | None = None
        self.rank_steps: dict[int, int] = {}
        self.meshes: dict[int, dict[str, int]] = {}
        self.skipped_steps = self.taken = 0
        self._skipped_before = 0  # by earlier launches
        self.skipped: deque[int] = deque(maxlen=_SKIPPED)
        self.checkpoints: deque[int] = deque(maxlen=_CHECKPOINTS)
        self.sound: deque[int] = deque(maxlen=_CHECKPOINTS)
        self.saved, self.saved_to = 0, ""
        self._step: tuple[ValueSource, int] | None = None
        self._leader: int | None = None
        self._counted: int | None = None  # its last step
        self._recent: deque[tuple[float, int]] = deque(maxlen=PACE_STEPS)
        self._durations = StepDurations()
        self._rank_seen: dict[int, tuple[float, str | None]] = {}

    @property
    def step(self) -> int | None:
        """The last step; None before the first."""
        return None if self._step is None else self._step[1]

    @property
    def ratio(self) -> float | None:
        """The completed share of all steps, 0 to 1; None if the log has no total."""
        if self._step is None or not self.total_steps:
            return None
        # Rows of the callback and of JSON lines number steps from 0; others count completed ones.
        done = self._step[1] + (1 if self._step[0] <= ValueSource.JSONL else 0)
        return min(done / self.total_steps, 1.0)

    @property
    def step_seconds(self) -> float | None:
        """Seconds per step over the last `PACE_STEPS` logged steps; None before two of them."""
        if len(self._recent) < 2:
            return None
        (start, first), (end, last) = self._recent[0], self._recent[-1]
        return (end - start) / (last - first) if end > start else None

    def eta(self, step_seconds: float | None) -> float | None:
        """Seconds left at `step_seconds` per step; None if unknown or if the run has ended."""
        ratio = self.ratio
        if ratio is None or not self.total_steps or step_seconds is None or self._life.ended:
            return None
        return (1 - ratio) * self.total_steps * step_seconds

    def ranks(self) -> Iterator[RankView]:
        """The ranks that log their own steps."""
        for rank, (at, phase) in sorted(self._rank_seen.items()):
            step, mesh = self.rank_steps.get(rank), mesh_text(self.meshes.get(rank, {}))
            yield RankView(rank=rank, step=step, seen_at=at, phase=phase, mesh=mesh)

    def take_durations(self) -> tuple[array[float], bool]:
        """Seconds per step since the last call, and whether the run resumed or began anew."""
        durations, self._durations.fresh = self._durations.fresh, array("d")
        resumed, self._durations.resumed = self._durations.resumed, False
        return durations, resumed

    def skip(self, step: object) -> None:
        """Count a skipped step once, though every rank logs it; one without a number each time."""
        if not isinstance(step, int) or step not in self.skipped:
            self.skipped_steps += 1
            self.skipped.append(step if isinstance(step, int) else self.step or 0)

    @property
    def skipped_of_launch(self) -> int:
        """How many of the steps `taken` were skipped."""
        return self.skipped_steps - self._skipped_before

    def launch(self) -> None:
        """Count the steps that are taken and skipped anew."""
        self.taken, self._skipped_before = 0, self.skipped_steps

    def begin_attempt(self) -> None:
        """Learn the pace anew: what lies between attempts is no step, and nodes may be others."""
        self._leave_out()
        self._durations.resumed = True

    def shift(self, seconds: float) -> None:
        """Leave a clock's jump of `seconds` out of the time since the last step and the pace."""
        self._life.shift(seconds)
        self._leave_out()

    def _leave_out(self) -> None:
        self._recent.clear()
        self._durations.pause()

    def save_checkpoint(self, path: str = "", *, named: object = None, sound: bool = True) -> None:
        """Store that a checkpoint was saved at the present step, once for several reports.

        `named`: the step that its line names, if any; an earlier one may be of a save long ago.
        `sound`: no update before it used a number that is not finite and has not passed.
        """
        self.saved_to = path or self.saved_to
        if self.step is None:
            return
        at = min(named, self.step) if isinstance(named, int) else self.step
        for kept in (self.checkpoints, self.sound):
            while kept and kept[-1] > self.step:
                kept.pop()
        if sound and at > max(self.sound, default=-1):
            self.sound.append(at)
        if at > max(self.checkpoints, default=-1):
            self.checkpoints.append(at)
            self.saved += 1

    def observe_mesh(self, rank: int, mesh: Mapping[str, object]) -> None:
        """Store a rank's coordinates as it logged them, without parts that cannot be any."""
        parts = islice(mesh.items(), _DIMENSIONS)
        self.meshes[rank] = {
            name[:_DIMENSION]: number
            for name, number in parts
            if type(number) is int and 0 <= number < _COORDINATE
        }

    def points(
        self, run: str, step_seconds: float | None, at: float, *, is_logged: bool, hangs: bool
    ) -> Iterator[Point]:
        """The exported series at `at` (Unix seconds) of the run and of its ranks.

        `step_seconds`: of the run; `is_logged`: its log has them. `hangs`: its host shows it.
        """
        known: dict[str, float | None] = {
            "ldlm_train_skipped_steps_total": self.skipped_steps,
            "ldlm_train_step": self.step,
            "ldlm_train_epoch": self.epoch,
            "ldlm_train_progress_ratio": self.ratio,
            "ldlm_train_eta_seconds": self.eta(step_seconds),
            "ldlm_train_step_seconds": None if is_logged else self.step_seconds,
        }
        if self._life.can_stall or self.step is not None:
            known["ldlm_train_last_progress_timestamp_seconds"] = self._life.silent_since(at)
            known["ldlm_train_stall_limit_seconds"] = self._life.stall_limit
            known["ldlm_train_hang_limit_seconds"] = (
                self._life.stall_limit if hangs else self._life.hang_limit
            )
        labels = make_labels(run=run)
        yield from (Point(name, labels, each) for name, each in known.items() if each is not None)
        for rank, step in self.rank_steps.items():
            yield Point("ldlm_train_step", labels_of(run, rank, ()), step)
        for rank, mesh in self.meshes.items():
            own = make_labels(**{name: str(mesh[name]) for name in _EXPORTED if name in mesh})
            yield Point("ldlm_run_mesh_info", labels_of(run, rank, own), 1)

    def observe_beat(self, beat: Heartbeat, at: float) -> None:
        """Process a heartbeat that a rank logged at `at` (Unix seconds)."""
        self.rank_steps[beat.rank] = beat.step
        self._rank_seen[beat.rank] = (at, beat.phase)

    def observe(self, rows: FileRows) -> None:
        """Process rows, of which all but the last only advance the step."""
        last, source = rows.last, rows.source
        if "total_steps" in last.values:
            self.total_steps = as_count(last.values["total_steps"])
        if last.step is None:
            return
        if last.rank is not None:
            self.rank_steps[last.rank] = last.step
            self._rank_seen[last.rank] = (rows.times[-1], None)
        if self._step is not None and source > self._step[0]:
            return
        if self._step is None or source < self._step[0]:
            self._leader, self._counted = last.rank, None
        if last.rank == self._leader:  # the other ranks take the steps at about the same time
            self._observe_pace(rows)
            self._count(rows.steps)
        self._step = (source, last.step)
        self._life.pace.write_delay = FLUSH_SECONDS if source is ValueSource.TRACKER else 0.0
        self.epoch = last.epoch if last.epoch is not None else self.epoch

    def _count(self, steps: Sequence[int]) -> None:
        """Count the leader's rising `steps`, and those between, as taken."""
        known = steps[0] if self._counted is None else self._counted
        rise = max(steps[0] - known, 0) + steps[-1] - steps[0]
        # Up to a log's first step as many were taken as between two, at most.
        between = steps[1] - steps[0] if len(steps) > 1 and known == steps[0] else rise
        begins = not self.taken and self._life.attempts.number == 1
        self.taken += rise + (min(known, between) if begins else 0)
        self._counted = steps[-1]

    def _observe_pace(self, rows: FileRows) -> None:
        steps, known = rows.steps, self._recent[-1][1] if self._recent else -1
        if steps[0] < known:
            self._recent.clear()
            self.skipped = deque((each for each in self.skipped if each < steps[0]), _SKIPPED)
        repeated = bool(self._recent) and steps[0] == known
        self._recent.extend(islice(zip(rows.times, steps, strict=True), repeated, None))
        if not rows.timed or self._life.is_paused:
            self._durations.pause()
        if rows.timed:
            self._durations.advance(rows.times, steps, exact=rows.own_times() is not None)


EVENTS = "ldlm_events_total"  # contract, section 3
_Sort: TypeAlias = tuple[str, str, int | None]  # kind, severity and rank


class EventCounts:
    """The events of the run called `run`, counted by kind, severity and rank."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._counts: Counter[_Sort] = Counter()
        # Of the first and, in the present attempt, the last
        self._times: dict[_Sort, tuple[float, float | None]] = {}
        self._last: dict[_Sort, Event] = {}
        self._expected: dict[str, float] = {}  # kinds that settings expect, and the last number

    def add(self, event: Event, at: float) -> None:
        """Count an event of `at`, and keep it as the last one of its kind, severity and rank."""
        sort = (event.kind, event.severity, event.rank)
        self._counts[sort] += 1
        self._times[sort] = (self._times.get(sort, (at, at))[0], at)
        self._last.pop(sort, None)
        self._last[sort] = event
        if "expected" in meaning_of(event).words:
            value = event.fields.get("value")
            self._expected[event.kind] = value if isinstance(value, float) else math.nan

    def begin_attempt(self) -> None:
        """Export no longer when events of the attempt before came: they are over."""
        self._times = {sort: (first, None) for sort, (first, _) in self._times.items()}
        self._expected.clear()

    def by_kind(self) -> dict[str, int]:
        """The counts of each kind."""
        counts: Counter[str] = Counter()
        for (kind, _, _), count in self._counts.items():
            counts[kind] += count
        return dict(counts)

    def points(self) -> list[Point]:
        """The exported series of all counts and of their times."""
        points = []
        for sort, count in self._counts.items():
            labels, (first, last) = self._labels(sort), self._times[sort]
            points += [Point(EVENTS, labels, count), Point(created(EVENTS), labels, first)]
            if last is None:
                continue
            if sort[1] != "info" or sort[0] in self._expected:
                points.append(Point(LAST_EVENT, labels, last))
        for kind, value in self._expected.items():
            points.append(
                Point(EXPECTED_VALUE, labels_of(self._run, None, (("kind", kind),)), value)
            )
        return points

    def evidence(self) -> Iterator[tuple[str, Labels, SourceLine]]:
        """Name, labels and last line of each series that events change, in the order of lines."""
        for order, (sort, event) in enumerate(self._last.items()):
            line = SourceLine(event.position, None, event.message, order)
            labels = self._labels(sort)
            yield EVENTS, labels, line
            yield LAST_EVENT, labels, line
            if event.kind in self._expected:
                yield EXPECTED_VALUE, labels_of(self._run, None, (("kind", event.kind),)), line
            if (counts := meaning_of(event).counts) is not None:
                yield _COUNTERS[counts], make_labels(run=self._run), line

    def _labels(self, sort: _Sort) -> Labels:
        kind, severity, rank = sort
        return labels_of(self._run, rank, (("kind", kind), ("severity", severity)))


_OURS = frozenset({"family", "role", "framework"})
"""Fields that our event definitions add: they describe the event, and are no settings."""


class LoggedSettings:
    """The last logged value of each setting; `framework` is `unknown` until the log names it."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.framework = "unknown"

    def update(self, event: Event) -> None:
        """Read a `config` or `run_started` event."""
        if "start" in meaning_of(event).words:
            self.framework = str(event.fields.get("framework") or self.framework)
        for name, value in event.fields.items():
            if name not in _OURS and isinstance(value, str | int | float):
                self.settings[name] = str(value)

    def plan(self, event: Event) -> None:
        """Read how many epochs or steps a log says are planned, with the line of the number."""
        for unit in ("epochs", "steps"):
            if (planned := event.fields.get(unit)) is not None:
                name = str(event.fields.get("setting") or unit)
                self.settings[name] = f"{planned} (line {event.position.line})"

    @property
    def world_size(self) -> int | None:
        """Number of ranks; None if the log does not have it."""
        size = self.settings.get("world_size", "")
        return as_count(float(size)) if size.isdecimal() else None
