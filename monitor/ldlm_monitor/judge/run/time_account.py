"""How much of a run's time advanced the training, and the causes of the loss of the rest.

Goodput is the share of the run's time that went into steps that were kept (Google's "ML
Productivity Goodput"). ETTR and MTTF follow Kokolis et al. 2024, "Revisiting Reliability in
Large-Scale Machine Learning Research Clusters", arXiv:2410.21680.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from operator import sub
from statistics import median
from typing import Final, NamedTuple

from ldlm_monitor.base.goodput import Goodput, Losses
from ldlm_monitor.judge.run.pace import COARSE_SECONDS, StepDurations

PAUSE: Final = 3.0
"""Multiple of the usual length from which a gap is a pause: a choice; less includes slow steps."""
EXPLAINED_PAUSE: Final = 1.5
"""`PAUSE` if an evaluation or a checkpoint is logged in the gap: a choice, as that explains it."""
PACES: Final = 101
"""Last durations of a step whose median is usual. A choice: more follow a new pace later, and until
then its steps look like pauses; fewer let a row of evaluations become usual."""
LEARNED: Final = 20
"""Durations before which no gap is judged for good: a choice; the first steps compile, load, warm
up. `PENDING` gaps end the wait where a log has no such durations."""
PENDING: Final = 1000  # a choice: all are kept until then, and judged at once
MARKS: Final = 2048
"""Steps at which the account is kept, to go back to one where training does. A choice: in longer
runs steps that are taken again are known to a 1024th of the run; more cost 100 bytes each."""
EPISODES: Final = 200
"""Last stalls and restarts kept, for what an incident cost: a choice, as incidents are fewer."""
_RENEWED = 25  # durations after which the usual one is the median anew: a choice, for its cost
_MOSTLY = 0.9  # share of steps with times of their own from which short pauses are seen: a choice


class _Mark(NamedTuple):
    """The account at a step that was kept, logged `at` (Unix seconds)."""

    step: int
    at: float
    lost: Losses

    def after(self, step: int, at: float, *lost: tuple[str, float]) -> "_Mark":
        """The account at a later `step`, with what was lost since."""
        losses = self.lost
        for cause, seconds in lost:
            if seconds > 0:
                before, times = losses.get(cause, (0.0, 0))
                losses = {**losses, cause: (before + seconds, times + 1)}
        return _Mark(step, at, losses)


class _Gap(NamedTuple):
    """From the last kept step to this one: the seconds of the phases that were announced in it, the
    cause of all else that is no step's, and a step's data wait.
    """

    step: int
    at: float
    phases: Mapping[str, float]
    rest: str
    waited: float


class _Episode(NamedTuple):
    """A stall or a restart, from its last kept step to the next; `lost`: seconds."""

    since: float
    until: float
    lost: float


class TimeAccount:
    """The account of one run, from the steps of one rank; times are Unix seconds.

    Evaluations and checkpoints are recognised if the log announces them, up to the next record of
    another kind; other pauses are unexplained. Steps that were taken again after a restart are
    lost. A gap between two steps is judged once, by the usual duration of a step before it, so that
    the account costs the same for each step, however long the run. `resumed_at`: steps that
    training went back to.
    """

    def __init__(self) -> None:
        self.resumed_at: list[int] = []
        self._first: _Mark | None = None
        self._last: _Mark | None = None
        self._now: tuple[int, float] = (-1, -math.inf)  # the last step and its time, judged or not
        self._marks: list[_Mark] = []
        self._stride, self._unmarked = 1, 0
        self._distance = 0  # from the first logged step to the second
        self._pending: list[_Gap] = []
        self._first_took = 0.0
        self._phases: dict[str, float] = {}  # seconds of each since the last step
        self._phase: tuple[str, float] | None = None  # the present one, and its begin
        self._free = -math.inf  # when the last one ended
        self._announced = 0.0  # seconds of phases, which are no step's
        self._rest = ""
        self._batch = 0  # steps that came at once last, without times of their own
        self._meter = StepDurations()
        self._corrects = False  # whether the meter may still correct the last duration
        self._paces: deque[float] = deque(maxlen=PACES)
        self._usual: float | None = None
        self._fresh = 0
        self._timed = [0, 0]  # steps with a time of their own, and all
        self._episodes: deque[_Episode] = deque(maxlen=EPISODES)

    def explain(self, cause: str, at: float, *, over: bool = False) -> None:
        """Begin a phase that explains a pause at Unix time `at`; `over`: it has just ended."""
        if at < self._now[1]:
            return
        if over and self._phase is None:
            self._phase = cause, max(self._now[1], min(self._free, at))
        self.go_on(at)
        if not over:
            self._phase = cause, at

    def go_on(self, at: float) -> None:
        """End the present phase, if there is one: a record of another kind came at `at`."""
        if self._phase is not None:
            cause, began = self._phase
            seconds = max(at - began, 0.0)
            self._phases[cause] = self._phases.get(cause, 0.0) + seconds
            self._announced += seconds
            self._phase, self._free = None, max(at, began)

    def restart(self, at: float) -> None:
        """Note that another attempt began at `at`: the pause before its first step is of that."""
        self.go_on(at)
        self._rest = "restart"

    def advance(
        self,
        steps: Sequence[int],
        times: Sequence[float],
        *,
        exact: bool,
        stalled: bool = False,
        took: float = 0.0,
        waits: Sequence[float] = (),
    ) -> None:
        """Add rising steps above the last one. `exact`: `times` are the records' own.

        `stalled`: the pause before the first was beyond the run's limit. `took` and `waits`:
        seconds that the first step took by the log, and each for its data; 0 or empty if not
        logged. Times of several steps never fall.
        """
        if self._last is None:
            self._first_took = took
        start, whole = 0, exact and not (stalled or waits)
        while start < len(steps):
            stop = min(start + _RENEWED - 1 - self._fresh, len(steps)) if whole else start
            if stop - start < 2 or not self._advance_calmly(steps[start:stop], times[start:stop]):
                stop = start + 1
                rest = self._rest or ("stall" if stalled and start == 0 else "")
                at, waited = max(times[start], self._now[1]), waits[start] if waits else 0.0
                gap = _Gap(steps[start], at, self._phases_to(at), rest, waited)
                self._advance_one(gap, exact=exact)
                if self._pending and not (exact or waits):
                    # Of more steps that came at once with it, the last one counts.
                    passed = max(bisect_right(times, times[start], stop) - stop - 1, 0)
                    self._timed[1] += passed
                    self._batch += passed
                    stop += passed
            start = stop

    def _advance_one(self, gap: _Gap, *, exact: bool) -> None:
        self._timed[0] += exact
        self._timed[1] += 1
        step, at = gap.step, gap.at
        self._learn(step, at, exact=exact)
        at_once = not exact and at == self._now[1]
        self._batch = 0 if exact else self._batch + 1 if at_once else 1
        if self._last is None:
            self._first = self._last = _Mark(step, at, {})
            self._marks.append(self._last)
        elif at_once and self._pending:
            self._pending[-1] = self._pending[-1]._replace(step=step)
        else:
            self._distance = self._distance or step - self._last.step
            if not exact and (len(self._paces) >= LEARNED or len(self._pending) > PENDING):
                self._settle()  # all but the new one, with which others may come at once
            self._pending.append(gap)
            if exact and (len(self._paces) >= LEARNED or len(self._pending) > PENDING):
                self._settle()
        self._begin_gap(step, at)

    def _phases_to(self, at: float) -> dict[str, float]:
        """The phases since the last step, up to the present one at `at`."""
        if self._phase is None:
            return self._phases
        cause, began = self._phase
        return {**self._phases, cause: self._phases.get(cause, 0.0) + max(at - began, 0.0)}

    def _begin_gap(self, step: int, at: float) -> None:
        self._now, self._phase, self._rest = (step, at), None, ""
        if self._phases:
            self._phases = {}

    def _advance_calmly(self, steps: Sequence[int], times: Sequence[float]) -> bool:
        """Add steps that are equally far apart and without a pause; False if they may not be."""
        last, count = self._last, len(steps)
        known = not self._pending and len(self._paces) >= LEARNED and self._usual is not None
        explained = self._phase is not None or self._phases or self._rest
        if last is None or not known or explained or times[0] < self._now[1]:
            return False
        apart = steps[0] - last.step
        if {*map(sub, steps[1:], steps)} != {apart}:
            return False
        longest = max((times[0] - last.at, *map(sub, times[1:], times)))
        if longest > PAUSE * ((self._usual or 0.0) * apart) or len(self._marks) + count > MARKS:
            return False
        self._timed = [number + count for number in self._timed]
        self._batch = 0
        self._meter.advance([at - self._announced for at in times], steps, exact=True)
        self._take_paces(exact=True)
        first, stride = self._stride - self._unmarked - 1, self._stride
        marked = zip(steps[first::stride], times[first::stride], strict=True)
        self._marks += [_Mark(step, at, last.lost) for step, at in marked]
        self._unmarked = (self._unmarked + count) % stride
        self._now = steps[-1], times[-1]
        self._last = _Mark(*self._now, last.lost)
        return True

    def resume(self, step: int, at: float) -> None:
        """Add a step below the last one: the steps from it on are taken again."""
        self._settle()
        before, first, usual = self._now[1], self._first, self._usual or 0.0
        at = max(at, before)
        if self._last is None or first is None:
            return
        while self._marks and self._marks[-1].step >= step:
            self._marks.pop()
        kept = self._marks[-1] if self._marks else first
        if self._stride > 1 and self._marks:  # steps between two marks
            steps = step - 1 - kept.step
            seconds = min(steps * usual, before - kept.at)
            kept = kept.after(step - 1, kept.at + seconds)
        down, wanted = at - before, usual * max(step - kept.step, 0)
        again, away = before - kept.at, max(down - wanted, 0.0)
        self._last = kept.after(step, at, ("steps taken again", again), ("restart", away))
        self._marks.append(self._last)
        self._episodes.append(_Episode(kept.at, at, again + away))
        self.resumed_at.append(step)
        self._begin_gap(step, at)
        self._meter.pause()

    def lost_since(self, began: float, ended: float) -> float | None:
        """Seconds lost in the newest stall or restart that contains Unix time `began`.

        If there is none and no step came since, those from the last step to `ended`; None if steps
        went on, or if the time of none is known.
        """
        for episode in reversed(self._episodes):
            if episode.since <= began <= episode.until:
                return episode.lost
        if self._last is None or not self._paces or began < self._now[1]:
            return None
        return max(ended - self._now[1], 0.0)

    def read(
        self,
        began: float,
        ended: float | None,
        state: str,
        skipped: int = 0,
        restarts: int = 0,
    ) -> Goodput | None:
        """The account from the time `began` to `ended`; None: to the last step.

        `skipped`: steps whose update was skipped. `restarts`: of the run; a log that shows none may
        show steps that were taken again. None for fewer than three steps with times, and
        if no time passed.
        """
        usual = self._median()
        last = self._last
        if last is None or self._first is None or usual is None:
            return None
        for gap in self._pending:
            last = self._judged(last, gap, usual)
        start = max(self._first.at - min(began, self._first.at), 0.0)
        ahead = min(usual * self._distance, start)  # the steps up to the first logged one
        longer = self._first_took - usual if self._first_took > PAUSE * usual else 0.0
        compiled = min(longer * self._distance, start - ahead)
        tail = 0.0 if ended is None else max(ended - last.at, 0.0)
        # Steps that came at once last may have been taken since, up to the next time in the log.
        steps_in_tail = min(tail, usual * self._batch) if self._batch > 1 else 0.0
        tail -= steps_in_tail
        spent = math.fsum(seconds for seconds, _ in last.lost.values())
        productive = max(last.at - self._first.at - spent, 0.0)  # a rounded sum may pass the time
        wasted = min(usual * skipped, productive)
        lost: dict[str, tuple[float, int]] = {"start": (start - ahead - compiled, 1), **last.lost}
        lost["first step"] = (compiled, 1)
        lost["end" if state == "finished" else "after the last step"] = (tail, 1)
        lost["skipped steps"] = (wasted, skipped)
        failures = max(restarts, len(self.resumed_at)) + (state in ("crashed", "killed"))
        return Goodput.of(
            productive + ahead + steps_in_tail - wasted, lost, usual, self._least, failures
        )

    @property
    def _least(self) -> float:
        return 0.0 if self._timed[0] >= _MOSTLY * self._timed[1] else COARSE_SECONDS

    def _median(self) -> float | None:
        return median(self._paces) if self._paces else None

    def _learn(self, step: int, at: float, *, exact: bool) -> None:
        self._meter.advance((at - self._announced,), (step,), exact=exact)
        is_new = self._take_paces(exact=exact)
        if is_new and (self._fresh >= _RENEWED or len(self._paces) <= LEARNED):
            self._usual, self._fresh = self._median(), 0

    def _take_paces(self, *, exact: bool) -> bool:
        """Take the durations that the meter has; without times of their own, steps that come at
        once with the last ones correct the last duration.
        """
        fresh = self._meter.fresh
        if self._corrects and self._paces:
            self._paces[-1] = fresh[0]
        new = fresh[1:] if self._corrects else fresh[:]
        self._paces.extend(new)
        self._fresh += len(new)
        del fresh[: len(fresh) - (not exact)]
        self._corrects = bool(fresh)
        return bool(new)

    def _settle(self) -> None:
        pending, self._pending = self._pending, []
        for gap in pending:
            self._keep(gap)

    def _keep(self, gap: _Gap) -> None:
        before = self._last
        if before is None:
            return
        self._last = self._judged(before, gap, self._usual)
        if gap.rest == "stall" and self._last.lost.get("stall") != before.lost.get("stall"):
            lost = gap.at - before.at - (self._usual or 0.0) * (gap.step - before.step)
            self._episodes.append(_Episode(before.at, gap.at, lost))
        self._unmarked += 1
        if self._unmarked >= self._stride:
            self._marks.append(self._last)
            self._unmarked = 0
        if len(self._marks) > MARKS:
            self._marks = [*islice(self._marks, 0, None, 2)]
            self._stride *= 2

    def _judged(self, last: _Mark, gap: _Gap, usual: float | None) -> _Mark:
        """The account after a gap."""
        steps, seconds = gap.step - last.step, gap.at - last.at
        wanted = (usual or 0.0) * steps
        length = EXPLAINED_PAUSE if gap.phases or gap.rest == "restart" else PAUSE
        lost = 0.0
        if usual is not None and seconds > length * wanted and seconds - wanted > self._least:
            seconds, lost = wanted, seconds - wanted
        elif not gap.waited:
            return last.after(gap.step, gap.at)
        phases = {each: took for each, took in gap.phases.items() if took >= self._least}
        known = math.fsum(phases.values())
        # What is left beside the phases is theirs, unless it would be a pause by itself.
        rest = lost - known if not known or lost - known > (PAUSE - 1.0) * wanted else 0.0
        share = (lost - rest) / known if known else 0.0
        data = min(gap.waited * steps, seconds)
        causes = [("data wait", data), *((each, took * share) for each, took in phases.items())]
        return last.after(gap.step, gap.at, *causes, (gap.rest or "unexplained pause", rest))
