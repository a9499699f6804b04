"""What is normal for a run: the gaps between its steps, and how long a pause may last."""

import math
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import cast

from ldlm_monitor.base.records import Sample
from ldlm_monitor.judge.run.file_rows import FileRows
from ldlm_monitor.judge.run.stall import Phase, Stall

WINDOW = 1000  # last gaps kept. A choice: more adapt slower, in fewer an outlier moves the limit
_LONGEST = 48
"""Longest gaps that are kept sorted. A choice: the 99th percentile is the 11th, more cost more."""
LEARNED_AFTER = 20
"""Gaps after which a limit is learned from them. A choice: with fewer, unusual first steps decide;
more leave the first hangs to the longer limit that holds until then."""
HICCUP_SECONDS = 240.0
"""Up to this limit, 8 times the 99th percentile of gaps is normal: slow data loading makes single
gaps several steps long. A choice: longer delays the hang alerts of runs with slow steps."""
RHYTHMS = 8
"""Most rhythms (distances between pauses) learned; a pause has two: steps count from 0 or from 1. A
choice: for evaluation, checkpoint, logging and a spare; more excuse hangs at more steps."""
STEP_BUCKETS = (1.0,)
"""Bounds of the classic buckets of exported step durations, in seconds. A choice: each is a line of
a scrape for every run, of which the histogram is to be a tenth at most; without one it is none.
What a bound cannot show is in the native buckets, and in `ldlm_train_step_seconds`."""
LATE = 3.0
"""Multiple of the limit at which the first pause of a kind is a hang, and of the patience after
which a caught exception was the end. A choice: more delays the page of a hang, less pages for first
evaluations that are long."""
LONGEST_SKIP = 21600.0
"""Seconds after which batches that are passed over are a hang. A choice: resumes read their data
for hours without a line; more delays the page of a loader that hangs."""


def is_sign_of_life(values: Mapping[str, object]) -> bool:
    """Whether the values are of a bar without training steps: an evaluation, or skipped batches."""
    return "eval_progress" in values or "skip_progress" in values


def advances(
    found: Sequence[FileRows], highest: int
) -> tuple[Sequence[int], Sequence[float], Sample | None]:
    """Steps and times of the rows that advance a run beyond step `highest`, and the last of them.

    Of several files, a step counts where it comes first, unless a higher one came before.
    """
    if len(found) == 1:  # as mostly, and much faster
        (rows,) = found
        first = bisect_right(rows.steps, highest)
        last = rows.last if first < len(rows.steps) else None
        return rows.steps[first:], rows.times[first:], last
    moments = sorted(
        (at, index, step)
        for index, rows in enumerate(found)
        for at, step in zip(rows.times, rows.steps, strict=True)
    )
    kept = []
    for moment in moments:
        if moment[2] > highest:
            highest = moment[2]
            kept.append(moment)
    times, files, steps = zip(*kept, strict=True) if kept else ((), (), ())
    rows = found[files[-1] if kept else 0]
    return steps, times, rows.sample(bisect_left(rows.steps, highest)) if kept else None


class Pace:
    """Learns the stall limit of one run.

    While steps are running, with `q99` the 99th percentile of the last 1000 gaps
    between advances of the step, `pause` the longest gap that a checkpoint explained
    (many logs report a checkpoint only when it is over), and `second` the second longest gap:

        limit = max(floor, 5 * q99, min(8 * q99, 240), 2 * second, 2 * pause, 2 * survived)

    with `survived` the second longest of the pauses beyond a limit that ended by themselves: once
    is chance, twice is how this run trains. Before the first gap is known, the limit is `startup`:
    a setting, as a log may have one step in hundreds, or twice the longest wait for a first step,
    as a log with one line an hour has its first after an hour. Before 20 gaps are known, it is the
    longest of `4 * floor`, `10 * longest gap`, `2 * pause` and `2 * survived`, but at most the
    greater of `startup` and `2 * longest gap`. An evaluation's limit is from the last step, too:

        limit = (begin of the evaluation - last step) + allowance
        allowance = max(limit between steps, 2 * longest evaluation), `startup` before the first

    and each sign of life in the evaluation counts as its begin. NVIDIA's resiliency extension
    allows five times the longest interval between heartbeats. The other factors are choices:
    larger ones delay the alert, smaller ones ring where a pause is twice as long as the last.

    Most logs without bars announce no evaluation, but pauses repeat. After a pause beyond the
    limit that ended by itself, a pause of up to twice its length is normal after the same
    number of steps, or a multiple of it. Where none was seen yet, see `Places`.

    `write_delay`: seconds by which a buffering writer may log a step late, added to the limit
    between steps. `longest_pause`: seconds, by the phase that explains the pause.
    """

    def __init__(self, settings: Stall) -> None:
        self.settings = settings
        self.write_delay = 0.0
        self._recent: deque[float] = deque(maxlen=WINDOW)
        # Of these: the sorted ones above `_usual`, and how many are equal to it.
        self._longest: list[float] = []
        self._usual, self._equal = math.inf, 0
        self.longest_pause: dict[str, float] = {}
        self._rhythms: dict[tuple[int, int], float] = {}
        self._survived = (0.0, 0.0)  # the longest and the second longest

    def learn_gaps(self, seconds: Iterable[float]) -> None:
        """Add gaps between advances of the step that no phase explains; ignored if not > 0."""
        come = [gap for gap in seconds if gap > 0][-WINDOW:]
        gone = [*islice(self._recent, max(len(self._recent) + len(come) - WINDOW, 0))]
        self._recent.extend(come)
        usual = self._usual
        for gap in filter(usual.__lt__, come):
            insort(self._longest, gap)
        for gap in filter(usual.__lt__, gone):
            del self._longest[bisect_left(self._longest, gap)]
        self._equal += come.count(usual) - gone.count(usual)

    def forget_gaps(self) -> None:
        """Learn the gaps anew: another writer counts the steps, each so many."""
        self._recent.clear()
        self._longest, self._usual, self._equal = [], math.inf, 0

    def _find_longest(self) -> None:
        ranked = sorted(self._recent)
        self._usual = ranked[-min(_LONGEST, len(ranked))]
        self._equal = ranked.count(self._usual)
        self._longest = ranked[bisect_right(ranked, self._usual) :]

    def _gap(self, rank: int) -> float:
        """The gap of this rank among the last ones, 1 for the longest."""
        if rank > len(self._longest) + self._equal:
            self._find_longest()
        return self._longest[-rank] if rank <= len(self._longest) else self._usual

    def learn(
        self,
        seconds: float,
        phase: str,
        step: int | None,
        stride: int,
        *,
        explained_by: str | None,
        stalled: bool,
    ) -> None:
        """Add the time between two advances, in `phase`, the first of them at `step`.

        `explained_by`: "evaluating" or "checkpointing". `stalled`: the run was, before the second.
        """
        explained = explained_by or ("" if phase == "running" else phase)
        is_pause = phase != "starting" and seconds > self.limit("running")
        place = step if is_pause and stride else None
        if place is not None:
            # What explains it may have come when it was over, as an evaluation's results do.
            self.learn_unannounced(place, stride, seconds)
        if explained_by is not None or phase == "starting":
            self.learn_pause(explained, seconds)
        if explained:
            return
        if is_pause:
            self.survive(seconds)
        # Else the first between two steps, or of a log that counts none.
        if place is None and (is_pause or not stalled):
            self.learn_gaps((seconds,))

    def learn_pause(self, phase: str, seconds: float) -> None:
        """Add a pause that a phase explains: "starting", "evaluating" or "checkpointing"."""
        self.longest_pause[phase] = max(seconds, self.longest_pause.get(phase, 0.0))

    def survive(self, seconds: float) -> None:
        """Add a pause beyond the limit, after which the run went on."""
        longest, second = self._survived
        self._survived = max(longest, seconds), max(second, min(longest, seconds))

    def learn_unannounced(self, step: int, stride: int, seconds: float) -> None:
        """Add a pause after `step`; `stride` is the distance between logged steps.

        It confirms the rhythms that let it be expected, or is the first of another. Steps may be
        counted from 0 or from 1, so both are stored.
        """
        known = [(step + ahead, ahead) for ahead in (0, stride)]
        if seconds <= self.expected_pause(step):
            known = list(self._at(step))
        for rhythm in known:
            if step > 0 and (rhythm in self._rhythms or len(self._rhythms) < RHYTHMS):
                self._rhythms[rhythm] = max(seconds, self._rhythms.get(rhythm, 0.0))

    def expected_pause(self, step: int) -> float:
        """Seconds that an evaluation or checkpoint after `step` may take; 0 if none is known."""
        return 2 * max((self._rhythms[each] for each in self._at(step)), default=0.0)

    def _at(self, step: int) -> Iterator[tuple[int, int]]:
        """The rhythms that have a pause after `step`."""
        for period, ahead in self._rhythms:
            if (step + ahead) % period == 0:
                yield period, ahead

    @property
    def least(self) -> float:
        """Seconds that a limit between two steps never falls below."""
        return self.settings.limit_seconds.get("running", self.settings.floor_seconds)

    def limit(self, phase: str) -> float:
        """How many seconds without an advance are still normal in `phase`.

        Counted from the last step, bar of an evaluation or change of phase, whichever is latest.
        """
        # A run in another state has no limit of the user's: the phases are some of the states.
        fixed = self.settings.limit_seconds.get(cast("Phase", phase))
        if fixed is not None:
            return fixed
        if phase == "starting":
            return max(self._start_limit, self._step_limit())
        if phase in ("evaluating", "checkpointing"):
            longest = self.longest_pause.get(phase)
            if longest is None:
                return self._start_limit
            return max(self.settings.floor_seconds, 2 * longest, self._step_limit())
        return self._step_limit() + self.write_delay

    @property
    def _start_limit(self) -> float:
        return max(self.settings.startup_seconds, 2 * self.longest_pause.get("starting", 0.0))

    def _step_limit(self) -> float:
        floor = self.settings.floor_seconds
        known = max(self.longest_pause.get("checkpointing", 0.0), self._survived[1])
        unannounced = 2 * known
        count = len(self._recent)
        if not count:
            return self._start_limit
        if count < LEARNED_AFTER:
            longest = self._gap(1)
            cautious = max(4 * floor, 10 * longest, unannounced)
            return max(floor, min(cautious, max(self.settings.startup_seconds, 2 * longest)))
        q99 = self._gap(count - int(0.99 * (count - 1)))
        hiccups = max(min(8 * q99, HICCUP_SECONDS), 2 * self._gap(2))
        return max(floor, 5 * q99, hiccups, unannounced)


COARSE_SECONDS = 5.0  # least span of bars. A choice: in whole seconds, it errs by at most 20 %


class StepDurations:
    """Seconds per step, in `fresh` until `Progress.take_durations`. `resumed`: the step fell.

    Where each step has its own time, a duration is the time between two steps over the number
    of steps; otherwise it spans at least 5 seconds, up to the last step that came at once with
    others, as those that waited for a monitor do. Spans with a pause in them (an evaluation, a
    checkpoint, the start) are left out.
    """

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None
        self._span = (0.0, 0)  # of the last duration: seconds, steps
        self.fresh = array("d")
        self.resumed = False

    def pause(self) -> None:
        """Leave out the time up to the next step: it contains a pause."""
        self._last = None

    def advance(self, times: Sequence[float], steps: Sequence[int], *, exact: bool) -> None:
        """Add steps logged at Unix seconds `times`. `exact`: those are the records' own times."""
        for at, step in zip(times, steps, strict=True):
            if self._last is None or step < self._last[1]:
                self.resumed = self.resumed or self._last is not None
                self._last, self._span = (at, step), (0.0, 0)
            span, count = at - self._last[0], step - self._last[1]
            if count and span > 0 and (exact or span >= COARSE_SECONDS):
                self.fresh.append(span / count)
                self._last, self._span = (at, step), (span, count)
            elif not exact and span == 0:
                self._last, self._span = (at, step), (self._span[0], self._span[1] + count)
                if self._span[0] and self.fresh:
                    self.fresh[-1] = self._span[0] / self._span[1]
