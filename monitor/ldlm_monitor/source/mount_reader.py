"""Reads the files of one file system, so that a dead server does not block the others."""

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import TypeAlias

from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.source.file_system import Disk, Mount, Worker
from ldlm_monitor.source.held_files import FollowedName
from ldlm_monitor.source.identity import Known
from ldlm_monitor.source.journal import Journal
from ldlm_monitor.source.position import FilePosition
from ldlm_monitor.source.tailer import Tailer

Pending: TypeAlias = "Future[list[Chunk]]"

STALL_SECONDS = 5.0
"""A file system that has not answered for so long is reported. A busy NFS server answers
within a second or two; a user should see a dead one before the first alert fires."""
SLOW_SECONDS = 2.0
"""A local file system that once took so long is read in a thread from then on: a FUSE mount
under an unlisted type, or a dying disk. A slice is 256 KiB, which any healthy disk reads in
milliseconds."""


class MountReader:
    """Reads the files of one file system, in the caller's thread or in one of its own.

    With a thread, `submit` starts a read and `collect` returns its chunks. In between, the
    thread owns the files; changes wait in a queue that the next `submit` applies.
    """

    def __init__(self, mount: Mount, journal: Journal, disk: Disk, open_files: int) -> None:
        self.mount = mount
        self.overdue = False
        self._journal = journal
        self._tailer = Tailer(Journal(), disk, open_files)
        self._changes: list[Callable[[], None]] = []
        self._positions: list[FilePosition] = []
        self._joining: list[FollowedName] = []
        self._submitted_at = 0.0
        self._stall_reported = False
        self._pending: Pending | None = None
        self._worker: Worker | None = None
        if mount.remote:
            self._start()

    @property
    def threaded(self) -> bool:
        """Whether a thread reads these files."""
        return self._worker is not None

    @property
    def idle(self) -> bool:
        """Whether no submitted read is unfinished."""
        return self._pending is None

    def add(self, entry: FollowedName) -> None:
        """Follow a name that leads to this file system."""
        self._joining.append(entry)
        self._changes.append(lambda: self._tailer.add(entry))

    def leave(self, path: Path) -> None:
        """The name leads to another file system now."""
        self._changes.append(lambda: self._tailer.leave(path))

    def read(
        self, paths: Collection[Path] | None, now: float, budget: int, clock: Callable[[], float]
    ) -> Iterator[Chunk]:
        """Read in the caller's thread; after a slow read, start a thread for the next ones."""
        self._apply()
        chunks = self._tailer.read(paths, now, budget)
        chunk: Chunk | None
        while True:
            began = clock()
            chunk = next(chunks, None)
            slow = clock() - began > SLOW_SECONDS
            self._journal.absorb(self._tailer.journal)
            if chunk is not None:
                yield chunk
            if slow and not self.threaded:
                self._start()
            if chunk is None:
                return

    def submit(self, paths: Collection[Path] | None, now: float, budget: int) -> None:
        """Start a read in the thread, unless it is reading or has nothing to do."""
        assert self._worker is not None  # the follower reads in its own thread otherwise
        if self.idle and (paths is None or paths or self._changes or self._tailer.has_work(now)):
            self._apply()
            self._positions = self._tailer.registry.positions()
            self._submitted_at = now
            self._pending = self._worker.submit(lambda: list(self._tailer.read(paths, now, budget)))

    def collect(self, now: float, patience: float) -> list[Chunk]:
        """The chunks of the submitted read; waits at most `patience` seconds of real time."""
        if self._pending is None:
            return []
        try:
            chunks = self._pending.result(0 if self.overdue else patience)
        except LateError:
            self.overdue = True
            waited = now - self._submitted_at
            if waited >= STALL_SECONDS and not self._stall_reported:
                self._stall_reported = True
                self._journal.stalled(str(self._tailer.at), self.mount, waited)
            return []
        self._pending = None
        self.overdue = False
        if self._stall_reported:
            self._stall_reported = False
            self._journal.answered(self.mount)
        self._journal.absorb(self._tailer.journal)
        return chunks

    @property
    def has_backlog(self) -> bool:
        """As `Follower.has_backlog`; False while the thread reads."""
        return self.idle and self._tailer.has_backlog

    def behind(self) -> int:
        """Bytes known to be written and not read."""
        return self._tailer.behind()

    def next_peek(self) -> float | None:
        """As `Follower.next_peek`; None while the thread reads."""
        return self._tailer.next_peek() if self.idle else None

    def positions(self) -> list[FilePosition]:
        """The positions after the last chunk that was returned."""
        if not self.idle:
            joining = [position for entry in self._joining for position in entry.kept]
            return [*self._positions, *joining]
        self._apply()
        return self._tailer.registry.positions()

    def contents(self) -> list[Known]:
        """As `Follower.contents`; while the thread reads, what was known before."""
        return self._tailer.registry.contents() if self.idle else [*map(Known, self._positions)]

    def finish(self, patience: float) -> list[Chunk]:
        """The last chunk of every file; none if the file system does not answer."""
        if self._worker is None:
            chunks = list(self._tailer.finish())
            self._journal.absorb(self._tailer.journal)
            return chunks
        if not self.idle:
            return []
        self._pending = self._worker.submit(lambda: list(self._tailer.finish()))
        return self.collect(self._submitted_at, patience)

    def close(self, patience: float) -> None:
        """Close the files; a thread that is blocked in a call is not waited for."""
        worker, self._worker = self._worker, None
        if worker is None:
            self._tailer.registry.close()
        else:
            worker.submit(self._tailer.registry.close)
            worker.close(0.0 if self.overdue else patience)

    def _apply(self) -> None:
        for change in self._changes:
            change()
        self._changes.clear()
        self._joining.clear()

    def _start(self) -> None:
        self._worker = Worker(f"read {self.mount.point}")
