"""A followed name and its files."""

from dataclasses import dataclass, field
from pathlib import Path

from ldlm_monitor.source.position import Position
from ldlm_monitor.source.tail import Tail


@dataclass(slots=True, eq=False)
class Entry:
    """A followed name, the file that it leads to, and files that it led to before.

    `start` and `line`: where to begin in the first file. `kept`: what was read before
    a restart. `elsewhere`: the name leads to another file system, which is not asked here.
    """

    path: Path
    start: int = 0
    line: int | None = None
    kept: list[Position] = field(default_factory=list)
    tail: Tail | None = None
    retired: list[Tail] = field(default_factory=list)
    lost: bool = False
    elsewhere: bool = False
    trouble: str = ""

    def due(self) -> list[Tail]:
        """Files to read, in this order: an old one to its end before the new one."""
        tails = self.retired if self.tail is None else [*self.retired, self.tail]
        return [tail for tail in tails if tail.due]
