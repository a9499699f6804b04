"""One file, read forwards through its open descriptor.

What can happen to the file, and how it is detected:

- It grows: reading continues at `position`.
- It is emptied, or emptied and rewritten past `position` (copytruncate): its size is
  smaller, or its fingerprint differs. A new generation begins at 0.
- It begins with a hole of NUL bytes, because a writer without O_APPEND was truncated: NULs
  between records are skipped. NULs at the end are not data yet: a network file system
  shows them before the data. In a file of frames NULs are data, unless the file ends with
  them inside a record.
- Its name is taken away: the descriptor still leads to it, see `registry.py`.

Bytes that are written and truncated between two checks are not detected.
"""

import contextlib
import errno
import os
from pathlib import Path

from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.model.errors import InputError
from ldlm_monitor.model.frames import HEAD_BYTES, Form, form_of
from ldlm_monitor.source.decode import is_decoded
from ldlm_monitor.source.file_identity import Checksum, FilePosition, Fingerprint
from ldlm_monitor.source.file_system import Disk, Key
from ldlm_monitor.source.journal import Journal
from ldlm_monitor.source.split import CHUNK_BYTES, Splitter

BOM = b"\xef\xbb\xbf"
"""The mark of UTF-8 at a file's start, as PowerShell and some editors write it: no text."""
SETTLED_SECONDS = 2.0
"""A file that changed so recently may change again with the same size and mtime: FAT stores
mtimes with a resolution of two seconds, ext3 with one."""


class Tail:
    """Reads what is appended to one file, and detects when its content is replaced.

    `name` is the path in its chunks, wherever the file is moved. `size` is the last known
    size. `retired_at` (Unix seconds) is when its name was taken away; `finished`: its last
    chunk was returned. `before` is how far the content was read that a truncation removed
    last. `is_followed`: it will be asked which files are copies of it. `fingerprint` is of
    what was read.
    """

    def __init__(
        self,
        name: str,
        place: Path,
        descriptor: int,
        key: Key,
        *,
        generation: int,
        journal: Journal,
        disk: Disk,
        is_followed: bool = True,
    ) -> None:
        self.name = name
        self.place = place
        self.descriptor: int | None = descriptor
        self.key = key
        self.splitter = Splitter(name, (*key, generation))
        self.size = 0
        self.retired_at: float | None = None
        self.finished = False
        self.before: FilePosition | None = None
        self._is_followed = is_followed
        self._journal = journal
        self.disk = disk
        self._modified = 0
        self._is_decoded = is_decoded(descriptor)
        self._decoded_at = (0, 0)
        self._checked = 0.0
        self._dirty = True
        self._blank = 0
        self.fingerprint = self._nothing_read()
        self._kept: tuple[tuple[object, ...], FilePosition] | None = None

    @property
    def unread(self) -> int:
        """Bytes that the file is known to have and that were not read."""
        return max(0, self.size - self.splitter.position - self._blank)

    @property
    def generation(self) -> int:
        """Counts the contents that this inode has had, from 0."""
        return self.splitter.file[2]

    @property
    def due(self) -> bool:
        """Whether a read may return something."""
        return not self.finished and (self._dirty or self.unread > 0)

    def _nothing_read(self) -> Fingerprint:
        return Fingerprint(checksum=Checksum() if self._is_followed else None)

    def start_at(
        self,
        offset: int,
        line: int | None = None,
        shown: int = 0,
        checksum: Checksum | None = None,
    ) -> None:
        """Begin at `offset`, if the file is that long, as if everything before were read.

        `line` is the line at `offset`; None: count the lines before it, which reads them.
        `shown` and `checksum` are as in `FilePosition`.
        """
        descriptor = self.open_descriptor()
        found = Fingerprint.of(self.disk, descriptor, offset) if offset > 0 else None
        if found is None:
            return
        framed = form_of(self.disk.pread(descriptor, HEAD_BYTES, 0)) or ""
        if line is None:
            offset, line = self._counted(descriptor, offset, framed=framed)
            found = Fingerprint.of(self.disk, descriptor, offset) or found
        if self._is_followed:
            known = checksum is not None and checksum.stop >= offset
            found.checksum = checksum if known else Checksum(offset, offset)
        self.fingerprint = found
        self.splitter = Splitter(
            self.name, self.splitter.file, offset=offset, line=line, framed=framed
        )
        self.splitter.shown = shown

    def begin_at(self, offset: int, line: int) -> None:
        """Forget what was read behind `offset`, where line `line` begins."""
        self.splitter = Splitter(self.name, self.splitter.file)
        self.fingerprint = self._nothing_read()
        self.start_at(offset, line)

    def _counted(self, descriptor: int, offset: int, *, framed: Form) -> tuple[int, int]:
        """`offset`, or the start of the frame that contains it, and its line."""
        counter = Splitter(self.name, self.splitter.file)
        line = 1
        for at in range(0, offset, CHUNK_BYTES):
            data = self.disk.pread(descriptor, min(CHUNK_BYTES, offset - at), at)
            if framed:
                counter.feed(data, 0.0)
            else:
                line += data.count(b"\n")
        return (counter.offset, counter.line) if framed else (offset, line)

    def continue_at(self, position: FilePosition) -> None:
        """Begin where this content was read to before a restart."""
        self.start_at(position.offset, position.line, position.shown, position.checksum)

    def continue_from(self, other: "Tail") -> None:
        """Begin after the last record of `other`, which read the same content."""
        before = other.splitter
        self.start_at(before.offset, before.line, before.shown, other.fingerprint.checksum)

    def position(self) -> FilePosition:
        """The reading position, to be saved for a restart."""
        splitter, nameless, place = self.splitter, self.retired_at is not None, str(self.place)
        state = (splitter.file, splitter.offset, splitter.position, splitter.shown, place, nameless)
        if self._kept is None or self._kept[0] != state:
            kept = FilePosition(
                self.name, place, *splitter.file, splitter.offset, splitter.line,
                splitter.position, *self.fingerprint.digests(), nameless=nameless,
                shown=splitter.shown, checksum=self.fingerprint.checksum or Checksum(),
            )  # fmt: skip
            self._kept = state, kept
        return self._kept[1]

    def same_content(self, descriptor: int | None = None) -> bool:
        """Whether the file (or the one behind `descriptor`) still has the bytes that were read."""
        descriptor = self.open_descriptor() if descriptor is None else descriptor
        return self.fingerprint.fits(self.disk, descriptor)

    def see(self, status: os.stat_result, now: float) -> None:
        """Store the file's size and mtime; count what a smaller size cut off as lost."""
        size, modified = status.st_size, status.st_mtime_ns
        if self._is_decoded:  # reading finds how much it holds
            self._dirty = self._dirty or (size, modified) != self._decoded_at
            self._decoded_at = size, modified
        elif size != self.size or modified != self._modified:
            if size < self.size:
                self._journal.lost_bytes += self.unread
            self.size, self._modified = size, modified
            self._blank = 0
            self._dirty = True
        elif not self._dirty and modified > (self._checked - SETTLED_SECONDS) * 1e9:
            self._dirty = True

    def read(self, now: float, stop: int | None = None) -> list[Chunk]:
        """The chunks of the next slice, or the last chunk of a generation. Raises `OSError`.

        Bytes from `stop` on are left for later.
        """
        descriptor = self.open_descriptor()
        position = self.splitter.position
        wanted = max(CHUNK_BYTES - self.splitter.unfinished, CHUNK_BYTES // 4)
        if stop is not None:
            wanted = min(wanted, stop - position)
        data = self.disk.pread(descriptor, wanted, position)
        self._is_decoded = is_decoded(descriptor)
        # Checked after the read: if it holds now, it held during the read.
        if not self.same_content(descriptor):
            return [self._begin_again()]
        at_end = len(data) < wanted or position + len(data) == self.size
        written = data.rstrip(b"\0")
        if at_end and len(written) < len(data) and self.splitter.ends_record(data):
            written = data
        framed = bool(self.splitter.framed)
        if at_end:
            self._blank = len(data) - len(written)
            self.size = max(self.size, position + len(data))
        if self._is_decoded:
            self.size = position + len(data) + (not at_end)
        if at_end or written.endswith((b"\n", b"\r")):
            data = written
        if not (framed or self.splitter.unfinished):
            data = self._skip_blank(descriptor, data)
        self._dirty = self.unread > 0
        if not data:
            self._checked = now
            return []
        cut = self.splitter.cut_records
        chunks = self.splitter.feed(data, now)
        self.fingerprint.add(data)
        self._dirty, self._checked = self.unread > 0, now
        self._journal.cut(self.name, self.splitter.cut_records - cut)
        return chunks

    def finish(self) -> Chunk:
        """The last chunk; nothing more is read of this generation."""
        cut = self.splitter.cut_records
        chunk = self.splitter.finish()
        self._journal.cut(self.name, self.splitter.cut_records - cut)
        self.finished = True
        return chunk

    def go_on(self, now: float) -> None:
        """Read on after the last chunk, as another generation: its writer has woken."""
        before = self.splitter
        self.splitter = Splitter(self.name, (*self.key, self.generation + 1))
        self.start_at(before.offset, before.line, before.shown, self.fingerprint.checksum)
        self.finished, self.retired_at = False, now

    def reopen(self, path: Path) -> bool:
        """Open again if `path` leads to the same file. Raises `OSError`, `InputError`."""
        if self.descriptor is None:
            descriptor, key = self.disk.open_regular(path)
            if key != self.key:
                self.disk.close(descriptor)
                return False
            self.descriptor = descriptor
        return True

    def close(self) -> None:
        """Close the descriptor; the position stays."""
        if self.descriptor is not None:
            with contextlib.suppress(OSError):  # a stale handle; the system has released it
                self.disk.close(self.descriptor)
            self.descriptor = None

    def open_descriptor(self) -> int:
        """The descriptor. Raises `InputError` if it is closed."""
        if self.descriptor is None:
            raise InputError("closed", where=self.name)
        return self.descriptor

    def _skip_blank(self, descriptor: int, data: bytes) -> bytes:
        """`data` without leading NULs or a BOM; a whole hole is skipped with one seek."""
        if self.splitter.position == 0 and data.startswith(BOM):
            self.splitter.skip(len(BOM))
            self.fingerprint.add(BOM)
            data = data[len(BOM) :]
        if data[:1] != b"\0":
            return data
        text = data.lstrip(b"\0")
        skipped = len(data) - len(text)
        if not text:
            position = self.splitter.position
            try:
                start = self.disk.lseek(descriptor, position + skipped, os.SEEK_DATA)
            except OSError as error:  # else SEEK_DATA is not supported
                if error.errno == errno.ENXIO:  # nothing was written behind it yet
                    self._blank = max(0, self.size - position)
                    return b""
            else:
                skipped = start - position
        self.splitter.skip(skipped)
        self.fingerprint.skip(skipped)
        return text

    def _begin_again(self) -> Chunk:
        read = self.splitter.position
        self.before = self.position()
        last = self.finish()
        self.finished = False
        self.splitter = Splitter(self.name, (*self.key, self.generation + 1))
        self.fingerprint = self._nothing_read()
        self._blank = 0
        self._dirty = True
        self._journal.rewritten(self.name, read, shrunk=self.size < read)
        return last
