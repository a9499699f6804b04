"""What the events of a run come to: counts, the last of each sort, and logged settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from ldlm_monitor.model.points import Labels, Point, make_labels
from ldlm_monitor.model.records import Event
from ldlm_monitor.run.quantity import SourceLine

EVENTS = "ldlm_events_total"
_Sort: TypeAlias = tuple[str, str, int | None]
"""Kind, severity and rank."""


class EventCounts:
    """The events of the run called `run`, counted by kind, severity and rank."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._counts: Counter[_Sort] = Counter()
        self._last: dict[_Sort, Event] = {}
        self._label_cache: dict[_Sort, Labels] = {}

    def add(self, event: Event) -> None:
        """Count an event; it is now the last of its sort, and of all."""
        sort = (event.kind, event.severity, event.rank)
        self._counts[sort] += 1
        self._last.pop(sort, None)
        self._last[sort] = event

    def by_kind(self) -> dict[str, int]:
        """The counts of each kind."""
        counts: Counter[str] = Counter()
        for (kind, _, _), count in self._counts.items():
            counts[kind] += count
        return dict(counts)

    def points(self) -> list[Point]:
        """All counts."""
        return [Point(EVENTS, self._labels(sort), count) for sort, count in self._counts.items()]

    def evidence(self) -> Iterator[tuple[str, Labels, SourceLine]]:
        """Kind, labels and last line of every sort, by the time of the last line."""
        for order, (sort, event) in enumerate(self._last.items()):
            yield (
                event.kind,
                self._labels(sort),
                SourceLine(event.position, None, event.message, order),
            )

    def _labels(self, sort: _Sort) -> Labels:
        labels = self._label_cache.get(sort)
        if labels is None:
            kind, severity, rank = sort
            shown = None if rank is None else str(rank)
            labels = make_labels(run=self._run, kind=kind, severity=severity, rank=shown)
            self._label_cache[sort] = labels
        return labels


_OURS = frozenset({"family", "role", "framework"})
"""Fields that describe the event, and are no settings."""


class LoggedSettings:
    """Last logged values of `settings`; `framework` is `unknown` until the log names it."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.framework = "unknown"

    def update(self, event: Event) -> None:
        """Read a `config` or `run_started` event."""
        if event.kind == "run_started":
            self.framework = str(event.fields.get("framework") or self.framework)
        for name, value in event.fields.items():
            if name not in _OURS and isinstance(value, str | int | float):
                self.settings[name] = str(value)

    @property
    def world_size(self) -> int | None:
        """Number of ranks, where the log has it."""
        size = self.settings.get("world_size", "")
        return int(size) if size.isdigit() else None
