"""What is normal for a run: the gaps between its steps, and how long a pause may last."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

WINDOW = 1000
"""Gaps that are remembered."""
LEARNED_AFTER = 20
"""Gaps after which the run's own pace is trusted."""
HICCUP_SECONDS = 240.0
"""Waiting for data takes some steps' time, now and then: so long at most that is allowed for."""
ROUND = 500
STRIDES = 50
LEAST_ROUND = 1000
UNKNOWN_PAUSE = 300.0
"""Seconds that a pause may take after a round number of steps."""
RHYTHMS = 8
"""Pauses that are remembered."""


@dataclass(frozen=True, slots=True)
class StallSettings:
    """What the user may set, in seconds.

    `floor`: no pause shorter than this is a stall. `startup`: allowed before the
    first step, and for a first evaluation. `limits`: a fixed limit for a phase
    ("starting", "running", "evaluating", "checkpointing"), instead of the learned one.
    """

    floor: float = 30.0
    startup: float = 600.0
    limits: Mapping[str, float] = field(default_factory=dict)


class Pace:
    """Learns the stall limit of one run.

    While steps are running, with `q99` the 99th percentile of the last 1000 gaps
    between advances of the step, and `pause` the longest gap that a checkpoint
    explained (it is announced only when it is over), `second` the longest gap but one:

        limit = max(floor, 5 * q99, min(8 * q99, 240), 2 * second, 2 * pause)

    and before 20 gaps are known, `max(4 * floor, 10 * longest gap, 2 * pause)`,
    at most `startup`. In an evaluation the limit counts from the last step too:

        limit = (begin of the evaluation - last step) + allowance
        allowance = max(floor, 2 * longest evaluation so far), `startup` before the first

    and each sign of life inside it moves the begin. Five times the longest
    observed interval is what NVIDIA's resiliency extension uses for heartbeats.

    Logs without bars mostly announce no evaluation. Pauses come in a rhythm then: after one
    beyond the limit that was over by itself, one of up to twice its length is normal whenever
    as many steps have passed again, or a multiple of that. The first of them stand after round
    numbers of steps: 300 s are normal after a multiple of 500 (or of 50 logged steps) from
    1000 on. A hang at just such a step is told later; one in 250 stands there.

    `told_late`: so many seconds after it was taken a step may be told, because its writer
    collects; a limit between steps is longer by these.
    """

    def __init__(self, settings: StallSettings) -> None:
        self.settings = settings
        self.told_late = 0.0
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []
        self.longest_pause: dict[str, float] = {}
        self._rhythms: dict[tuple[int, int], float] = {}

    def learn_gap(self, seconds: float) -> None:
        """An ordinary gap between two advances of the step."""
        if seconds <= 0:
            return
        if len(self._recent) == WINDOW:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(seconds)
        insort(self._sorted, seconds)

    def learn_pause(self, phase: str, seconds: float) -> None:
        """A pause that a phase explains: "evaluating" or "checkpointing"."""
        self.longest_pause[phase] = max(seconds, self.longest_pause.get(phase, 0.0))

    def learn_unannounced(self, step: int, stride: int, seconds: float) -> None:
        """A pause that nothing explains, after `step`; `stride` is from one told step to the next.

        Steps may be counted from 0 or from 1: one of the two rhythms is the right one.
        """
        for ahead in (0, stride):
            rhythm = (step + ahead, ahead)
            if step > 0 and (rhythm in self._rhythms or len(self._rhythms) < RHYTHMS):
                self._rhythms[rhythm] = max(seconds, self._rhythms.get(rhythm, 0.0))

    def expected_pause(self, step: int, stride: int, *, announced: bool) -> float:
        """How many seconds a pause after `step` may take, where that is more than elsewhere.

        `announced`: the log tells when a phase begins, and has told of none.
        """
        longest = [
            seconds
            for (period, ahead), seconds in self._rhythms.items()
            if (step + ahead) % period == 0
        ]
        known = 2 * max(longest, default=0.0)
        a_round = max(ROUND, STRIDES * stride)
        counts = [count for count in (step, step + stride) if count >= LEAST_ROUND]
        is_round = any(count % a_round == 0 for count in counts)
        return max(known, UNKNOWN_PAUSE) if is_round and not announced else known

    @property
    def least(self) -> float:
        """Seconds that a limit between two steps never falls below."""
        return self.settings.limits.get("running", self.settings.floor)

    def limit(self, phase: str) -> float:
        """How many seconds without an advance are still normal in `phase`.

        For "evaluating" this is the allowance, counted from the last sign of life.
        """
        fixed = self.settings.limits.get(phase)
        if fixed is not None:
            return fixed
        if phase == "starting":
            return self.settings.startup
        if phase in ("evaluating", "checkpointing"):
            return self._pause_limit(phase)
        return self._step_limit() + self.told_late

    def _pause_limit(self, phase: str) -> float:
        longest = self.longest_pause.get(phase)
        if longest is None:
            return self.settings.startup
        return max(self.settings.floor, 2 * longest, self._step_limit())

    def _step_limit(self) -> float:
        floor = self.settings.floor
        unannounced = 2 * self.longest_pause.get("checkpointing", 0.0)
        if len(self._sorted) < LEARNED_AFTER:
            longest = self._sorted[-1] if self._sorted else 0.0
            cautious = max(4 * floor, 10 * longest, unannounced)
            return max(floor, min(cautious, max(self.settings.startup, 2 * longest)))
        q99 = self._sorted[int(0.99 * (len(self._sorted) - 1))]
        hiccups = max(min(8 * q99, HICCUP_SECONDS), 2 * self._sorted[-2])
        return max(floor, 5 * q99, hiccups, unannounced)


COARSE_SECONDS = 5.0
"""Bars tell whole seconds and are drawn now and then: only longer spans say what a step takes."""


class StepDurations:
    """Seconds a step, collected in `fresh` until they are taken.

    Where each step comes with its own time, it is the time between two of them, over the
    steps between; otherwise over at least 5 seconds. Spans with a pause in them (an
    evaluation, a checkpoint, the start) say nothing.
    """

    __slots__ = ("_last", "fresh", "resumed")

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None
        self.fresh = array("d")
        self.resumed = False

    def pause(self) -> None:
        """The next step does not follow the last one at the run's pace."""
        self._last = None

    def advance(self, at: float, step: int, *, exact: bool) -> None:
        """A step was told at `at`; `exact`: with its own time."""
        if self._last is None or step <= self._last[1] or at < self._last[0]:
            if self._last is not None and step < self._last[1]:
                self.resumed = True
            elif self._last is not None:
                return
            self._last = (at, step)
            return
        span = at - self._last[0]
        if span > 0 and (exact or span >= COARSE_SECONDS):
            self.fresh.append(span / (step - self._last[1]))
            self._last = (at, step)

    def advance_all(self, times: Sequence[float], steps: Sequence[int]) -> None:
        """Steps that rise, each with its own time; times never fall."""
        if self._last is None:
            self._last = (times[0], steps[0])
        moment, count = self._last
        for at, step in zip(times, steps, strict=True):
            if at > moment and step > count:
                self.fresh.append((at - moment) / (step - count))
                moment, count = at, step
        self._last = (moment, count)
