"""What is new of many files, exactly once.

A name and a file are two things. The name is looked at with one `stat` a turn;
the file is read through a descriptor that stays open, so that what a slow writer
adds to it after its name was taken away is read too. A file that loses its name
is *retired*: read to its end before the name's next file is begun, then looked
at until it has been silent for `RETIRED_SECONDS`, which also ends an unfinished
last record. A file that turns up under another followed name, or comes back, goes
on where it was. Nothing here depends on an event having arrived.
"""

import contextlib
import os
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ldlm_monitor.chunk import Chunk
from ldlm_monitor.errors import InputError
from ldlm_monitor.source.journal import Journal, Notice
from ldlm_monitor.source.split import CHUNK_BYTES
from ldlm_monitor.source.tail import Key, Tail, key_of, open_regular

TURN_BYTES = 8 * 1024 * 1024
RETIRED_SECONDS = 60.0
OPEN_FILES = 256
REMEMBERED_FILES = 4096
"""Ended files whose end is kept in mind, in case that they come back."""


@dataclass(slots=True, eq=False)
class _Entry:
    """A followed name, the file that it leads to, and files that it led to before."""

    path: Path
    start: int = 0
    tail: Tail | None = None
    retired: list[Tail] = field(default_factory=list)
    lost: bool = False
    trouble: str = ""

    def due(self) -> list[Tail]:
        """Files to read, in this order: an old one to its end before the new one."""
        tails = self.retired if self.tail is None else [*self.retired, self.tail]
        return [tail for tail in tails if tail.due]


class Follower:
    """Reads what is new of many files, in chunks of whole records.

    `open_files` bounds the descriptors held for files at rest. `journal` counts
    what went wrong.
    """

    def __init__(self, *, open_files: int = OPEN_FILES) -> None:
        self.journal = Journal()
        self._open_files = open_files
        self._entries: dict[Path, _Entry] = {}
        self._places: dict[Path, _Entry] = {}
        self._live: dict[Key, tuple[_Entry, Tail]] = {}
        self._ended: dict[Key, Tail] = {}
        self._open: dict[Tail, None] = {}
        self._unfinished: dict[Tail, None] = {}
        self._backlog: dict[_Entry, None] = {}
        self._ready: deque[Chunk] = deque()

    @property
    def paths(self) -> Collection[Path]:
        """The followed names, as they were added."""
        return self._entries.keys()

    @property
    def notices(self) -> list[Notice]:
        """What happened and was not drained yet (`journal.drain`)."""
        return self.journal.notices

    def add(self, path: Path, *, offset: int = 0) -> None:
        """Follow a name, whether or not it exists yet; nothing changes if it is followed.

        `offset`: what stands before it in the present file counts as read.
        """
        self._entries.setdefault(path, _Entry(path, start=offset))

    def read(
        self, paths: Collection[Path] | None, now: float, budget: int = TURN_BYTES
    ) -> Iterator[Chunk]:
        """What is new under `paths` (None: all), as read at `now` (Unix seconds).

        Files that fell behind before are served too. Files take turns of one slice,
        until `budget` bytes are read; the next call goes on with those whose turn
        did not come.
        """
        chosen = self._chosen(paths, now)
        for entry in chosen:
            self._look(entry, now)
        yield from self._drain()
        turns = deque(entry for entry in chosen if entry.due())
        self._backlog = dict.fromkeys(turns)
        while turns and budget > 0:
            entry = turns.popleft()
            del self._backlog[entry]
            taken = self._serve(entry, now)
            budget -= taken
            if taken and entry.due():
                turns.append(entry)
                self._backlog[entry] = None
            yield from self._drain()
        yield from self._peeks(now)

    def behind(self) -> int:
        """Bytes written, as far as was seen, and not read."""
        return sum(tail.unread for _, tail in self._live.values())

    def next_peek(self) -> float | None:
        """When (Unix seconds) the next unfinished record is to be shown as it stands."""
        times = (tail.splitter.peek_at() for tail in self._unfinished)
        return min((time for time in times if time is not None), default=None)

    def finish(self) -> Iterator[Chunk]:
        """The last chunk of every file, for a reader that will not come back."""
        for entry in self._entries.values():
            for tail in [*entry.retired, entry.tail]:
                if tail is not None:
                    self._end(tail)
            entry.retired, entry.tail = [], None
        yield from self._drain()

    def close(self) -> None:
        """Give all descriptors back."""
        for _, tail in self._live.values():
            tail.close()
        self._open.clear()

    def _chosen(self, paths: Collection[Path] | None, now: float) -> dict[_Entry, None]:
        chosen = dict(self._backlog)
        if paths is None:
            return chosen | dict.fromkeys(self._entries.values())
        for path in paths:
            entry = self._entries.get(path) or self._places.get(path)
            if entry is not None:
                chosen[entry] = None
        for tail in self._unfinished:
            at = tail.splitter.peek_at()
            if at is not None and at <= now:
                chosen[self._live[tail.key][0]] = None
        return chosen

    def _look(self, entry: _Entry, now: float) -> None:
        """See where the name leads and what became of the files that it led to."""
        try:
            status = os.stat(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            self._lose(entry, now)
        except OSError as error:
            self._report(entry, error)
        else:
            if entry.tail is None or entry.tail.key != key_of(status):
                self._turn_to(entry, key_of(status), now)
            if entry.tail is not None and entry.tail.key == key_of(status):
                entry.tail.see(status, now)
                if entry.tail.descriptor is not None:
                    self._recover(entry)
        for tail in list(entry.retired):
            self._look_back(entry, tail, now)

    def _lose(self, entry: _Entry, now: float) -> None:
        if entry.tail is not None:
            self.journal.note(
                "vanished", str(entry.path), "is gone; waiting for a file of that name"
            )
            entry.lost = True
            self._retire(entry, entry.tail, now)
        entry.start = 0

    def _turn_to(self, entry: _Entry, key: Key, now: float) -> None:
        """The name leads to another file than before, or to one for the first time."""
        path = str(entry.path)
        if entry.tail is not None:
            self.journal.replacements += 1
            self.journal.note(
                "replaced", path, "is another file now; the old one is read to its end first"
            )
            self._retire(entry, entry.tail, now)
        if key in self._live:
            owner, tail = self._live[key]
            if tail is owner.tail:  # followed already, under another name
                return
            owner.retired.remove(tail)
            tail.retired_at = None
            self._give(entry, tail)
        elif not self._begin(entry):
            return
        if entry.lost:
            entry.lost = False
            self.journal.note("returned", path, "is back")

    def _begin(self, entry: _Entry) -> bool:
        try:
            descriptor, key = open_regular(entry.path)
        except (OSError, InputError) as error:
            self._report(entry, error)
            return False
        if key in self._live:  # the name moved on since it was looked at: next turn
            os.close(descriptor)
            return False
        before = self._ended.pop(key, None)
        generation = 0 if before is None else before.generation + 1
        place = Path(os.path.realpath(entry.path))
        tail = Tail(
            str(entry.path), place, descriptor, key, generation=generation, journal=self.journal
        )
        if before is not None and before.same_content(descriptor):
            tail.continue_from(before)
        elif entry.start:
            tail.start_at(entry.start)
        entry.start = 0
        self._places[place] = entry
        self._give(entry, tail)
        self._used(tail)
        self._recover(entry)
        return True

    def _give(self, entry: _Entry, tail: Tail) -> None:
        entry.tail = tail
        self._live[tail.key] = (entry, tail)

    def _retire(self, entry: _Entry, tail: Tail, now: float) -> None:
        entry.tail = None
        if tail.descriptor is None and not tail.find_again():
            self._end(tail)
            return
        self._used(tail)
        tail.retired_at = now
        entry.retired.append(tail)

    def _look_back(self, entry: _Entry, tail: Tail, now: float) -> None:
        if tail.descriptor is not None and tail.retired_at is not None:
            with contextlib.suppress(OSError):  # a stale handle stays as it is and runs out
                tail.see(os.fstat(tail.descriptor), now)
            quiet = now - max(tail.retired_at, tail.splitter.grown)
            if tail.unread or quiet < RETIRED_SECONDS:
                return
        entry.retired.remove(tail)
        self._end(tail)

    def _end(self, tail: Tail) -> None:
        self._ready.append(tail.finish())
        self._open.pop(tail, None)
        self._unfinished.pop(tail, None)
        self._live.pop(tail.key, None)
        self._ended[tail.key] = tail
        if len(self._ended) > REMEMBERED_FILES:
            del self._ended[next(iter(self._ended))]

    def _serve(self, entry: _Entry, now: float) -> int:
        """Read one slice of the first of a name's files that has one; its bytes."""
        for tail in entry.due():
            before, generation = tail.splitter.position, tail.generation
            self._read_slice(entry, tail, now)
            if tail.generation != generation:
                return 1
            if tail.splitter.position != before:
                return min(tail.splitter.position - before, CHUNK_BYTES)  # a hole is no work
        return 0

    def _read_slice(self, entry: _Entry, tail: Tail, now: float) -> None:
        try:
            if not tail.reopen(entry.path):
                return
            self._ready.extend(tail.read(now))
        except (OSError, InputError) as error:
            tail.close()
            self._open.pop(tail, None)
            self._report(entry, error)
            return
        self._used(tail)
        self._recover(entry)
        if tail.splitter.unfinished:
            self._unfinished[tail] = None
        else:
            self._unfinished.pop(tail, None)

    def _peeks(self, now: float) -> Iterator[Chunk]:
        for tail in list(self._unfinished):
            at = tail.splitter.peek_at()
            if at is not None and at <= now and not tail.unread:
                yield tail.splitter.peek()

    def _drain(self) -> Iterator[Chunk]:
        while self._ready:
            yield self._ready.popleft()

    def _used(self, tail: Tail) -> None:
        """Keep the descriptors of files that are in use; close the one longest at rest."""
        self._open.pop(tail, None)
        self._open[tail] = None
        if len(self._open) > self._open_files:
            for resting in self._open:
                if resting is not tail and resting.retired_at is None and not resting.unread:
                    resting.close()
                    del self._open[resting]
                    break

    def _report(self, entry: _Entry, error: OSError | InputError) -> None:
        reason = (error.strerror if isinstance(error, OSError) else str(error.what)) or str(error)
        if reason != entry.trouble:
            entry.trouble = reason
            self.journal.note(
                "unreadable", str(entry.path), f"cannot be read ({reason}); trying again"
            )

    def _recover(self, entry: _Entry) -> None:
        if entry.trouble:
            entry.trouble = ""
            self.journal.note("readable", str(entry.path), "can be read again")
