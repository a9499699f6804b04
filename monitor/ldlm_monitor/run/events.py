"""What the events of a run come to: counts, the last of each sort, and logged settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from ldlm_monitor.model.points import Labels, Point, make_labels
from ldlm_monitor.model.records import Event
from ldlm_monitor.run.quantity import Evidence

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

    def take(self, event: Event) -> None:
        """Count it; it is now the last of its sort, and of all."""
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
        """Every count as it stands."""
        return [Point(EVENTS, self._labels(sort), count) for sort, count in self._counts.items()]

    def evidence(self) -> Iterator[tuple[str, Labels, Evidence]]:
        """Kind, labels and last line of every sort, in the order in which these came."""
        for order, (sort, event) in enumerate(self._last.items()):
            yield (
                event.kind,
                self._labels(sort),
                Evidence(event.position, None, event.message, order),
            )

    def _labels(self, sort: _Sort) -> Labels:
        labels = self._label_cache.get(sort)
        if labels is None:
            kind, severity, rank = sort
            told = None if rank is None else str(rank)
            labels = make_labels(run=self._run, kind=kind, severity=severity, rank=told)
            self._label_cache[sort] = labels
        return labels


_OURS = frozenset({"family", "role", "framework"})
"""Fields that say what the event is, and are no settings."""


class ToldSettings:
    """`settings` as they were told last; `framework` is `unknown` until the log names it."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.framework = "unknown"

    def take(self, event: Event) -> None:
        """Take in a `config` or `run_started` event."""
        if event.kind == "run_started":
            framework = event.fields.get("framework") or _framework_of(event.message)
            self.framework = str(framework) if framework else self.framework
        for name, value in event.fields.items():
            if name not in _OURS and isinstance(value, str | int | float):
                self.settings[name] = str(value)

    @property
    def world_size(self) -> int | None:
        """How many ranks the log says there are."""
        told = self.settings.get("world_size", "")
        return int(told) if told.isdigit() else None


def _framework_of(banner: str) -> str | None:
    """Who writes this banner at the start of a training."""
    return "MM-LDLM" if "MMDiT" in banner else None
