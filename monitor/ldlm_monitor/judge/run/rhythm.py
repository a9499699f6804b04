"""How often a quantity is logged, so that it is missed when it no longer comes."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import sub

SILENCE_STEPS = "ldlm_detect_metric_silence_steps"
SILENCE_RATIO = "ldlm_detect_metric_silence_ratio"
KNOWN = 20
"""Steps with the quantity after which its rhythm is known. A choice: more miss what stops early,
fewer take some values of a start for a rhythm."""
SHOWN = 2.0
"""Times the longest gap from which a silence is exported: below, it is none."""


@dataclass(frozen=True, slots=True)
class LoggedSteps:
    """Consecutive rows of a file: the steps of the first and the last, the longest gap between two
    of them, and how many rows there are."""

    first: int
    last: int
    longest: int
    count: int

    @classmethod
    def of(cls, steps: Sequence[int]) -> "LoggedSteps":
        """The rows at `steps`, which rise."""
        first, last, count = steps[0], steps[-1], len(steps)
        even = last - first == count - 1 or count == 1
        longest = min(count - 1, 1) if even else max(map(sub, steps[1:], steps))
        return cls(first, last, longest, count)


@dataclass(slots=True)
class Rhythm:
    """The steps at which a file has a quantity.

    `last`: the last of them; -1 before the first. `longest`: most steps from one to the next.
    """

    last: int = -1
    count: int = 0
    longest: int = 0

    def extend(self, steps: LoggedSteps) -> None:
        """Add rows that have the quantity; where their steps fall, begin anew."""
        if steps.first < self.last:
            self.count = self.longest = 0
        elif self.count:
            self.longest = max(self.longest, steps.first - self.last)
        self.longest = max(self.longest, steps.longest)
        self.count += 0 if steps.last == self.last else steps.count
        self.last = steps.last

    def silence(self, step: int) -> tuple[int, float] | None:
        """Steps since the last value, now that the file is at `step`, and their ratio to the
        longest gap before; None below `SHOWN` times that gap."""
        if self.count < KNOWN or not self.longest:
            return None
        silent = step - self.last
        ratio = silent / self.longest
        return (silent, ratio) if ratio >= SHOWN else None
