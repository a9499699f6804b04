"""The gradient norm, and what mixed precision does: loss scale, overflows, skipped steps."""

import math
from collections.abc import Iterator, Sequence

from ldlm_monitor.detect.window import RecentValues, Values, exp, finite, median, positive, spread

NORM_WINDOW = 500
"""Logged steps compared, a choice: long against a spike, short against the decay of the norm."""
NORM_RECENT = 5
"""Last norms whose median is compared, a choice: one bad batch does not move it."""
NORM_LEAST = 20
"""Norms needed before the last 5, a choice: the median absolute deviation of fewer is noise."""
FINEST = 0.05
"""Least noise of a logarithm: clipped norms vary by less than 5 %, which would make any change an
outlier."""


class GradientDetector:
    """The gradient norm of one rank against its past, in logarithms, since norms vary by factors.

    With m and s the median and 1.4826 MAD of the logarithms of the up to 495 norms before
    the last 5:

    - `grad_norm_zscore`: of the last norm, (ln(last) - m) / s.
    - `grad_norm_ratio`: the median of the last 5 norms over that of those before.
    """

    def __init__(self) -> None:
        self._window = RecentValues(NORM_WINDOW)

    def update(self, values: Values) -> None:
        """Add the next norms; those that are not finite or not above 0 are ignored."""
        self._window.extend([math.log(value) for value in positive(values)])

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges: each name without `ldlm_detect_`, and its value."""
        logarithms = self._window.values
        if len(logarithms) >= NORM_LEAST + NORM_RECENT:
            before, recent = logarithms[:-NORM_RECENT], logarithms[-NORM_RECENT:]
            middle = median(before)
            noise = max(spread(before, middle), FINEST)
            yield "grad_norm_zscore", (recent[-1] - middle) / noise
            yield "grad_norm_ratio", exp(median(recent) - middle)


SCALE_WINDOW = NORM_WINDOW
"""Logged steps compared: less than the 2000 after which a GradScaler doubles its scale."""
SCALE_LEAST = 20
"""Scales needed before the last one, a choice: each halving would move the median of fewer."""
SKIPPED_STEPS = 100
"""Steps over which the share of skipped ones is computed, a choice: each step is one percent."""
FIRST_OVERFLOWS = 4
"""Overflows in a row at the start: a GradScaler starts at 2**16, and four halvings reach 2**12. A
model that needs more at once is worth an alert."""
LATER_OVERFLOWS = 2
"""Overflows in a row later: a scale that was doubled is halved once or twice."""
CALIBRATION = 200
"""First steps without `skipped_steps_ratio`, a choice: in them a dynamic loss scale decreases from
its start, and each decrease skips a step."""


class LossScaleDetector:
    """`loss_scale_ratio`: the loss scale over its median in the up to 499 logged steps before.

    A dynamic scale halves at an overflow, and doubles after 2000 steps without one.
    """

    def __init__(self) -> None:
        self._window = RecentValues(SCALE_WINDOW)

    def update(self, values: Values) -> None:
        """Add the next scales."""
        self._window.extend(finite(values))

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges: each name without `ldlm_detect_`, and its value."""
        scales = self._window.values
        if len(scales) > SCALE_LEAST and (usual := median(scales[:-1])) > 0:
            yield "loss_scale_ratio", scales[-1] / usual


class OverflowDetector:
    """`grad_norm_overflow_steps`: the number of non-finite norms that a loss scale explains.

    A dynamic loss scale starts too high: up to the first 4 norms may overflow, and the trainer
    skips those steps (torch.amp.GradScaler begins at 2**16). After such a start, one or two
    overflows in a row follow when the scale is raised again. Longer rows are not explained.
    """

    def __init__(self) -> None:
        self._explained = 0
        self._in_a_row = 0
        self._may_follow = FIRST_OVERFLOWS

    def update(self, values: Values) -> None:
        """Add the next gradient norms."""
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
        """The gauges: each name without `ldlm_detect_`, and its value."""
        if self._explained:
            yield "grad_norm_overflow_steps", self._explained


def skipped_share(step: int, skipped: Sequence[int]) -> Iterator[tuple[str, float]]:
    """`skipped_steps_ratio`: the share of skipped steps in the last 100, after the first 200.

    `step` is the run's last step; `skipped` are the steps that were skipped, the last reported
    one at the end. The last 100 steps are counted from the later of both, as the files that
    report them can be read at different times.
    """
    last = max(step, skipped[-1]) if skipped else step
    if last - SKIPPED_STEPS >= CALIBRATION:
        recent = sum(last - SKIPPED_STEPS < each <= last for each in skipped)
        yield "skipped_steps_ratio", min(recent / SKIPPED_STEPS, 1.0)
