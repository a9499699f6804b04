"""Followed names, and the descriptors that stay open while their files do not grow."""

import errno
import resource
from dataclasses import dataclass, field
from pathlib import Path

from ldlm_monitor.logs.source.file_identity import FilePosition
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.tail import Tail

OPEN_FILES = 4096
"""The most files that stay open. A choice: more cost memory, fewer are opened again and again."""
OPEN_SHARE = 4
"""Logs get one in so many of the process's descriptors. A choice: a larger share leaves too few for
HTTP, the databases, the watches of folders, and files that lost their names."""
RETIRED_FILES = 8
"""The most files without their name that a followed name keeps open. A choice: a name that leads
to its ninth file within a minute is replaced by each write, and its old files do not grow."""
RETIRED_SECONDS = 60.0
"""How long a file without its name must not grow until it is ended. Its writer may still have it
open: logrotate's `postrotate` signal takes seconds, buffered streams write at log intervals. A
choice: a longer time delays the file's unfinished last record."""


@dataclass(slots=True, eq=False)
class FollowedName:
    """A followed name, the file that it leads to, and the files that it led to before.

    `start`: the byte at which to begin in the first file. `kept`: positions from before a restart
    whose files were not found yet. `tail`: the present file. `retired`: the files before, which
    are still checked. `last`: the file before `tail`, checked or not. `elsewhere`: the name leads
    to another file system, whose reader serves it. `lost`: the missing name was reported.
    `trouble`: the last reported error, empty once the name can be read again.
    """

    path: Path
    start: int = 0
    kept: list[FilePosition] = field(default_factory=list)
    tail: Tail | None = None
    retired: list[Tail] = field(default_factory=list)
    last: Tail | None = None
    lost: bool = False
    elsewhere: bool = False
    trouble: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether only an event changes the name's state: its file is read, or reported lost."""
        found = self.lost or self.elsewhere or self.tail is not None
        return found and not (self.retired or self.trouble or self.kept)

    def due(self) -> list[Tail]:
        """The files to read, in order: an old one to its end before the new one."""
        tails = self.retired if self.tail is None else [*self.retired, self.tail]
        return [tail for tail in tails if tail.due]

    def report(self, journal: Journal, error: OSError) -> None:
        """Note an error of the name; the same error is noted once."""
        if error.errno in (errno.EMFILE, errno.ENFILE):
            journal.exhausted()
            return
        reason = error.strerror or str(error)
        if reason != self.trouble:
            self.trouble = reason
            journal.note("unreadable", str(self.path), f"cannot be read ({reason}); trying again")

    def recover(self, journal: Journal) -> None:
        """Note that a reported error is over."""
        if self.trouble:
            self.trouble = ""
            journal.note("readable", str(self.path), "can be read again")

    def report_missing(self, journal: Journal) -> None:
        """Note that the name leads nowhere, once."""
        if not self.lost:
            self.lost = True
            journal.note("vanished", str(self.path), "is gone; waiting for a file of that name")

    def report_found(self, journal: Journal) -> None:
        """Note, after `report_missing`, that the name leads to a file again."""
        if self.lost and self.tail is not None:
            self.lost = False
            journal.note("returned", str(self.path), "is back")


def affordable_files() -> int:
    """How many files may stay open under the process's present limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = soft == resource.RLIM_INFINITY
    return OPEN_FILES if unlimited else max(min(soft // OPEN_SHARE, OPEN_FILES), 1)


class Descriptors:
    """The files with an open descriptor, the least recently used first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tails: dict[Tail, None] = {}

    @property
    def are_scarce(self) -> bool:
        """Whether files that lost their names hold more descriptors than named files may."""
        retired = sum(tail.retired_at is not None for tail in self._tails)
        return retired > max(self._limit, RETIRED_FILES)

    def use(self, tail: Tail) -> None:
        """Mark `tail` as just used; over the limit, close the least recently used named file.

        Files that are read to their end are closed first: if a closed file is deleted before
        it is opened again, its unread bytes are lost.
        """
        self._tails.pop(tail, None)
        if len(self._tails) >= self._limit:
            idle = (each for each in self._tails if each.retired_at is None and not each.unread)
            busy = (each for each in self._tails if each.retired_at is None)
            resting = next(idle, None) or next(busy, None)
            if resting is not None:
                resting.close()
                del self._tails[resting]
        self._tails[tail] = None

    def forget(self, tail: Tail) -> None:
        """Remove `tail` without closing it."""
        self._tails.pop(tail, None)
