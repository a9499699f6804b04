"""The files of one file system, so that one which does not answer holds up no other."""

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import TypeAlias

from ldlm_monitor.model.chunk import Chunk, FileId
from ldlm_monitor.source.disk import Disk
from ldlm_monitor.source.entry import Entry
from ldlm_monitor.source.journal import Journal
from ldlm_monitor.source.mounts import Mount
from ldlm_monitor.source.position import Position
from ldlm_monitor.source.tailer import Tailer
from ldlm_monitor.source.worker import Worker

Answer: TypeAlias = "Future[list[Chunk]]"

STALL_SECONDS = 5.0
SLOW_SECONDS = 2.0
"""A local file system that once took so long is read in a thread from then on."""


class Lane:
    """Reads the files of one file system, where it is asked to or in a thread of its own.

    In a thread, `ask` begins and `answer` takes what has come; between them the files
    are the thread's alone. What is to be done to them meanwhile waits for the next `ask`.
    """

    def __init__(self, mount: Mount, journal: Journal, disk: Disk, open_files: int) -> None:
        self.mount = mount
        self.late = False
        self._journal = journal
        self._tailer = Tailer(Journal(), disk, open_files)
        self._orders: list[Callable[[], None]] = []
        self._positions: list[Position] = []
        self._joining: list[Entry] = []
        self._asked_at = 0.0
        self._said = False
        self._answer: Answer | None = None
        self._worker: Worker | None = None
        if mount.remote:
            self._start()

    @property
    def threaded(self) -> bool:
        """Whether a thread reads these files."""
        return self._worker is not None

    @property
    def idle(self) -> bool:
        """Whether nothing is asked that has not been answered."""
        return self._answer is None

    def add(self, entry: Entry) -> None:
        """Follow a name that leads here."""
        self._joining.append(entry)
        self._orders.append(lambda: self._tailer.add(entry))

    def leave(self, path: Path) -> None:
        """Its name leads elsewhere now."""
        self._orders.append(lambda: self._tailer.leave(path))

    def read(
        self, paths: Collection[Path] | None, now: float, budget: int, clock: Callable[[], float]
    ) -> Iterator[Chunk]:
        """Read here. If that is slow, it is the last time."""
        self._obey()
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

    def ask(self, paths: Collection[Path] | None, now: float, budget: int) -> None:
        """Have the thread read, unless nothing is asked of it or it is at it still."""
        assert self._worker is not None  # else nobody asks, but has it read
        if self.idle and (paths is None or paths or self._orders or self._tailer.wants(now)):
            self._obey()
            self._positions = self._tailer.positions()
            self._asked_at = now
            self._answer = self._worker.post(lambda: list(self._tailer.read(paths, now, budget)))

    def answer(self, now: float, patience: float) -> list[Chunk]:
        """What the thread has read, waited for at most `patience` seconds of real time."""
        if self._answer is None:
            return []
        try:
            chunks = self._answer.result(0 if self.late else patience)
        except LateError:
            self.late = True
            if now - self._asked_at >= STALL_SECONDS and not self._said:
                self._said = True
                self._journal.stalled(str(self._tailer.at), self.mount, now - self._asked_at)
            return []
        self._answer = None
        self.late = False
        if self._said:
            self._said = False
            self._journal.answered(self.mount)
        self._journal.absorb(self._tailer.journal)
        return chunks

    def behind(self) -> int:
        """Bytes written, as far as was seen, and not read."""
        return self._tailer.behind()

    def nameless(self) -> list[FileId]:
        """As `Follower.nameless`."""
        return self._tailer.nameless()

    def next_peek(self) -> float | None:
        """As `Follower.next_peek`; None while the thread is at work."""
        return self._tailer.next_peek() if self.idle else None

    def positions(self) -> list[Position]:
        """Where reading stood when the last chunk was given."""
        if not self.idle:
            joining = [position for entry in self._joining for position in entry.kept]
            return [*self._positions, *joining]
        self._obey()
        return self._tailer.positions()

    def finish(self, patience: float) -> list[Chunk]:
        """The last chunk of every file; nothing of a file system that does not answer."""
        if self._worker is None:
            chunks = list(self._tailer.finish())
            self._journal.absorb(self._tailer.journal)
            return chunks
        if not self.idle:
            return []
        self._answer = self._worker.post(lambda: list(self._tailer.finish()))
        return self.answer(self._asked_at, patience)

    def close(self, patience: float) -> None:
        """Give the descriptors back; a thread that gets no answer is left to its fate."""
        worker, self._worker = self._worker, None
        if worker is None:
            self._tailer.close()
        else:
            worker.post(self._tailer.close)
            worker.close(0.0 if self.late else patience)

    def _obey(self) -> None:
        for order in self._orders:
            order()
        self._orders.clear()
        self._joining.clear()

    def _start(self) -> None:
        self._worker = Worker(f"read {self.mount.point}")
