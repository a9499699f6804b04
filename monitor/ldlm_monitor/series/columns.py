"""A store of series as a few columns: thousands of small objects are slow to keep and to read."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from ldlm_monitor.model.points import Labels


def _doubles() -> array[float]:
    return array("d")


@dataclass(slots=True)
class Columns:
    """Series, their segments one after the other, and the segments' changes likewise.

    `labels`: JSON, a list of label pairs for each series. `segments`: how many each has, `seen`
    its last scrape, `changes`: how many each segment has. `ended` is infinite for one that
    goes on.
    """

    labels: str = "[]"
    seen: array[int] = field(default_factory=lambda: array("q"))
    segments: array[int] = field(default_factory=lambda: array("q"))
    changes: array[int] = field(default_factory=lambda: array("q"))
    ended: array[float] = field(default_factory=_doubles)
    times: array[float] = field(default_factory=_doubles)
    values: array[float] = field(default_factory=_doubles)

    def write_labels(self, labels: Iterable[Labels]) -> None:
        """Set `labels`."""
        self.labels = json.dumps(list(labels), ensure_ascii=False, separators=(",", ":"))

    def read_labels(self) -> list[Labels]:
        """What was written."""
        return [
            tuple((str(name), str(value)) for name, value in pairs)
            for pairs in json.loads(self.labels)
        ]
