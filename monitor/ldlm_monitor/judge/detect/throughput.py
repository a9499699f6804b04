"""The pace of a run and of its ranks: throughput, lasting drops of it, stragglers."""

import math
from array import array
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ldlm_monitor.base.points import BUSY_SECONDS, PACES
from ldlm_monitor.judge.detect.detector import Gauges
from ldlm_monitor.judge.detect.window import RecentValues, Values, exp, median, middle_of, positive

STRETCH_SECONDS = 10.0
"""Least seconds of a stretch. A choice: more delay the alert, less follow a save or a hiccup."""
STRETCH_STEPS = 10  # least steps of a stretch. A choice: up to four of them evaluate or save
STRETCH_VALUES = 3  # least values of a stretch, in logs with a line in many steps
MOST_IN_STRETCH = 1000  # values. A choice: clocks that hardly move must not collect all
OUTLIERS = 5
"""One in so many values of a stretch, the slowest, does not count: evaluations, saves. A choice:
more would hide a data loader that is late at every fourth step."""
FIRST = 5
"""Stretches that give a level, about a minute. A choice: more delay the gauges; of fewer, most
would be first steps, which compile."""
USUAL = 360
"""Last usual stretches, an hour or more. A choice: of fewer, a pace that falls bit by bit would be
the usual one before it counts as a drop."""
PRESENT = 3  # stretches whose median is the present pace. A choice: more react later
LATEST = 15  # stretches whose median is that of a drop. A choice: more follow its change later
UPPER, UPPER_SIGMAS = 0.9, 1.2816
"""The quantile that gives the noise, and how many deviations of a normal distribution it is above
the median. A choice: a higher one is a single outlier, at a lower one slow data would be none."""
LEAST_NOISE = 0.12
"""Least noise of a logarithm, 12 %. A choice: less reports changes that nobody acts on."""
# Choices, in units of the noise.
DRIFT = 1.75  # smaller finds smaller drops, but sums up what is slow for half of the time
LIMIT = 3.5  # smaller reports sooner, but more false alarms
CLIP = 3.0  # smaller limits an outlier, but delays large drops
MOST = 6.0  # of the sum: a pace that is back is so after four stretches
VARIATION = 50
"""Steps whose variation is computed. A choice: more react later, and that of 50 errs by 10 %."""


class LastingDrop:
    """A one-sided CUSUM (Page 1954) of the paces of stretches, in seconds, which lasts.

    With m and q the median and the 0.9 quantile of the logarithms of up to 360 usual stretches,
    s = (q - m) / 1.28 but at least 0.12, and z = (ln(x) - m) / s clipped to [-3, 3], the sum

        sum = min(max(0, sum + z - 1.75), 6)

    begins a drop above 3.5 and ends it at 0. In a steady run three stretches that take 1.43 times
    as long are a drop; where some are slow by nature, s is large. While the sum is above 0 no
    stretch becomes usual, so that a drop lasts until the pace is back. Then the last 15 of it do:
    what comes again and again is no drop at last. A faster pace becomes usual with half of the
    stretches, and so does one that is less than 20 % slower.

    `since`: where the drop began, as it was added; None without one.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._usual = RecentValues(USUAL)
        self._present = RecentValues(PRESENT)
        self._known = False
        self._level, self._noise = 0.0, LEAST_NOISE
        self._sum, self._onset = 0.0, 0.0
        self._suspected = RecentValues(LATEST)

    @property
    def ratio(self) -> float | None:
        """The usual seconds over the median of the last three stretches; None at first."""
        return exp(self._level - median(self._present.values)) if self._known else None

    @property
    def share(self) -> float:
        """By which share the median pace of the drop's last 15 stretches is lower; 0 in none."""
        if self.since is None:
            return 0.0
        return max(1 - exp(self._level - median(self._suspected.values)), 0.0)

    def add(self, seconds: float, began: float) -> None:
        """Add the pace of the next stretch, finite and above 0, and where it began."""
        value = math.log(seconds)
        self._present.extend((value,))
        score = min(max((value - self._level) / self._noise, -CLIP), CLIP)
        if not self._sum:
            self._onset = began
        if self._known:
            self._sum = min(max(0.0, self._sum + score - DRIFT), MOST)
        self._suspected.extend((value,))
        if self._sum > LIMIT:
            self.since = self._onset  # which stays as it is until the sum is 0
        elif not self._sum:
            self._usual.extend(self._suspected.values)
            ranked = sorted(self._usual.values)
            self._level = middle_of(ranked)
            upper = ranked[int(UPPER * (len(ranked) - 1))] - self._level
            self._noise = max(upper / UPPER_SIGMAS, LEAST_NOISE)
            self._suspected, self.since = RecentValues(LATEST), None
            self._known = len(ranked) >= FIRST


class ThroughputDetector:
    """The seconds of a step (or of a sample, a token) against their past, as these gauges.

    They are compared by stretches: at least ten steps, ten seconds and three values, of which the
    slowest fifth does not count.

    - `throughput_ratio`: the usual seconds over those of the last three stretches. Below 1 the
      run is slower than it was.
    - `throughput_drop_ratio`: `LastingDrop.share`.
    - `throughput_drop_step`: the step since which there is one.
    - `throughput_variation_ratio`: standard deviation over mean of the last 50 values.
    """

    reads = PACES
    gauges: ClassVar[Gauges] = {
        "throughput_ratio": "The present pace over the usual one.",
        "throughput_drop_ratio": "Share by which the pace is lastingly lower; 0 if it is not.",
        "throughput_drop_step": "Step since which the pace is lastingly lower.",
        "throughput_variation_ratio": "Deviation over mean of the last 50 step times.",
    }

    def __init__(self) -> None:
        self._drop = LastingDrop()
        self._last = RecentValues(VARIATION)
        self._stretch = array("d")
        self._size = STRETCH_STEPS
        self._began: float | None = None
        self._at: float | None = None
        self._step: int | None = None

    def update(self, seconds: Values, at: float | None = None, step: int | None = None) -> None:
        """Add the seconds of the next steps; those not finite or not above 0 are ignored.

        `at`: Unix seconds of the last of them; `step`: its number; None if they have none.
        """
        seconds = positive(seconds)
        if not seconds:
            return
        before = step if self._step is None else self._step
        stride = 0.0 if step is None or before is None else (step - before) / len(seconds)
        self._fit(len(seconds), at, stride)
        self._last.extend(seconds)
        taken = 0
        while len(self._stretch) + len(seconds) - taken >= self._size:
            end = taken + max(self._size - len(self._stretch), 1)
            self._stretch.extend(seconds[taken:end])
            self._end_stretch()
            taken = end
            self._began = None if before is None else before + taken * stride
        self._stretch.extend(seconds[taken:])
        self._step = step

    def _fit(self, count: int, at: float | None, stride: float) -> None:
        if at is None:
            return
        if self._at is not None and at > self._at:
            in_seconds = STRETCH_SECONDS * count / (at - self._at)
            in_steps = STRETCH_STEPS / max(stride, 1.0)
            size = max(math.ceil(in_seconds), math.ceil(in_steps), STRETCH_VALUES)
            # A companion that is found late brings what it has at once: then at most twice.
            self._size = min(size, 2 * self._size, MOST_IN_STRETCH)
        self._at = at

    def _end_stretch(self) -> None:
        ranked = sorted(self._stretch)
        kept = ranked[: len(ranked) - math.ceil(len(ranked) / OUTLIERS)]
        del self._stretch[:]
        began = math.nan if self._began is None else self._began
        for mean in positive([sum(kept) / len(kept)]):  # which can be beyond the largest float
            self._drop.add(mean, began)

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges with enough values: each name without `ldlm_detect_`, and its value."""
        ratio, since, last = self._drop.ratio, self._drop.since, self._last.values
        if ratio is not None:
            yield "throughput_ratio", ratio
            yield "throughput_drop_ratio", self._drop.share
        if since is not None and since >= 0:
            yield "throughput_drop_step", round(since)
        if len(last) >= VARIATION:
            mean = sum(last) / VARIATION
            # A square can be beyond the largest float and raise, which `hypot` avoids.
            deviation = math.hypot(*(each - mean for each in last)) / math.sqrt(VARIATION)
            yield "throughput_variation_ratio", deviation / mean


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
