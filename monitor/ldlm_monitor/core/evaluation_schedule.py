"""The grid of evaluations, and which of its slots cannot differ from the one before."""

from __future__ import annotations

import math

from ldlm_monitor.core.rule_engine import RuleEngine
from ldlm_monitor.run.fleet import Fleet


class EvaluationSchedule:
    """Slots every `interval` seconds. `next` is the first one that may have to be evaluated.

    Up to `busy_until` something that is exported has changed within the reach of the rules.
    Unix seconds, all of them; infinite before the first time is known.
    """

    __slots__ = ("_judge", "_runs", "busy_until", "interval", "next")

    def __init__(self, interval: float, judge: RuleEngine, runs: Fleet) -> None:
        self._judge = judge
        self._runs = runs
        self.interval = interval
        self.next = -math.inf
        self.busy_until = -math.inf

    def changed(self, at: float) -> None:
        """Something that is exported changed."""
        self.busy_until = at + self._judge.reach + self.interval

    def evaluated(self, at: float) -> None:
        """The slots up to `at` are done."""
        if at >= self.next:
            self.next = (math.floor(at / self.interval) + 1) * self.interval

    def begin(self, at: float) -> None:
        """Time is known from now on: no slot comes before."""
        if math.isinf(self.next):
            self.next = math.ceil(at / self.interval) * self.interval

    def due(self) -> float | None:
        """The next slot, None while no slot can differ from the one before."""
        return self.next if self._matters(self.next) else None

    def due_until(self, to: float) -> float:
        """The next slot up to `to` that can differ from the one before it; inf: none."""
        if not self._matters(self.next):
            self.next = max(self.next, math.ceil(to / self.interval) * self.interval)
        slot = self.next
        if slot <= self.busy_until:
            return slot
        if not self._judge.asks_the_time or not self._runs.active:
            return math.inf
        found = self._judge.next_switch(slot, to, self.interval)
        if math.isinf(found):
            self.next = max(slot, (math.floor(to / self.interval) + 1) * self.interval)
        return found

    def _matters(self, slot: float) -> bool:
        if slot <= self.busy_until:
            return True
        return self._judge.asks_the_time and self._runs.active
