"""The state of a run (`names.RUN_STATES`), by its records and by the time without progress."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from operator import sub

from ldlm_monitor.base.names import ENDED_STATES
from ldlm_monitor.base.records import Event, Heartbeat, Position, SampleBlock, TimedRows
from ldlm_monitor.judge.run.attempts import Attempts
from ldlm_monitor.judge.run.endings import STRAY_SECONDS, End, EndingTracker, end_by
from ldlm_monitor.judge.run.file_rows import FileRows, FileSteps, ValueSource
from ldlm_monitor.judge.run.goals import StepGoal
from ldlm_monitor.judge.run.pace import LATE, LONGEST_SKIP, Pace, advances, is_sign_of_life
from ldlm_monitor.judge.run.places import Places
from ldlm_monitor.judge.run.run_states import ENDS, MOVES, PAUSES, MoveName
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.logs.parse.meanings import meaning_of

SETTINGS = "config"  # kind of the settings of a training
LOOP_SECONDS = 60.0
"""Within this time after an end a loop starts its command again: a choice. A person reads first."""


class Lifecycle:
    """The state of one run, by its records and the time; `run_states.MOVES` says what moves it.

    All times are Unix seconds if `timed`.
    Progress is an advance of the step in any file of the run. A redrawn bar, a repeated line
    or a growing file is no progress. A smaller step is a resume. A pace is learned if `timed`.
    `failed_after_end`: what failed after all was done, which is no end of it.
    `end_known_at`: when the end at `ended_at` was sure, which may take up to the stall limit.
    `read_to`: up to when the run's files were read; `ends_at`: when those of a finished run end.
    Silence counts up to then.
    """

    def __init__(self, started: float, settings: Stall, first: Position) -> None:
        self.pace = Pace(settings)
        self.phase = "starting"
        self.started_at = self.last_progress_at = self._alive_at = started
        self.progress_position = first
        self.progress_step: int | None = None
        self.ended_at: float | None = None
        self.end_known_at: float | None = None
        self.end_evidence: Event | None = None
        self.end: End | None = None
        self.failed_after_end: Event | None = None
        self.timed = True
        self.read_to = self.ends_at = math.inf
        self.steps = FileSteps()
        self._paused_by: str | None = None
        self._stalled = self._late = self._training = False
        self._highest_step, self._stride = -1, 0
        self._is_saved = self._was_done = False
        self._is_drawn: bool | None = None  # whether bars alone have advanced it
        self._places = Places()
        self.ending, self.attempts, self.goal = EndingTracker(), Attempts(self.steps), StepGoal()

    @property
    def state(self) -> str:
        """One of `names.RUN_STATES`."""
        return "stalled" if self._stalled and not self.ended else self.phase

    @property
    def ended(self) -> bool:
        """Whether the run is over, however it ended."""
        return self.phase in ENDED_STATES

    @property
    def _is_over(self) -> bool:
        return self.ended or self.ending.assumed is not None

    @property
    def _is_done(self) -> bool:
        """Whether all steps were counted, and then a model was saved or words reported the end."""
        return self.goal.counted is not None and (self._is_saved or self.goal.has_words)

    @property
    def can_stall(self) -> bool:
        """Whether the run trains and has not ended. False for a file without training."""
        return self._training and not self.ended

    @property
    def is_paused(self) -> bool:
        """Whether a phase explains why the next step takes long."""
        return self.phase != "running" or self._paused_by is not None

    @property
    def stall_limit(self) -> float:
        """Seconds after `last_progress_at` for which a pause is normal; signs of life extend it."""
        limit = self.pace.limit(self.phase)
        if self.phase == "running" and "epoch" in self._places.here:
            limit = max(limit, 2 * self.pace.longest_pause.get("epoch", 0.0))
        if self.phase == "running" and self.progress_step is not None and self._stride:
            limit = max(limit, self.pace.expected_pause(self.progress_step))
        return self._alive_at - self.last_progress_at + limit

    @property
    def hang_limit(self) -> float:
        """Seconds after `last_progress_at` from which a pause is a hang whatever the run may do.

        Beyond `stall_limit` for the first pause of a kind, and while batches are skipped.
        """
        if not self._may_pause_first:
            return self.stall_limit
        usual = max(self.pace.limit(self.phase), self.pace.settings.startup_seconds)
        patience = LONGEST_SKIP if "skip" in self._places.here else LATE * usual
        return max(self.stall_limit, patience)

    @property
    def _may_pause_first(self) -> bool:
        """Whether the present pause may be the first one of its kind, announced or by its place."""
        if self.phase in self.pace.settings.limit_seconds:
            return False
        announced = self._paused_by or ("" if self.phase == "running" else self.phase)
        kinds = [announced] if announced else []
        kinds += [place for place, is_first in self._places.here.items() if is_first]
        return any(kind not in self.pace.longest_pause for kind in kinds)

    def due(self) -> float | None:
        """When the next timer runs if no record arrives (Unix seconds); None if none does."""
        times = []
        if self.ending.assumed is not None:
            times.append(self.ending.assumed.confirm_at)
        stalls_at = self.stalls_at
        if stalls_at is not None and stalls_at < self.ends_at:
            times.append(stalls_at)
        return min(times, default=None)

    @property
    def stalls_at(self) -> float | None:
        """When it stalls, or is late, if no record arrives (Unix seconds); None if it does not."""
        # Words of an end may come when it has stalled already.
        completes = self.goal.is_reached and self.ending.assumed is None
        if not self.can_stall or (self._late and not completes):
            return None
        is_waited_for = self._stalled and not completes
        return self.last_progress_at + (self.hang_limit if is_waited_for else self.stall_limit)

    def silent_since(self, at: float) -> float:
        """The time of the last step, as if each moment up to `at` that was not read had a step."""
        known = max(min(self.read_to, self.ends_at), self.last_progress_at)
        return self.last_progress_at + max(at - known, 0.0)

    def tick(self, now: float) -> bool:
        """Run the timers that are due at `now`; True if the state or the lateness changed."""
        before, judged = (self.state, self._late), now
        now = min(now, self.read_to)
        if self.ending.assumed is not None and now >= self.ending.assumed.confirm_at:
            self.finish(now)
        if self.can_stall:
            # The sums of `due`: a difference may round to the other side, and the timer never end.
            limit, now = self.stall_limit, min(now, self.ends_at)
            self._stalled = now > self.last_progress_at + limit
            self._late = now > self.last_progress_at + self.hang_limit
            if self._stalled:
                self._end_if_complete(judged)
        return (self.state, self._late) != before

    def observe(self, found: Sequence[FileRows]) -> bool:
        """Process rows; True if a training begins anew: its epochs count from the first again, or
        its steps do and the loss is that of an untrained model.

        Of more than one row, `only_advances` is true: the last is judged, the others count.
        """
        if len(found) > 1 or len(found[0].times) > 1:
            self._advance_together(found)
        return self._observe_last(found[-1])

    def _observe_last(self, rows: FileRows) -> bool:
        sample, at = rows.last, rows.times[-1]
        # Whether more must follow a number without a position, or an epoch alone, is not known.
        placed = {sample.step, sample.epoch} != {None} and {*sample.values} != {"total_epochs"}
        self._training |= placed or sample.source != "inferred"
        begins = self.goal.note(sample)
        advanced = self.last_progress_at, self.progress_position
        # Without steps, what follows a death may be of another launch: it is no more of this one.
        over = self.phase in ("finished", "ended")
        after_death = self._is_over and not self.steps and not over
        if is_sign_of_life(sample.values):
            self._move("sign of life", at)
        elif sample.step is None:
            might = (self._is_over and not self.steps) or (begins and self.ended)
            # Where rows have steps, these show an attempt, and an epoch's own row shows none.
            own = might or not self.steps
            if own and self.attempts.begins_at_epoch(sample, over=might):
                self._launch(at)
                self.goal.note(sample)
            # In a log without steps, numbers are the only progress, but for those of a summary.
            if self.goal.is_moved_by(sample) and not self.steps and not over:
                self._advance(None, sample.position, at)
        else:
            before = rows.steps[-2] if len(rows.steps) > 1 else rows.previous
            fall = rows.fall if len(rows.steps) == 1 else ""
            over = self._is_over or self._stalled
            if self.attempts.begins_at(sample, before, over=over, where=fall):
                self._launch(at)
                self.goal.note(sample)
            if not self._stride and sample.step == self.progress_step and sample.source != "bar":
                # A counter that has never counted shows no progress, and no hang.
                self._move("sign of life", at)
            if sample.step > self._highest_step:
                self._follow_writer(rows.source)
            self._step(sample.step, rows.key, sample.position, at)
            if sample.step == self._highest_step:
                self.goal.observe(sample.step, sample.values, self._stride)
        moves = advanced != (self.last_progress_at, self.progress_position)
        self._places.observe(sample, self._stride, moves=moves, ends_epoch=self.goal.ends_epoch)
        return begins or rows.fall == "anew" or (after_death and not self.steps)

    def _follow_writer(self, source: ValueSource) -> None:
        """Learn another pace where lines count on in place of bars, which drew each step."""
        is_drawn = source is ValueSource.BAR
        if self._is_drawn and not is_drawn:
            self.pace.forget_gaps()
        self._is_drawn = is_drawn if self._is_drawn is None else self._is_drawn and is_drawn

    def only_advances(self, found: Sequence[TimedRows]) -> bool:
        """Whether rows only advance the run, with rising steps in each file: it is running, and
        cannot stall between two of them.
        """
        doubtful = self._stalled or self.is_paused or self.ending.assumed is not None
        paused = found[-1].times[-1] - self.last_progress_at >= self.pace.least
        return not (doubtful or paused) and all(
            isinstance(block, SampleBlock)
            and self.steps.last.get((block.path, block.rank), block.steps[0]) < block.steps[0]
            and not is_sign_of_life(block.values)
            and self.goal.only_counts(block)
            for block, *_ in found
        )

    def _advance_together(self, found: Sequence[FileRows]) -> None:
        for rows in found:
            self.steps.note(rows.key, rows.steps[-1])
        self.attempts.epoch = found[-1].last.epoch
        for rows in found:
            if rows.steps[-1] > self._highest_step:
                self._follow_writer(rows.source)
        steps, times, furthest = advances(found, self._highest_step)
        up_to = times[-1] if times else -math.inf
        counted = [rows for rows in found if not rows.is_of_bar]
        behind = sum(len(rows) - bisect_right(rows.times, up_to) for rows in counted)
        self.goal.count(sum(map(len, counted)) - behind)
        at_end = self.goal.ends_epoch
        # All but the last row, which is judged alone.
        self.goal.count(behind - (not found[-1].is_of_bar))
        later = times[bisect_right(times, self.last_progress_at) :]
        if self.timed and up_to <= self.read_to:  # as in `_advance`
            self.pace.learn_gaps(map(sub, later, (self.last_progress_at, *later)))
        self.last_progress_at = later[-1] if later else self.last_progress_at
        if furthest is not None:
            self._highest_step = steps[-1]
            if len(steps) > 1:
                self.progress_step = steps[-2]
                self.goal.went_on(len(steps) - 1)
            self._advance(furthest.step, furthest.position, times[-1])
            self.goal.observe(self._highest_step, furthest.values, self._stride)
            self._places.count_from(steps[0])
            self._places.observe(furthest, self._stride, moves=True, ends_epoch=at_end)

    def observe_heartbeat(self, beat: Heartbeat, at: float) -> None:
        """Process a heartbeat that a rank logged at `at`."""
        self._training = True
        self._step(beat.step, (beat.position.path, beat.rank), beat.position, at)

    def observe_event(self, event: Event, at: float) -> bool:
        """Process an event that was logged at `at`; True if another attempt begins with it."""
        meaning = meaning_of(event)
        self._places.note(meaning.words)
        self._training |= meaning.begins_run or event.kind == SETTINGS
        self._is_saved = self._is_saved or "saved" in meaning.words
        late = self.ended_at is not None and self.phase in ("crashed", "killed")
        late = late and self.attempts.is_new_failure(event, at - (self.ended_at or at), self.phase)
        begins = self.attempts.begins_with(event, ended=self.ended, late=late)
        if begins:
            self._launch(at, by_hand=meaning.words == {"start"})
            self.goal.parts_ahead = 0  # its own header says how many follow
        self.attempts.note_death(event)
        if meaning.begins_run or meaning.ends == "finished":
            self._observe_words(event, at)
        elif meaning.pause is not None:
            if not self.ended:
                self._paused_by, phase = meaning.pause
                self._move(PAUSES[phase], at)
        elif "left" in meaning.words:
            self._observe_exit(event, at)
        elif "results" in meaning.words:
            self.goal.declare_results(event.message, event.position)
        elif "silence" in meaning.words and event.fields.get("alive"):
            self.goal.deny_results()
        elif "first words" in meaning.words:
            self.goal.expect(event.fields)
        else:
            patience = 0.0 if self.progress_step is None else self.pace.limit("running")
            if self.ending.assumed is None:
                self._was_done = self._is_done
            self.ending.observe(event, at, phase=self.phase, patience=patience)
        if self._is_over or self.goal.has_words:
            self.steps.lived.add(event.position.path)
        return begins

    def _observe_words(self, event: Event, at: float) -> None:
        """Process a start or an end in words; some count once nothing follows."""
        if event.fields.get("confirmed_by") == "silence":
            weak = "after" in event.fields
            self.ending.note_words(weak=weak)
            self._training |= not weak
            self.goal.declare(event.message, weak=weak, at=event.position)
        elif self.attempts.is_left_by_all(event) and not meaning_of(event).begins_run:
            self._end("finished", at, end_by(event))

    def _observe_exit(self, event: Event, at: float) -> None:
        """Process a report that nobody writes the log any more; a step that follows refutes it."""
        if not self.can_stall or event.fields.get("alive"):
            return
        self.finish(at)
        if not self.ended:
            state, end = self.ending.state_of_exit(event)
            self._end(state, at, end)

    def _step(
        self, step: int, source: tuple[str, int | None], position: Position, at: float
    ) -> None:
        previous = self.steps.last.get(source)
        if previous == step:
            return
        back = previous is not None and step < previous
        self.steps.note(source, step)
        # The same step in another file is no progress.
        if back or step > self._highest_step:
            self._highest_step = step
            self._advance(step, position, at)

    def _advance(self, step: int | None, position: Position, at: float) -> None:
        if self.ended_at is not None and at - self.ended_at <= STRAY_SECONDS:
            return
        if self.timed and at <= self.read_to:  # else it was read late: when it came is not known
            place = self.phase, self.progress_step, self._stride
            gap = at - self.last_progress_at
            why = self._paused_by
            if "epoch" in self._places.here and gap > self.pace.limit("running"):
                why = why or "epoch"
            self.pace.learn(gap, *place, explained_by=why, stalled=self._stalled)
        if self.is_paused or self._stalled:  # else it moves nothing
            self._move("step", at)
        self._places.here.clear()
        last = self.progress_step
        resumed = step is not None and last is not None and step < last
        self.ending.went_on(at, position.path, timed=self.timed, resumed=resumed)
        self._is_saved = False
        self.goal.went_on()
        self.last_progress_at = self._alive_at = max(at, self.last_progress_at)
        self.progress_position = position
        self.attempts.note_step()
        if step is not None and self.progress_step is not None and step > self.progress_step:
            self._stride = step - self.progress_step
        self.progress_step = step

    def _launch(self, at: float, *, by_hand: bool = False) -> None:
        """Begin another attempt: no restart if the one before reached its end, or if a person's
        command began it. A loop starts its command again within `LOOP_SECONDS`.
        """
        soon = self.timed and at - (self.ended_at or math.inf) <= LOOP_SECONDS
        done = self.phase == "finished" or self.goal.has_words
        self.attempts.relaunched += done or (by_hand and not soon)
        self._move("launch", at)

    def _move(self, name: MoveName, at: float) -> bool:
        """Move by the table's row of that name; False if it does not hold now."""
        move = MOVES[name]
        doubts = self.ending.assumed is not None and move.unless == "doubtful end"
        if self.phase not in move.leaves or doubts:
            return False
        self.phase = move.to or self.phase
        if "silence" in move.forgets:
            self._alive_at = at
            self._stalled = self._late = False
        if "pause" in move.forgets:
            self._paused_by = None
        if "doubtful end" in move.forgets:
            self._note_failed_start()
            self.ending.assumed = None
        if "end" in move.forgets:
            self.ended_at = self.end_known_at = self.end = None
            self.end_evidence = self.failed_after_end = None
        if "goal" in move.forgets:
            parts_ahead = self.goal.parts_ahead
            self.goal = StepGoal(self.goal.next_plan)
            self.goal.parts_ahead = parts_ahead
        if "place" in move.forgets:
            self.steps.clear()
            self._places.begin()
            self.progress_step, self._highest_step, self.last_progress_at = None, -1, at
        return True

    def continue_file(self, before: str, path: str) -> None:
        """See `Fleet.continue_file`."""
        self.steps.continue_file(before, path)
        self.ending.continue_file(before, path)

    def set_stall(self, settings: Stall) -> None:
        """Judge the silence so far, too, by other limits."""
        self.pace.settings = settings
        self._stalled = self._late = False

    def shift(self, seconds: float) -> None:
        """Leave `seconds`, by which the clock jumped, out of the time since the last step."""
        self.last_progress_at += seconds
        self._alive_at += seconds
        self.ending.shift(seconds)

    def finish(self, now: float) -> None:
        """Confirm an assumed end: no record follows that could refute it."""
        if (assumed := self.ending.assumed) is not None:
            if self._was_done:
                self.ending.assumed, self.failed_after_end = None, assumed.evidence
            else:
                self._end(assumed.state, now, end_by(assumed.evidence))
        self._end_if_complete(now)

    def _end_if_complete(self, now: float) -> None:
        if self.ended or not self.goal.is_reached:
            return
        counted, last = self.goal.counted, self.progress_position
        end = End(counted, last) if counted is not None else End("words", self.goal.words_at)
        self._end("finished", self.last_progress_at, end, known_at=now)

    def _end(self, state: str, at: float, end: End, known_at: float | None = None) -> None:
        assumed = self.ending.assumed
        if self._move(ENDS[state], at):
            self.ended_at, self.end = at, end
            self.end_known_at = at if known_at is None else known_at
            self.end_evidence = self.end_evidence if assumed is None else assumed.evidence

    def _note_failed_start(self) -> None:
        """Count an assumed crash before a step: its end is confirmed, or another start follows."""
        assumed = self.ending.assumed
        if assumed is not None and assumed.state == "crashed" and self.progress_step is None:
            self.attempts.note_failure(assumed.evidence.message)
