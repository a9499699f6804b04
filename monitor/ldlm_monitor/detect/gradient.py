"""The gradient norm, and what mixed precision does: loss scale, overflows, skipped steps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from ldlm_monitor.detect.window import Values, Window, finite, median, positive, spread

NORM_WINDOW = 500
NORM_RECENT = 5
NORM_LEAST = 20
FINEST = 0.05
"""Norms that vary by less than 5 % are taken to vary by that."""


class GradientDetector:
    """What the gradient norm of one rank does. Norms vary by factors, so logarithms are compared.

    With m and s the median and 1.4826 MAD of the logarithms of the up to 495 norms before
    the last 5:

    - `grad_norm_zscore`: of the last norm, (ln(last) - m) / s.
    - `grad_norm_ratio`: the median of the last 5 norms over that of those before.
    """

    __slots__ = ("_window",)

    def __init__(self) -> None:
        self._window = Window(NORM_WINDOW)

    def take(self, values: Values) -> None:
        """The next norms; what is not finite or not above 0 tells nothing here."""
        self._window.extend([math.log(value) for value in positive(values)])

    def measures(self) -> Iterator[tuple[str, float]]:
        """Names without their prefix, and values."""
        logarithms = self._window.values
        if len(logarithms) >= NORM_LEAST + NORM_RECENT:
            before, recent = logarithms[:-NORM_RECENT], logarithms[-NORM_RECENT:]
            middle = median(before)
            noise = max(spread(before, middle), FINEST)
            yield "grad_norm_zscore", (recent[-1] - middle) / noise
            yield "grad_norm_ratio", math.exp(median(recent) - middle)


SCALE_WINDOW = 500
SCALE_LEAST = 20
SKIPPED_STEPS = 100
FIRST_OVERFLOWS = 4
LATER_OVERFLOWS = 2
CALIBRATION = 200
"""In its first steps a dynamic loss scale comes down from its start by skipping steps."""


class LossScaleDetector:
    """`loss_scale_ratio`: the loss scale over its median in the up to 500 logged steps before.

    A dynamic scale halves at an overflow and doubles every some thousand steps.
    """

    __slots__ = ("_window",)

    def __init__(self) -> None:
        self._window = Window(SCALE_WINDOW)

    def take(self, values: Values) -> None:
        """The next scales."""
        self._window.extend(finite(values))

    def measures(self) -> Iterator[tuple[str, float]]:
        """Names without their prefix, and values."""
        scales = self._window.values
        if len(scales) > SCALE_LEAST and (usual := median(scales[:-1])) > 0:
            yield "loss_scale_ratio", scales[-1] / usual


class OverflowDetector:
    """`grad_norm_overflow_steps`: norms that are NaN or infinite as a loss scale explains it.

    A dynamic loss scale is tried from above: up to the first 4 norms may overflow, and the
    trainer skips those steps (torch.amp.GradScaler begins at 2**16). Where that was seen, one or
    two in a row are the scale that was raised again. More in a row are explained by nothing.
    """

    __slots__ = ("_explained", "_in_a_row", "_may_follow")

    def __init__(self) -> None:
        self._explained = 0
        self._in_a_row = 0
        self._may_follow = FIRST_OVERFLOWS

    def take(self, values: Values) -> None:
        """The next gradient norms."""
        for value in values:
            if math.isfinite(value):
                if self._may_follow == FIRST_OVERFLOWS:
                    self._may_follow = LATER_OVERFLOWS if self._explained else 0
                self._in_a_row = 0
                continue
            self._in_a_row += 1
            if self._in_a_row <= self._may_follow:
                self._explained += 1
            elif self._in_a_row == self._may_follow + 1:
                self._explained -= self._may_follow

    def measures(self) -> Iterator[tuple[str, float]]:
        """Names without their prefix, and values."""
        if self._explained:
            yield "grad_norm_overflow_steps", self._explained


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
        while len(self._seen) > 1 and self._seen[1][0] <= step - SKIPPED_STEPS:
            self._seen.popleft()

    def measures(self) -> Iterator[tuple[str, float]]:
        """Names without their prefix, and values."""
        if self._seen and self._seen[0][0] >= CALIBRATION:
            skipped = self._seen[-1][1] - self._seen[0][1]
            yield "skipped_steps_ratio", min(skipped / SKIPPED_STEPS, 1.0)
