"""The pace of a run against its own."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

from ldlm_monitor.detect.change_point import ChangePoint
from ldlm_monitor.detect.window import Values, Window, median, positive

WINDOW = 1000
RECENT = 10
LEAST = 50
VARIATION = 50


class ThroughputDetector:
    """What the seconds of a step (or of a sample, a token) tell, for these gauges.

    - `throughput_ratio`: the usual seconds, the median of up to 990 logged steps before
      the last 10, over the median of those 10. Below 1 the run is slower than it was. A
      new pace becomes the usual one when it has held for half of the window.
    - `throughput_variation_ratio`: standard deviation over mean of the last 50.
    - `step_time_change_ratio`: `ChangePoint.ratio`.
    """

    __slots__ = ("_change", "_window")

    def __init__(self) -> None:
        self._window = Window(WINDOW)
        self._change = ChangePoint()

    def take(self, seconds: Values) -> None:
        """The next steps' seconds; what is not finite or not above 0 tells nothing."""
        seconds = positive(seconds)
        self._window.extend(seconds)
        self._change.take(seconds)

    def measures(self) -> Iterator[tuple[str, float]]:
        """Names without their prefix, and values."""
        seconds = self._window.values
        if len(seconds) >= LEAST + RECENT:
            yield "throughput_ratio", median(seconds[:-RECENT]) / median(seconds[-RECENT:])
        if len(seconds) >= VARIATION:
            last = seconds[-VARIATION:]
            mean = sum(last) / VARIATION
            deviation = sqrt(sum((each - mean) ** 2 for each in last) / VARIATION)
            yield "throughput_variation_ratio", deviation / mean
            yield "step_time_change_ratio", self._change.ratio
