"""What a run newly measured, on its way from the runs to the detectors."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DERIVED_STEP_SECONDS = "derived_step_seconds"
"""Seconds a step from the times of steps, for runs that report no pace."""

BUSY_SECONDS = "busy_seconds"
"""Seconds of a step before a rank waits for others, as the rank reports."""

MEASURED = frozenset(
    {
        "loss",
        "grad_norm",
        "memory_allocated_bytes",
        "loss_scale",
        "step_seconds",
        BUSY_SECONDS,
        "samples_per_second",
        "tokens_per_second",
        "steps_per_second",
    }
)
"""The quantities whose every value is handed on."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What came since the last time.

    `values`: by quantity and rank, one value a logged step, in order; NaN and infinities
    too. `step`: where the run is. `rank_steps`: by rank, the last logged step.
    `skipped_steps`: in all. `checkpoints`: at which steps the last ones were saved.
    `resumed`: the run went back to an earlier step.
    """

    values: Mapping[tuple[str, int | None], array[float]]
    step: int | None
    rank_steps: Mapping[int, int]
    skipped_steps: int
    checkpoints: Sequence[int]
    resumed: bool
