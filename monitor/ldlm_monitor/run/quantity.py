"""One quantity of one rank: the metric that exports it, and its last values."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ldlm_monitor.model.points import Labels, make_labels
from ldlm_monitor.model.records import Position, Sample
from ldlm_monitor.run.curve import Curve
from ldlm_monitor.run.sources import Source

WINDOW = 1000
"""Values of a quantity that statistics are over."""

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


def exported_name(quantity: str) -> tuple[str, Labels]:
    """The metric that exports a quantity, and its own labels."""
    if metric := _EXPORTED.get(quantity):
        return metric, ()
    if quantity.startswith("loss_"):
        return "ldlm_train_component_loss", make_labels(component=quantity[5:])
    if quantity == "accuracy" or quantity.startswith("accuracy_"):
        return "ldlm_train_accuracy_ratio", make_labels(component=quantity[9:])
    return "ldlm_train_metric", make_labels(name=quantity)


def labels_of(run: str, rank: int | None, own: Labels) -> Labels:
    """The labels of a series of a run, and of a rank where one reported it, with its `own`."""
    shared = make_labels(run=run, rank=None if rank is None else str(rank))
    return tuple(sorted((*own, *shared)))


@dataclass(frozen=True, slots=True)
class Evidence:
    """The line that last changed a series; of two, the later one has the greater `order`."""

    position: Position
    step: int | None
    text: str | None = None
    order: int = 0


class Quantity:
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
