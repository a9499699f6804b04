"""One quantity of one rank: its source, the metric that exports it, and its last values."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ldlm_monitor.base.names import LAST_NONFINITE, created
from ldlm_monitor.base.points import Labels, Point, make_labels
from ldlm_monitor.base.records import Position, Sample
from ldlm_monitor.base.snapshot import NonfiniteView
from ldlm_monitor.judge.detect import CITED, GAUGES_OF
from ldlm_monitor.judge.run.curve import RunCurve
from ldlm_monitor.judge.run.file_rows import FileRows, ValueSource


def is_of_its_rank(quantity: str, source: ValueSource) -> bool:
    """Whether each rank reports a rate of its own, so that the run's rate is their sum.

    The callback reports what its rank processed; a trainer's log reports the sum of all ranks.
    """
    rates = ("samples_per_second", "tokens_per_second")
    return source is ValueSource.CALLBACK and quantity in rates


WINDOW = 1000  # last values in statistics. A choice: more are steadier, but cost 32 bytes each

_EXPORTED = frozenset(
    {"loss", "grad_norm", "learning_rate", "loss_scale", "samples_total", "tokens_total"}
    | {"samples_per_second", "tokens_per_second", "step_seconds"}
    | {"memory_allocated_bytes", "memory_reserved_bytes"}
)
"""Quantities that are exported as `ldlm_train_<quantity>` (contract, section 3)."""
_NAMED = {"eval_loss": "ldlm_eval_loss", "mfu": "ldlm_train_mfu_ratio"}
"""Quantities that are exported under another name (contract, section 3)."""


_GPU = frozenset(
    {"gpu_utilization_ratio", "gpu_memory_used_bytes", "gpu_power_watts"}
    | {"gpu_temperature_celsius", "gpu_ecc_errors_total"}
)
"""Quantities that are exported as `ldlm_<quantity>` (contract, section 3)."""
_THROTTLED = "gpu_throttled_"  # before the reason, in the callback's rows


def exported_name(quantity: str, rank: int | None = None) -> tuple[str, Labels]:
    """The metric that exports a rank's quantity, and its labels besides the run and the rank.

    The number of a GPU is that of the rank: of all nodes' GPUs, no two have the same.
    """
    gpu = str(rank or 0)
    if quantity in _GPU:
        return f"ldlm_{quantity}", make_labels(gpu=gpu)
    if quantity.startswith(_THROTTLED):
        reason = quantity.removeprefix(_THROTTLED)
        return "ldlm_gpu_throttled", make_labels(gpu=gpu, reason=reason)
    if quantity in _EXPORTED or quantity in _NAMED:
        return _NAMED.get(quantity, f"ldlm_train_{quantity}"), ()
    if quantity.startswith("loss_"):
        return "ldlm_train_component_loss", make_labels(component=quantity[5:])
    if quantity == "accuracy" or quantity.startswith("accuracy_"):
        return "ldlm_train_accuracy_ratio", make_labels(component=quantity[9:])
    return "ldlm_train_metric", make_labels(name=quantity)


def _derived() -> dict[str, dict[Labels, tuple[str, ...]]]:
    found: dict[str, dict[Labels, tuple[str, ...]]] = {}
    for quantity, gauges in GAUGES_OF.items():
        metric, own = exported_name(quantity)
        found.setdefault(metric, {})[own] = gauges
    return found


_DERIVED = _derived()
"""The gauges that detectors derive from a quantity, by its metric and labels as exported."""


@lru_cache(maxsize=65536)  # a choice: above usual fleets' series; more lets a log fill memory
def labels_of(run: str, rank: int | None, own: Labels) -> Labels:
    """The sorted labels of a series: `own`, the run, and the rank unless it is None."""
    shared = make_labels(run=run, rank=None if rank is None else str(rank))
    return tuple(sorted((*own, *shared)))


@dataclass(frozen=True, slots=True)
class SourceLine:
    """The line that last changed a series; of two lines, the later has the greater `order`.

    `step` is None if the line has no step, `text` if only the line's position is stored.
    """

    position: Position
    step: int | None
    text: str | None = None
    order: int = 0


@dataclass(slots=True)
class QuantityValues:
    """One quantity of one rank: the series that exports it, and its last values.

    `fresh` holds the values that no detector has read yet; it is None if no detector reads the
    quantity. `curve` is for charts; of several ranks, only the first has one. `order`: the
    number of the last sample among all samples of the run. `total`: the number of values.
    """

    metric: str
    labels: Labels
    source: ValueSource
    sample: Sample
    fresh: array[float] | None
    curve: RunCurve | None = None
    order: int = 0
    total: int = 0
    value: float = math.nan
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def extend(
        self,
        column: Sequence[float],
        rows: FileRows,
        places: Sequence[int],
        last: Sample,
        order: int,
    ) -> None:
        """Add the values of the rows at `places`, the last of them from the sample `last`.

        A redrawn bar repeats the values of its step.
        """
        if self.fresh is not None:
            known = self.sample.step if self.sample is not last else None
            repeats = known is not None and rows.steps[places[0]] == known if rows.steps else False
            self.fresh.extend(column[1:] if repeats else column)
        self.value, self.sample, self.order = column[-1], last, order
        self.total += len(column)
        self.recent.extend(column[-WINDOW:])
        if self.curve is not None:
            self.curve.extend(column, rows, places)


def is_new_report(quantity: str, value: float, kept: QuantityValues | None) -> bool:
    """Whether a trainer counts losses that were not finite, which its loss does not show.

    Such a count or share is above 0; what repeats the value before is no other loss.
    """
    return quantity in _COUNTS_OF_LOSSES and value > 0 and (kept is None or kept.value != value)


_COUNTS_OF_LOSSES = frozenset({"frac_non_finite_loss"})
METRIC = "ldlm_train_nonfinite_total"  # contract, section 3
_MARKED_STEPS = 256  # steps kept for charts. A choice: one for each column of a wide screen
_COUNTED_STEPS = 64  # last steps kept. A choice: ranks are fewer apart, more are slower to search
_KEEPS_COMING = 20
"""Values between two that are not finite up to which these are one trouble that keeps coming.
A choice: a loss scale that follows the gradients tries a higher one after 2,000."""


@dataclass(slots=True)
class NonfiniteSeries:
    """The values of one quantity and rank that are not finite."""

    labels: Labels
    began: float | None  # when the first was seen; None: exported from 0 on
    count: int = 0
    last: float = 0.0
    steps: deque[int] = field(default_factory=lambda: deque(maxlen=_COUNTED_STEPS))
    evidence: SourceLine | None = None
    past: int = 0  # of the count, those before the present launch
    order: int | None = None  # of the last one since a resume
    among: int = 0  # values of its series up to the last one
    rows_between: int = 0  # rows of the run from the one before to the last one; 0: it came anew
    _pause: int = 0  # values of its series from the one before to the last one

    def follow(self, order: int, among: int) -> None:
        """Note the place of a value in the run and in its series."""
        self._pause = 0 if self.order is None else among - self.among
        between = 0 if self.order is None else order - self.order
        self.rows_between = between if between <= _KEEPS_COMING else 0
        self.order, self.among = order, among

    @property
    def comes_and_goes(self) -> bool:
        """Whether numbers lie between the last such values, too few to be sure of the next."""
        return 1 < self._pause <= _KEEPS_COMING

    def has_passed(self, total: int) -> bool:
        """Whether enough numbers follow the last one in a series of `total` values: more than
        before it came back.
        """
        return total - self.among > (self._pause if self._pause <= _KEEPS_COMING else 0)


def is_of_update(quantity: str) -> bool:
    """Whether an update of the weights uses it, so that NaN in it can reach them."""
    is_loss = quantity == "loss" or quantity.startswith("loss_")
    return quantity == "grad_norm" or (is_loss and quantity != "loss_scale")


class NonfiniteCounts:
    """Non-finite values by quantity and rank, each step once.

    Loss and gradient norm are exported as 0 from the start, so that `increase()` sees the first.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._counts: dict[tuple[str, int | None], NonfiniteSeries] = {}
        self._marks: dict[int, NonfiniteView] = {}
        self._best: dict[str, tuple[float, float]] = {}  # first and last step, of the best source
        for quantity in ("loss", "grad_norm"):
            self._of(quantity, None, None)

    def count(
        self,
        quantity: str,
        rank: int | None,
        evidence: SourceLine,
        at: float,
        *,
        among: int,
        best: bool = True,
    ) -> bool:
        """Count a value that was seen at `at`; False if its step was counted already.

        `among`: the number of values of its series with it.

        `best`: the quantity's best source reports it. What another one repeats of that source
        is not counted; a step before or after is the same, as some files number steps from 1.
        """
        step = evidence.step
        first, last = self._best.get(quantity, (math.inf, -math.inf))
        if not best and first - 1 <= (first if step is None else step) <= last + 1:
            return False
        if best:
            self._best[quantity] = min(first, step or 0), max(last, step or 0)
        seen = self._of(quantity, rank, at)
        seen.follow(evidence.order, among)
        if step is not None:
            if step in seen.steps:
                return False
            seen.steps.append(step)
            self._mark(quantity, rank, step)
        seen.count, seen.last = seen.count + 1, at
        seen.evidence = evidence
        return True

    def resume(self, step: int) -> None:
        """Count values from `step` on again, as these steps are trained again."""
        self._best = {name: span for name, span in self._best.items() if span[1] < step}
        for seen in self._counts.values():
            seen.steps = deque((each for each in seen.steps if each < step), _COUNTED_STEPS)
            seen.order = None

    def launch(self) -> None:
        """Let all values be those of an earlier launch."""
        self.resume(0)
        for seen in self._counts.values():
            seen.past = seen.count

    def are_of_update(self) -> bool:
        """Whether an update of this launch used such a value."""
        found = self._counts.items()
        return any(is_of_update(name) and each.count > each.past for (name, _), each in found)

    def of_update(self) -> Iterator[tuple[str, int | None, NonfiniteSeries]]:
        """Quantity, rank and count of those that an update used since a resume."""
        for (quantity, rank), each in self._counts.items():
            if each.order is not None and is_of_update(quantity):
                yield quantity, rank, each

    def by_quantity(self) -> dict[str, int]:
        """The counts above 0 by quantity: of several ranks, the highest."""
        counts: dict[str, int] = {}
        for (quantity, _), seen in self._counts.items():
            if seen.count > counts.get(quantity, 0):
                counts[quantity] = seen.count
        return counts

    def marks(self) -> tuple[NonfiniteView, ...]:
        """The steps with values that were not finite, of any rank, by step."""
        return tuple(self._marks[step] for step in sorted(self._marks))

    def _mark(self, quantity: str, rank: int | None, step: int) -> None:
        """Keep the first value of a step; of too many steps, every second one after the first."""
        if step not in self._marks:
            self._marks[step] = NonfiniteView(step=step, quantity=quantity, rank=rank)
        if len(self._marks) > _MARKED_STEPS:
            self._marks = {step: self._marks[step] for step in sorted(self._marks)[::2]}

    def points(self) -> list[Point]:
        """The exported series of all counts and of their times."""
        points = []
        for seen in self._counts.values():
            points.append(Point(METRIC, seen.labels, seen.count))
            if seen.began is not None:
                points.append(Point(created(METRIC), seen.labels, seen.began))
            if seen.count > seen.past:
                points.append(Point(LAST_NONFINITE, seen.labels, seen.last))
        return points

    def evidence(self) -> Iterator[tuple[str, Labels, SourceLine]]:
        """Metric, labels and last line of every count."""
        for seen in self._counts.values():
            if seen.evidence is not None:
                yield METRIC, seen.labels, seen.evidence
                yield LAST_NONFINITE, seen.labels, seen.evidence

    def _of(self, quantity: str, rank: int | None, began: float | None) -> NonfiniteSeries:
        seen = self._counts.get((quantity, rank))
        if seen is None:
            labels = labels_of(self._run, rank, (("quantity", quantity),))
            seen = self._counts[quantity, rank] = NonfiniteSeries(labels, began)
        return seen


def is_read(reads: Callable[[str, Labels], bool], name: str, labels: Labels) -> bool:
    """Whether `reads` selects the series, or a detector's gauge that is derived from it."""
    if reads(name, labels) or any(reads(gauge, labels) for gauge in CITED.get(name, ())):
        return True
    if name not in _DERIVED:
        return False
    place = tuple(each for each in labels if each[0] in ("run", "rank"))
    own = tuple(each for each in labels if each not in place)
    return any(reads(gauge, place) for gauge in _DERIVED[name].get(own, ()))


def newest_line(
    series: Iterable[tuple[str, Labels, SourceLine]],
    reads: Callable[[str, Labels], bool],
    labels: Mapping[str, str],
) -> SourceLine | None:
    """The newest line of the series that are read and agree with `labels`; None without any."""
    found: SourceLine | None = None
    for name, own, evidence in series:
        agrees = all(
            label == "severity" or labels.get(label, value) == value for label, value in own
        )
        newer = found is None or evidence.order > found.order
        if newer and agrees and is_read(reads, name, own):
            found = evidence
    return found
