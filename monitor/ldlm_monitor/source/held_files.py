"""A followed name and its files.

Which files are kept open while nothing is read of them.
"""

import os
from collections.abc import Iterator
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


LINGER_SECONDS = 3600.0
LINGERING_FILES = 64


class Descriptors:
    """Files with an open descriptor, the one that was used longest ago first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tails: dict[Tail, None] = {}

    def __iter__(self) -> Iterator[Tail]:
        return iter(list(self._tails))

    def use(self, tail: Tail) -> None:
        """`tail` is in use; beyond the limit, the one longest at rest is closed."""
        self._tails.pop(tail, None)
        self._tails[tail] = None
        if len(self._tails) > self._limit:
            for resting in self._tails:
                if resting is not tail and resting.retired_at is None and not resting.unread:
                    resting.close()
                    del self._tails[resting]
                    break

    def forget(self, tail: Tail) -> None:
        """`tail` is closed, or somebody else's."""
        self._tails.pop(tail, None)

    def clear(self) -> None:
        """All are closed."""
        self._tails.clear()


class Lingering:
    """Renamed files that were given up as silent, in case that their writers wake.

    A trainer may be silent for longer than a retired file is waited for: it evaluates.
    A deleted file is not kept: its space is to be free.
    """

    def __init__(self) -> None:
        self._tails: dict[Tail, None] = {}

    def __iter__(self) -> Iterator[Tail]:
        return iter(list(self._tails))

    def keep(self, tail: Tail) -> bool:
        """Keep `tail` open, unless it has no name any more; whether it is kept."""
        if tail.descriptor is None or not _status(tail)[0]:
            return False
        self._tails[tail] = None
        if len(self._tails) > LINGERING_FILES:
            self._drop(next(iter(self._tails)))
        return tail in self._tails

    def grown(self, now: float) -> list[Tail]:
        """Files that grew; they are not kept any more, but are open still."""
        found = []
        for tail in self:
            names, size = _status(tail)
            if size > tail.splitter.position:
                del self._tails[tail]
                found.append(tail)
            elif not names or now - (tail.retired_at or now) > LINGER_SECONDS:
                self._drop(tail)
        return found

    def close(self) -> None:
        """Give all descriptors back."""
        for tail in self:
            self._drop(tail)

    def _drop(self, tail: Tail) -> None:
        del self._tails[tail]
        tail.close()


def _status(tail: Tail) -> tuple[int, int]:
    """How many names a file has, and its size; none where the system does not tell."""
    if tail.descriptor is None:
        return 0, 0
    try:
        status = os.fstat(tail.descriptor)
    except OSError:  # a stale handle
        return 0, 0
    return status.st_nlink, status.st_size
