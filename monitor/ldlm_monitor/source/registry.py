"""Which files the followed names lead to, and led to before.

A name and a file are two things. The name is looked at with one `stat` a turn;
the file is read through a descriptor that stays open, so that what a slow writer
adds to it after its name was taken away is read too. A file that loses its name
is *retired*: read to its end before the name's next file is begun, then looked
at until it has been silent for `RETIRED_SECONDS`, which also ends an unfinished
last record. If it still has a name somewhere it lingers, and is taken up again
should its writer wake. A file that turns up under another followed name, or comes
back, goes on where it was. Nothing here depends on an event having arrived.
"""

import contextlib
import math
import os
from collections import deque
from pathlib import Path

from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.model.errors import InputError
from ldlm_monitor.source.descriptors import Descriptors, Lingering
from ldlm_monitor.source.disk import Disk, Key, key_of
from ldlm_monitor.source.entry import Entry
from ldlm_monitor.source.journal import Journal
from ldlm_monitor.source.position import Position
from ldlm_monitor.source.recall import Recall
from ldlm_monitor.source.tail import Tail

RETIRED_SECONDS = 60.0
RECALL_SECONDS = 1.0
"""How often files are looked for that were read before a restart and are not there now."""
REMEMBERED_FILES = 4096
"""Ended files whose end is kept in mind, in case that they come back."""


class Registry:
    """The followed names and their files.

    `places`: names by the place that they led to. `live`: files that are read, and for
    whom. `ready`: last chunks that nobody has taken yet. `open_files` bounds the
    descriptors of files at rest.
    """

    def __init__(self, journal: Journal, disk: Disk, open_files: int) -> None:
        self.journal = journal
        self.disk = disk
        self.entries: dict[Path, Entry] = {}
        self.places: dict[Path, Entry] = {}
        self.live: dict[Key, tuple[Entry, Tail]] = {}
        self.ready: deque[Chunk] = deque()
        self.held = Descriptors(open_files)
        self._lingering = Lingering()
        self._recalled: dict[Entry, tuple[float, float]] = {}
        self._ended: dict[Key, Tail] = {}

    def recall(self, now: float) -> None:
        """Take up again what was read before a restart: all of it, before anything is begun."""
        for entry, (first, last) in list(self._recalled.items()):
            if now - last < RECALL_SECONDS:
                continue
            since = min(first, now)
            self._recalled[entry] = (since, now)
            self._recall(entry, now, gives_up=now - since >= RETIRED_SECONDS)
            if not entry.kept:
                del self._recalled[entry]

    def add(self, entry: Entry) -> None:
        """Follow a name that is not followed yet."""
        # The inode of a file that lost its name may be another's by now: the named one first.
        entry.kept.sort(key=lambda position: position.nameless)
        if self.entries.setdefault(entry.path, entry) is entry and entry.kept:
            self._recalled[entry] = (math.inf, -math.inf)

    def look(self, entry: Entry, now: float) -> None:
        """See where the name leads and what became of the files that it led to."""
        if entry.elsewhere and entry.tail is not None:
            self._retire(entry, entry.tail, now)
        elif not (entry.elsewhere or entry.kept):
            self._look_at_name(entry, now)
        for tail in list(entry.retired):
            self._look_back(entry, tail, now)

    def wake_lingering(self, now: float) -> list[Entry]:
        """Read files on that were given up as silent and grew after all; their names."""
        woken: list[Entry] = []
        for tail in self._lingering.grown(now):
            before = self._ended.get(tail.key)
            if before is not tail or tail.descriptor is None or tail.key in self.live:
                tail.close()
                continue
            del self._ended[tail.key]
            entry = self.entries[Path(tail.name)]
            again = self._new(entry, tail.descriptor, tail.key, tail)
            again.continue_from(tail)
            again.retired_at, again.place = now, tail.place
            entry.retired.append(again)
            self.live[again.key] = (entry, again)
            self.held.use(again)
            woken.append(entry)
        return woken

    def finish(self) -> None:
        """End every file."""
        for entry in self.entries.values():
            for tail in [*entry.retired, entry.tail]:
                if tail is not None:
                    self._end(tail)
            entry.retired, entry.tail = [], None

    def close(self) -> None:
        """Give all descriptors back."""
        for _, tail in self.live.values():
            tail.close()
        self._lingering.close()
        self.held.clear()

    def positions(self) -> list[Position]:
        """Where reading stands in every file; what was kept of files not looked at yet."""
        tails = [*self._lingering, *(tail for _, tail in self.live.values())]
        waiting = [position for entry in self.entries.values() for position in entry.kept]
        return [*waiting, *(tail.position() for tail in tails)]

    def report(self, entry: Entry, error: OSError | InputError) -> None:
        """Say what is in the way, once."""
        reason = (error.strerror if isinstance(error, OSError) else str(error.what)) or str(error)
        if reason != entry.trouble:
            entry.trouble = reason
            self.journal.note(
                "unreadable", str(entry.path), f"cannot be read ({reason}); trying again"
            )

    def recover(self, entry: Entry) -> None:
        """Say that nothing is in the way any more."""
        if entry.trouble:
            entry.trouble = ""
            self.journal.note("readable", str(entry.path), "can be read again")

    def _recall(self, entry: Entry, now: float, *, gives_up: bool) -> None:
        """Positions stay where the name leads nowhere, or to what cannot be read: for later.

        `gives_up`: what is not there now is gone for good.
        """
        waiting = []
        for position in entry.kept:
            try:
                tail = Recall(self.journal, self.disk).find(position, entry.path, now)
            except (FileNotFoundError, NotADirectoryError):
                self._say_lost(entry)
                if gives_up:
                    self.journal.lost_file(str(entry.path), position.read)
                else:
                    waiting.append(position)
                continue
            except (OSError, InputError) as error:
                waiting.append(position)
                self.report(entry, error)
                continue
            if tail is None:
                continue
            if tail.key in self.live:
                tail.close()
                continue
            self.held.use(tail)
            self.live[tail.key] = (entry, tail)
            if tail.retired_at is None:
                self._give(entry, tail)
            else:
                entry.retired.append(tail)
        self._say_found(entry)
        entry.kept = waiting
        entry.start = 0

    def _look_at_name(self, entry: Entry, now: float) -> None:
        try:
            status = self.disk.stat(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            self._lose(entry, now)
        except OSError as error:
            self.report(entry, error)
        else:
            if entry.tail is None or entry.tail.key != key_of(status):
                self._turn_to(entry, key_of(status), now)
            if entry.tail is not None and entry.tail.key == key_of(status):
                entry.tail.see(status, now)
                if entry.tail.descriptor is not None:
                    self.recover(entry)

    def _lose(self, entry: Entry, now: float) -> None:
        if entry.tail is not None:
            self._say_lost(entry)
            self._retire(entry, entry.tail, now)
        entry.start = 0

    def _say_lost(self, entry: Entry) -> None:
        if not entry.lost:
            entry.lost = True
            self.journal.note(
                "vanished", str(entry.path), "is gone; waiting for a file of that name"
            )

    def _say_found(self, entry: Entry) -> None:
        if entry.lost and entry.tail is not None:
            entry.lost = False
            self.journal.note("returned", str(entry.path), "is back")

    def _turn_to(self, entry: Entry, key: Key, now: float) -> None:
        """The name leads to another file than before, or to one for the first time."""
        path, old, copied = str(entry.path), entry.tail, False
        if old is not None:
            self._retire(entry, old, now)
        if key in self.live:
            owner, tail = self.live[key]
            if tail is not owner.tail:  # else: followed already, under another name
                owner.retired.remove(tail)
                tail.retired_at = None
                self._give(entry, tail)
        else:
            copied = self._begin(entry, old)
        if old is not None:
            self.journal.replaced(path, copied=copied)
        self._say_found(entry)

    def _begin(self, entry: Entry, old: Tail | None) -> bool:
        """Open the file that the name leads to; whether it is a copy of `old`."""
        try:
            descriptor, key = self.disk.open_regular(entry.path)
        except (OSError, InputError) as error:
            self.report(entry, error)
            return False
        if key in self.live:  # the name moved on since it was looked at: next turn
            os.close(descriptor)
            return False
        before = self._ended.get(key)
        tail = self._new(entry, descriptor, key, before)
        try:
            copied = self._find_start(entry, tail, old, before, descriptor)
        except OSError as error:  # tried again with the next look
            tail.close()
            self.report(entry, error)
            return False
        self._ended.pop(key, None)
        entry.start = 0
        self._give(entry, tail)
        self.held.use(tail)
        self.recover(entry)
        return copied

    def _find_start(
        self, entry: Entry, tail: Tail, old: Tail | None, before: Tail | None, descriptor: int
    ) -> bool:
        """Where to begin in a file that was opened; whether it is a copy of `old`."""
        if old is not None and old.is_copied_by(descriptor):
            tail.continue_from(old)
            old.leave_rest()
            return True
        if before is not None and before.same_content(descriptor):
            tail.continue_from(before)
        elif entry.start:
            tail.start_at(entry.start, entry.line)
        return False

    def _new(self, entry: Entry, descriptor: int, key: Key, before: Tail | None) -> Tail:
        return Tail(
            str(entry.path),
            Path(os.path.realpath(entry.path)),
            descriptor,
            key,
            generation=0 if before is None else before.generation + 1,
            journal=self.journal,
            disk=self.disk,
        )

    def _give(self, entry: Entry, tail: Tail) -> None:
        entry.tail = tail
        self.live[tail.key] = (entry, tail)
        self.places[tail.place] = entry

    def _retire(self, entry: Entry, tail: Tail, now: float) -> None:
        entry.tail = None
        if tail.descriptor is None and not tail.find_again():
            self._end(tail)
            return
        self.held.use(tail)
        tail.retired_at = now
        entry.retired.append(tail)

    def _look_back(self, entry: Entry, tail: Tail, now: float) -> None:
        if tail.descriptor is not None and tail.retired_at is not None:
            with contextlib.suppress(OSError):  # a stale handle stays as it is and runs out
                tail.see(os.fstat(tail.descriptor), now)
            quiet = now - max(tail.retired_at, tail.splitter.grown)
            if tail.unread or quiet < RETIRED_SECONDS:
                return
        entry.retired.remove(tail)
        self._end(tail, lingers=True)

    def _end(self, tail: Tail, *, lingers: bool = False) -> None:
        self.ready.append(tail.finish())
        self.held.forget(tail)
        self.live.pop(tail.key, None)
        self._ended[tail.key] = tail
        if len(self._ended) > REMEMBERED_FILES:
            del self._ended[next(iter(self._ended))]
        if not (lingers and self._lingering.keep(tail)):
            tail.close()
