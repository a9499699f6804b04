"""The gradient norm, and what mixed precision does: loss scale, overflows, skipped steps."""

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

from ldlm_monitor.judge.detect.detector import Detector, Gauges
from ldlm_monitor.judge.detect.window import (
    ComparedValues,
    Values,
    exp,
    finite,
    median,
    middle_of,
    pieces,
    positive,
    spread_of,
)

NORM_WINDOW = 500
"""Norms compared. A choice: a median of more lags behind a decay, that of fewer follows a spike."""
NORM_RECENT = 20
"""Last norms whose median is compared. A choice: more delay a rise, fewer follow some bad batches.
The rule waits no longer: at 20 steps a second, 30 s of high norms are this run's usual ones."""
NORM_LEAST = 30
"""Norms needed before the last 20. A choice: more delay the gauges, fewer give a noisy spread."""
FINEST = 0.05
"""Least noise of a logarithm, 5 %. A choice: more hides outliers; less would make any change of
clipped norms, which hardly vary, an outlier."""


class GradientDetector(Detector):
    """The gradient norm of one rank against its past, in logarithms, since norms vary by factors.

    With m and s the median and 1.4826 median absolute deviations (at least 0.05) of the
    logarithms of the up to 480 norms before the last 20:

    - `grad_norm_zscore`: of the last norm, (ln(last) - m) / s.
    - `grad_norm_ratio`: the median of the last 20 norms over that of those before, the highest
      since the last update.
    """

    quantity = "grad_norm"
    gauges: ClassVar[Gauges] = {
        "grad_norm_zscore": "The last gradient norm in robust deviations of its logarithm.",
        "grad_norm_ratio": "The recent gradient norm over its own median.",
    }

    def __init__(self) -> None:
        self._window = ComparedValues(NORM_WINDOW, NORM_RECENT)
        self._highest = -math.inf

    def update(self, values: Values) -> None:
        """Add the next norms; those that are not finite or not above 0 are ignored."""
        logarithms = [math.log(value) for value in positive(values)]
        self._highest, before, half = -math.inf, self._window.before, NORM_RECENT // 2
        # With fewer norms above all before, no median of the last 20 can be.
        calm = len(before) >= NORM_LEAST and sum(map(before[-1].__lt__, logarithms)) < half
        for piece in pieces(logarithms, max(len(logarithms), 1) if calm else half, NORM_WINDOW):
            self._window.extend(piece)
            if len(self._window.before) >= NORM_LEAST:
                rise = median(self._window.recent) - middle_of(self._window.before)
                self._highest = max(self._highest, rise)

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges with enough values: each name without `ldlm_detect_`, and its value."""
        before, recent = self._window.before, self._window.recent
        if len(before) >= NORM_LEAST:
            middle = middle_of(before)
            noise = max(spread_of(before, middle), FINEST)
            yield "grad_norm_zscore", (recent[-1] - middle) / noise
            yield "grad_norm_ratio", exp(max(self._highest, median(recent) - middle))


SCALE_WINDOW = NORM_WINDOW
"""Steps compared. A choice: the median of fewer follows a fall, 2000 would span a doubling."""
SCALE_LEAST = 20
"""Scales needed before the last. A choice: more delay it, a halving moves the median of fewer."""
SKIPPED_STEPS = 100
"""Steps whose skipped share is computed. A choice: more react later, fewer make it coarse."""
FIRST_OVERFLOWS = 4
"""Most overflows in a row that are normal at the start. A choice: four halvings lower GradScaler's
2**16 to 2**12; more would hide a broken model, fewer would alert about a usual start."""
LATER_OVERFLOWS = 2
"""Most overflows in a row that are normal later: a doubled scale is halved once or twice."""
CALIBRATION = 200
"""First steps of a launch without `skipped_steps_ratio`. A choice: more delay the gauge; in fewer,
a dynamic loss scale still falls from its initial value, and each fall skips a step."""


class LossScaleDetector(Detector):
    """`loss_scale_ratio`: the loss scale over its median in the up to 499 logged steps before.

    A dynamic scale halves at an overflow, and doubles after 2000 steps without one.
    """

    quantity = "loss_scale"
    gauges: ClassVar[Gauges] = {
        "loss_scale_ratio": "The loss scale over its own median.",
    }

    def __init__(self) -> None:
        self._window = ComparedValues(SCALE_WINDOW, 1)

    def update(self, values: Values) -> None:
        """Add the next scales; those that are not finite are ignored."""
        self._window.extend(finite(values))

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges with enough values: each name without `ldlm_detect_`, and its value."""
        before = self._window.before
        if len(before) >= SCALE_LEAST and (usual := middle_of(before)) > 0:
            yield "loss_scale_ratio", self._window.values[-1] / usual


class OverflowDetector(Detector):
    """`grad_norm_overflow_steps`: the number of non-finite norms that a loss scale explains.

    A dynamic loss scale starts too high: up to the first 4 norms may overflow, and the trainer
    skips those steps (torch.amp.GradScaler begins at 2**16). After such a start, one or two
    overflows in a row follow when the scale is raised again. Longer rows are not explained.
    """

    quantity = "grad_norm"
    gauges: ClassVar[Gauges] = {
        "grad_norm_overflow_steps": "Non-finite norms explained by a dynamic loss scale's search.",
    }

    def __init__(self) -> None:
        self._explained = 0
        self._in_a_row = 0
        self._may_follow = FIRST_OVERFLOWS

    def update(self, values: Values) -> None:
        """Add the next gradient norms; each that is not finite is an overflow."""
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
        """The gauge without its prefix `ldlm_detect_`, and its value; nothing instead of 0."""
        if self._explained:
            yield "grad_norm_overflow_steps", self._explained


SKIPPED_GAUGES: Gauges = {"skipped_steps_ratio": "Skipped steps among the last 100."}


def skipped_share(step: int, skipped: Sequence[int], taken: int) -> Iterator[tuple[str, float]]:
    """`skipped_steps_ratio`: the share of skipped steps in the last 100, after the first 200.

    `step` is the run's last step; `skipped` are the steps that were skipped, the last reported
    one at the end; `taken` counts those of the present launch up to `step`. The last 100 steps are
    counted from the later of both, as the files that report them can be read at different times.
    """
    last = max(step, skipped[-1]) if skipped else step
    if taken + last - step >= SKIPPED_STEPS + CALIBRATION:
        recent = sum(last - SKIPPED_STEPS < each <= last for each in skipped)
        yield "skipped_steps_ratio", min(recent / SKIPPED_STEPS, 1.0)
