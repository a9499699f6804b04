"""The names whose files from before a restart were not found yet."""

import math
from collections.abc import Iterator

from ldlm_monitor.logs.source.backlog import Recall
from ldlm_monitor.logs.source.file_identity import FilePosition
from ldlm_monitor.logs.source.file_system import Disk, Key
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.open_files import RETIRED_SECONDS, FollowedName
from ldlm_monitor.logs.source.tail import Tail

RECALL_SECONDS = 1.0
"""Between two searches for missing files from before a restart. A choice: a search lists their
folders, which is slow on a network file system; rarer searches delay the files."""


class Recalled:
    """Finds the files of the `kept` positions of names. Times are in Unix seconds."""

    def __init__(self, journal: Journal, disk: Disk) -> None:
        self._journal = journal
        self._disk = disk
        self.gone: list[FilePosition] = []  # their files were not found: copies may be
        self._sought: dict[FollowedName, tuple[float, float]] = {}  # when first, when last

    def add(self, entry: FollowedName) -> None:
        """Look for the files of a name."""
        # Another file may have the inode of a nameless one: the files with names are found first.
        entry.kept.sort(key=lambda position: position.nameless)
        self._sought[entry] = (math.inf, -math.inf)

    def of(self, key: Key, descriptor: int) -> tuple[FollowedName, FilePosition] | None:
        """The name that waits for the file behind `descriptor`, and its position, if any."""
        for entry in self._sought:
            for position in entry.kept:
                if position.key == key and position.verify(self._disk, descriptor) is not None:
                    return entry, position
        return None

    def found(self, now: float) -> Iterator[tuple[FollowedName, Tail]]:
        """The files that are found now, each ready to continue; others stay sought."""
        for entry, (first, last) in list(self._sought.items()):
            if now - last < RECALL_SECONDS:
                continue
            since = min(first, now)
            self._sought[entry] = (since, now)
            for tail in self._find(entry, now, gives_up=now - since >= RETIRED_SECONDS):
                yield entry, tail
            if not entry.kept:
                del self._sought[entry]

    def _find(self, entry: FollowedName, now: float, *, gives_up: bool) -> Iterator[Tail]:
        """The name's files; positions whose file is missing or unreadable stay.

        `gives_up`: missing files count as gone, and their positions are dropped.
        """
        waiting = []
        for position in entry.kept:
            try:
                tail = Recall(self._journal, self._disk).find(position, entry.path, now)
            except (FileNotFoundError, NotADirectoryError):
                entry.report_missing(self._journal)
                if gives_up:
                    self._journal.lost_file(str(entry.path), position.read)
                else:
                    waiting.append(position)
            except OSError as error:
                waiting.append(position)
                entry.report(self._journal, error)
            else:
                if tail is None:
                    self.gone.append(position)
                else:
                    yield tail
        entry.report_found(self._journal)
        entry.kept = waiting
        entry.start = 0
