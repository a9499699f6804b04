"""Which news is judged at once, and which waits a moment because too much of it comes."""

from __future__ import annotations

import math
from typing import Final

REPEAT_SECONDS: Final = 1.0
"""The same urgent fact about a run is evaluated at once only this often."""
WINDOW_SECONDS: Final = 0.5
AT_ONCE: Final = 4
"""So many urgent facts in a window are judged each at once.

A thousand ranks, or runs, that fail together tell thousands, and every evaluation asks about all
of them; those beyond are judged together when the window is over, so that an alert still fires
within a second of its line.
"""


class EvaluationThrottle:
    """When urgent news was judged last. Times are Unix seconds."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], float] = {}
        self._began = -math.inf
        self._judged = 0
        self.due = math.inf

    def is_at_once(self, run: str, fact: str, at: float) -> bool:
        """Whether an urgent fact is to be judged now; `due` is when it is otherwise, if at all."""
        if at - self._told.get((run, fact), -math.inf) < REPEAT_SECONDS:
            return False
        self._told[run, fact] = at
        if at - self._began >= WINDOW_SECONDS:
            self._began, self._judged = at, 0
        self._judged += 1
        if self._judged <= AT_ONCE:
            return True
        self.due = min(self.due, self._began + WINDOW_SECONDS)
        return False

    def judged(self, at: float) -> None:
        """Everything up to `at` was judged."""
        if at >= self.due:
            self.due = math.inf
