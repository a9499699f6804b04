"""One file, read forwards through its open descriptor.

What can happen to a file under a reader, and how it shows:

- it grows: read on at `position`;
- it is emptied, or emptied and written anew past `position` (copytruncate): its
  size is smaller, or its first KiB or the KiB before `position` is not what was
  read there. First bytes alone prove nothing, for training logs all begin alike.
  A new generation begins at 0;
- its start is a hole of NULs, because a writer that does not append was
  truncated: NULs between records are skipped, NULs at the end are not there yet
  (a network file system shows them before the data);
- its name is taken away: the descriptor still leads to it, see `follow.py`.

Bytes that are written and truncated again between two looks cannot be known.
"""

import contextlib
import os
import stat
from pathlib import Path
from typing import TypeAlias

from ldlm_monitor.chunk import Chunk
from ldlm_monitor.errors import InputError
from ldlm_monitor.source.journal import Journal
from ldlm_monitor.source.split import CHUNK_BYTES, Splitter

Key: TypeAlias = tuple[int, int]
"""(device, inode)"""

WINDOW_BYTES = 1024
SETTLED_SECONDS = 2.0
"""A file changed so recently may change again under the same size and mtime."""


def key_of(status: os.stat_result) -> Key:
    """What makes two names lead to the same file."""
    return status.st_dev, status.st_ino


def open_regular(path: Path) -> tuple[int, Key]:
    """A descriptor for reading. Raises `OSError`, or `InputError` for pipes and folders."""
    # O_NONBLOCK: a named pipe without a writer must not hold up the other files.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise InputError(
            "not a regular file", where=str(path), remedy="feed pipes to standard input (`-`)"
        )
    return descriptor, key_of(status)


class Tail:
    """Reads what is new of one file and notices when it begins again.

    `name` is what its chunks are called, wherever the file is moved. `size` is as
    last seen. `retired_at` (Unix seconds) is when its name was taken away;
    `finished`: its last chunk was given.
    """

    __slots__ = (
        "_blank",
        "_checked",
        "_dirty",
        "_head",
        "_journal",
        "_modified",
        "_window",
        "descriptor",
        "finished",
        "key",
        "name",
        "place",
        "retired_at",
        "size",
        "splitter",
    )

    def __init__(
        self,
        name: str,
        place: Path,
        descriptor: int,
        key: Key,
        *,
        generation: int,
        journal: Journal,
    ) -> None:
        self.name = name
        self.place = place
        self.descriptor: int | None = descriptor
        self.key = key
        self.splitter = Splitter(name, (*key, generation))
        self.size = 0
        self.retired_at: float | None = None
        self.finished = False
        self._journal = journal
        self._modified = 0
        self._checked = 0.0
        self._dirty = True
        self._blank = 0
        self._head = b""
        self._window = b""

    @property
    def unread(self) -> int:
        """Bytes that are known to be there and have not been read."""
        return max(0, self.size - self.splitter.position - self._blank)

    @property
    def generation(self) -> int:
        """Counts the contents that this device and inode have had."""
        return self.splitter.file[2]

    @property
    def due(self) -> bool:
        """Whether a read may find something."""
        return not self.finished and (self._dirty or self.unread > 0)

    def start_at(self, offset: int) -> None:
        """Begin at `offset`, if the file is that long, as if all before it had been read.

        Counts the lines before it, so it reads them once.
        """
        descriptor = self._open_descriptor()
        if not 0 < offset <= os.fstat(descriptor).st_size:
            return
        line, at = 1, 0
        while at < offset:
            data = os.pread(descriptor, min(CHUNK_BYTES, offset - at), at)
            if not data:
                return
            if not at:
                self._head = data[:WINDOW_BYTES]
            self._window = (self._window + data)[-WINDOW_BYTES:]
            line += data.count(b"\n")
            at += len(data)
        self.splitter = Splitter(self.name, self.splitter.file, offset=offset, line=line)

    def continue_from(self, other: "Tail") -> None:
        """Go on where `other`, which read the same content before, ended."""
        before = other.splitter
        self.splitter = Splitter(
            self.name, self.splitter.file, offset=before.position, line=before.line
        )
        self._head, self._window = other._head, other._window

    def same_content(self, descriptor: int | None = None) -> bool:
        """Whether what was read stands where it was read (in `descriptor`, or here)."""
        descriptor = self._open_descriptor() if descriptor is None else descriptor
        position = self.splitter.position
        before = position - len(self._window)
        return (
            os.pread(descriptor, len(self._window), before) == self._window
            and os.pread(descriptor, len(self._head), 0) == self._head
        )

    def see(self, status: os.stat_result, now: float) -> None:
        """Take in the file's size and time of change."""
        size, modified = status.st_size, status.st_mtime_ns
        if size != self.size or modified != self._modified:
            if size < self.size:
                self._journal.lost_bytes += self.unread
            self.size, self._modified = size, modified
            self._blank = 0
            self._dirty = True
        elif not self._dirty and modified > (self._checked - SETTLED_SECONDS) * 1e9:
            self._dirty = True

    def read(self, now: float) -> list[Chunk]:
        """The next slice of the file, or the end of a generation. Raises `OSError`."""
        descriptor = self._open_descriptor()
        position = self.splitter.position
        wanted = max(CHUNK_BYTES - self.splitter.unfinished, CHUNK_BYTES // 4)
        data = os.pread(descriptor, wanted, position)
        # Checked after reading: what passes now was there when it was read.
        if not self.same_content(descriptor):
            return [self._begin_again()]
        at_end = len(data) < wanted or position + len(data) == self.size
        written = data.rstrip(b"\0")
        if at_end:
            self._blank = len(data) - len(written)
            self.size = max(self.size, position + len(data))
        if at_end or written.endswith((b"\n", b"\r")):
            data = written
        if data[:1] == b"\0" and not self.splitter.unfinished:
            data = self._skip_hole(descriptor, data)
        self._dirty = self.unread > 0
        if not data:
            self._checked = now
            return []
        cut = self.splitter.cut_records
        chunks = self.splitter.feed(data, now)
        self._remember(data)
        self._dirty, self._checked = self.unread > 0, now
        self._note_cut(cut)
        return chunks

    def finish(self) -> Chunk:
        """The last chunk: nothing more of this file will be read under this identity."""
        cut = self.splitter.cut_records
        chunk = self.splitter.finish()
        self._note_cut(cut)
        self.finished = True
        self.close()
        return chunk

    def reopen(self, path: Path) -> bool:
        """Open again, if `path` still leads to the same file. Raises `OSError`, `InputError`."""
        if self.descriptor is None:
            descriptor, key = open_regular(path)
            if key != self.key:
                os.close(descriptor)
                return False
            self.descriptor = descriptor
        return True

    def find_again(self) -> bool:
        """Open a file that has lost its name at rest: where it was, or renamed beside it.

        Where nothing was read that could prove it, its name must begin as it did before.
        """
        places = [self.place]
        with contextlib.suppress(OSError), os.scandir(self.place.parent) as beside:
            places += (Path(entry.path) for entry in beside if entry.inode() == self.key[1])
        for place in places:
            if not self._window and not place.name.startswith(self.place.name):
                continue
            with contextlib.suppress(OSError, InputError):
                if self.reopen(place) and self.same_content():
                    return True
                self.close()  # the number of a deleted file, given to another
        return False

    def close(self) -> None:
        """Give the descriptor back; where the reading stands is kept."""
        if self.descriptor is not None:
            with contextlib.suppress(OSError):  # a stale network handle; it is gone either way
                os.close(self.descriptor)
            self.descriptor = None

    def _open_descriptor(self) -> int:
        if self.descriptor is None:
            raise InputError("closed", where=self.name)
        return self.descriptor

    def _remember(self, data: bytes) -> None:
        if len(self._head) < WINDOW_BYTES:
            self._head = (self._head + data[:WINDOW_BYTES])[:WINDOW_BYTES]
        self._window = (self._window + data[-WINDOW_BYTES:])[-WINDOW_BYTES:]

    def _skip_hole(self, descriptor: int, data: bytes) -> bytes:
        """`data` without the NULs that it begins with; all of a hole is jumped over at once."""
        text = data.lstrip(b"\0")
        skipped = len(data) - len(text)
        if not text:
            with contextlib.suppress(OSError):  # no data behind it, or no such call here
                start = os.lseek(descriptor, self.splitter.position + skipped, os.SEEK_DATA)
                skipped = start - self.splitter.position
        self.splitter.skip(skipped)
        self._remember(bytes(min(skipped, WINDOW_BYTES)))
        return text

    def _begin_again(self) -> Chunk:
        shrunk = self.size < self.splitter.position
        read = self.splitter.position
        cut = self.splitter.cut_records
        last = self.splitter.finish()
        self._note_cut(cut)
        self.splitter = Splitter(self.name, (*self.key, self.generation + 1))
        self._head = self._window = b""
        self._blank = 0
        self._dirty = True
        self._journal.truncations += 1
        self._journal.note(
            "truncated" if shrunk else "rewritten",
            self.name,
            f"was {'truncated' if shrunk else 'rewritten in place'} after byte {read} had been "
            "read; reading it from its start",
        )
        return last

    def _note_cut(self, before: int) -> None:
        if cut := self.splitter.cut_records - before:
            self._journal.cut_records += cut
            self._journal.note(
                "record_cut", self.name, "a record longer than 1 MiB was cut; the next are whole"
            )
