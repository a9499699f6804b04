"""The numbers of one run: one value from one source, and what they were lately."""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from ldlm_monitor.points import Labels, Point, make_labels
from ldlm_monitor.records import Event, Position, Sample

WINDOW = 1000
"""Values of a quantity that statistics are over."""
MAX_QUANTITIES = 200
"""Different quantities of one run; what comes later is counted as dropped."""


class Source(IntEnum):
    """Where a value comes from, the best first (contract: "One value, one source")."""

    CALLBACK = 0
    JSONL = 1
    TEXT = 2
    BAR = 3


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

_HIDDEN_LOSS = {"latent_pred": "loss_latent", "latent_target": "loss_latent", "total_loss": "loss"}
"""A non-finite tensor behind which the trainer puts a constant loss: which loss it hides."""


def source_of(sample: Sample, *, rows: bool) -> Source:
    """`rows`: the file is JSON lines. A progress bar is known by its `progress`."""
    name = sample.position.path.rsplit("/", 1)[-1]
    if rows:
        return Source.CALLBACK if name.startswith("health_rank") else Source.JSONL
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


_order = itertools.count()


@dataclass(frozen=True, slots=True)
class Evidence:
    """The line that last changed a series; a later one has the greater `order`."""

    position: Position
    step: int | None
    text: str | None = None
    order: int = field(default_factory=lambda: next(_order))


@dataclass(slots=True)
class _Quantity:
    source: Source
    value: float
    point: Point
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    nonfinite: int = 0


@dataclass(slots=True)
class _Nonfinite:
    count: int
    steps: deque[int] = field(default_factory=lambda: deque(maxlen=64))


class RunValues:
    """The last value of every quantity of one run, per rank, from its best source."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._quantities: dict[tuple[str, int | None], _Quantity] = {}
        self._best: dict[str, Source] = {}
        self._nonfinite: dict[tuple[str, int | None], _Nonfinite] = {
            (quantity, None): _Nonfinite(0) for quantity in ("loss", "grad_norm")
        }
        self.evidence: dict[tuple[str, Labels], Evidence] = {}
        self.dropped = 0

    def observe(self, sample: Sample, source: Source) -> bool:
        """Take in a sample; True if it brought a non-finite value that was not counted yet."""
        alarming = False
        evidence = Evidence(sample.position, sample.step)
        for quantity, value in sample.values.items():
            if quantity in _OF_THE_RUN or source > self._best.get(quantity, source):
                continue
            self._best[quantity] = source
            kept = self._keep(quantity, sample.rank, source, value)
            if kept is None:
                continue
            self.evidence[kept.point.name, kept.point.labels] = evidence
            if not math.isfinite(value):
                alarming |= self._count(quantity, sample.rank, sample.step, evidence)
        return alarming

    def observe_nonfinite(self, event: Event) -> bool:
        """Count the non-finite value that a `nonfinite_metric` event tells of; True if new."""
        told = event.fields.get("quantity")
        quantity = _HIDDEN_LOSS.get(str(told), str(told)) if told else "loss"
        step = event.fields.get("step")
        number = int(step) if isinstance(step, int) else None
        evidence = Evidence(event.position, number, event.message)
        return self._count(quantity, event.rank, number, evidence)

    def points(self) -> list[Point]:
        """Every value and count as it stands."""
        points = [kept.point for kept in self._quantities.values()]
        for (quantity, rank), seen in self._nonfinite.items():
            points.append(
                Point("ldlm_train_nonfinite_total", self._count_labels(quantity, rank), seen.count)
            )
        return points

    def last(self, quantity: str) -> float | None:
        """The last value of a quantity, of the rank that reported first."""
        for (name, _), kept in self._quantities.items():
            if name == quantity:
                return kept.value
        return None

    def windows(self) -> dict[str, tuple[float, list[float], int]]:
        """Per quantity worth statistics: its last value, recent values, non-finite count."""
        result: dict[str, tuple[float, list[float], int]] = {}
        for (quantity, _), kept in self._quantities.items():
            if quantity not in _WITHOUT_STATISTICS and quantity not in result:
                result[quantity] = (kept.value, list(kept.recent), kept.nonfinite)
        for (quantity, _), seen in self._nonfinite.items():
            if seen.count and quantity not in result:
                result[quantity] = (math.nan, [], seen.count)
        return result

    def _keep(
        self, quantity: str, rank: int | None, source: Source, value: float
    ) -> _Quantity | None:
        key = (quantity, rank)
        name, own = exported_name(quantity)
        kept = self._quantities.get(key)
        if kept is None:
            if len(self._quantities) >= MAX_QUANTITIES:
                self.dropped += 1
                return None
            labels = self._labels(own, rank)
            kept = _Quantity(source, value, Point(name, labels, value))
            self._quantities[key] = kept
        elif kept.source > source:
            kept.recent.clear()
            kept.source = source
        kept.value = value
        kept.recent.append(value)
        if not math.isfinite(value):
            kept.nonfinite += 1
        kept.point = Point(name, kept.point.labels, value)
        return kept

    def _count(self, quantity: str, rank: int | None, step: int | None, evidence: Evidence) -> bool:
        seen = self._nonfinite.setdefault((quantity, rank), _Nonfinite(0))
        if step is not None:
            if step in seen.steps:
                return False
            seen.steps.append(step)
        seen.count += 1
        self.evidence["ldlm_train_nonfinite_total", self._count_labels(quantity, rank)] = evidence
        return True

    def _labels(self, own: Labels, rank: int | None) -> Labels:
        shared = make_labels(run=self._run, rank=None if rank is None else str(rank))
        return tuple(sorted((*own, *shared)))

    def _count_labels(self, quantity: str, rank: int | None) -> Labels:
        return self._labels((("quantity", quantity),), rank)
