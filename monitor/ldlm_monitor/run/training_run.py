"""One run as a whole: its numbers, its events, its life, and what of it is exported."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from ldlm_monitor.model.measured import DERIVED_STEP_SECONDS, Measured
from ldlm_monitor.model.names import DETECTED_IN, RUN_STATES
from ldlm_monitor.model.points import Labels, Point, make_labels
from ldlm_monitor.model.records import Event, Heartbeat, Position, Record, Sample, SampleBlock
from ldlm_monitor.model.view import CurveView, Health, RunView, VerdictView
from ldlm_monitor.run.events import EVENTS, EventCounts, ToldSettings
from ldlm_monitor.run.lifecycle import Lifecycle
from ldlm_monitor.run.pace import StallSettings
from ldlm_monitor.run.progress import Progress
from ldlm_monitor.run.quantity import Evidence, ValueSource, source_of
from ldlm_monitor.run.values import RunValues
from ldlm_monitor.run.verdict import Findings, Verdict

_URGENT = ("error", "critical")
_SKIPS = frozenset({"skipped_step", "loss_scale_overflow"})
_SKIPPED = 50
_CHECKPOINTS = 6
"""The last skipped steps and checkpoints, so many, are known by their step."""
_MAX_RANKS = 65536


class TrainingRun:
    """Everything the monitor knows of one run.

    `ranks`: those of which any record came.
    """

    def __init__(self, name: str, started: float, stall: StallSettings, first: Position) -> None:
        self.name = name
        self.labels = make_labels(run=name)
        self._state_labels = {state: make_labels(run=name, state=state) for state in RUN_STATES}
        self._rank_label_cache: dict[int, Labels] = {}
        self._points: list[Point] | None = None
        self.values = RunValues(name)
        self.life = Lifecycle(started, stall, first)
        self.progress = Progress(self.life)
        self.findings = Findings(self.life)
        self._events = EventCounts(name)
        self.files: dict[str, None] = {}
        self.skipped_steps = 0
        self.progress_line: str | None = None
        self.told = ToldSettings()
        self._remark: Position | None = None
        self._timed = True
        self._skipped: deque[object] = deque(maxlen=_SKIPPED)
        self.ranks: set[int] = set()
        self._checkpoints: deque[int] = deque(maxlen=_CHECKPOINTS)

    def observe(self, record: Record, at: float, *, rows: bool, timed: bool = True) -> str | None:
        """Take in a record at `at`; what is urgent about it, if anything, as a short key.

        `rows`: its file is JSON lines. `timed`: `at` is when it was written, and not only
        in the right order.
        """
        self.files[record.position.path] = None
        if record.rank is not None:
            self._hear(record.rank)
        self._points = None
        self._timed = self.life.timed = timed or record.time is not None
        if isinstance(record, Sample):
            # What an error block repeats is no source of its own: the next bar tells more.
            remark = record.position == self._remark
            source = ValueSource.BAR if remark else source_of(record, rows=rows)
            return self._observe_sample(record, at, source)
        if isinstance(record, Heartbeat):
            stalled = self.life.state == "stalled"
            changed = self.life.observe_heartbeat(record, at)
            self.progress.observe_beat(record, at)
            self.findings.note_process(record)
            return "recovered" if changed and stalled else None
        return self._observe_event(record, at)

    def observe_block(self, block: SampleBlock, at: float, *, timed: bool = True) -> str | None:
        """Take in rows that are alike, all at one time: as one by one, but at a fraction of it."""
        self.files[block.path] = None
        if block.rank is not None:
            self._hear(block.rank)
        self._points = None
        self._timed = self.life.timed = timed
        first, last = block.sample(0), block.sample(len(block) - 1)
        source = source_of(last, rows=True)
        self.values.observe_block(block, last, source, at=at)
        first_urgent = self._observe_progress(first, at, source)
        return self._observe_progress(last, at, source) or first_urgent

    def observe_steps(self, block: SampleBlock, times: Sequence[float]) -> None:
        """Take in rows at `times`, which never fall; the row before them was taken in last.

        As one by one, at a fraction of it, where `life.only_advances`.
        """
        self._timed = self.life.timed = True
        self.life.observe_steps(block, times)
        last = block.sample(len(block) - 1)
        source = source_of(last, rows=True)
        self._points = None
        self.values.observe_block(block, last, source, times=times)
        self.progress.observe_steps(block, last, times, source)

    def _hear(self, rank: int) -> None:
        """Any record of a rank came."""
        if rank < _MAX_RANKS:
            self.ranks.add(rank)

    def tick(self, at: float) -> bool:
        """Let time pass; whether the state changed."""
        changed = self.life.tick(at)
        if changed:
            self._points = None
        return changed

    def finish(self, at: float) -> None:
        """Nothing more will come."""
        self.life.finish(at)
        self._points = None

    def measured(self) -> Measured:
        """What came since the last call."""
        values = self.values.take_fresh()
        durations, resumed = self.progress.take_durations()
        if durations:
            values[DERIVED_STEP_SECONDS, None] = durations
        return Measured(
            values=values,
            step=self.progress.step,
            rank_steps=self.progress.rank_steps,
            skipped_steps=self.skipped_steps,
            checkpoints=list(self._checkpoints),
            resumed=resumed,
        )

    @property
    def verdict(self) -> Verdict | None:
        """What became of a run that stalled, or whose host was looked at when it had ended."""
        return self.findings.verdict(complete=self.progress.ratio == 1.0)

    def points(self) -> list[Point]:
        """The run's series as they stand."""
        if self._points is None:
            self._points = [*self.values.points(), *self._life_points(), *self._events.points()]
        return self._points

    def evidence(
        self, asked: Callable[[str, Labels], bool], labels: Mapping[str, str]
    ) -> Evidence | None:
        """The line that last changed a series that was `asked` for and carries `labels`.

        Labels that an aggregation dropped do not matter, nor does the rule's own severity.
        """
        if self._is_asked(asked, "ldlm_train_last_progress_timestamp_seconds", self.labels):
            life = self.life
            return Evidence(life.progress_position, life.progress_step, self.progress_line)
        state = make_labels(run=self.name, state=self.life.state)
        if self.life.end_evidence is not None and asked("ldlm_run_state", state):
            event = self.life.end_evidence
            return Evidence(event.position, self.life.progress_step, event.message)
        found: Evidence | None = None
        for name, own, evidence in (*self._evidence(), *self.values.evidence()):
            agrees = all(
                label == "severity" or labels.get(label, value) == value for label, value in own
            )
            newer = found is None or evidence.order > found.order
            if newer and agrees and self._is_asked(asked, name, own):
                found = evidence
        return found

    def _is_asked(self, asked: Callable[[str, Labels], bool], name: str, labels: Labels) -> bool:
        """Whether it is, or what a detector makes of it for this run."""
        if asked(name, labels):
            return True
        return any(asked(gauge, labels) for gauge in DETECTED_IN.get(name, ()))

    def curves(self) -> dict[str, CurveView]:
        """By quantity, how it went."""
        return self.values.curves()

    def view(self, health: Health, detected: dict[str, float] | None = None) -> RunView:
        """The run for people; `detected` is what detectors say of the run as a whole."""
        life = self.life
        return RunView(
            name=self.name,
            framework=self.told.framework,
            world_size=self.told.world_size,
            state=life.state,
            health=health,
            step=self.progress.step,
            total_steps=self.progress.total_steps,
            epoch=self.progress.epoch,
            progress=self.progress.ratio,
            eta_seconds=self.progress.eta(self._step_seconds()),
            started_at=life.started_at,
            last_progress_at=None if self.progress.step is None else life.last_progress_at,
            stall_limit_seconds=life.stall_limit if life.can_stall else None,
            ended_at=life.ended_at,
            files=tuple(self.files),
            statistics=self.values.statistics(),
            event_counts=self._events.by_kind(),
            skipped_steps=self.skipped_steps,
            settings=dict(self.told.settings),
            failed_rank=life.rank,
            verdict=_verdict_view(self.verdict),
            ranks=tuple(self.progress.ranks()),
            detected=detected or {},
        )

    def _observe_sample(self, sample: Sample, at: float, source: ValueSource) -> str | None:
        alarming = self.values.observe(sample, source, at)
        urgent = self._observe_progress(sample, at, source)
        return f"nonfinite {sample.rank} {' '.join(alarming)}" if alarming else urgent

    def _observe_progress(self, sample: Sample, at: float, source: ValueSource) -> str | None:
        self.progress.observe(sample, at, source, timed=self._timed)
        stalled = self.life.state == "stalled"
        changed = self.life.observe_sample(sample, at)
        return "recovered" if changed and stalled else None

    def _observe_event(self, event: Event, at: float) -> str | None:
        self._events.take(event)
        self._remark = event.position
        if event.kind in ("config", "run_started"):
            self.told.take(event)
        elif event.kind == "skipped_step":
            self._skip(event.fields.get("step"))
        elif event.kind == "checkpoint_saved":
            self._save()
        self.findings.take(event)
        counted = event.kind == "nonfinite_metric" and self.values.observe_nonfinite(event)
        self.life.observe_event(event, at)
        urgent = f"{event.kind} {event.severity} {event.rank}"
        return urgent if counted or event.severity in _URGENT else None

    def _skip(self, step: object) -> None:
        """Count a skipped step once, though every rank tells of it."""
        if step is None or step not in self._skipped:
            self.skipped_steps += 1
            self._skipped.append(step)

    def _save(self) -> None:
        """Remember at which step a checkpoint was saved; several lines may tell of one."""
        step = self.progress.step
        if step is None:
            return
        while self._checkpoints and self._checkpoints[-1] > step:
            self._checkpoints.pop()
        if not self._checkpoints or self._checkpoints[-1] != step:
            self._checkpoints.append(step)

    def _life_points(self) -> list[Point]:
        life, run = self.life, self.labels
        points = [
            Point("ldlm_train_skipped_steps_total", run, self.skipped_steps),
            Point("ldlm_run_info", self._info_labels(), 1),
        ]
        gauges = {
            "ldlm_train_step": self.progress.step,
            "ldlm_train_epoch": self.progress.epoch,
            "ldlm_train_progress_ratio": self.progress.ratio,
            "ldlm_train_eta_seconds": self.progress.eta(self._step_seconds()),
        }
        if self.values.last("step_seconds") is None:
            gauges["ldlm_train_step_seconds"] = self.progress.step_seconds
        if life.can_stall or self.progress.step is not None:
            gauges["ldlm_train_last_progress_timestamp_seconds"] = life.last_progress_at
            gauges["ldlm_train_stall_limit_seconds"] = life.stall_limit
        points += [Point(name, run, value) for name, value in gauges.items() if value is not None]
        points += [
            Point("ldlm_train_step", self._rank_labels(rank), step)
            for rank, step in self.progress.rank_steps.items()
        ]
        present = life.state
        for state in RUN_STATES:
            labels = self._state_labels[state]
            if state == present and life.rank is not None:
                labels = make_labels(run=self.name, state=state, rank=str(life.rank))
            points.append(Point("ldlm_run_state", labels, state == present))
        return points

    def _evidence(self) -> Iterator[tuple[str, Labels, Evidence]]:
        for kind, labels, evidence in self._events.evidence():
            yield EVENTS, labels, evidence
            if kind in _SKIPS:
                yield "ldlm_train_skipped_steps_total", self.labels, evidence

    def _rank_labels(self, rank: int) -> Labels:
        labels = self._rank_label_cache.get(rank)
        if labels is None:
            labels = make_labels(run=self.name, rank=str(rank))
            self._rank_label_cache[rank] = labels
        return labels

    def _info_labels(self) -> Labels:
        size = self.told.world_size
        return make_labels(
            run=self.name,
            framework=self.told.framework,
            world_size=None if size is None else str(size),
        )

    def _step_seconds(self) -> float | None:
        """Seconds a step: as the log says, by when steps were told, or by the rate it tells."""
        told = self.values.last("step_seconds") or self.progress.step_seconds
        if told is None and (rate := self.values.last("steps_per_second")):
            return 1 / rate
        return told


def _verdict_view(found: Verdict | None) -> VerdictView | None:
    return None if found is None else VerdictView(word=found.word, reasons=found.reasons)
