"""How often a run told that a number was NaN or infinite: each step once, however many tell it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from ldlm_monitor.model.points import Labels, Point
from ldlm_monitor.model.records import Event
from ldlm_monitor.run.quantity import Evidence, labels_of

METRIC = "ldlm_train_nonfinite_total"
_STEPS = 64
"""The last steps that were counted are known."""
_HIDDEN_LOSS = {"latent_pred": "loss_latent", "latent_target": "loss_latent", "total_loss": "loss"}
"""A non-finite tensor behind which the trainer puts a constant loss: which loss it hides."""


@dataclass(slots=True)
class _Count:
    labels: Labels
    count: int = 0
    steps: deque[int] = field(default_factory=lambda: deque(maxlen=_STEPS))
    evidence: Evidence | None = None


class NonfiniteCounts:
    """By quantity and rank; loss and gradient norm are there from the start."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._counts: dict[tuple[str, int | None], _Count] = {}
        for quantity in ("loss", "grad_norm"):
            self._of(quantity, None)

    def count(self, quantity: str, rank: int | None, evidence: Evidence) -> bool:
        """Count what a line told; False if its step was counted already."""
        seen = self._of(quantity, rank)
        if evidence.step is not None:
            if evidence.step in seen.steps:
                return False
            seen.steps.append(evidence.step)
        seen.count += 1
        seen.evidence = evidence
        return True

    def count_event(self, event: Event, order: int) -> bool:
        """Count what a `nonfinite_metric` event tells of; True if new."""
        told = event.fields.get("quantity")
        quantity = _HIDDEN_LOSS.get(str(told), str(told)) if told else "loss"
        step = event.fields.get("step")
        number = int(step) if isinstance(step, int) else None
        return self.count(
            quantity, event.rank, Evidence(event.position, number, event.message, order)
        )

    def items(self) -> Iterator[tuple[str, int]]:
        """Quantity and count, of each rank."""
        for (quantity, _), seen in self._counts.items():
            yield quantity, seen.count

    def points(self) -> list[Point]:
        """Every count as it stands."""
        return [Point(METRIC, seen.labels, seen.count) for seen in self._counts.values()]

    def evidence(self) -> Iterator[tuple[str, Labels, Evidence]]:
        """Metric, labels and last line of every count."""
        for seen in self._counts.values():
            if seen.evidence is not None:
                yield METRIC, seen.labels, seen.evidence

    def _of(self, quantity: str, rank: int | None) -> _Count:
        seen = self._counts.get((quantity, rank))
        if seen is None:
            labels = labels_of(self._run, rank, (("quantity", quantity),))
            seen = self._counts[quantity, rank] = _Count(labels)
        return seen
