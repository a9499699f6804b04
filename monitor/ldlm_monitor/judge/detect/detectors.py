"""The detectors of memory and checkpoints; all detectors of one run, and of all runs."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import TypeAlias

from ldlm_monitor.base.names import DETECT_PREFIX
from ldlm_monitor.base.points import (
    BUSY_SECONDS,
    Labels,
    Measured,
    Point,
    make_labels,
)
from ldlm_monitor.judge.detect.gradient import (
    GradientDetector,
    LossScaleDetector,
    OverflowDetector,
    skipped_share,
)
from ldlm_monitor.judge.detect.loss_constant import ConstantDetector
from ldlm_monitor.judge.detect.loss_trend import LossDetector
from ldlm_monitor.judge.detect.throughput import RankDetector, ThroughputDetector
from ldlm_monitor.judge.detect.window import RecentValues, Values, finite, median, positive

MEMORY_WINDOW = 400
"""Logged steps, 100 in each quarter. A choice: more find a leak later, fewer compare noise."""
QUARTERS = 4
"""Parts of the window. A choice: fewer take a filling cache for a leak, more compare noise."""
WARM_UP = 100
"""First logged steps, which are ignored. A choice: more delay the gauge; in fewer, the caching
allocator and the optimizer's state may not have reached their size."""


class MemoryDetector:
    """`memory_growth_ratio`: how steadily the memory of one rank grows.

    Take the medians of the four quarters of the last 400 logged steps. The gauge is the smallest
    growth from a median to the next, divided by the first median. It is above 0 only if each
    median is above the one before. A cache that fills up, or a step to a new level, grows in one
    quarter.
    """

    def __init__(self) -> None:
        self._window = RecentValues(MEMORY_WINDOW)
        self._skipped = 0

    def update(self, values: Values) -> None:
        """Add the next values, in bytes; those that are not finite are ignored."""
        values = finite(values)
        warm_up = min(WARM_UP - self._skipped, len(values))
        self._skipped += warm_up
        self._window.extend(values[warm_up:])

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges with enough values: each name without `ldlm_detect_`, and its value."""
        if len(self._window) == MEMORY_WINDOW:
            length = MEMORY_WINDOW // QUARTERS
            starts = range(0, MEMORY_WINDOW, length)
            levels = [median(self._window.values[start : start + length]) for start in starts]
            if levels[0] > 0:
                growth = min(later - earlier for earlier, later in pairwise(levels))
                yield "memory_growth_ratio", growth / levels[0]


LEAST_CHECKPOINTS = 4
"""Checkpoints needed before the next can be late. A choice: more delay the gauge; of two, the only
interval can be a short one, before the save at the end of an epoch."""


def checkpoint_age(step: int, saved: Sequence[int]) -> Iterator[tuple[str, float]]:
    """`checkpoint_age_ratio`: steps since the last checkpoint over the longest interval before.

    A pause of the run makes no checkpoint late, as time is not counted. The run is at `step`; the
    last checkpoints were saved at the steps `saved`, oldest first. Yields nothing if `saved` has
    fewer than four steps or does not rise, or if `step` is before the last of `saved`.
    """
    intervals = [later - earlier for earlier, later in pairwise(saved)]
    if len(saved) >= LEAST_CHECKPOINTS and min(intervals) > 0 and step >= saved[-1]:
        yield "checkpoint_age_ratio", (step - saved[-1]) / max(intervals)


Detector: TypeAlias = (
    LossDetector
    | ConstantDetector
    | GradientDetector
    | OverflowDetector
    | MemoryDetector
    | LossScaleDetector
)
"""A detector of one quantity of one rank."""
# The detectors of each quantity, created once for every rank that logs it.
_OF_QUANTITY: dict[str, tuple[type[Detector], ...]] = {
    "loss": (LossDetector, ConstantDetector),
    "grad_norm": (GradientDetector, OverflowDetector),
    "memory_allocated_bytes": (MemoryDetector,),
    "loss_scale": (LossScaleDetector,),
}


class Detectors:
    """Turns the measurements of a run into gauges. `run` is the run's name.

    `points` are the gauges after the last `update`, which replaces the list; empty before.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._by_quantity: dict[tuple[str, int | None], tuple[Detector, ...]] = {}
        self._pace: tuple[str, int | None] = ("", None)
        self._throughput = ThroughputDetector()
        self._ranks = RankDetector()
        self._of_steps: list[tuple[str, float]] = []
        self._of_rank: dict[int | None, Labels] = {}
        self.points: list[Point] = []

    def update(self, measured: Measured) -> None:
        """Add what was measured since the last call; a resumed run's pace is learned anew."""
        if measured.begins_anew:
            self._by_quantity.clear()
        if measured.resumed or measured.pace != self._pace:
            self._pace, self._throughput = measured.pace, ThroughputDetector()
        quantity, _ = measured.pace
        if paces := measured.values.get(measured.pace):
            is_rate = quantity.endswith("_per_second")
            seconds = [1 / rate for rate in positive(paces)] if is_rate else paces
            self._throughput.update(seconds, measured.at)
        for (quantity, rank), values in measured.values.items():
            if quantity in ("step_seconds", BUSY_SECONDS) and rank is not None:
                self._ranks.update_seconds(rank, values, busy=quantity == BUSY_SECONDS)
            for detector in self._detectors(quantity, rank):
                detector.update(values)
        self._ranks.update_steps(measured.rank_steps)
        if measured.step is not None:
            self._of_steps = [
                *skipped_share(measured.step, measured.skipped),
                *checkpoint_age(measured.step, measured.checkpoints),
            ]
        self.points = list(self._measure())

    def _detectors(self, quantity: str, rank: int | None) -> tuple[Detector, ...]:
        found = self._by_quantity.get((quantity, rank))
        if found is None:
            found = tuple(make() for make in _OF_QUANTITY.get(quantity, ()))
            self._by_quantity[quantity, rank] = found
        return found

    def _measure(self) -> Iterator[Point]:
        for (_, rank), detectors in self._by_quantity.items():
            labels = self._labels(rank)
            for detector in detectors:
                for name, value in detector.measures():
                    yield Point(_metric(name), labels, value)
        for of_rank, name, value in self._ranks.measures():
            yield Point(_metric(name), self._labels(of_rank), value)
        for name, value in chain(self._throughput.measures(), self._of_steps):
            yield Point(_metric(name), self._labels(None), value)

    def _labels(self, rank: int | None) -> Labels:
        if rank not in self._of_rank:
            shown = None if rank is None else str(rank)
            self._of_rank[rank] = make_labels(run=self._run, rank=shown)
        return self._of_rank[rank]


@cache
def _metric(gauge: str) -> str:
    return DETECT_PREFIX + gauge


class DetectorsByRun:
    """The detectors of all runs, by the name of each."""

    def __init__(self) -> None:
        self._detectors: dict[str, Detectors] = {}

    def update(self, run: str, measured: Measured) -> None:
        """Add what was measured of a run since the last call."""
        detectors = self._detectors.get(run)
        if detectors is None:
            detectors = self._detectors[run] = Detectors(run)
        detectors.update(measured)

    def points(self, runs: Iterable[str]) -> list[list[Point]]:
        """The gauges of `runs`, one list for each run with measurements; `update` renews lists."""
        return [self._detectors[run].points for run in runs if run in self._detectors]

    def run_gauges(self, run: str) -> dict[str, float]:
        """The gauges without a rank, by name without `ldlm_detect_`; empty for an unknown run."""
        detectors = self._detectors.get(run)
        return {
            point.name.removeprefix(DETECT_PREFIX): point.value
            for point in (detectors.points if detectors else ())
            if len(point.labels) == 1
        }
