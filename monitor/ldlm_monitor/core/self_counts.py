"""What the monitor counts of its own work."""

from __future__ import annotations

from collections import Counter

from ldlm_monitor.model.points import Point
from ldlm_monitor.model.view import MonitorView
from ldlm_monitor.parse import Parser
from ldlm_monitor.run.fleet import Fleet


class SelfCounts:
    """Counts since the start. `edge`: what the edge exports of itself, joined to a scrape."""

    __slots__ = ("_dropped", "_evaluation_seconds", "_evaluations", "_parser", "_runs", "edge")

    def __init__(self, parser: Parser, runs: Fleet) -> None:
        self._parser = parser
        self._runs = runs
        self._dropped = Counter({"internal_error": 0, "unreadable": 0})
        self._evaluations = 0
        self._evaluation_seconds = 0.0
        self.edge: list[Point] = []

    def dropped(self, reason: str, count: int) -> None:
        """The edge had to drop so much, or could not read it."""
        self._dropped[reason] += count

    def evaluated(self, seconds: float) -> None:
        """All rules were evaluated, in so many seconds."""
        self._evaluations += 1
        self._evaluation_seconds = seconds

    def view(self) -> MonitorView:
        """The counts for readers."""
        counters = self._parser.counters
        labels = sum(run.values.dropped for run in self._runs)
        return MonitorView(
            lines=counters.lines,
            bytes=counters.bytes,
            parse_errors=counters.parse_errors,
            evaluations=self._evaluations,
            evaluation_seconds=self._evaluation_seconds,
            records=dict(counters.records),
            dropped={"truncated": counters.truncated, "label_limit": labels, **self._dropped},
        )
