"""The two sources of chunks: files that are followed, and standard input or another pipe."""

import errno
import math
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.logs.source.decoded_files import pieces
from ldlm_monitor.logs.source.file_identity import FilePosition, Known
from ldlm_monitor.logs.source.file_system import (
    DIRECT,
    MOUNT_SECONDS,
    Disk,
    Mount,
    MountTable,
    read_mounts,
)
from ldlm_monitor.logs.source.file_system_reader import QUICK_BYTES, MountReader
from ldlm_monitor.logs.source.input_patterns import STANDARD_INPUT
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.open_files import FollowedName, affordable_files
from ldlm_monitor.logs.source.split import Splitter

TURN_BYTES = 8 * 1024 * 1024
"""Bytes read in one turn. A choice: parsing them takes less than a second, so that timers and
alerts are not late while a backlog is read."""
PATIENCE_SECONDS = 0.1
"""How long `read` waits for all network file systems together, and `finish` and `close` for each:
below what a user notices, and long enough for a healthy server to answer in the same turn."""
LOCAL_SECONDS = 2.0
"""How long it waits for the local disks, which need milliseconds: a choice. A FUSE mount of a type
that is not listed, or a dying disk, takes longer; less would split the reads of a busy machine."""


class Follower:
    """Reads what is appended to many files, exactly once, in chunks of whole records.

    The local disks have a thread, and so has each network file system. `read` waits for them
    briefly; chunks that come later are returned by a later `read`. `open_files`: how many files of
    one file system may stay open; None: as many as the process can afford. `journal` gets the
    notices. `urgent`: whether bytes cannot wait until others are judged.
    Tests replace `disk` and `mounts`.
    """

    def __init__(
        self,
        *,
        open_files: int | None = None,
        disk: Disk = DIRECT,
        mounts: Callable[[], MountTable] = read_mounts,
        journal: Journal | None = None,
        urgent: Callable[[bytes], bool] = lambda data: False,
    ) -> None:
        self.journal = Journal() if journal is None else journal
        self._urgent = urgent
        self._open_files = affordable_files() if open_files is None else open_files
        self._disk = disk
        self._read_mounts = mounts
        self._table = mounts()
        self._table_at = -math.inf
        self._local = self._new_reader(Mount(point="the local disks"))
        self._remote: dict[str, MountReader] = {}
        self._readers: dict[Path, MountReader] = {}

    @property
    def paths(self) -> Collection[Path]:
        """The followed names, as they were added."""
        return self._readers.keys()

    def add(self, path: Path, *, offset: int = 0, resume: Iterable[FilePosition] = ()) -> None:
        """Follow a name, whether or not it exists yet. Does nothing if it is followed.

        Bytes before `offset` of the present file count as read. `resume`: this name's `positions`
        from before a restart, which override `offset`. Add all resumed names before the first
        `read`, since the file of one name may now have the name of another.
        """
        if path not in self._readers:
            reader = self._readers[path] = self._reader_of(path)
            reader.add(FollowedName(path, start=offset, kept=list(resume)))

    def read(
        self, paths: Collection[Path] | None, now: float, budget: int = TURN_BYTES
    ) -> Iterator[Chunk]:
        """New chunks of `paths` (None: all), read at `now` (Unix seconds).

        Files with a backlog are read too. Files take turns of one slice until `budget`
        bytes are read; the next call continues with the files that had no turn.
        """
        self._route(paths, now)
        for reader in self._all():
            reader.submit(self._share(reader, paths), now, budget)
        yield from self._local.collect(now, LOCAL_SECONDS)
        until = time.monotonic() + PATIENCE_SECONDS
        for reader in self._remote.values():
            yield from reader.collect(now, max(0.0, until - time.monotonic()))

    def read_urgent(
        self,
        paths: Collection[Path] | None,
        now: float,
        budget: int = TURN_BYTES,
        *,
        least: int = QUICK_BYTES,
    ) -> Iterator[Chunk]:
        """As `read`, but only of files whose new bytes are urgent; the others wait for `read`.

        Bytes are searched once, and only while more than `least` of a file system are unread. The
        next `read` finds what `paths` were here, and does not need them.
        """
        self._route(paths, now)
        asked = [(each, self._share(each, paths)) for each in self._all()]
        asked = [(each, share) for each, share in asked if share is None or share]
        for reader, share in asked:
            reader.submit(share, now, budget, least)
        until = time.monotonic() + PATIENCE_SECONDS
        for reader, _ in asked:
            local = reader is self._local
            patience = LOCAL_SECONDS if local else max(0.0, until - time.monotonic())
            yield from reader.collect(now, patience)

    @property
    def has_backlog(self) -> bool:
        """Whether the last read left something for the next one."""
        return any(reader.has_backlog for reader in self._all())

    def behind(self) -> int:
        """Bytes known to be written and not read. May be called from any thread."""
        return sum(reader.behind() for reader in self._all())

    def late(self, now: float) -> Iterator[tuple[str, float]]:
        """Names whose files have bytes that were not read at `now`, and up to when each was read.

        Times are Unix seconds. Not those of a file system that is reported not to answer.
        """
        for reader in self._all():
            yield from reader.late(now)

    def next_peek(self) -> float | None:
        """When (Unix seconds) the next unfinished record is due as a peek; None if none is."""
        times = (reader.next_peek() for reader in self._all())
        return min((time for time in times if time is not None), default=None)

    def positions(self) -> list[FilePosition]:
        """The reading position of each file.

        Call this after the last chunk of a `read`: then exactly the returned chunks lie before
        the positions. A name has several positions while files that lost it are still read.
        """
        return [position for reader in self._all() for position in reader.positions()]

    def contents(self) -> list[Known]:
        """The contents that are or were read, with which `KnownContents` compares new paths."""
        return [known for reader in self._all() for known in reader.contents()]

    def finish(self) -> Iterator[Chunk]:
        """The last chunk of every file whose server answers; nothing more is read."""
        for reader in self._all():
            yield from reader.finish(_patience(reader))

    def close(self) -> None:
        """Close all files and end the threads."""
        for reader in self._all():
            reader.close(_patience(reader))

    def _all(self) -> list[MountReader]:
        return [self._local, *self._remote.values()]

    def _new_reader(self, mount: Mount) -> MountReader:
        return MountReader(mount, self.journal, self._disk, self._open_files, self._urgent)

    def _reader_of(self, path: Path) -> MountReader:
        mount = self._table.of(path) if self._table.has_remote else Mount()
        if not mount.remote:
            return self._local
        if mount.device not in self._remote:
            self._remote[mount.device] = self._new_reader(mount)
        return self._remote[mount.device]

    def _share(
        self, reader: MountReader, paths: Collection[Path] | None
    ) -> Collection[Path] | None:
        """The `paths` of `reader`; a path that is no followed name goes to the local reader."""
        if paths is None or not self._remote:
            return paths
        return [path for path in paths if self._readers.get(path, self._local) is reader]

    def _route(self, paths: Collection[Path] | None, now: float) -> None:
        """Move each name to the reader of the file system that it leads to now."""
        if now - self._table_at >= MOUNT_SECONDS:
            self._table_at = now
            self._table = self._read_mounts()
        if not (self._table.has_remote or self._remote):
            return
        for path in self._readers.keys() if paths is None else self._readers.keys() & set(paths):
            before, reader = self._readers[path], self._reader_of(path)
            if reader is not before:
                before.leave(path)
                reader.add(FollowedName(path))
                self._readers[path] = reader


def _patience(reader: MountReader) -> float:
    return PATIENCE_SECONDS if reader.mount.remote else LOCAL_SECONDS


PIECE_BYTES = 64 * 1024  # the usual capacity of a pipe, pipe(7)
QUEUED_PIECES = 64
"""With so many pieces (4 MiB) in the queue the thread stops reading, and the pipe's writer blocks.
A choice: more cost memory, fewer block the writer sooner."""


class StdinSource:
    """Reads a pipe in a thread, so that waiting for input blocks nothing else.

    The thread calls `ring` with `path` (`-`) whenever there is something to read. `journal`
    gets notices of records that were cut and of damage. `ended`: the last chunk was returned.
    """

    def __init__(
        self, stream: BinaryIO, ring: Callable[[Path], None], journal: Journal | None = None
    ) -> None:
        self._journal = Journal() if journal is None else journal
        self.path = Path(STANDARD_INPUT)
        status = os.fstat(stream.fileno())
        self._splitter = Splitter(STANDARD_INPUT, (status.st_dev, status.st_ino, 0))
        self._pieces: queue.Queue[bytes] = queue.Queue(QUEUED_PIECES)
        self._ring = ring
        self._descriptor = stream.fileno()
        self.ended = False
        # A daemon thread: a read of an open pipe cannot be interrupted.
        self.thread = threading.Thread(target=self._pump, args=(stream,), name="stdin", daemon=True)
        self.thread.start()

    def read(self, now: float) -> Iterator[Chunk]:
        """The chunks that arrived by `now` (Unix seconds); the stream's last one is `final`."""
        cut = self._splitter.cut_records
        while not self.ended:
            try:
                piece = self._pieces.get_nowait()
            except queue.Empty:
                break
            if piece:
                yield from self._splitter.feed(piece, now)
            else:
                self.ended = True
                yield self._splitter.finish()
        self._journal.cut(STANDARD_INPUT, self._splitter.cut_records - cut)
        peek_at = self._splitter.peek_at()
        if peek_at is not None and peek_at <= now:
            yield self._splitter.peek()

    @property
    def is_behind(self) -> bool:
        """Whether the pipe, or the queue of its thread, has bytes that `read` did not return."""
        with suppress(OSError, ValueError):  # another thread closed the pipe
            waits = bool(select.select([self._descriptor], [], [], 0)[0])
            return not self.ended and (waits or not self._pieces.empty())
        return False

    def next_peek(self) -> float | None:
        """When (Unix seconds) the unfinished record is due as a peek; None if there is none."""
        return self._splitter.peek_at()

    def _pump(self, stream: BinaryIO) -> None:
        try:
            for piece in pieces(lambda size: os.read(stream.fileno(), size), PIECE_BYTES):
                self._pieces.put(piece)
                self._ring(self.path)
        except (OSError, ValueError) as error:  # another thread closed the pipe: end of input
            if isinstance(error, OSError) and error.errno in (errno.ENOTSUP, errno.EIO):
                text = f"{error.strerror}; what came before is read"
                self._journal.note("unreadable", STANDARD_INPUT, text)
        self._pieces.put(b"")
        self._ring(self.path)
