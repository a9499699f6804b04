"""Which news is judged at once, and which waits a moment because too much of it comes."""

from __future__ import annotations

import math
from typing import Final

REPEAT_SECONDS: Final = 1.0
"""The same urgent fact about a run is evaluated at once only this often."""
AT_ONCE: Final = 8
"""So many urgent facts of one run within a second are judged each at once.

A thousand ranks that fail together tell thousands; those beyond are judged together when the
second is over, so that an alert still fires within a second of its line.
"""


class Urgency:
    """When urgent news of each run was judged last. Times are Unix seconds."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], float] = {}
        self._second: dict[str, tuple[float, int]] = {}
        self.due = math.inf

    def is_at_once(self, run: str, fact: str, at: float) -> bool:
        """Whether an urgent fact is to be judged now; `due` is when it is otherwise, if at all."""
        if at - self._told.get((run, fact), -math.inf) < REPEAT_SECONDS:
            return False
        self._told[run, fact] = at
        began, count = self._second.get(run, (-math.inf, 0))
        if at - began >= REPEAT_SECONDS:
            began, count = at, 0
        self._second[run] = (began, count + 1)
        if count < AT_ONCE:
            return True
        self.due = min(self.due, began + REPEAT_SECONDS)
        return False

    def judged(self, at: float) -> None:
        """Everything up to `at` was judged."""
        if at >= self.due:
            self.due = math.inf
