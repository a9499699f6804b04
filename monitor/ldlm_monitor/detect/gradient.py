"""The gradient norm against its own past."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ldlm_monitor.detect.window import Values, Window, median, positive, spread

WINDOW = 500
RECENT = 5
LEAST = 20
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
        self._window = Window(WINDOW)

    def take(self, values: Values) -> None:
        """The next norms; what is not finite or not above 0 tells nothing here."""
        self._window.extend([math.log(value) for value in positive(values)])

    def measures(self) -> Iterator[tuple[str, float]]:
        """Names without their prefix, and values."""
        logarithms = self._window.values
        if len(logarithms) >= LEAST + RECENT:
            before, recent = logarithms[:-RECENT], logarithms[-RECENT:]
            middle = median(before)
            noise = max(spread(before, middle), FINEST)
            yield "grad_norm_zscore", (recent[-1] - middle) / noise
            yield "grad_norm_ratio", math.exp(median(recent) - middle)
