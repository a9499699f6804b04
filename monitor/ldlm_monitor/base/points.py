"""Labelled numbers that the monitor exports, and what its detectors read of a run."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ldlm_promrules.samples import Labels, Point

__all__ = [
    "BUSY_SECONDS",
    "DERIVED_STEP_SECONDS",
    "MAX_LABEL_LENGTH",
    "PACES",
    "RETENTION",
    "Labels",
    "Measured",
    "Point",
    "make_labels",
]

MAX_LABEL_LENGTH = 128  # of a label's value. A choice: more inflates scrapes, less merges names

RETENTION = 21_600
"""Least seconds of samples in the store, for queries and views. A choice: six hours show the
course of a night's failure; more costs memory, and for longer times there is Prometheus."""


@lru_cache(maxsize=4096)  # a choice: of what each scrape exports anew; more would take memory
def make_labels(**pairs: str | None) -> Labels:
    """Sorted labels of the pairs whose value is not None or "", cut to `MAX_LABEL_LENGTH`."""
    return tuple(sorted((name, value[:MAX_LABEL_LENGTH]) for name, value in pairs.items() if value))


DERIVED_STEP_SECONDS = "derived_step_seconds"
"""Quantity: seconds per step computed from the steps' times, for runs that report no pace."""
PACES = ("step_seconds", "samples_per_second", "tokens_per_second", "steps_per_second")
"""Logged quantities that give the pace, the preferred first: a duration that the trainer measured,
and rates."""
BUSY_SECONDS = "busy_seconds"
"""Quantity: seconds of a step that a rank worked before it waited for others; ranks report it."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A run's new values since its detectors read it last.

    `values`: by quantity and rank (None if the line has none), one value per logged step, in
    order, with NaN and infinities. `step`: the run's last step. `taken`: how many its present
    launch took. `rank_steps`: each rank's last logged step. `skipped`: the last skipped steps.
    `checkpoints`: the steps at which the last ones were saved, rising. `resumed`: the run went back
    to an earlier step, or began another attempt. `begins_anew`: all values are of another training
    than those before. `at`: Unix
    seconds of the last step, None where only the order of steps is known. `pace`: quantity and rank
    whose values give the pace of the run, which changes where a better source or quantity is found.
    """

    values: Mapping[tuple[str, int | None], array[float]]
    step: int | None
    rank_steps: Mapping[int, int]
    skipped: Sequence[int]
    checkpoints: Sequence[int]
    resumed: bool
    taken: int = 0
    begins_anew: bool = False
    at: float | None = None
    pace: tuple[str, int | None] = (DERIVED_STEP_SECONDS, None)
