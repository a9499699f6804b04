"""Reads what is appended to the files of one registry; for one thread at a time."""

from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path

from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.model.errors import InputError
from ldlm_monitor.source.file_system import Disk
from ldlm_monitor.source.held_files import FollowedName
from ldlm_monitor.source.journal import Journal
from ldlm_monitor.source.registry import Registry
from ldlm_monitor.source.split import CHUNK_BYTES
from ldlm_monitor.source.tail import Tail


class Tailer:
    """Reads the files of a registry in turns of one slice each.

    `at` is the name that is checked or read at present.
    """

    def __init__(self, journal: Journal, disk: Disk, open_files: int) -> None:
        self.journal = journal
        self.at = Path()
        self.registry = Registry(journal, disk, open_files)
        self._unfinished: dict[Tail, None] = {}
        self._backlog: dict[FollowedName, None] = {}

    def add(self, entry: FollowedName) -> None:
        """Follow a name, also one that led to another file system for a while."""
        self.registry.add(entry)
        self.registry.entries[entry.path].elsewhere = False

    def leave(self, path: Path) -> None:
        """The name leads to another file system: its files here are retired."""
        self.registry.entries[path].elsewhere = True

    def read(self, paths: Collection[Path] | None, now: float, budget: int) -> Iterator[Chunk]:
        """As `Follower.read`."""
        self.registry.recall(now)
        chosen = self._chosen(paths, now)
        for entry in chosen:
            self.at = entry.path
            self.registry.check(entry, now)
        yield from self._drain()
        turns = deque(entry for entry in chosen if entry.due())
        self._backlog = dict.fromkeys(turns)
        while turns and budget > 0:
            entry = turns.popleft()
            del self._backlog[entry]
            self.at = entry.path
            taken = self._serve(entry, now)
            budget -= taken
            if taken and entry.due():
                turns.append(entry)
                self._backlog[entry] = None
            yield from self._drain()
        yield from self._peeks(now)

    @property
    def has_backlog(self) -> bool:
        """As `Follower.has_backlog`."""
        return bool(self._backlog)

    def has_work(self, now: float) -> bool:
        """Whether a read would do something without a new event."""
        peek = self.next_peek()
        return bool(self._backlog) or (peek is not None and peek <= now)

    def behind(self) -> int:
        """Bytes known to be written and not read. May be called from any thread."""
        return sum(tail.unread for _, tail in list(self.registry.live.values()))

    def next_peek(self) -> float | None:
        """When (Unix seconds) the next unfinished record is due as a peek."""
        times = (tail.splitter.peek_at() for tail in self._unfinished if not tail.finished)
        return min((time for time in times if time is not None), default=None)

    def finish(self) -> Iterator[Chunk]:
        """The last chunk of every file."""
        self.registry.finish()
        yield from self._drain()

    def _chosen(self, paths: Collection[Path] | None, now: float) -> dict[FollowedName, None]:
        entries, places = self.registry.entries, self.registry.places
        chosen = dict(self._backlog)
        if paths is None:
            return chosen | dict.fromkeys(entries.values())
        for path in paths:
            entry = entries.get(path) or places.get(path)
            if entry is not None:
                chosen[entry] = None
        for tail in self._unfinished:
            at = tail.splitter.peek_at()
            if at is not None and at <= now and tail.key in self.registry.live:
                chosen[self.registry.live[tail.key][0]] = None
        return chosen

    def _serve(self, entry: FollowedName, now: float) -> int:
        """Read one slice of the name's first file that has one; how many bytes it counts for."""
        for tail in entry.due():
            before, generation = tail.splitter.position, tail.generation
            self._read_slice(entry, tail, now)
            if tail.generation != generation:
                return 1
            if tail.splitter.position != before:
                return min(tail.splitter.position - before, CHUNK_BYTES)  # skipping a hole is free
        return 0

    def _read_slice(self, entry: FollowedName, tail: Tail, now: float) -> None:
        try:
            if not tail.reopen(entry.path):
                return
            self.registry.ready.extend(tail.read(now))
        except (OSError, InputError) as error:
            tail.close()
            self.registry.held.forget(tail)
            entry.report(self.journal, error)
            return
        self.registry.held.use(tail)
        entry.recover(self.journal)
        if tail.splitter.unfinished:
            self._unfinished[tail] = None
        else:
            self._unfinished.pop(tail, None)

    def _peeks(self, now: float) -> Iterator[Chunk]:
        for tail in list(self._unfinished):
            at = tail.splitter.peek_at()
            if tail.finished:
                del self._unfinished[tail]
            elif at is not None and at <= now and not tail.unread:
                yield tail.splitter.peek()

    def _drain(self) -> Iterator[Chunk]:
        ready = self.registry.ready
        while ready:
            yield ready.popleft()
