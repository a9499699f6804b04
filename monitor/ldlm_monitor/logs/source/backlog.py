"""Reads what a file holds already, and finds files that were read before a restart.

`Recall` finds the file of a saved position. `Backlog` reads the present bytes of a file with
the same `Tail` that follows the file afterwards.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ldlm_monitor.base.chunk import Chunk, FileId
from ldlm_monitor.logs.parse.readers import framing_of
from ldlm_monitor.logs.source.decoded_files import trouble
from ldlm_monitor.logs.source.file_identity import COPY_BYTES, FilePosition
from ldlm_monitor.logs.source.file_system import DIRECT, Disk, Key, likely_places
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.split import BOM, RECORD_BYTES
from ldlm_monitor.logs.source.tail import Tail

HEAD_BYTES = 2048
"""Bytes of `Backlog.head`, by which the format is recognised. A choice: fewer may have no line."""


class _Opened(NamedTuple):
    """A candidate for the file that a position describes."""

    path: Path
    descriptor: int
    key: Key


@dataclass(frozen=True, slots=True)
class Recall:
    """Finds the files of saved positions; `journal` gets a notice of each that is gone or new."""

    journal: Journal
    disk: Disk

    def find(self, position: FilePosition, path: Path, now: float) -> Tail | None:
        """The file that `position` describes, ready to continue under the name `path`.

        If the file was renamed in the same folder, the result's `retired_at` is `now` (Unix
        seconds). If `path` leads to a copy of the file, the copy is continued. New content of the
        file is read from its start, with a notice. If the file is gone but `path` can be opened,
        or if `position` is nameless, there is a notice and the result is None; otherwise a missing
        file raises `OSError`. A server that does not answer raises `TimeoutError`. A reboot can
        change device numbers, so inode and content identify the file.
        """
        opened: list[_Opened] = []
        tail: Tail | None = None
        try:
            trouble = self._open(path, opened)
            if not (opened and self._is_same(position, opened[0])):  # listing folders is slow
                for place in likely_places(
                    Path(position.place), position.inode, read=position.read
                ):
                    self._open(place, opened)
            tail = self._choose(position, path, opened)
        finally:
            for file in opened:
                if tail is None or file.descriptor != tail.descriptor:
                    self.disk.close(file.descriptor)
        if tail is None:
            if trouble is not None and not position.nameless:
                raise trouble
            self.journal.lost_file(str(path), position.read)
        elif trouble is not None or tail.descriptor != opened[0].descriptor:
            tail.retired_at = now
        return tail

    def _open(self, path: Path, opened: list[_Opened]) -> OSError | None:
        """Open `path` and append it to `opened`; otherwise return why it cannot be opened."""
        try:
            opened.append(_Opened(path, *self.disk.open_regular(path)))
        except TimeoutError:  # the file may exist
            raise
        except OSError as error:
            return error
        return None

    def _is_same(self, position: FilePosition, file: _Opened) -> bool:
        has_inode = file.key[1] == position.inode
        return has_inode and position.verify(self.disk, file.descriptor) is not None

    def _choose(self, position: FilePosition, path: Path, opened: list[_Opened]) -> Tail | None:
        kept = [file for file in opened if position.verify(self.disk, file.descriptor)]
        for file in kept:
            if file.key[1] == position.inode:
                return self._begin(path, file, position.generation, position)
        if position.nameless:  # any other file may have got the freed inode
            return None
        for file in opened:
            named = file.path == path or _is_named_after(file.path, Path(position.place))
            if file.key == position.key and named:
                shrunk = self.disk.fstat(file.descriptor).st_size < position.read
                self.journal.rewritten(str(path), position.read, shrunk=shrunk)
                return self._begin(path, file, position.generation + 1, None)
        for file in kept:
            comparable = file.path == path and position.offset >= COPY_BYTES
            if comparable and position.checksum.fits(self.disk, file.descriptor):
                self.journal.replaced(str(path), copied=True)
                return self._begin(path, file, 0, position)
        return None

    def _begin(self, path: Path, file: _Opened, generation: int, at: FilePosition | None) -> Tail:
        place = self.disk.realpath(file.path)
        tail = Tail(
            str(path), place, file.descriptor, file.key,
            generation=generation, journal=self.journal, disk=self.disk,
        )  # fmt: skip
        if at is not None:
            tail.continue_at(at)
        return tail


def find_again(tail: Tail) -> bool:
    """Open the file of `tail` again, at `place` or renamed in that folder; whether it was found.

    It may have other content since the last look.
    """
    for place in likely_places(tail.place, tail.key[1], read=tail.splitter.position):
        with contextlib.suppress(OSError):
            if tail.reopen(place) and (_is_named_after(place, tail.place) or tail.same_content()):
                return True
            tail.close()  # another file has reused the inode
    return False


def _is_named_after(place: Path, original: Path) -> bool:
    """Whether a file with the same inode may be the original, perhaps renamed by a rotation.

    An unrelated file that reuses the inode of a deleted one has another name.
    """
    return place.name.startswith(original.name)


class Backlog:
    """The bytes that a file has now, in the chunks that following the file would give.

    `path`: the followed name. `place`: the file's present path. `file` names the content.
    `offset`: the byte where reading begins. `size`: the file's (decoded) bytes at first.
    `modified`: its mtime (Unix seconds). `has_name`: the followed name leads to this file. `head`:
    the first bytes after a hole and a byte order mark. `tail` reads the file. `trouble`: why a
    compressed file could not be decoded to its end, else empty. Reads may raise `OSError`.
    """

    def __init__(self, tail: Tail, disk: Disk) -> None:
        self.tail = tail
        self._disk = disk
        self._status = disk.fstat(tail.open_descriptor())
        self.path = tail.name
        self.place: Path = tail.place
        self.file: FileId = tail.splitter.file
        self.offset = tail.splitter.offset
        self.size = self._status.st_size
        self.modified = self._status.st_mtime
        self.trouble = trouble(tail.open_descriptor())
        self.has_name = tail.retired_at is None
        self.head = self._head()

    @classmethod
    def new(
        cls, path: Path, journal: Journal, disk: Disk = DIRECT, *, is_followed: bool = False
    ) -> Backlog:
        """The file `path`, of which nothing was read; `is_followed`: it is followed afterwards."""
        place = disk.realpath(path)
        descriptor, key = disk.open_regular(path)
        tail = Tail(
            str(path), place, descriptor, key,
            generation=0, journal=journal, disk=disk, is_followed=is_followed,
        )  # fmt: skip
        return cls._begun(tail, disk)

    @classmethod
    def of(
        cls, position: FilePosition, now: float, journal: Journal, disk: Disk = DIRECT
    ) -> Backlog | None:
        """The file of `position`, found by `Recall.find` at `now` (Unix seconds); None if gone."""
        tail = Recall(journal, disk).find(position, Path(position.path), now)
        return None if tail is None else cls._begun(tail, disk)

    @classmethod
    def _begun(cls, tail: Tail, disk: Disk) -> Backlog:
        try:
            return cls(tail, disk)
        except OSError:
            tail.close()
            raise

    def begin_at(self, offset: int, line: int) -> None:
        """Read from byte `offset` on, where a record of line `line` (1-based) begins."""
        self.descriptor()
        self.tail.begin_at(offset, line)
        self.offset = offset

    def chunks(self, now: float, stop: int | None = None) -> Iterator[Chunk]:
        """Chunks of whole records up to byte `stop` (None: all), read at `now` (Unix seconds)."""
        self.descriptor()
        yield from self._read(self.tail, self.size if stop is None else stop, now)

    def all(self, now: float) -> Iterator[Chunk]:
        """All of `chunks(now)`, then the file's last chunk, which is `final`."""
        yield from self.chunks(now)
        yield self.tail.finish()

    def scan(self, start: int, stop: int) -> Iterator[Chunk]:
        """Chunks of bytes `start` to `stop`, also of an unfinished record; `tail` does not move.

        Their lines are not counted, which would take as long as reading.
        """
        held = self.tail
        tail = Tail(
            self.path, self.place, self.descriptor(), held.key,
            generation=held.generation, journal=Journal(), disk=self._disk, is_followed=False,
        )  # fmt: skip
        tail.start_at(start, 1)
        tail.splitter.counts_lines = False
        yield from self._read(tail, min(stop, self.size), 0.0)
        if tail.splitter.unfinished:
            yield tail.splitter.rest()

    def part(self, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop`, at most `RECORD_BYTES` of them."""
        size = max(min(stop - start, RECORD_BYTES), 0)
        return self._disk.pread(self.descriptor(), size, start)

    def position(self) -> FilePosition | None:
        """The reading position; None if the file is finished and deleted."""
        if self.tail.finished and not self._disk.fstat(self.descriptor()).st_nlink:
            return None
        return self.tail.position()

    def rest(self) -> None:
        """Close the descriptor until the next read: there may be more files than descriptors.

        A file that has lost the followed name stays open: it could not be opened again.
        """
        if self.has_name:
            self.tail.close()

    def descriptor(self) -> int:
        """The descriptor, opened again after `rest`. Raises `OSError` if the file is gone."""
        if self.tail.reopen(self.place):
            return self.tail.open_descriptor()
        raise FileNotFoundError(errno.ENOENT, "another file has its name", self.path)

    def _read(self, tail: Tail, stop: int, now: float) -> Iterator[Chunk]:
        tail.see(self._status)
        while tail.due and tail.splitter.position < stop:
            before = tail.splitter.position
            self.descriptor()  # the caller of this iterator may have called `rest`
            found = tail.read(now, stop)
            yield from found
            if not found and tail.splitter.position == before:
                return  # the file was truncated: `_status` has the size from before

    def _head(self) -> bytes:
        descriptor = self.tail.open_descriptor()
        head = self._disk.pread(descriptor, HEAD_BYTES, 0)
        if head[:1] == b"\0" and framing_of(head) is None:
            first = next(self.scan(0, self.size), None)
            head = b"" if first is None else first.data[:HEAD_BYTES]
        return head.removeprefix(BOM)
