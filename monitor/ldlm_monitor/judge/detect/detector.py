"""What a detector declares: the quantity that it reads, and the gauges that it computes of it."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, TypeAlias

from ldlm_monitor.judge.detect.window import Values

Gauges: TypeAlias = Mapping[str, str]
"""The HELP text of each gauge, by the gauge's name without `ldlm_detect_`."""


class Detector:
    """Compares the values of one quantity of one rank with those before.

    `quantity`: the name under which logs report it. `gauges`: all that `measures` may yield.
    """

    quantity: ClassVar[str]
    gauges: ClassVar[Gauges]

    def update(self, values: Values) -> None:
        """Add the next values, one for each logged step, among them NaN and infinities."""
        raise NotImplementedError

    def measures(self) -> Iterator[tuple[str, float]]:
        """The gauges with enough values: each name without `ldlm_detect_`, and its value."""
        raise NotImplementedError
