"""Checkpoints: whether the next one is late."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ldlm_monitor.judge.detect.detector import Gauges

LEAST_CHECKPOINTS = 4
"""Checkpoints needed before the next can be late. A choice: more delay the gauge; of two, the only
interval can be a short one, before the save at the end of an epoch."""


CHECKPOINT_GAUGES: Gauges = {
    "checkpoint_age_ratio": "Steps since the last checkpoint over the longest interval.",
    # This one comes of what the host knows of the disk: `judge/core/self_metrics.py`.
    "checkpoint_disk_full_seconds": (
        "Time until the disk of checkpoints is full at the pace of the last ones."
    ),
}


def checkpoint_age(step: int, saved: Sequence[int]) -> Iterator[tuple[str, float]]:
    """`checkpoint_age_ratio`: steps since the last checkpoint over the longest interval before.

    A pause of the run makes no checkpoint late, as time is not counted. The run is at `step`; the
    last checkpoints were saved at the steps `saved`, oldest first. Yields nothing if `saved` has
    fewer than four steps or does not rise, or if `step` is before the last of `saved`.
    """
    intervals = [later - earlier for earlier, later in pairwise(saved)]
    if len(saved) >= LEAST_CHECKPOINTS and min(intervals) > 0 and step >= saved[-1]:
        yield "checkpoint_age_ratio", (step - saved[-1]) / max(intervals)
