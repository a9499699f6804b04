"""The files that the followed names lead to, and led to before.

A name is checked with one `stat` per turn. Its file is read through a descriptor that
stays open, so that bytes written after the name was taken away are read too. A file that
loses its name is *retired*: it is read to its end before the name's next file, then
checked until it has not grown for `RETIRED_SECONDS`; then an unfinished last record counts as
whole. A retired file that has another name stays open for longer, and is read on if it grows.
A file that appears under another followed name, or comes back, continues at its position.
No file system event is needed for any of this.
"""

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.logs.source.backlog import find_again
from ldlm_monitor.logs.source.file_identity import FilePosition, Known
from ldlm_monitor.logs.source.file_system import Disk, Key, key_of
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.open_files import (
    RETIRED_FILES,
    RETIRED_SECONDS,
    Descriptors,
    FollowedName,
)
from ldlm_monitor.logs.source.recalled import Recalled
from ldlm_monitor.logs.source.rotations import (
    files_since,
    is_copied_by,
    is_copy_of,
    leave_rest,
    place_in_edited,
)
from ldlm_monitor.logs.source.tail import Tail

LINGER_SECONDS = 3600.0
"""How long a renamed file stays open without growth: longer than a usual evaluation, during
which a trainer prints nothing."""
LINGERING_FILES = 64
"""The most renamed files that stay open so long. A choice: more use up descriptors, fewer lose
what is written late when many logs are rotated at once."""
REMEMBERED_FILES = 4096
"""Ended files whose position is kept. A choice: more cost memory (3 KiB each), fewer make more
files that come back be read again."""


class NamedFiles:
    """The followed names and their files.

    `entries`: the names. `places`: the names by the resolved path of their file. `live`: the
    files that are read, with their names. `ready`: chunks that the next read returns. `held`: the
    files with a descriptor, at most `open_files`. Times are in Unix seconds.
    """

    def __init__(self, journal: Journal, disk: Disk, open_files: int) -> None:
        self.journal = journal
        self.disk = disk
        self.entries: dict[Path, FollowedName] = {}
        self.places: dict[Path, FollowedName] = {}
        self.live: dict[Key, tuple[FollowedName, Tail]] = {}
        self.ready: deque[Chunk] = deque()
        self.held = Descriptors(open_files)
        self._recalled = Recalled(journal, disk)
        self._ended: dict[Key, Tail] = {}
        self._lingering: set[Tail] = set()

    def recall(self, now: float) -> None:
        """Resume the files from before a restart; call it before `check` begins new files."""
        for entry, tail in self._recalled.found(now):
            if tail.key in self.live:
                tail.close()
                continue
            self.held.use(tail)
            self.live[tail.key] = (entry, tail)
            if tail.retired_at is None:
                self._assign(entry, tail)
            else:
                entry.retired.append(tail)
                if entry.last is None or entry.last.modified <= tail.modified:
                    entry.last = tail

    def add(self, entry: FollowedName) -> None:
        """Follow a name; do nothing if it is followed already."""
        if self.entries.setdefault(entry.path, entry) is entry and entry.kept:
            self._recalled.add(entry)

    def check(self, entry: FollowedName, now: float) -> None:
        """Find out where the name leads now, and whether the files that it led to have grown."""
        if entry.elsewhere and entry.tail is not None:
            self._retire(entry, entry.tail, now)
        elif not (entry.elsewhere or entry.kept):
            self._check_name(entry, now)
        for tail in list(entry.retired):
            self._check_retired(entry, tail, now)

    def finish(self) -> None:
        """End every file; `ready` gets the last chunks."""
        for entry in self.entries.values():
            for tail in [*entry.retired, entry.tail]:
                if tail is not None:
                    self._end(tail)
            entry.retired, entry.tail = [], None

    def close(self) -> None:
        """Close all files."""
        for _, tail in self.live.values():
            tail.close()

    def positions(self) -> list[FilePosition]:
        """The position of every file that a restart could find, or was to find."""
        return [each.position for each in self._known() if not each.gone]

    def contents(self) -> list[Known]:
        """The contents that are read, and those of ended and of rewritten files."""
        before = [tail.before for _, tail in list(self.live.values()) if tail.before is not None]
        before += self._recalled.gone
        return [
            *self._known(),
            *(Known(position, gone=True) for position in before),
            # logrotate's `delaycompress` compresses a log a rotation later
            *(Known(tail.position(), gone=True) for tail in self._ended.values()),
        ]

    def _known(self) -> Iterator[Known]:
        """The contents that are read or waited for; `gone`: deleted, and read to the end."""
        for entry in self.entries.values():
            yield from map(Known, entry.kept)
        for _, tail in list(self.live.values()):
            is_left = not tail.is_deleted or tail.unread or tail.splitter.unfinished
            yield Known(tail.position(), gone=not is_left)

    def _check_name(self, entry: FollowedName, now: float) -> None:
        try:
            status = self.disk.stat(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            if entry.tail is not None:
                entry.report_missing(self.journal)
                self._retire(entry, entry.tail, now)
            entry.start = 0
        except OSError as error:
            entry.report(self.journal, error)
        else:
            if entry.tail is None or entry.tail.key != key_of(status):
                self._switch_to(entry, key_of(status), now)
            if entry.tail is not None and entry.tail.key == key_of(status):
                entry.tail.see(status)
                if entry.tail.descriptor is not None:
                    entry.recover(self.journal)

    def _switch_to(self, entry: FollowedName, key: Key, now: float) -> None:
        """Begin or adopt the file with `key`, to which the name leads now; retire the old one."""
        path, old, copied = str(entry.path), entry.tail, False
        if old is not None:
            self._retire(entry, old, now)
        if key in self.live:
            owner, tail = self.live[key]
            if tail is not owner.tail:  # else it is followed already, under another name
                owner.retired.remove(tail)
                if tail.finished:
                    tail.go_on(now)
                tail.retired_at = None
                tail.place = Path(os.path.realpath(entry.path))
                self._assign(entry, tail)
        else:
            # The old file was retired earlier if the new one could not be read at that time.
            goes_on = self._read_between(entry, key, now)
            copied = self._begin(entry, old or next(reversed(entry.retired), None))
            if goes_on and entry.tail is not None:
                entry.tail.splitter.continues = path
        if old is not None:
            self.journal.replaced(path, copied=copied)
        entry.report_found(self.journal)

    def _read_between(self, entry: FollowedName, key: Key, now: float) -> bool:
        """Begin the files that had the name after its last file and before that with `key`.

        Returns whether the last file was rotated, so that the next one continues it.
        """
        place = Path(os.path.realpath(entry.path))
        found = None if entry.last is None else files_since(entry.last, place)
        for path in found or ():
            with contextlib.suppress(OSError):  # deleted by the rotation
                descriptor, between = self.disk.open_regular(path)
                if between == key or between in self.live or is_copy_of(entry.last, descriptor):
                    self.disk.close(descriptor)
                    continue
                tail, _ = self._begun(entry, None, descriptor, between)
                tail.place, tail.retired_at = path, now
                tail.splitter.continues = str(entry.path)
                self.live[between] = entry, tail
                self.held.use(tail)
                entry.retired.append(tail)
        return found is not None

    def _begin(self, entry: FollowedName, old: Tail | None) -> bool:
        """Open the file that the name leads to. Returns whether it is a copy of `old`."""
        try:
            descriptor, key = self.disk.open_regular(entry.path)
        except OSError as error:
            entry.report(self.journal, error)
            return False
        if key in self.live:  # the name changed again since the stat: handled next turn
            self.disk.close(descriptor)
            return False
        try:
            tail, copied = self._begun(entry, old, descriptor, key)
        except OSError as error:  # the next check tries again
            self.disk.close(descriptor)
            entry.report(self.journal, error)
            return False
        self._ended.pop(key, None)
        entry.start = 0
        self._assign(entry, tail)
        self.held.use(tail)
        entry.recover(self.journal)
        return copied

    def _begun(
        self, entry: FollowedName, old: Tail | None, descriptor: int, key: Key
    ) -> tuple[Tail, bool]:
        """The reader of a new file, at its first byte to read; whether it is a copy of `old`."""
        waiting, before = self._recalled.of(key, descriptor), self._ended.get(key)
        name, generation = str(entry.path), 0 if before is None else before.generation + 1
        if waiting is not None:
            name, generation = waiting[1].path, waiting[1].generation
        tail = Tail(
            name, Path(os.path.realpath(entry.path)), descriptor, key,
            generation=generation, journal=self.journal, disk=self.disk,
        )  # fmt: skip
        if waiting is not None:
            tail.continue_at(waiting[1])
            waiting[0].kept.remove(waiting[1])  # last: after an error, the next check needs it
        elif old is not None and is_copied_by(old, descriptor):
            tail.continue_at(old.position())
            leave_rest(old)
            return tail, True
        elif old is not None and (place := place_in_edited(old, descriptor)) is not None:
            tail.start_at(place)
            return tail, True
        elif before is not None and before.same_content(descriptor):
            tail.continue_at(before.position())
        elif entry.start:
            tail.start_at(entry.start)
        return tail, False

    def _assign(self, entry: FollowedName, tail: Tail) -> None:
        entry.tail = tail
        self.live[tail.key] = (entry, tail)
        self.places[tail.place] = entry

    def _retire(self, entry: FollowedName, tail: Tail, now: float) -> None:
        entry.tail, entry.last = None, tail
        if tail.descriptor is None and not find_again(tail):
            self._end(tail)
            return
        self.held.use(tail)
        tail.retired_at = now
        entry.retired.append(tail)

    def _check_retired(self, entry: FollowedName, tail: Tail, now: float) -> None:
        """End a file that has not grown for a while; read it on if it has."""
        names = 0
        if tail.descriptor is not None and tail.retired_at is not None:
            with contextlib.suppress(OSError):  # a stale NFS handle counts as no growth
                status = os.fstat(tail.descriptor)
                names = status.st_nlink
                tail.is_deleted = not names
                tail.see(status)
            if tail.unread and tail.finished:
                tail.go_on(now)
            quiet = now - max(tail.retired_at, tail.splitter.grown)
            is_one_too_many = len(entry.retired) > RETIRED_FILES or self.held.are_scarce
            if tail.unread or (quiet < RETIRED_SECONDS and not is_one_too_many):
                return
            if not tail.finished:
                self.ready.append(tail.finish())
                self._lingering.add(tail)
            finished = sum(each.finished for each in self._lingering)
            # A deleted file does not linger: the system frees its space when it is closed.
            lingers = names > 0 and quiet < LINGER_SECONDS and finished <= LINGERING_FILES
            if lingers and not is_one_too_many:
                return
        entry.retired.remove(tail)
        self._end(tail)

    def _end(self, tail: Tail) -> None:
        if not tail.finished:
            self.ready.append(tail.finish())
        self.held.forget(tail)
        self._lingering.discard(tail)
        self.live.pop(tail.key, None)
        self._ended[tail.key] = tail
        if len(self._ended) > REMEMBERED_FILES:
            del self._ended[next(iter(self._ended))]
        tail.close()
