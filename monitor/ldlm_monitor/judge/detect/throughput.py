"""The pace of a run and of its ranks: throughput, change points, stragglers."""

import math
from array import array
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ldlm_monitor.base.points import BUSY_SECONDS, PACES
from ldlm_monitor.judge.detect.detector import Gauges
from ldlm_monitor.judge.detect.window import (
    ComparedValues,
    Groups,
    RecentValues,
    Values,
    exp,
    median,
    middle_of,
    positive,
    spread,
)

LEARNED = 100
"""Values that give a level and its noise. A choice: more take longer, 100 err by 12 % in noise."""
# Choices, in units of the noise s. `ChangePoint` gives the delays and false alarms that follow.
DRIFT = 1.25  # smaller finds smaller shifts, but sums up noise
LIMIT = 12.0  # smaller reports sooner, but more false alarms
CLIP = 3.0  # smaller limits an outlier, but delays large shifts
LEAST_NOISE = 0.02
"""Least noise of a logarithm, 2 %. A choice: more hides changes of a few percent; less would report
changes of some tenths of a percent in a run with a steady pace."""


class ChangePoint:
    """A two-sided CUSUM on values above 0, with clipped scores against outliers (Page 1954).

    With m and s the median and 1.4826 median absolute deviations (at least 0.02) of the
    logarithms of the first 100 values, and z = (ln(x) - m) / s clipped to [-3, 3], the sums

        up = max(0, up + z - 1.25)      down = max(0, down - z - 1.25)

    report a change above 12. In normal noise (simulated), a shift by 3 s is found after 9 values on
    average, by 2 s after 19, by 1.85 s after 23. Noise alone passes 12 once in about e^30 values
    (Siegmund 1985); an outlier adds at most 1.75, so that seven in a row are needed. After a
    change the level is learned anew from the 100 values that follow.

    `ratio` is the level after the last of `changes` changes over the level before, 1 without one.
    """

    def __init__(self) -> None:
        self.ratio = 1.0
        self.changes = 0
        self._unlearned = Groups(LEARNED)
        self._level = self._noise = 0.0
        self._above = _Excursion()
        self._below = _Excursion()

    def update(self, values: Values) -> None:
        """Add the next values, finite and above 0."""
        for value in map(math.log, values):
            if self._noise:
                score = min(max((value - self._level) / self._noise, -CLIP), CLIP)
                # Both sums stay 0 for four in five values of a steady pace.
                if abs(score) > DRIFT or self._above.total or self._below.total:
                    self._watch(value, score)
                continue
            for group in self._unlearned.extend((value,)):
                self._level = median(group)
                self._noise = max(spread(group, self._level), LEAST_NOISE)

    def _watch(self, value: float, score: float) -> None:
        for excursion, step in ((self._above, score - DRIFT), (self._below, -score - DRIFT)):
            excursion.add(value, step)
            if excursion.total > LIMIT:
                self.ratio = exp(median(excursion.values) - self._level)
                self.changes += 1
                self._noise = 0.0
                self._above, self._below = _Excursion(), _Excursion()
                return


class _Excursion:
    """A sum that never falls below 0, and the values since it left 0."""

    def __init__(self) -> None:
        self.total = 0.0
        self.values = array("d")

    def add(self, value: float, step: float) -> None:
        self.total = max(0.0, self.total + step)
        if self.total:
            self.values.append(value)
        elif self.values:
            self.values = array("d")


GRAIN_SECONDS = 1.0
"""Faster steps are compared by the mean of so many seconds. A choice: half of the window, 495 s,
must outlast the two minutes that `ThroughputDrop` waits; more delay the gauge."""
MOST_IN_GRAIN = 1000  # steps of one mean. A choice: clocks that hardly move must not collect all
PACE_WINDOW = 1000
"""Values compared. A choice: half of them at a new pace make it usual, so more alert for longer."""
PACE_RECENT = 10
"""Last values. A choice: more react later; of fewer, the median would follow the up to four
slow steps at an evaluation."""
PACE_LEAST = 50
"""Values needed before the last 10. A choice: more delay the gauge, first steps compile kernels."""
VARIATION = 50
"""Steps whose variation is computed. A choice: more react later, and that of 50 errs by 10 %."""


class ThroughputDetector:
    """The seconds of a step (or of a sample, a token) against their past, as these gauges.

    - `throughput_ratio`: the usual seconds, the median of up to 990 values before the last 10,
      over the median of those 10. A value is of a logged step, or the mean of the steps of
      about a second. Below 1 the run is slower than it was. A new pace becomes the usual one
      when it has held for half of the window.
    - `throughput_variation_ratio`: standard deviation over mean of the last 50 steps.
    - `step_time_change_ratio`: `ChangePoint.ratio` of the seconds, above 1 if slower.
    """

    reads = PACES
    gauges: ClassVar[Gauges] = {
        "throughput_ratio": "The present pace over the usual one.",
        "throughput_variation_ratio": "Deviation over mean of the last 50 step times.",
        "step_time_change_ratio": (
            "Step time after the last lasting change over step time before it."
        ),
    }

    def __init__(self) -> None:
        self._window = ComparedValues(PACE_WINDOW, PACE_RECENT)
        self._last = RecentValues(VARIATION)
        self._change = ChangePoint()
        self._at: float | None = None
        self._in_grain = 1
        self._rest = array("d")

    def update(self, seconds: Values, at: float | None = None) -> None:
        """Add the seconds of the next steps; those not finite or not above 0 are ignored.

        `at`: Unix seconds of the last of them; None if they have no times, or as before.
        """
        seconds = positive(seconds)
        if not seconds:
            return
        if at is not None:
            if self._at is not None and at > self._at:
                in_grain = round(GRAIN_SECONDS * len(seconds) / (at - self._at))
                # A companion that is found late brings what it has at once: then at most twice.
                self._in_grain = min(max(in_grain, 1), 2 * self._in_grain, MOST_IN_GRAIN)
            self._at = at
        self._window.extend(self._grains(seconds))
        self._last.extend(seconds)
        self._change.update(seconds)

    def _grains(self, seconds: Values) -> Values:
        size, joined = self._in_grain, self._rest + array("d", seconds)
        if size == 1:
            self._rest = array("d")
            return joined
        starts = range(0, len(joined) - size + 1, size)
        self._rest = joined[len(starts) * size :]
        # Means can be beyond the largest float, or below the smallest.
        return positive([sum(joined[start : start + size]) / size for start in starts])

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges with enough values: each name without `ldlm_detect_`, and its value."""
        before, last = self._window.before, self._last.values
        if len(before) >= PACE_LEAST:
            yield "throughput_ratio", middle_of(before) / median(self._window.recent)
        if len(last) >= VARIATION:
            mean = sum(last) / VARIATION
            # A square can be beyond the largest float and raise, which `hypot` avoids.
            deviation = math.hypot(*(each - mean for each in last)) / math.sqrt(VARIATION)
            yield "throughput_variation_ratio", deviation / mean
            yield "step_time_change_ratio", self._change.ratio


RANK_RECENT = 20
"""Last steps of a rank. A choice: more react later, saving steps move the median of fewer."""
LEAST_RANKS = 2
"""Ranks that a comparison needs: one rank is neither behind nor slow."""


class RankDetector:
    """Which rank is behind, and which is slow.

    - `rank_lag_steps`: the furthest rank's last logged step minus this rank's.
    - `rank_slowdown_ratio`: the median of the last 20 `step_seconds` that this rank
      reported, over the median of the ranks' medians. Ranks that wait for each other report
      equal times, so `busy_seconds` is used instead once a rank reports it: the seconds that
      the rank worked before it waited.
    """

    reads = ("step_seconds", BUSY_SECONDS)
    gauges: ClassVar[Gauges] = {
        "rank_lag_steps": "Steps that a rank is behind the rank that is furthest.",
        "rank_slowdown_ratio": "A rank's own step time over that of the median rank.",
    }

    def __init__(self) -> None:
        self._steps: dict[int, int] = {}
        self._seconds: dict[int, RecentValues] = {}
        self._busy = False

    def update_steps(self, steps: Mapping[int, int]) -> None:
        """Replace the last step of each rank."""
        self._steps = dict(steps)

    def update_seconds(self, rank: int, seconds: Values, *, busy: bool = False) -> None:
        """Add durations of a rank's steps; `busy`: `seconds` are of the rank's own work alone."""
        if busy and not self._busy:
            self._busy = True
            self._seconds.clear()
        if busy is not self._busy:
            return
        window = self._seconds.setdefault(rank, RecentValues(RANK_RECENT))
        window.extend(positive(seconds))

    def measures(self) -> Iterator[tuple[int, str, float]]:
        """The gauges with enough values: rank, name without `ldlm_detect_`, and value."""
        if len(self._steps) >= LEAST_RANKS:
            furthest = max(self._steps.values())
            for rank, step in self._steps.items():
                yield rank, "rank_lag_steps", furthest - step
        medians = {
            rank: median(window.values)
            for rank, window in self._seconds.items()
            if len(window) == RANK_RECENT
        }
        if len(medians) >= LEAST_RANKS:
            usual = median([*medians.values()])
            for rank, own in medians.items():
                yield rank, "rank_slowdown_ratio", own / usual
