"""The numbers of one run: one value from one source, and what they were lately."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from ldlm_monitor.measured import MEASURED
from ldlm_monitor.points import Labels, Point, make_labels
from ldlm_monitor.records import Event, Position, Sample, SampleBlock
from ldlm_monitor.run.curve import Curve, is_charted
from ldlm_monitor.view import CurveView

WINDOW = 1000
"""Values of a quantity that statistics are over."""
MAX_QUANTITIES = 200
"""Different quantities of one run; what comes later is counted as dropped."""


class Source(IntEnum):
    """Where a value comes from, the best first (contract: "One value, one source")."""

    CALLBACK = 0
    JSONL = 1
    TRACKER = 2
    TEXT = 3
    BAR = 4


EVENT_FILE = ".tfevents."
"""In the names of TensorBoard's files."""
_TRANSACTIONS = ".wandb"
"""Ends the names of W&B's."""

_EXPORTED = {
    "loss": "ldlm_train_loss",
    "eval_loss": "ldlm_eval_loss",
    "grad_norm": "ldlm_train_grad_norm",
    "learning_rate": "ldlm_train_learning_rate",
    "loss_scale": "ldlm_train_loss_scale",
    "samples_total": "ldlm_train_samples_total",
    "tokens_total": "ldlm_train_tokens_total",
    "samples_per_second": "ldlm_train_samples_per_second",
    "tokens_per_second": "ldlm_train_tokens_per_second",
    "step_seconds": "ldlm_train_step_seconds",
    "mfu": "ldlm_train_mfu_ratio",
    "memory_allocated_bytes": "ldlm_train_memory_allocated_bytes",
    "memory_reserved_bytes": "ldlm_train_memory_reserved_bytes",
}
_OF_THE_RUN = frozenset({"progress", "total_steps", "eval_progress", "skip_progress"})
"""Where the run stands: exported by its lifecycle, not as values."""
_WITHOUT_STATISTICS = _OF_THE_RUN | {"steps_per_second", "epoch_progress", "batch_in_epoch"}

_SMOOTHED = ("steps_per_second", Source.BAR)

_HIDDEN_LOSS = {"latent_pred": "loss_latent", "latent_target": "loss_latent", "total_loss": "loss"}
"""A non-finite tensor behind which the trainer puts a constant loss: which loss it hides."""


def source_of(sample: Sample, *, rows: bool) -> Source:
    """`rows`: the file is JSON lines. A progress bar is known by its `progress`."""
    name = sample.position.path.rsplit("/", 1)[-1]
    if rows:
        return Source.CALLBACK if name.startswith("health_rank") else Source.JSONL
    if EVENT_FILE in name or name.endswith(_TRANSACTIONS):
        return Source.TRACKER
    return Source.BAR if "progress" in sample.values else Source.TEXT


def exported_name(quantity: str) -> tuple[str, Labels]:
    """The metric that exports a quantity, and its own labels."""
    if metric := _EXPORTED.get(quantity):
        return metric, ()
    if quantity.startswith("loss_"):
        return "ldlm_train_component_loss", make_labels(component=quantity[5:])
    if quantity == "accuracy" or quantity.startswith("accuracy_"):
        return "ldlm_train_accuracy_ratio", make_labels(component=quantity[9:])
    return "ldlm_train_metric", make_labels(name=quantity)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The line that last changed a series; of two, the later one has the greater `order`."""

    position: Position
    step: int | None
    text: str | None = None
    order: int = 0


class _Quantity:
    """One quantity of one rank: what it is exported as, and its last values.

    `fresh` are those that no detector has seen; None: none looks at the quantity. `curve`
    is what a chart is drawn from; of several ranks, only the first one's.
    """

    __slots__ = (
        "curve",
        "fresh",
        "labels",
        "metric",
        "nonfinite",
        "order",
        "recent",
        "sample",
        "source",
        "value",
    )

    def __init__(
        self, metric: str, labels: Labels, source: Source, sample: Sample, *, measured: bool
    ) -> None:
        self.fresh = array("d") if measured else None
        self.curve: Curve | None = None
        self.metric = metric
        self.labels = labels
        self.source = source
        self.sample = sample
        self.order = 0
        self.value = math.nan
        self.nonfinite = 0
        self.recent: deque[float] = deque(maxlen=WINDOW)

    def take(self, column: Sequence[float], last: Sample, order: int) -> None:
        """Several finite values, the last of them from `last`."""
        self.value = column[-1]
        self.sample = last
        self.order = order
        self.recent.extend(column)
        if self.fresh is not None:
            self.fresh.extend(column)


@dataclass(slots=True)
class _Nonfinite:
    labels: Labels
    count: int = 0
    steps: deque[int] = field(default_factory=lambda: deque(maxlen=64))
    evidence: Evidence | None = None


class RunValues:
    """The last value of every quantity of one run, per rank, from its best source."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._by_rank: dict[int | None, dict[str, _Quantity]] = {}
        self._best: dict[str, Source] = {}
        self._charted: dict[str, Source] = {}
        self._nonfinite: dict[tuple[str, int | None], _Nonfinite] = {}
        for quantity in ("loss", "grad_norm"):
            self._counter(quantity, None)
        self._order = 0
        self.dropped = 0

    def observe(self, sample: Sample, source: Source, at: float = 0.0) -> list[str]:
        """Take in a sample; the quantities of which it brought a new non-finite value.

        `at` is when it was told (Unix seconds).
        """
        alarming: list[str] = []
        self._order += 1
        quantities = self._by_rank.setdefault(sample.rank, {})
        for quantity, value in sample.values.items():
            kept = quantities.get(quantity)
            if kept is None or kept.source is not source:
                kept = self._admit(quantity, sample, source)
                if kept is None:
                    continue
            kept.value = value
            # A bar that is drawn again tells nothing new.
            if kept.fresh is not None and (
                sample.step is None or sample.step != kept.sample.step or kept.sample is sample
            ):
                kept.fresh.append(value)
            kept.sample = sample
            kept.order = self._order
            kept.recent.append(value)
            if kept.curve is not None:
                kept.curve.add(sample, at, value)
            if not math.isfinite(value):
                kept.nonfinite += 1
                evidence = Evidence(sample.position, sample.step, order=self._order)
                if self._count(quantity, sample.rank, sample.step, evidence):
                    alarming.append(quantity)
        return alarming

    def observe_block(
        self,
        block: SampleBlock,
        last: Sample,
        source: Source,
        *,
        at: float = 0.0,
        times: Sequence[float] | None = None,
    ) -> None:
        """Take in rows that are alike and finite, as one by one; `last` is the last of them.

        They were told at `times`, or all at `at`.
        """
        before, self._order = self._order, self._order + len(block)
        quantities = self._by_rank.setdefault(block.rank, {})
        for quantity, column in block.values.items():
            kept = self._kept(quantities, quantity, last, source, len(column))
            if kept is not None:
                kept.take(column, last, self._order)
                if kept.curve is not None:
                    kept.curve.extend(block, times, at, column)
        for quantity, cells in block.sparse.items():
            index = next(reversed(cells))
            sample = block.sample(index)
            kept = self._kept(quantities, quantity, sample, source, len(cells))
            if kept is not None:
                kept.take(tuple(cells.values()), sample, before + index + 1)
                if kept.curve is not None:
                    for row, value in cells.items():
                        when = at if times is None else times[row]
                        kept.curve.add(block.sample(row), when, value)

    def observe_nonfinite(self, event: Event) -> bool:
        """Count the non-finite value that a `nonfinite_metric` event tells of; True if new."""
        self._order += 1
        told = event.fields.get("quantity")
        quantity = _HIDDEN_LOSS.get(str(told), str(told)) if told else "loss"
        step = event.fields.get("step")
        number = int(step) if isinstance(step, int) else None
        evidence = Evidence(event.position, number, event.message, self._order)
        return self._count(quantity, event.rank, number, evidence)

    def points(self) -> list[Point]:
        """Every value and count as it stands."""
        values = [Point(kept.metric, kept.labels, kept.value) for _, kept in self._all()]
        counts = self._nonfinite.values()
        return values + [
            Point("ldlm_train_nonfinite_total", seen.labels, seen.count) for seen in counts
        ]

    def evidence(self) -> Iterator[tuple[str, Labels, Evidence]]:
        """Metric, labels and last line of every series."""
        for _, kept in self._all():
            sample = kept.sample
            yield (
                kept.metric,
                kept.labels,
                Evidence(sample.position, sample.step, order=kept.order),
            )
        for seen in self._nonfinite.values():
            if seen.evidence is not None:
                yield "ldlm_train_nonfinite_total", seen.labels, seen.evidence

    def last(self, quantity: str) -> float | None:
        """The last value of a quantity, of the rank that reported first."""
        for quantities in self._by_rank.values():
            if kept := quantities.get(quantity):
                return kept.value
        return None

    def windows(self) -> dict[str, tuple[float, list[float], int]]:
        """Per quantity worth statistics: its last value, recent values, non-finite count."""
        result: dict[str, tuple[float, list[float], int]] = {}
        for quantity, kept in self._all():
            if quantity not in _WITHOUT_STATISTICS and quantity not in result:
                result[quantity] = (kept.value, list(kept.recent), kept.nonfinite)
        for (quantity, _), seen in self._nonfinite.items():
            value, recent, count = result.get(quantity, (math.nan, [], 0))
            if seen.count > count:
                result[quantity] = (value, recent, seen.count)
        return result

    def curves(self) -> dict[str, CurveView]:
        """By quantity, what a chart is drawn from, of its best source."""
        return {
            quantity: kept.curve.view()
            for quantity, kept in self._all()
            if kept.curve is not None and kept.source is self._charted[quantity]
        }

    def take_fresh(self) -> dict[tuple[str, int | None], array[float]]:
        """By quantity and rank, what was told since the last call."""
        found = {}
        for rank, quantities in self._by_rank.items():
            for quantity, kept in quantities.items():
                if kept.fresh:
                    found[quantity, rank] = kept.fresh
                    kept.fresh = array("d")
        return found

    def _all(self) -> Iterator[tuple[str, _Quantity]]:
        for quantities in self._by_rank.values():
            yield from quantities.items()

    def _kept(
        self,
        quantities: dict[str, _Quantity],
        quantity: str,
        sample: Sample,
        source: Source,
        rows: int,
    ) -> _Quantity | None:
        kept = quantities.get(quantity)
        if kept is None or kept.source is not source:
            return self._admit(quantity, sample, source, rows)
        return kept

    def _admit(
        self, quantity: str, sample: Sample, source: Source, rows: int = 1
    ) -> _Quantity | None:
        """The quantity as reported by `source`, None where a better source has it.

        `rows`: so many values are dropped where there are too many quantities.
        """
        if quantity in _OF_THE_RUN or source > self._best.get(quantity, source):
            return None
        if source < self._best.get(quantity, source):
            self._forget(quantity, but=sample.rank)
        self._best[quantity] = source
        quantities = self._by_rank[sample.rank]
        kept = quantities.get(quantity)
        # The rate that a bar tells is smoothed, and sinks for long after a pause.
        measured = quantity in MEASURED and (quantity, source) != _SMOOTHED
        if kept is None:
            if len(quantities) >= MAX_QUANTITIES:
                self.dropped += rows
                return None
            metric, own = exported_name(quantity)
            labels = self._labels(own, sample.rank)
            kept = _Quantity(metric, labels, source, sample, measured=measured)
            quantities[quantity] = kept
        else:
            kept.recent.clear()
            kept.source = source
            kept.fresh = array("d") if measured else None
        kept.curve = self._new_curve(quantity, source)
        return kept

    def _new_curve(self, quantity: str, source: Source) -> Curve | None:
        """None where no chart is drawn of it, or another rank's curve is."""
        if not is_charted(quantity) or self._charted.get(quantity) is source:
            return None
        self._charted[quantity] = source
        return Curve()

    def _forget(self, quantity: str, *, but: int | None) -> None:
        """A better source has it: what worse ones told of other ranks, or of none, ends."""
        for rank, quantities in self._by_rank.items():
            if rank != but:
                quantities.pop(quantity, None)

    def _count(self, quantity: str, rank: int | None, step: int | None, evidence: Evidence) -> bool:
        seen = self._counter(quantity, rank)
        if step is not None:
            if step in seen.steps:
                return False
            seen.steps.append(step)
        seen.count += 1
        seen.evidence = evidence
        return True

    def _counter(self, quantity: str, rank: int | None) -> _Nonfinite:
        seen = self._nonfinite.get((quantity, rank))
        if seen is None:
            labels = self._labels((("quantity", quantity),), rank)
            seen = self._nonfinite[quantity, rank] = _Nonfinite(labels)
        return seen

    def _labels(self, own: Labels, rank: int | None) -> Labels:
        shared = make_labels(run=self._run, rank=None if rank is None else str(rank))
        return tuple(sorted((*own, *shared)))
