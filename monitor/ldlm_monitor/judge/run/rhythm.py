"""How often a quantity is logged, so that it is missed when it no longer comes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

SILENCE_STEPS = "ldlm_detect_metric_silence_steps"
SILENCE_RATIO = "ldlm_detect_metric_silence_ratio"
KNOWN = 20
"""Steps with the quantity after which its rhythm is known. A choice: more miss what stops early,
fewer take some values of a start for a rhythm."""
SHOWN = 2.0
"""Times the longest gap from which a silence is exported: below, it is none."""


@dataclass(slots=True)
class Rhythm:
    """The steps at which a file has a quantity.

    `last`: the last of them; -1 before the first. `longest`: most steps from one to the next.
    """

    last: int = -1
    count: int = 0
    longest: int = 0

    def extend(self, steps: Sequence[int], places: Sequence[int]) -> None:
        """Add the rows at `places` of a file, whose `steps` rise; where they fall, begin anew."""
        first, last = steps[places[0]], steps[places[-1]]
        if first < self.last:
            self.count = self.longest = 0
        elif self.count and first - self.last > self.longest:
            self.longest = first - self.last
        if last - first > self.longest and len(places) > 1:
            found = [steps[place] for place in places]
            self.longest = max(
                self.longest, *(later - earlier for earlier, later in pairwise(found))
            )
        self.count += len(places) if last > self.last or first < self.last else 0
        self.last = last

    def silence(self, step: int) -> tuple[int, float] | None:
        """Steps since the last value, now that the file is at `step`, and their ratio to the
        longest gap before; None if that is nothing to speak of."""
        if self.count < KNOWN or not self.longest:
            return None
        silent = step - self.last
        ratio = silent / self.longest
        return (silent, ratio) if ratio >= SHOWN else None
