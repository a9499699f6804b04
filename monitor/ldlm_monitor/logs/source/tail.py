"""One file, read forwards through its open descriptor.

What can happen to the file, and how it is detected:

- It grows: reading continues at `position`.
- It is emptied, or emptied and rewritten past `position` (copytruncate): its size is
  smaller, or its fingerprint differs. A new generation begins at 0.
- It goes back to a smaller size but begins as it did: it is waited for, as the bytes may return
  (a network file system that shows old attributes), and are then known. If they have not returned
  after `RETURN_SECONDS`, or as soon as other bytes stand there, a new generation begins at 0.
- It begins with a hole of NUL bytes, because it was truncated while a writer without
  O_APPEND had it open: NULs between records are skipped. NULs at the end are not data yet: a
  network file system shows them before the data. In a file of frames NULs are data, unless the
  file ends with them inside a record.
- Its name is taken away: the open descriptor still reads the file, see `named_files`.

Bytes that are written and truncated between two checks are not detected.
"""

import contextlib
import errno
import os
from pathlib import Path

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.framing import Framing
from ldlm_monitor.logs.parse.readers import HEAD_BYTES, framing_of
from ldlm_monitor.logs.source.decoded_files import is_decoded
from ldlm_monitor.logs.source.file_identity import Checksum, FilePosition, Fingerprint
from ldlm_monitor.logs.source.file_system import Disk, Key
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.rotated_files import was_copied
from ldlm_monitor.logs.source.split import BOM, CHUNK_BYTES, Splitter

SETTLED_SECONDS = 2.0
"""A file is read again for so long after its mtime, since a write in that time may leave size
and mtime the same: FAT stores mtimes with a resolution of two seconds, ext3 with one."""
RETURN_SECONDS = 5.0
"""Seconds for which lost bytes are waited for: nfs(5) believes a file's attributes for 3 s at least
(`acregmin`). A choice: longer delays the first rows of a run that cut its log and goes on."""


class Tail:
    """Reads what is appended to one file, and detects when its content is replaced.

    `name`: the path in its chunks, wherever the file is moved. `place`: the resolved path.
    `size`, `modified`: the last known size in bytes, and mtime in ns. `retired_at` (Unix seconds):
    when its name was taken away; None while it has the name. `is_deleted`: no name leads to it.
    `finished`: the last chunk was returned. `before`: how far the previous content was read; None
    unless the file was truncated or rewritten. `is_followed`: a checksum is kept, by which copies
    of the file are recognised. `fingerprint`: of the bytes that were read. `read_to`: Unix seconds,
    all bytes were read that the file had then; 0 before any such time is known.
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
        self.finished = self.is_deleted = False
        self.before: FilePosition | None = None
        self._is_followed = is_followed
        self._journal = journal
        self.disk = disk
        self.modified = 0
        self._is_decoded, self._decoded_at = is_decoded(descriptor), (0, 0)
        self._checked, self._dirty = 0.0, True
        self.read_to = 0.0
        self._seen: tuple[float, int] | None = None  # when, and the size, of the look to read up to
        self._blank = self._glanced = 0
        self._cut: tuple[float, int] | None = None  # when bytes were first gone, and the size then
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
        self, offset: int, line: int | None = None, shown: int = 0, checksum: Checksum | None = None
    ) -> None:
        """Begin at `offset`, as if all before were read; do nothing if the file is shorter.

        `line` is the line at `offset`; if it is None, the lines before `offset` are read and
        counted. `shown` and `checksum` are as in `FilePosition`. Raises `OSError`.
        """
        descriptor = self.open_descriptor()
        found = Fingerprint.of(self.disk, descriptor, offset) if offset > 0 else None
        if found is None:
            return
        framed = framing_of(self.disk.pread(descriptor, HEAD_BYTES, 0))
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
        """Read on from `offset`, where line `line` begins, whatever was read before."""
        self.splitter = Splitter(self.name, self.splitter.file)
        self.fingerprint = self._nothing_read()
        self.start_at(offset, line)

    def _counted(self, descriptor: int, offset: int, *, framed: Framing | None) -> tuple[int, int]:
        """`offset` (in a file of frames, the start of the frame around it), and its line."""
        counter = Splitter(self.name, self.splitter.file)
        line = 1
        for data in self.disk.blocks(descriptor, 0, offset):
            if framed:
                counter.feed(data, 0.0)
            else:
                line += data.count(b"\n")
        return (counter.offset, counter.line) if framed else (offset, line)

    def continue_at(self, position: FilePosition) -> None:
        """Begin at `position`, that of the same content, perhaps in another file."""
        self.start_at(position.offset, position.line, position.shown, position.checksum)

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

    def see(self, status: os.stat_result) -> None:
        """Keep the size and mtime of `status`."""
        size, modified = status.st_size, status.st_mtime_ns
        if self._is_decoded:  # the size is of undecoded bytes: only reading finds the end
            self._dirty = self._dirty or (size, modified) != self._decoded_at
            self._decoded_at = size, modified
        elif size != self.size or modified != self.modified:
            self.size, self.modified = size, modified
            self._blank = 0
            self._dirty = True
        elif not self._dirty and modified > (self._checked - SETTLED_SECONDS) * 1e9:
            self._dirty = True

    def note_look(self, now: float) -> None:
        """Note that `size` is that of `now` (Unix seconds): advances `read_to`."""
        read = 0 if self._is_decoded else self.size - self.unread
        if self._seen is not None and read >= self._seen[1]:
            self.read_to, self._seen = self._seen[0], None
        if not self.unread:
            self.read_to, self._seen = now, None
        elif self._seen is None:
            self._seen = now, self.size

    def read(self, now: float, stop: int | None = None) -> list[Chunk]:
        """The chunks of the next bytes, read at `now` (Unix seconds). Raises `OSError`.

        If the content was replaced, returns the last chunk of the old content instead. Bytes from
        `stop` on are not read.
        """
        descriptor = self.open_descriptor()
        position = self.splitter.position
        # Held and new bytes make a chunk of the usual size; during a long record, a quarter of it.
        wanted = max(CHUNK_BYTES - self.splitter.unfinished, CHUNK_BYTES // 4)
        if stop is not None:
            wanted = min(wanted, stop - position)
        data = self.disk.pread(descriptor, wanted, position)
        self._is_decoded = is_decoded(descriptor)
        # Checked after the read: content that is the same now was the same during the read.
        if not self.same_content(descriptor):
            return [] if self._may_return(descriptor, now) else [self._begin_again()]
        if self._cut is not None:
            self._journal.returned(self.name, position, self._cut[1])
            self._cut = None
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

    def glance(self, size: int) -> bytes:
        """Up to `size` unread bytes that no earlier glance returned. Raises `OSError`."""
        truncated = self.size < self.splitter.position  # which the next read will notice
        start = 0 if truncated else max(self._glanced, self.splitter.position)
        if self._is_decoded or self.descriptor is None or start >= self.size:
            return b""
        data = self.disk.pread(self.descriptor, size, start)
        self._glanced = start + len(data)
        return data

    def finish(self) -> Chunk:
        """The last chunk; nothing more is read of this generation."""
        cut = self.splitter.cut_records
        chunk = self.splitter.finish()
        self._journal.cut(self.name, self.splitter.cut_records - cut)
        self.finished = True
        return chunk

    def go_on(self, now: float) -> None:
        """Read on after the last chunk, as a new generation; `retired_at` becomes `now`."""
        before = self.splitter
        self.splitter = Splitter(
            self.name, (*self.key, self.generation + 1),
            offset=before.offset, line=before.line, framed=before.framed,
        )  # fmt: skip
        self.splitter.shown = before.shown
        self.finished, self.retired_at = False, now

    def reopen(self, path: Path) -> bool:
        """Open the file if it is closed; False if `path` leads to another. Raises `OSError`."""
        if self.descriptor is None:
            descriptor, key = self.disk.open_regular(path)
            if key != self.key:
                self.disk.close(descriptor)
                return False
            self.descriptor = descriptor
        return True

    def close(self) -> None:
        """Close the descriptor and keep the position."""
        if self.descriptor is not None:
            with contextlib.suppress(OSError):  # a stale NFS handle: Linux has freed the number
                self.disk.close(self.descriptor)
            self.descriptor = None

    def open_descriptor(self) -> int:
        """The descriptor. Raises `OSError` if it is closed."""
        if self.descriptor is None:
            raise OSError(errno.EBADF, "closed", self.name)
        return self.descriptor

    def _skip_blank(self, descriptor: int, data: bytes) -> bytes:
        """`data` without leading NULs and BOM; one seek skips the rest of a hole."""
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
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data behind the hole yet: lseek(2)
                    self._blank = max(0, self.size - position)
                    return b""
            else:  # without SEEK_DATA, only the NULs of this slice are skipped
                skipped = start - position
        self.splitter.skip(skipped)
        self.fingerprint.skip(skipped)
        return text

    def _may_return(self, descriptor: int, now: float) -> bool:
        """Whether bytes that were read are gone which may return (`RETURN_SECONDS`)."""
        if self._is_decoded or self.retired_at is not None:
            return False
        size = self.disk.fstat(descriptor).st_size
        if size >= self.splitter.position:
            return self.same_content(descriptor)  # they returned since the look
        head = self.fingerprint.head[:size]
        if not head:
            return False
        if self._cut is None:
            self._cut = now, size
        is_soon = now - self._cut[0] < RETURN_SECONDS
        return is_soon and self.disk.pread(descriptor, len(head), 0) == head

    def _begin_again(self) -> Chunk:
        read = self.splitter.position
        self.before = self.position()
        last = self.finish()
        self.finished = False
        self.splitter = Splitter(self.name, (*self.key, self.generation + 1))
        copied = was_copied(self.disk, self.place, self.fingerprint.position, self.same_content)
        self.splitter.continues = self.name if copied else ""
        self.fingerprint = self._nothing_read()
        self._blank = self._glanced = 0
        self._dirty, self._seen, self._cut = True, None, None
        self._journal.rewritten(self.name, read, shrunk=self.size < read)
        return last
