"""Reads the files of one file system in a thread, so that a dead server blocks no other."""

import contextlib
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from operator import itemgetter
from pathlib import Path

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.logs.source.file_identity import FilePosition, Known
from ldlm_monitor.logs.source.file_system import Disk, Mount, Worker
from ldlm_monitor.logs.source.named_files import NamedFiles
from ldlm_monitor.logs.source.notices import STALL_SECONDS, Journal
from ldlm_monitor.logs.source.open_files import FollowedName
from ldlm_monitor.logs.source.split import CHUNK_BYTES
from ldlm_monitor.logs.source.tail import Tail

UNSETTLED_SECONDS = 1.0
"""Seconds between two checks of names whose file is gone, unreadable or replaced, since no event
reports when it can be read. A choice: longer delays such files, shorter costs more calls."""

QUICK_BYTES = 8 * 1024
"""If no more bytes are unread as a turn begins, no file comes before others: judging them takes
some 10 ms, and the files of a run keep their order."""
GLANCE_BYTES = 2 * 1024 * 1024
"""Bytes of a turn that are searched for urgent ones; a choice: the scan takes some 15 ms."""


class MountReader:
    """Reads the files of one file system in turns of one slice (at most `CHUNK_BYTES`) each.

    `submit` starts a read in a thread, and `collect` returns its chunks. In between, the thread
    owns the files, and changes wait in a queue that the next `submit` applies. Times are in Unix
    seconds. At most `open_files` stay open. `urgent`: whether bytes are to be read before others.
    `overdue`: the last `collect` returned before the read had ended.
    """

    def __init__(
        self,
        mount: Mount,
        journal: Journal,
        disk: Disk,
        open_files: int,
        urgent: Callable[[bytes], bool],
    ) -> None:
        self.mount = mount
        self._urgent = urgent
        self._checked: set[FollowedName] = set()  # since the last read that was not of urgent ones
        self._leaves = False
        self.overdue = False
        self._journal = journal
        self._named_files = NamedFiles(journal, disk, open_files)
        self._at = Path()  # the name that is read; a notice of a stall names it
        self._unfinished: dict[Tail, None] = {}
        self._backlog: dict[FollowedName, None] = {}
        self._unsettled: dict[FollowedName, None] = {}
        self._unsettled_at = -math.inf
        self._changes: list[Callable[[], None]] = []
        self._positions: list[FilePosition] = []
        self._has_moved = True  # since `_positions` were read
        self._joining: list[FollowedName] = []
        self._submitted_at = self._read_at = 0.0
        self._pending: Future[list[Chunk]] | None = None
        self._worker = Worker(f"read {mount.point}")

    @property
    def idle(self) -> bool:
        """Whether no submitted read waits to be collected."""
        return self._pending is None

    def add(self, entry: FollowedName) -> None:
        """Follow a name that leads to this file system."""
        self._joining.append(entry)
        self._changes.append(lambda: self._add(entry))

    def leave(self, path: Path) -> None:
        """Retire the files of a name that leads to another file system now."""
        self._changes.append(lambda: self._leave(path))

    def submit(
        self, paths: Collection[Path] | None, now: float, budget: int, urgent: int | None = None
    ) -> None:
        """Read about `budget` bytes of `paths` (None: all), unless the last read goes on.

        `urgent`: read only files whose new bytes are, and if more than so many bytes are unread;
        those of the others wait for another read.
        """
        if self.idle:
            if self._changes or self._has_moved:
                self._apply()
                self._positions, self._has_moved = self._named_files.positions(), False
            self._submitted_at = now
            self._pending = self._worker.submit(
                lambda: list(self._read(paths, now, budget, urgent))
            )

    def collect(self, now: float, patience: float) -> list[Chunk]:
        """The chunks of the submitted read; waits at most `patience` seconds of real time."""
        if self._pending is None:
            return []
        try:
            chunks = self._pending.result(0 if self.overdue else patience)
        except LateError:
            self.overdue = True
            self._journal.stalled(str(self._at), self.mount, now - self._submitted_at, self)
            return []
        self._pending = None
        self._read_at = self._submitted_at
        self.overdue = False
        self._has_moved = self._has_moved or bool(chunks)
        self._journal.answered(self.mount, self)
        return chunks

    @property
    def has_backlog(self) -> bool:
        """Whether something is left for the next `read`; False while the thread reads."""
        return self.idle and self._leaves

    def behind(self) -> int:
        """Bytes known to be written and not read."""
        return sum(tail.unread for _, tail in list(self._named_files.live.values()))

    def late(self, now: float) -> Iterator[tuple[str, float]]:
        """The names with bytes that were not read, and up to when (Unix seconds) each was read.

        While the thread reads, all of them; none of a mount that is reported not to answer.
        """
        if self.idle:
            for entry in self._backlog:
                yield from ((str(entry.path), tail.read_to) for tail in entry.due())
        elif now - self._submitted_at < STALL_SECONDS:
            yield from ((str(path), self._read_at) for path in list(self._named_files.entries))

    def next_peek(self) -> float | None:
        """When (Unix seconds) the next peek is due; None if none is, or while the thread reads."""
        if not self.idle:
            return None
        times = (tail.splitter.peek_at() for tail in self._unfinished)
        return min((time for time in times if time is not None), default=None)

    def positions(self) -> list[FilePosition]:
        """The positions after the last chunk that was returned."""
        if not self.idle:
            joining = [position for entry in self._joining for position in entry.kept]
            return [*self._positions, *joining]
        self._apply()
        return self._named_files.positions()

    def contents(self) -> list[Known]:
        """The contents that are or were read; during a read, those from before the read."""
        if not self.idle:
            return [*map(Known, self._positions)]
        self._apply()
        return self._named_files.contents()

    def finish(self, patience: float) -> list[Chunk]:
        """The last chunk of every file; none if these do not come within `patience` seconds."""
        if not self.idle:
            return []
        self._pending = self._worker.submit(self._finish)
        return self.collect(self._submitted_at, patience)

    def close(self, patience: float) -> None:
        """Close the files; wait `patience` seconds for the thread, but not if it is overdue."""
        self._worker.submit(self._named_files.close)
        self._worker.close(0.0 if self.overdue else patience)

    def _apply(self) -> None:
        for change in self._changes:
            change()
        self._changes.clear()
        self._joining.clear()

    def _add(self, entry: FollowedName) -> None:
        """Follow a name, for the first time or after it led to another file system."""
        self._named_files.add(entry)
        known = self._named_files.entries[entry.path]
        known.elsewhere = False
        self._backlog[known], self._leaves = None, True

    def _leave(self, path: Path) -> None:
        self._named_files.entries[path].elsewhere = True

    def _read(
        self, paths: Collection[Path] | None, now: float, budget: int, urgent: int | None
    ) -> Iterator[Chunk]:
        self._named_files.recall(now)
        chosen = self._chosen(paths, now)
        for entry, is_new in chosen.items():
            if not is_new and entry in self._checked and entry.is_settled:
                continue
            self._at = entry.path
            self._named_files.check(entry, now)
            if entry.is_settled:
                self._unsettled.pop(entry, None)
            else:
                self._unsettled[entry] = None
        self._checked = {*self._checked, *chosen} if urgent is not None else set()
        yield from self._drain()
        for entry in chosen:
            for tail in entry.due():
                tail.note_look(now)
        turns = deque(entry for entry in chosen if entry.due())
        self._backlog = dict.fromkeys(turns)
        if urgent is not None:
            turns = deque(self._urgent_of(turns, urgent))
        while turns and budget > 0:
            entry = turns.popleft()
            del self._backlog[entry]
            self._at = entry.path
            taken = self._serve(entry, now)
            budget -= taken
            if taken and entry.due():
                turns.append(entry)
                self._backlog[entry] = None
            yield from self._drain()
        if urgent is None:
            self._leaves = bool(self._backlog)
            yield from self._peeks(now)

    def _urgent_of(self, turns: Collection[FollowedName], least: int) -> list[FollowedName]:
        """The names with urgent bytes that were not searched yet; none of `least` unread bytes."""
        tails = [(tail.unread, entry, tail) for entry in turns for tail in entry.due()]
        found: dict[FollowedName, None] = {}
        left, is_long = GLANCE_BYTES, sum(unread for unread, _, _ in tails) > least
        # A file with little to read is live; of a long backlog, nothing is urgent any more.
        for _, entry, tail in sorted(tails, key=itemgetter(0)) if is_long else ():
            with contextlib.suppress(OSError):  # reading the file reports the error
                data = tail.glance(min(left, CHUNK_BYTES))
                left -= len(data)
                if data and self._urgent(data):
                    found[entry] = None
        return [*found]

    def _due_peeks(self, now: float) -> list[Tail]:
        times = ((tail, tail.splitter.peek_at()) for tail in self._unfinished)
        return [tail for tail, time in times if time is not None and time <= now]

    def _finish(self) -> list[Chunk]:
        self._named_files.finish()
        return list(self._drain())

    def _chosen(self, paths: Collection[Path] | None, now: float) -> dict[FollowedName, bool]:
        """The names to read; True: something may have changed since they were checked."""
        entries, places = self._named_files.entries, self._named_files.places
        chosen = dict.fromkeys(self._backlog, False)
        if now - self._unsettled_at >= UNSETTLED_SECONDS:
            self._unsettled_at = now
            chosen |= dict.fromkeys(self._unsettled, True)
        if paths is None:
            return chosen | dict.fromkeys(entries.values(), True)
        for path in paths:
            entry = entries.get(path) or places.get(path)
            if entry is not None:
                chosen[entry] = True
        for tail in self._due_peeks(now):
            if tail.key in self._named_files.live:
                chosen[self._named_files.live[tail.key][0]] = True
        return chosen

    def _serve(self, entry: FollowedName, now: float) -> int:
        """Read a slice of the first file with unread bytes; return what it takes of the budget."""
        for tail in entry.due():
            before, generation = tail.splitter.position, tail.generation
            self._read_slice(entry, tail, now)
            if tail.generation != generation:
                return 1  # new content: more than 0, so that the name gets another turn
            if tail.splitter.position != before:
                return min(tail.splitter.position - before, CHUNK_BYTES)  # skipping a hole is free
        return 0

    def _read_slice(self, entry: FollowedName, tail: Tail, now: float) -> None:
        try:
            if not tail.reopen(entry.path):
                return
            self._named_files.ready.extend(tail.read(now))
        except OSError as error:
            tail.close()
            self._named_files.held.forget(tail)
            entry.report(self._named_files.journal, error)
            return
        self._named_files.held.use(tail)
        entry.recover(self._named_files.journal)
        if tail.splitter.unfinished:
            self._unfinished[tail] = None
        else:
            self._unfinished.pop(tail, None)

    def _peeks(self, now: float) -> Iterator[Chunk]:
        self._unfinished = {tail: None for tail in self._unfinished if not tail.finished}
        for tail in self._due_peeks(now):
            if not tail.unread:
                yield tail.splitter.peek()

    def _drain(self) -> Iterator[Chunk]:
        ready = self._named_files.ready
        while ready:
            yield ready.popleft()
