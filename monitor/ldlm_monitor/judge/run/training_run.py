"""One run as a whole: its numbers, events and states, and the series that it exports."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ldlm_monitor.base.goodput import Goodput
from ldlm_monitor.base.histogram import Histogram
from ldlm_monitor.base.names import FAILED_STARTS, RESTARTS, RUN_START, RUN_STATES, STEP_DURATION
from ldlm_monitor.base.points import DERIVED_STEP_SECONDS, Labels, Measured, Point, make_labels
from ldlm_monitor.base.records import Event, Heartbeat, Position, Sample, SampleBlock, TimedRows
from ldlm_monitor.base.snapshot import CurveView, Health, RunView, VerdictView
from ldlm_monitor.judge.run.accounted_steps import AccountedSteps, goodput_points
from ldlm_monitor.judge.run.endings import is_news
from ldlm_monitor.judge.run.file_rows import FileRows, ValueSource
from ldlm_monitor.judge.run.lifecycle import SETTINGS, Lifecycle
from ldlm_monitor.judge.run.logged_values import RunValues
from ldlm_monitor.judge.run.pace import STEP_BUCKETS
from ldlm_monitor.judge.run.progress import EventCounts, LoggedSettings, Progress
from ldlm_monitor.judge.run.quantity import SourceLine, is_read, newest_line
from ldlm_monitor.judge.run.replicas import Replicas
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.judge.run.verdict import Findings, ProbeCandidate
from ldlm_monitor.logs.parse.meanings import meaning_of

_URGENT = ("error", "critical")  # severities of events after which rules are evaluated at once
_NONFINITE = "nonfinite_metric"  # kind of a number that is not finite
_MAX_RANKS = 65536  # `ranks` has only lower ones: no training has as many, a forged log may


class TrainingRun:
    """The state of one run. `ranks`: the ranks that logged a record.

    `attempt_began`: when (Unix seconds) an attempt after the first was seen to begin. `is_read`:
    its logs have ended.
    """

    def __init__(self, name: str, started: float, stall: Stall, first: Position) -> None:
        self.name = name
        self.labels = make_labels(run=name)
        self._state_labels = {state: make_labels(run=name, state=state) for state in RUN_STATES}
        self._states: tuple[str, list[Point]] = ("", [])
        self._points: list[Point] | None = None
        self._viewed: tuple[object, RunView] | None = None  # the last view, and what was judged
        self._curves: Mapping[str, CurveView] | None = None
        self.life = Lifecycle(started, stall, first)
        self.values = RunValues(name)
        self.progress = Progress(self.life)
        self.steps = AccountedSteps()
        self.findings = Findings(self.life)
        self.replicas = Replicas()
        self._events = EventCounts(name)
        self.files: dict[str, None] = {}  # the paths, as keys, in order of their first record
        self.progress_line: tuple[Position, str] | None = None  # the last stored of a step
        self.logged = LoggedSettings()
        self._remark: Position | None = None
        self.ranks: set[int] = set()
        self._durations = Histogram(STEP_BUCKETS)
        self._begins_anew = False
        self._lowest: tuple[float, int | None] = math.inf, None  # evaluation loss, and its step
        self._attempt = 1
        self.attempt_began: float | None = None
        self.is_read = False
        self.began: Position | None = None  # where an event began the present attempt

    def observe(
        self, found: Sequence[TimedRows], judged: float, *, timed: bool = True
    ) -> str | None:
        """Process rows by the times of their ends, or one record; returns why rules are to be
        evaluated at once, otherwise None.

        Of rows with times of their own, more than one only if `life.only_advances` is true of them.
        `judged`: Unix seconds, from which alerts count; later than the times where a line's clock
        is behind. `timed`: they were written at their times; if false, those are an order.
        """
        self.life.timed, self.is_read = timed or found[0].first.time is not None, False
        self._changed()
        (item, (at, *_), _), *_ = found
        if isinstance(item, Event):
            return self._observe_event(item, at, judged)
        if isinstance(item, Heartbeat):
            return self._observe_beat(item, at)
        rows = [
            self._rows(item, times)
            for item, times, _ in found
            if isinstance(item, Sample | SampleBlock)
        ]
        return self._observe_rows(rows, judged)

    def _observe_beat(self, beat: Heartbeat, at: float) -> str | None:
        self._note(beat.position.path, beat.rank)
        stalled = self.life.state == "stalled"
        self.life.observe_heartbeat(beat, at)
        self.progress.observe_beat(beat, at)
        self.findings.note_process(beat.rank, beat.host, beat.pid)
        return "recovered" if stalled and self.life.state != "stalled" else None

    def _rows(self, item: Sample | SampleBlock, times: Sequence[float]) -> FileRows:
        rows = self.life.steps.rows(item, times, timed=self.life.timed)
        self._note(*rows.key)
        if rows.last.position == self._remark:  # it is of a bar that the event's lines contain
            rows.source = ValueSource.BAR
        return rows

    def _note(self, path: str, rank: int | None) -> None:
        self.files[path] = None
        if rank is not None and rank < _MAX_RANKS:
            self.ranks.add(rank)

    def tick(self, at: float) -> bool:
        """Run the timers that are due at `at`; returns whether the state changed."""
        changed = self.life.tick(at)
        if changed:
            self._changed()
        return changed

    def _changed(self) -> None:
        """Note a change of what is exported and shown."""
        self._points = self._viewed = self._curves = None

    def set_stall(self, stall: Stall) -> None:
        """Use other limits of stalls from now on."""
        self.life.set_stall(stall)
        self._changed()

    def shift(self, seconds: float) -> None:
        """Leave a clock's jump of `seconds` out of the time since the last step and the pace."""
        self.progress.shift(seconds)
        self.findings.shift(seconds)
        self._changed()

    def finish(self, at: float) -> None:
        """Process the end of the input: no record follows that could refute an assumed end."""
        self.life.finish(at)
        self.is_read = True
        self._changed()

    def measured(self) -> Measured:
        """The values, durations and steps measured since the last call, for the detectors."""
        values = self.values.take_fresh()
        durations, resumed = self.progress.take_durations()
        begins_anew, self._begins_anew = self._begins_anew, False
        if durations:
            values[DERIVED_STEP_SECONDS, None] = durations
        pace = self.values.pace()  # of one rank: each takes all steps
        timed = pace if pace[0] == "step_seconds" else (DERIVED_STEP_SECONDS, None)
        if counted := values.get(timed):
            self._durations.observe(filter(math.isfinite, counted))
            self._points = None
        return Measured(
            values=values,
            step=self.progress.step,
            taken=self.progress.taken,
            rank_steps=self.progress.rank_steps,
            skipped=list(self.progress.skipped),
            checkpoints=list(self.progress.checkpoints),
            resumed=resumed,
            begins_anew=begins_anew,
            at=self.life.last_progress_at if self.life.timed else None,
            pace=pace,
        )

    @property
    def verdict(self) -> VerdictView | None:
        """Why a stalled run takes no step, or how a probed run ended; None without evidence."""
        return self.findings.verdict(self.progress.step, self.progress.total_steps)

    def read_to(self, at: float) -> None:
        """Note up to when (Unix seconds) the run's files were read; infinite: to the present."""
        self.life.read_to = at
        self._changed()

    def end_at(self, at: float) -> None:
        """Note when the run's files end (Unix seconds); infinite: they are followed."""
        self.life.ends_at = at
        self._changed()

    def points(self, at: float) -> list[Point]:
        """The exported series at `at` (Unix seconds).

        The same object until a record, a timer, or time that was not read changes them.
        """
        if self._points is None or min(self.life.read_to, self.life.ends_at) < at:
            life = self._life_points(at)
            self._points = [*self.values.points(), *life, *self._events.points()]
        return self._points

    def evidence(
        self, reads: Callable[[str, Labels], bool], labels: Mapping[str, str]
    ) -> SourceLine | None:
        """The last line that changed a series which a rule reads; None if no line did.

        `reads`: whether the rule selects the series of a name and labels. The series must agree
        with `labels`, those of the alert, in the labels that both have: an aggregation may drop
        others. The label `severity` is ignored, since rules set their own.
        """
        if is_read(reads, "ldlm_train_last_progress_timestamp_seconds", self.labels):
            at, (stored, text) = self.life.progress_position, self.progress_line or (None, None)
            return SourceLine(at, self.life.progress_step, text if stored == at else None)
        event = self.life.end_evidence
        if event is not None and reads("ldlm_run_state", self._state_labels[self.life.state]):
            return SourceLine(event.position, self.life.progress_step, event.message)
        return newest_line((*self._events.evidence(), *self.values.evidence()), reads, labels)

    def probe_candidate(self) -> ProbeCandidate:
        """The facts that a probe of the run's hosts needs."""
        life = self.life
        return ProbeCandidate(
            run=self.name,
            state=life.state,
            last_progress_at=life.last_progress_at,
            stalls_at=None if life.ended else life.last_progress_at + life.stall_limit,
            ended_at=life.ended_at,
            files=tuple(self.files),
            pids=dict(self.findings.pids),
            dumps=tuple(self.findings.dumps.values()),
            world_size=self.logged.world_size,
            position=life.progress_position,
            saved=self.progress.saved,
            saved_to=self.progress.saved_to,
            reports_gpus=self.values.last("gpu_utilization_ratio") is not None,
        )

    def curves(self) -> Mapping[str, CurveView]:
        """The curves of the whole run by quantity; the same object until it changes."""
        if self._curves is None:
            self._curves = self.values.curves()
        return self._curves

    def view(self, health: Health, now: float | None = None, **judged: Any) -> RunView:
        """The run for views at `now` (None: its last step); `judged`: what other rooms decide.

        Made anew when it changes; until then only its account of time goes on.
        """
        known, self._viewed = self._viewed, None
        if known is None or known[0] != (health, judged):
            view = self._new_view(health, now, **judged)
        elif self.life.ended:
            view = known[1]
        else:
            view = known[1].model_copy(update={"goodput": self._goodput(now)})
        self._viewed = (health, judged), view
        return view

    def _new_view(self, health: Health, now: float | None, **judged: Any) -> RunView:
        life = self.life
        return RunView(
            name=self.name,
            framework=self.logged.framework,
            world_size=self.logged.world_size,
            state=life.state,
            health=health,
            step=self.progress.step,
            total_steps=self.progress.total_steps,
            epoch=self.progress.epoch,
            progress=self.progress.ratio,
            eta_seconds=None
            if life.state == "stalled"
            else self.progress.eta(self._step_seconds()),
            started_at=life.started_at,
            last_progress_at=None if self.progress.step is None else life.last_progress_at,
            stall_limit_seconds=life.stall_limit if life.can_stall else None,
            ended_at=life.ended_at,
            end_reason=None if life.end is None else life.end.reason,
            end_position=None if life.end is None else life.end.at,
            judged_to=None if math.isinf(known := min(life.read_to, life.ends_at)) else known,
            files=tuple(self.files),
            statistics=self.values.statistics(),
            event_counts=self._events.by_kind(),
            skipped_steps=self.progress.skipped_steps,
            settings=dict(self.logged.settings),
            verdict=self.verdict,
            attempt=life.attempts.number,
            ranks=tuple(self.progress.ranks()),
            step_seconds=self._step_seconds(),
            checkpoints=tuple(self.progress.checkpoints),
            nonfinite=self.values.nonfinite.marks(),
            gpus=tuple(self.values.gpus()),
            goodput=self._goodput(now),
            resumed_at=tuple(self.steps.account.resumed_at),
            **judged,
        )

    def _goodput(self, now: float | None) -> Goodput | None:
        life = self.life
        ended = life.ended_at if life.ended_at is not None else now
        return self.steps.read(
            life.started_at,
            ended,
            life.state,
            skipped=self.progress.skipped_steps,
            restarts=life.attempts.restarts,
            ranks=self.logged.world_size,
        )

    def _observe_rows(self, found: Sequence[FileRows], judged: float) -> str | None:
        """Give rows to all owners of steps and values."""
        stalled = self.life.state == "stalled"
        for each in self._parts(found):
            for rows in each:
                if rows.falls:
                    self.values.nonfinite.resume(rows.steps[0])
                moment = rows.last_alone() if rows.came_at_once else rows
                self.steps.observe(moment, stalled=stalled)
                self.progress.observe(moment)
                self._follow_evaluations(rows)
            if self.life.observe(each):
                self._begins_anew, self._lowest = True, (math.inf, None)
                self.values.take_fresh()  # of the training before
        begins = self._follow_attempts(judged)
        if alarming := self.values.observe(found, judged):
            return f"nonfinite {found[0].last.rank} {' '.join(alarming)}"
        return begins or ("recovered" if stalled and self.life.state != "stalled" else None)

    def _follow_evaluations(self, rows: FileRows) -> None:
        """Keep the step of the lowest evaluation loss."""
        for quantity, column, places in rows.columns():
            if quantity == "eval_loss" and (lowest := min(column)) < self._lowest[0]:
                place = places[column.index(lowest)]
                step = rows.steps[place] if rows.steps else self.progress.step
                self._lowest = lowest, step

    def _follow_attempts(self, judged: float) -> str | None:
        """Let what an attempt logged be over once another one has begun; why that is urgent."""
        if self._attempt == self.life.attempts.number:
            return None
        self._attempt, self.attempt_began = self.life.attempts.number, judged
        self._events.begin_attempt()
        self.progress.launch()
        self.values.launch()
        return f"attempt {self._attempt}"

    def _parts(self, found: Sequence[FileRows]) -> Iterator[Sequence[FileRows]]:
        """The rows as the lifecycle takes them: those without times as the first, and the rest."""
        if not found[0].came_at_once:
            yield found
            return
        yield [found[0].first()]
        rest = found[0].rest()
        if rest is not None and rest.block is not None:
            whole = self.life.only_advances([TimedRows(rest.block, rest.times)])
            yield [rest if whole else rest.last_alone()]

    def _observe_event(self, event: Event, at: float, judged: float) -> str | None:
        self._note(event.position.path, event.rank)
        meaning = meaning_of(event)
        assumed = self.life.ending.assumed
        end = self.life.end_evidence if assumed is None else assumed.evidence
        counts = is_news(event, end)
        self.steps.explain(event, at)
        self._remark = event.position
        if event.kind == SETTINGS or meaning.begins_run:
            self.logged.update(event)
            fields = event.fields
            self.findings.note_process(event.rank, fields.get("host"), fields.get("pid"))
            mesh = fields.get("mesh")
            if event.rank in self.ranks and isinstance(mesh, dict):
                self.progress.observe_mesh(event.rank, mesh)
        elif "first words" in meaning.words:
            self.logged.plan(event)
        elif event.kind == "skipped_step":
            self.progress.skip(event.fields.get("step"))
        elif "saved" in meaning.words:
            path, named = str(event.fields.get("path") or ""), event.fields.get("step")
            sound = not any(self.values.lost())
            self.progress.save_checkpoint(path, named=named, sound=sound)
        self.findings.add(event)
        counted = event.kind == _NONFINITE and self.values.observe_nonfinite(event, judged)
        if self.life.observe_event(event, at):
            self.progress.begin_attempt()
            self.steps.restart(event, at)
            self.replicas = Replicas()
            self.progress.epoch = None
            self.began = event.position
        begins = self._follow_attempts(judged)
        if counts:
            self._events.add(event, judged)
        urgent = f"{event.kind} {event.severity} {event.rank}"
        is_urgent = counted or event.severity in _URGENT or "urgent" in meaning.words
        return urgent if is_urgent else begins

    def _life_points(self, at: float) -> list[Point]:
        life, run, logged = self.life, self.labels, self.logged
        size = None if logged.world_size is None else str(logged.world_size)
        info = make_labels(run=self.name, framework=logged.framework, world_size=size)
        points = [Point("ldlm_run_info", info, 1), *self._durations.points(STEP_DURATION, run)]
        points += goodput_points(self.name, run, self._goodput(None))
        counts = {
            RESTARTS: life.attempts.restarts,
            FAILED_STARTS: life.attempts.failed_alike,
            "ldlm_run_world_size": logged.world_size,
            RUN_START: life.started_at if self.attempt_began is None else self.attempt_began,
            "ldlm_detect_eval_loss_lowest_step": self._lowest[1],
        }
        points += [Point(name, run, value) for name, value in counts.items() if value is not None]
        is_logged = self.values.last("step_seconds") is not None
        points += self.progress.points(
            self.name,
            self._step_seconds(),
            at,
            is_logged=is_logged,
            hangs=self.findings.show_a_hang,
        )
        if self._states[0] != life.state:
            labels = self._state_labels.items()
            shown = [Point("ldlm_run_state", each, state == life.state) for state, each in labels]
            self._states = life.state, shown
        return points + self._states[1]

    def _step_seconds(self) -> float | None:
        return self.values.step_seconds(self.progress.step_seconds)
