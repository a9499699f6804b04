"""When rules are evaluated: at the slots of a grid, and at once for urgent facts.

Urgent facts are a run's errors, critical events and non-finite values, what `run` did about them,
and the end of a stall.
"""

import math
from dataclasses import dataclass
from typing import Final

from ldlm_monitor.judge.core.rule_engine import RuleEngine
from ldlm_monitor.judge.run.fleet import Fleet

REPEAT_SECONDS: Final = 1.0
"""Seconds for which the same urgent fact (NaN at every step) causes no second evaluation: its alert
fires at the first, and more evaluations change nothing that a person sees."""
WINDOW_SECONDS: Final = 0.5
"""Seconds of a window: half of the one in which a line's alert arrives; sending has the rest."""
AT_ONCE: Final = 4
"""Urgent facts in a window that are each judged at once; the others wait for the window's end. A
choice: enough for a failure's first ranks, and at most ten evaluations of all rules a second if a
thousand ranks fail together: in each window four at once, and one at its end."""


@dataclass(slots=True)
class EvaluationSchedule:
    """Slots every `interval` seconds; `next` is the first slot that is not evaluated yet.

    Until `busy_until`, the rules can still see an exported value that changed. Times are Unix
    seconds, -inf before the first one is known.
    """

    interval: float
    rules: RuleEngine
    runs: Fleet
    next: float = -math.inf
    busy_until: float = -math.inf

    def changed(self, at: float) -> None:
        """Note a change of an exported value: slots are evaluated while rules can see it."""
        self.busy_until = at + self.rules.reach + self.interval

    def evaluated(self, at: float) -> None:
        """Mark the slots up to `at` as evaluated."""
        if at >= self.next:
            slot = math.floor(at / self.interval) + 1
            # The quotient may be rounded down (as with 0.94 s): then `slot` is that of `at` itself.
            self.next = (slot if slot * self.interval > at else slot + 1) * self.interval

    def begin(self, at: float) -> None:
        """Set the first slot, at or after `at` (Unix seconds), unless there is one."""
        if math.isinf(self.next):
            self.next = math.ceil(at / self.interval) * self.interval

    def due(self) -> float:
        """The next slot to evaluate; infinite while no result can differ from the last one."""
        asked = self.rules.asks_the_time and self.runs.active
        return self.next if asked or self.next <= self.busy_until else math.inf

    def due_until(self, to: float) -> float:
        """Skip the slots before `to` whose results cannot differ; then as `due`."""
        if math.isinf(self.due()):
            self.next = max(self.next, math.ceil(to / self.interval) * self.interval)
        return self.due()


class EvaluationThrottle:
    """Limits how often urgent facts cause an evaluation.

    `due` (Unix seconds): when the facts that had to wait are to be judged; infinite if none wait.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], float] = {}
        self._began = -math.inf
        self._judged = 0
        self.due = math.inf

    def is_at_once(self, run: str, fact: str, at: float) -> bool:
        """Whether to judge an urgent fact now; otherwise it is a repetition, or waits for `due`."""
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
        """Note that everything up to `at` (Unix seconds) was judged."""
        if at >= self.due:
            self.due = math.inf
