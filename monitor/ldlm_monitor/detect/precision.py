"""Mixed precision: a loss scale that collapses, steps that are skipped."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ldlm_monitor.detect.window import Values, Window, finite, median

WINDOW = 500
LEAST = 20
STEPS = 100
CALIBRATION = 200
"""In its first steps a dynamic loss scale comes down from its start by skipping steps."""


class LossScaleDetector:
    """`loss_scale_ratio`: the loss scale over its median in the up to 500 logged steps before.

    A dynamic scale halves at an overflow and doubles every some thousand steps.
    """

    __slots__ = ("_window",)

    def __init__(self) -> None:
        self._window = Window(WINDOW)

    def take(self, values: Values) -> None:
        """The next scales."""
        self._window.extend(finite(values))

    def measures(self) -> Iterator[tuple[str, float]]:
        """Names without their prefix, and values."""
        scales = self._window.values
        if len(scales) > LEAST and (usual := median(scales[:-1])) > 0:
            yield "loss_scale_ratio", scales[-1] / usual


class SkippedSteps:
    """`skipped_steps_ratio`: skipped among the last 100 steps, after the first 200."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()

    def take(self, step: int, skipped: int) -> None:
        """So many were `skipped` in all when the run was at `step`."""
        if self._seen and step < self._seen[-1][0]:
            self._seen.clear()
        if not self._seen or (step, skipped) != self._seen[-1]:
            self._seen.append((step, skipped))
        while len(self._seen) > 1 and self._seen[1][0] <= step - STEPS:
            self._seen.popleft()

    def measures(self) -> Iterator[tuple[str, float]]:
        """Names without their prefix, and values."""
        if self._seen and self._seen[0][0] >= CALIBRATION:
            skipped = self._seen[-1][1] - self._seen[0][1]
            yield "skipped_steps_ratio", min(skipped / STEPS, 1.0)
