"""Which steps of a run its account of time counts: those of one source, over all its attempts."""

import math
from collections.abc import Sequence
from itertools import accumulate

from ldlm_monitor.base.goodput import Goodput
from ldlm_monitor.base.points import Labels, Point, make_labels
from ldlm_monitor.base.records import Event
from ldlm_monitor.judge.run.file_rows import FileRows, ValueSource
from ldlm_monitor.judge.run.time_account import TimeAccount
from ldlm_monitor.logs.parse.meanings import meaning_of

OWN_SECONDS = 10.0
"""Seconds from a record's own time to that of its piece of the log, within which its own counts. A
choice: pieces hold up to five seconds, and a clock that differs by more is another one."""
_CAUSES = {"evaluating": "evaluation", "checkpointing": "checkpoint"}
"""Of a pause, by the phase that explains it."""


class AccountedSteps:
    """Feeds the steps of a run's best source and first rank to `account`.

    A log without steps has its losses counted. Steps that begin again with each epoch are counted
    on, and so is a counter that begins again although the loss goes on where it was. Otherwise a
    step that falls is a resume if it falls in its own file, or in one that is new. `ends_at`:
    when a finished log ends (Unix seconds); what came after is not known.
    """

    def __init__(self) -> None:
        self.account = TimeAccount()
        self.ends_at = math.inf
        self._key: tuple[ValueSource, int | None] | None = None
        self._step = -1
        self._is_counted = False
        self._files: dict[str, int] = {}
        self._epoch: float | None = None
        self._offset = 0
        self._untimed = False
        self._stalled = False  # since the last counted step, as any file of the run shows

    def observe(self, rows: FileRows, *, stalled: bool) -> None:
        """Add rows; `stalled`: the run was, until the first of them."""
        self._untimed = self._untimed or not rows.timed
        self._stalled = self._stalled or stalled
        if not rows.timed:
            return
        if len(rows.times) > 1 and (self._offset or rows.steps[0] <= self._step):
            for each in rows.singly():  # a step among them may begin an epoch, or resume
                self.observe(each, stalled=stalled)
            return
        step = self._step_of(rows)
        path, own = rows.last.position.path, self._files.get(rows.last.position.path)
        if step is None or not self._is_of_leader(rows):
            return
        if rows.fall == "kept" and self._stalled:
            self.account.restart(rows.times[0])
        self._files[path] = step
        moments: Sequence[float] = rows.times
        times = rows.own_times()
        if times is not None and times != moments:
            moments = [*accumulate(map(_moment, times, moments), max)]
        if step > self._step:
            steps = rows.steps if len(rows.steps) > 1 else (step,)
            self.account.advance(
                steps,
                moments,
                exact=times is not None,
                stalled=self._stalled,
                took=_seconds(next(iter(rows.column("step_seconds")), None)),
                waits=[*map(_seconds, rows.column("data_seconds"))],
            )
        elif step == self._step or (own is not None and step >= own):
            return  # repeated, or of a file that is behind another one
        else:
            self.account.resume(step, moments[0])
        self._step, self._stalled = step, False

    def continue_file(self, before: str, path: str) -> None:
        """See `Fleet.continue_file`."""
        if before in self._files:
            self._files[path] = self._files.pop(before)

    def explain(self, event: Event, at: float) -> None:
        """Add an event, which may explain the pause before the next step, or end what does."""
        meaning, moment = meaning_of(event), _moment(event.time, at)
        if meaning.pause is not None:
            cause, after = meaning.pause
            self.account.explain(_CAUSES[cause], moment, over=after == "running")
        elif event.severity == "info" and event.fields.get("role") == "progress":
            self.account.go_on(moment)

    def restart(self, event: Event, at: float) -> None:
        """Note that another attempt begins with an event."""
        self.account.restart(_moment(event.time, at))

    def read(
        self,
        began: float,
        ended: float | None,
        state: str,
        skipped: int,
        *,
        ranks: int | None,
        restarts: int = 0,
    ) -> Goodput | None:
        """The account from `began` to `ended` (None: to the last step); see `TimeAccount.read`.

        `ranks`: of the run, None if unknown.
        """
        # Bytes of which only the order is known came before: when the run began is not known.
        began = math.inf if self._untimed else began
        ended = None if ended is None else min(ended, self.ends_at)
        found = self.account.read(began, ended, state, skipped, restarts)
        if found is None or not ranks:
            return found
        return found.model_copy(update={"gpu_hours": found.total_seconds * ranks / 3600})

    def lost_since(self, began: float, ended: float) -> float | None:
        """See `TimeAccount.lost_since`."""
        return self.account.lost_since(began, min(ended, self.ends_at))

    def _is_of_leader(self, rows: FileRows) -> bool:
        source, counted = rows.source, not rows.steps
        better = self._key is None or source < self._key[0]
        if better or (self._is_counted and not counted):
            self.account = TimeAccount()  # of the better source alone
            self._key, self._step, self._is_counted = (source, rows.last.rank), -1, counted
            self._files.clear()
        return (source, rows.last.rank) == self._key

    def _step_of(self, rows: FileRows) -> int | None:
        """The last step over all epochs; a count if the log has none; None for no step.

        Steps that begin again after a stall are taken again, unless the loss shows that they are
        not; otherwise another epoch begins.
        """
        sample = rows.last
        if sample.step is None:
            counts = self._key is None or (self._is_counted and rows.source <= self._key[0])
            return self._step + 1 if counts and "loss" in sample.values else None
        if self._is_counted:
            return sample.step + self._offset
        last = self._files.get(sample.position.path)
        step = sample.step + self._offset
        if sample.epoch is None:
            begins = rows.fall == "kept" or (rows.fall == "begin" and not self._stalled)
        else:
            begins = self._epoch is not None and sample.epoch > self._epoch
        if last is not None and step < last and begins:
            self._offset = last
            step = sample.step + last
        self._epoch = sample.epoch
        return step


def _moment(own: float | None, at: float) -> float:
    return own if own is not None and abs(own - at) <= OWN_SECONDS else at


def _seconds(logged: float | None) -> float:
    return logged if logged is not None and 0 < logged < float("inf") else 0.0


def goodput_points(name: str, labels: Labels, found: Goodput | None) -> list[Point]:
    """The exported series of a run's account."""
    if found is None:
        return []
    parts = {"productive": found.productive_seconds}
    parts.update((loss.what.replace(" ", "_"), loss.seconds) for loss in found.losses)
    gauges = {
        "ldlm_goodput_ratio": found.share,
        "ldlm_goodput_ettr_ratio": found.ettr,
        "ldlm_goodput_failures": found.failures,
        "ldlm_goodput_mttf_seconds": found.mttf_seconds,
    }
    return [
        *(
            Point("ldlm_goodput_seconds", make_labels(run=name, part=part), seconds)
            for part, seconds in parts.items()
        ),
        *(Point(metric, labels, value) for metric, value in gauges.items() if value is not None),
    ]
