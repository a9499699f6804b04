"""When rules are evaluated: on a grid of slots, and at once for urgent facts."""

from __future__ import annotations

import math
from typing import Final

from ldlm_monitor.core.rule_engine import RuleEngine
from ldlm_monitor.run.fleet import Fleet

REPEAT_SECONDS: Final = 1.0
"""The same urgent fact about a run is evaluated at once only this often."""
WINDOW_SECONDS: Final = 0.5
AT_ONCE: Final = 4
"""So many urgent facts in a window are judged each at once.

A thousand ranks, or runs, that fail together bring thousands of facts, and every evaluation
computes all rules. Those beyond are judged together when the window is over, so that an alert
still fires within a second of its line.
"""


class EvaluationSchedule:
    """Slots every `interval` seconds. `next` is the first one that may have to be evaluated.

    Up to `busy_until` something that is exported has changed within the reach of the rules.
    Unix seconds, all of them; infinite before the first time is known.
    """

    def __init__(self, interval: float, rules: RuleEngine, runs: Fleet) -> None:
        self._rules = rules
        self._runs = runs
        self.interval = interval
        self.next = -math.inf
        self.busy_until = -math.inf

    def changed(self, at: float) -> None:
        """Something that is exported changed."""
        self.busy_until = at + self._rules.reach + self.interval

    def evaluated(self, at: float) -> None:
        """The slots up to `at` are done."""
        if at >= self.next:
            self.next = (math.floor(at / self.interval) + 1) * self.interval

    def begin(self, at: float) -> None:
        """Set the first slot, at or after `at` (Unix seconds), unless there is one."""
        if math.isinf(self.next):
            self.next = math.ceil(at / self.interval) * self.interval

    def due(self) -> float:
        """The next slot, infinite while no slot can differ from the one before."""
        asked = self._rules.asks_the_time and self._runs.active
        return self.next if asked or self.next <= self.busy_until else math.inf

    def due_until(self, to: float) -> float:
        """As `due`; slots before `to` that cannot differ are skipped."""
        if math.isinf(self.due()):
            self.next = max(self.next, math.ceil(to / self.interval) * self.interval)
        return self.due()


class EvaluationThrottle:
    """When urgent news was judged last. Times are Unix seconds."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], float] = {}
        self._began = -math.inf
        self._judged = 0
        self.due = math.inf

    def is_at_once(self, run: str, fact: str, at: float) -> bool:
        """Whether an urgent fact is to be judged now; `due` is when it is otherwise, if at all."""
        if at - self._seen.get((run, fact), -math.inf) < REPEAT_SECONDS:
            return False
        self._seen[run, fact] = at
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
