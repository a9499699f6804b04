"""One run as a whole: its numbers, its events, its life, and what of it is exported."""

from __future__ import annotations

import math
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from ldlm_monitor.measured import DERIVED_STEP_SECONDS, Measured
from ldlm_monitor.names import DETECTED_IN, RUN_STATES
from ldlm_monitor.points import Labels, Point, make_labels
from ldlm_monitor.records import Event, Heartbeat, Position, Record, Sample, SampleBlock
from ldlm_monitor.run.durations import StepDurations
from ldlm_monitor.run.endings import is_abort, is_fatal
from ldlm_monitor.run.lifecycle import Lifecycle
from ldlm_monitor.run.pace import StallSettings
from ldlm_monitor.run.quantity import Evidence
from ldlm_monitor.run.sources import Source, source_of
from ldlm_monitor.run.values import RunValues
from ldlm_monitor.run.verdict import ENDINGS, KINDS, Verdict, of_ended, verdict
from ldlm_monitor.view import CurveView, Health, RankView, RunView, Statistics, VerdictView

_URGENT = ("error", "critical")
_PACE_STEPS = 50
FLUSH_SECONDS = 120.0
"""TensorBoard's writers collect for so long (`flush_secs` in torch/utils/tensorboard/writer.py)."""
_SKIPS = ("skipped_step", "loss_scale_overflow")
_MAX_RANKS = 65536
_CHECKPOINTS = 6
"""The steps of so many are remembered."""
_FOUND = 64
_TOLD = 4096
"""So much evidence since the last step, and so many pids and dump files, are remembered."""


class TrainingRun:
    """Everything the monitor knows of one run.

    `ranks`: those of which any record came. `rank_steps`: the last step of each that tells its own.
    """

    def __init__(self, name: str, started: float, stall: StallSettings, first: Position) -> None:
        self.name = name
        self.labels = make_labels(run=name)
        self._state_labels = {state: make_labels(run=name, state=state) for state in RUN_STATES}
        self._label_cache: dict[tuple[str, str, int | None], Labels] = {}
        self._rank_label_cache: dict[int, Labels] = {}
        self._points: list[Point] | None = None
        self.values = RunValues(name)
        self.life = Lifecycle(started, stall, first)
        self.files: dict[str, None] = {}
        self.skipped_steps = 0
        self.progress_line: str | None = None
        self._events: Counter[tuple[str, str, int | None]] = Counter()
        self._last_events: dict[tuple[str, str, int | None], Event] = {}
        self._settings: dict[str, str] = {}
        self._framework = "unknown"
        self._total_steps: int | None = None
        self._epoch: float | None = None
        self._step: tuple[Source, int] | None = None
        self._remark: Position | None = None
        self._timed = True
        self._skipped: deque[object] = deque(maxlen=_PACE_STEPS)
        self._recent: deque[tuple[float, int]] = deque(maxlen=_PACE_STEPS)
        self._durations = StepDurations()
        self._leader: int | None = None
        self.ranks: set[int] = set()
        self.rank_steps: dict[int, int] = {}
        self._rank_seen: dict[int, tuple[float, str | None]] = {}
        self._checkpoints: deque[int] = deque(maxlen=_CHECKPOINTS)
        self._found: deque[Event] = deque(maxlen=_FOUND)
        self._found_since = started
        self.pids: dict[int | None, tuple[str, int]] = {}
        self.dumps: dict[int | None, str] = {}

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
            source = Source.BAR if remark else source_of(record, rows=rows)
            return self._observe_sample(record, at, source)
        if isinstance(record, Heartbeat):
            stalled = self.life.state == "stalled"
            changed = self.life.observe_heartbeat(record, at)
            self.rank_steps[record.rank] = record.step
            if len(self.pids) < _TOLD:
                self.pids[record.rank] = record.host, record.pid
            self._rank_seen[record.rank] = (at, record.phase)
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
        if self._step is None or (source <= self._step[0] and block.rank == self._leader):
            self._recent.extend(zip(times, block.steps, strict=True))
            self._durations.advance_all(times, block.steps)
        self._observe_standing(last, times[-1], source)

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
        durations, self._durations.fresh = self._durations.fresh, array("d")
        resumed, self._durations.resumed = self._durations.resumed, False
        if durations:
            values[DERIVED_STEP_SECONDS, None] = durations
        return Measured(
            values=values,
            step=self._step[1] if self._step else None,
            rank_steps=self.rank_steps,
            skipped_steps=self.skipped_steps,
            checkpoints=list(self._checkpoints),
            resumed=resumed,
        )

    @property
    def verdict(self) -> Verdict | None:
        """What became of a run that stalled, by what was found since its last step.

        Of one that ended only where its host was looked at: the log tells the rest.
        """
        if not self._found or self._found_since != self.life.last_progress_at:
            return None
        looked_at = any(event.fields.get("probe") for event in self._found)
        if self.life.state == "stalled":
            return verdict(self._found, complete=self._progress() == 1.0)
        word = ENDINGS.get(self.life.state)
        if word is None or not looked_at:
            return None
        return of_ended(word, self.life.end_evidence, self._found)

    def points(self) -> list[Point]:
        """The run's series as they stand."""
        if self._points is None:
            self._points = [*self.values.points(), *self._life_points(), *self._event_points()]
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
        for name, own, evidence in (*self._event_evidence(), *self.values.evidence()):
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
            framework=self._framework,
            world_size=self.world_size,
            state=life.state,
            health=health,
            step=self._step[1] if self._step else None,
            total_steps=self._total_steps,
            epoch=self._epoch,
            progress=self._progress(),
            eta_seconds=self._eta(),
            started_at=life.started_at,
            last_progress_at=life.last_progress_at if self._step else None,
            stall_limit_seconds=life.stall_limit if life.can_stall else None,
            ended_at=life.ended_at,
            files=tuple(self.files),
            statistics={name: _statistics(*seen) for name, seen in self.values.windows().items()},
            event_counts=self._counts_by_kind(),
            skipped_steps=self.skipped_steps,
            settings=dict(self._settings),
            failed_rank=life.rank,
            verdict=_verdict_view(self.verdict),
            ranks=tuple(
                RankView(rank=rank, step=self.rank_steps.get(rank), seen_at=at, phase=phase)
                for rank, (at, phase) in sorted(self._rank_seen.items())
            ),
            detected=detected or {},
        )

    def _observe_sample(self, sample: Sample, at: float, source: Source) -> str | None:
        alarming = self.values.observe(sample, source, at)
        urgent = self._observe_progress(sample, at, source)
        return f"nonfinite {sample.rank} {' '.join(alarming)}" if alarming else urgent

    def _observe_progress(self, sample: Sample, at: float, source: Source) -> str | None:
        self._observe_standing(sample, at, source)
        stalled = self.life.state == "stalled"
        changed = self.life.observe_sample(sample, at)
        return "recovered" if changed and stalled else None

    def _observe_standing(self, sample: Sample, at: float, source: Source) -> None:
        """Keep step, epoch and pace as the best source tells them."""
        if "total_steps" in sample.values:
            self._total_steps = int(sample.values["total_steps"])
        if sample.rank is not None and sample.step is not None:
            self.rank_steps[sample.rank] = sample.step
            self._rank_seen[sample.rank] = (at, None)
        if sample.step is None or (self._step is not None and source > self._step[0]):
            return
        if self._step is None or source < self._step[0]:
            self._leader = sample.rank
        if sample.rank == self._leader:
            self._observe_pace(sample.step, at, exact=sample.time is not None)
        self._step = (source, sample.step)
        self.life.pace.told_late = FLUSH_SECONDS if source is Source.TRACKER else 0.0
        self._epoch = sample.epoch if sample.epoch is not None else self._epoch

    def _observe_pace(self, step: int, at: float, *, exact: bool) -> None:
        """One rank's steps tell the pace: the others take the same, a little before or after."""
        if self._recent and step < self._recent[-1][1]:
            self._recent.clear()
        if not self._recent or step > self._recent[-1][1]:
            self._recent.append((at, step))
        if not self._timed or self.life.is_paused:
            self._durations.pause()
        if self._timed:
            self._durations.advance(at, step, exact=exact)

    def _observe_event(self, event: Event, at: float) -> str | None:
        key = (event.kind, event.severity, event.rank)
        self._events[key] += 1
        self._remark = event.position
        self._last_events.pop(key, None)
        self._last_events[key] = event
        if event.kind in ("config", "run_started"):
            self._configure(event)
        elif event.kind == "skipped_step":
            self._skip(event.fields.get("step"))
        elif event.kind == "checkpoint_saved":
            self._save()
        self._keep_evidence(event)
        counted = event.kind == "nonfinite_metric" and self.values.observe_nonfinite(event)
        self.life.observe_event(event, at)
        urgent = f"{event.kind} {event.severity} {event.rank}"
        return urgent if counted or event.severity in _URGENT else None

    def _keep_evidence(self, event: Event) -> None:
        """What tells why the next step does not come, or where to look for it."""
        if event.kind in KINDS or is_fatal(event) or is_abort(event):
            if self._found_since != self.life.last_progress_at:
                self._found.clear()
                self._found_since = self.life.last_progress_at
            self._found.append(event)
        path = event.fields.get("path")
        if event.kind == "fr_dump" and isinstance(path, str) and len(self.dumps) < _TOLD:
            self.dumps[event.rank] = path

    def _skip(self, step: object) -> None:
        """Count a skipped step once, though every rank tells of it."""
        if step is None or step not in self._skipped:
            self.skipped_steps += 1
            self._skipped.append(step)

    def _save(self) -> None:
        """Remember at which step a checkpoint was saved; several lines may tell of one."""
        if self._step is None:
            return
        step = self._step[1]
        while self._checkpoints and self._checkpoints[-1] > step:
            self._checkpoints.pop()
        if not self._checkpoints or self._checkpoints[-1] != step:
            self._checkpoints.append(step)

    def _configure(self, event: Event) -> None:
        if event.kind == "run_started":
            framework = event.fields.get("framework") or _framework_of(event.message)
            self._framework = str(framework) if framework else self._framework
        for name, value in event.fields.items():
            if name not in ("family", "role", "framework") and isinstance(value, str | int | float):
                self._settings[name] = str(value)

    def _life_points(self) -> list[Point]:
        life, run = self.life, self.labels
        points = [
            Point("ldlm_train_skipped_steps_total", run, self.skipped_steps),
            Point("ldlm_run_info", self._info_labels(), 1),
        ]
        gauges = {
            "ldlm_train_step": self._step[1] if self._step else None,
            "ldlm_train_epoch": self._epoch,
            "ldlm_train_progress_ratio": self._progress(),
            "ldlm_train_eta_seconds": self._eta(),
        }
        if self.values.last("step_seconds") is None:
            gauges["ldlm_train_step_seconds"] = self._step_seconds()
        if life.can_stall or self._step:
            gauges["ldlm_train_last_progress_timestamp_seconds"] = life.last_progress_at
            gauges["ldlm_train_stall_limit_seconds"] = life.stall_limit
        points += [Point(name, run, value) for name, value in gauges.items() if value is not None]
        points += [
            Point("ldlm_train_step", self._rank_labels(rank), step)
            for rank, step in self.rank_steps.items()
        ]
        present = life.state
        for state in RUN_STATES:
            labels = self._state_labels[state]
            if state == present and life.rank is not None:
                labels = make_labels(run=self.name, state=state, rank=str(life.rank))
            points.append(Point("ldlm_run_state", labels, state == present))
        return points

    def _event_points(self) -> list[Point]:
        return [
            Point("ldlm_events_total", self._event_labels(kind, severity, rank), count)
            for (kind, severity, rank), count in self._events.items()
        ]

    def _event_evidence(self) -> Iterator[tuple[str, Labels, Evidence]]:
        for order, (key, event) in enumerate(self._last_events.items()):
            evidence = Evidence(event.position, None, event.message, order)
            yield "ldlm_events_total", self._event_labels(*key), evidence
            if event.kind in _SKIPS:
                yield "ldlm_train_skipped_steps_total", self.labels, evidence

    def _event_labels(self, kind: str, severity: str, rank: int | None) -> Labels:
        labels = self._label_cache.get((kind, severity, rank))
        if labels is None:
            told = None if rank is None else str(rank)
            labels = make_labels(run=self.name, kind=kind, severity=severity, rank=told)
            self._label_cache[kind, severity, rank] = labels
        return labels

    def _rank_labels(self, rank: int) -> Labels:
        labels = self._rank_label_cache.get(rank)
        if labels is None:
            labels = make_labels(run=self.name, rank=str(rank))
            self._rank_label_cache[rank] = labels
        return labels

    def _info_labels(self) -> Labels:
        size = self.world_size
        return make_labels(
            run=self.name,
            framework=self._framework,
            world_size=None if size is None else str(size),
        )

    @property
    def world_size(self) -> int | None:
        """How many ranks the log says there are."""
        told = self._settings.get("world_size", "")
        return int(told) if told.isdigit() else None

    def _progress(self) -> float | None:
        if self._step is None or not self._total_steps:
            return None
        # A step log counts from 0, a bar counts what is done.
        done = self._step[1] + (1 if self._step[0] <= Source.JSONL else 0)
        return min(done / self._total_steps, 1.0)

    def _step_seconds(self) -> float | None:
        if len(self._recent) < 2:
            return None
        (start, first), (end, last) = self._recent[0], self._recent[-1]
        return (end - start) / (last - first) if end > start else None

    def _eta(self) -> float | None:
        progress = self._progress()
        if progress is None or self._total_steps is None or self.life.ended:
            return None
        pace = self.values.last("step_seconds") or self._step_seconds()
        if pace is None and (rate := self.values.last("steps_per_second")):
            pace = 1 / rate
        return None if pace is None else (1 - progress) * self._total_steps * pace

    def _counts_by_kind(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for (kind, _, _), count in self._events.items():
            counts[kind] += count
        return dict(counts)


def _verdict_view(found: Verdict | None) -> VerdictView | None:
    return None if found is None else VerdictView(word=found.word, reasons=found.reasons)


def _framework_of(banner: str) -> str | None:
    """Who writes this banner at the start of a training."""
    return "MM-LDLM" if "MMDiT" in banner else None


def _statistics(current: float, recent: list[float], nonfinite: int) -> Statistics:
    # Filtering is what costs; most quantities never are non-finite.
    finite = [value for value in recent if math.isfinite(value)] if nonfinite else recent
    return Statistics(
        current=current,
        mean=sum(finite) / len(finite) if finite else None,
        minimum=min(finite, default=None),
        maximum=max(finite, default=None),
        count=len(recent),
        nonfinite=nonfinite,
    )
