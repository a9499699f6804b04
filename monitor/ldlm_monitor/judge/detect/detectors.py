"""The table of all detectors, and the detectors of one run and of all runs."""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain

from ldlm_monitor.base.names import DETECT_PREFIX, Metric
from ldlm_monitor.base.points import BUSY_SECONDS, Labels, Measured, Point, make_labels
from ldlm_monitor.judge.detect.checkpoint_age import CHECKPOINT_GAUGES, checkpoint_age
from ldlm_monitor.judge.detect.detector import Detector, Gauges
from ldlm_monitor.judge.detect.evaluation_loss import EvaluationDetector
from ldlm_monitor.judge.detect.gradient import (
    SKIPPED_GAUGES,
    GradientDetector,
    LossScaleDetector,
    OverflowDetector,
    skipped_share,
)
from ldlm_monitor.judge.detect.loss_constant import ConstantDetector
from ldlm_monitor.judge.detect.loss_start import StartDetector
from ldlm_monitor.judge.detect.loss_trend import LossDetector
from ldlm_monitor.judge.detect.memory import MemoryDetector
from ldlm_monitor.judge.detect.reinforcement import (
    DriftDetector,
    EntropyDetector,
    RewardSpreadDetector,
)
from ldlm_monitor.judge.detect.throughput import RankDetector, ThroughputDetector
from ldlm_monitor.judge.detect.window import positive
from ldlm_monitor.judge.detect.zero_rows import GradientZeroDetector, LearningRateDetector

DETECTORS: tuple[type[Detector], ...] = (
    LossDetector,
    ConstantDetector,
    StartDetector,
    GradientDetector,
    OverflowDetector,
    MemoryDetector,
    LossScaleDetector,
    LearningRateDetector,
    GradientZeroDetector,
    EvaluationDetector,
    RewardSpreadDetector,
    EntropyDetector,
    DriftDetector,
)
"""The detectors of a quantity, each made once for every rank that logs it. A line here is enough:
what is kept of a run's values, and which metrics exist, follow from what a detector declares."""
_OF_THE_RUN: dict[str, tuple[Gauges, ...]] = {
    "ldlm_train_last_progress_timestamp_seconds": (
        ThroughputDetector.gauges,
        RankDetector.gauges,
        CHECKPOINT_GAUGES,
    ),
    "ldlm_train_skipped_steps_total": (SKIPPED_GAUGES,),
}
"""The gauges of pace, ranks, checkpoints and skipped steps, by the metric whose last line an alert
on them cites."""

QUANTITIES = frozenset(
    {*(each.quantity for each in DETECTORS), *ThroughputDetector.reads, *RankDetector.reads}
)
"""The logged quantities that detectors read; they read `DERIVED_STEP_SECONDS`, too."""
GAUGES = {
    DETECT_PREFIX + name: Metric(DETECT_PREFIX + name, meaning)
    for gauges in (*(each.gauges for each in DETECTORS), *chain(*_OF_THE_RUN.values()))
    for name, meaning in gauges.items()
}
"""The metrics of all detectors, by name."""
CITED = {
    metric: tuple(DETECT_PREFIX + name for name in chain(*gauges))
    for metric, gauges in _OF_THE_RUN.items()
}
"""By metric of a run, the detectors' metrics whose alerts cite its last line."""
GAUGES_OF = {
    quantity: tuple(
        DETECT_PREFIX + name
        for each in DETECTORS
        if each.quantity == quantity
        for name in each.gauges
    )
    for quantity in {each.quantity for each in DETECTORS}
}
"""By quantity, the metrics of the detectors that read it."""


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
            self._throughput.update(seconds, measured.at, measured.step)
        for (quantity, rank), values in measured.values.items():
            if quantity in RankDetector.reads and rank is not None:
                self._ranks.update_seconds(rank, values, busy=quantity == BUSY_SECONDS)
            for detector in self._detectors(quantity, rank):
                detector.update(values)
        self._ranks.update_steps(measured.rank_steps)
        if measured.step is not None:
            self._of_steps = [
                *skipped_share(measured.step, measured.skipped, measured.taken),
                *checkpoint_age(measured.step, measured.checkpoints),
            ]
        self.points = list(self._measure())

    def _detectors(self, quantity: str, rank: int | None) -> tuple[Detector, ...]:
        found = self._by_quantity.get((quantity, rank))
        if found is None:
            found = tuple(make() for make in DETECTORS if make.quantity == quantity)
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

    def forget(self, run: str) -> None:
        """Drop a run, with its gauges."""
        self._detectors.pop(run, None)

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
