"""How far a file was read, and whether a path that appears is that file.

Training logs begin alike, so the first KiB proves nothing: the KiB before the position must match.

`KnownContents` compares a new path with the known files before it is read. A rotation either
renames a log, which is then the same file, or copies and truncates it: then the copy has the
bytes that were read, under a name that differs by a number or a date.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias
from zlib import crc32

from pydantic import Field

from ldlm_monitor.base.chunk import FileId, rotated_from, uncompressed
from ldlm_monitor.logs.source.decoded_files import is_decoded
from ldlm_monitor.logs.source.file_system import Disk, Key, key_of

WINDOW_BYTES = 1024
"""Bytes of a file's start, and before the position, compared at every read. More would cost another
page; a KiB of a log has times or losses, which no other log repeats."""
COPY_BYTES = WINDOW_BYTES
"""So many bytes of an original must have been read: shorter files may be equal by chance."""
_ADDED = re.compile(r"[-._]?\d[\d\-._:TZ]*|[-._](?:old|bak|prev)\b|~")
"""What a rotation adds to a file's name: a number or a time (logrotate, loguru, Python's logging),
or a word or `~` (editors and scripts). Digits of the name itself may precede it."""
_SEPARATORS = "-._~"  # where the part that a rotation added may begin
_Number: TypeAlias = Annotated[int, Field(ge=0, lt=2**64)]  # an inode, say: 64 bits in stat(2)
Offset: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
"""A number of bytes or lines. pread(2) accepts 63 bits; a damaged state may have any number."""


@dataclass(frozen=True, slots=True)
class Checksum:
    """CRC-32 (`value`) of bytes `start` to `stop` of a file; all 0 if nothing was read.

    Two logs of one program may differ only between their first and last KiB, so a copy must
    have this checksum too. A CRC costs a tenth of reading, and can be continued after a
    restart; the standard library's digests cannot.
    """

    start: Offset = 0
    stop: Offset = 0
    value: int = 0

    def more(self, data: bytes, position: int) -> Checksum:
        """The checksum extended by `data`, the bytes from `position` on; each byte counts once."""
        fresh = memoryview(data)[max(self.stop - position, 0) :]
        return Checksum(self.start, self.stop + len(fresh), crc32(fresh, self.value))

    def fits(self, disk: Disk, descriptor: int) -> bool:
        """Whether bytes `start` to `stop` of the file at `descriptor` have this checksum."""
        value, at = 0, self.start
        for data in disk.blocks(descriptor, self.start, self.stop):
            value, at = crc32(data, value), at + len(data)
        return value == self.value and at >= self.stop


@dataclass(slots=True)
class Fingerprint:
    """The first KiB of a file, and the KiB before `position`, up to which the file was read.

    `checksum` is of the bytes that were read; None if copies need not be recognised.
    """

    head: bytes = b""
    window: bytes = b""
    position: int = 0
    checksum: Checksum | None = None

    @classmethod
    def of(cls, disk: Disk, descriptor: int, position: int) -> Fingerprint | None:
        """The fingerprint of a file read up to `position`; None if the file is shorter."""
        length = min(WINDOW_BYTES, position)
        head = disk.pread(descriptor, length, 0)
        window = disk.pread(descriptor, length, position - length)
        return cls(head, window, position) if len(window) == len(head) == length else None

    def add(self, data: bytes) -> None:
        """Append the bytes that were read next."""
        if len(self.head) < WINDOW_BYTES:
            self.head = (self.head + data[:WINDOW_BYTES])[:WINDOW_BYTES]
        self.window = (self.window + data[-WINDOW_BYTES:])[-WINDOW_BYTES:]
        if self.checksum is not None:
            self.checksum = self.checksum.more(data, self.position)
        self.position += len(data)

    def skip(self, count: int) -> None:
        """Append `count` NUL bytes; the checksum begins again after them."""
        checksum, self.checksum = self.checksum, None
        self.add(bytes(min(count, WINDOW_BYTES)))
        self.position += max(0, count - WINDOW_BYTES)
        if checksum is not None:
            self.checksum = Checksum(self.position, self.position)

    def fits(self, disk: Disk, descriptor: int) -> bool:
        """Whether the file behind `descriptor` still has this head and window; no checksum."""
        before = self.position - len(self.window)
        return (
            disk.pread(descriptor, len(self.window), before) == self.window
            and disk.pread(descriptor, len(self.head), 0) == self.head
        )

    def digests(self) -> tuple[str, str]:
        """SHA-256 of head and window: a state file must not contain log text."""
        return sha256(self.head).hexdigest(), sha256(self.window).hexdigest()


@dataclass(frozen=True, slots=True)
class FilePosition:
    """The reading position in one generation of one file, with its fingerprint.

    `path`: the followed name. `place`: the resolved path. All bytes before `offset` were returned
    in chunks; `line` (1-based, counts `\\n`) is the line at `offset`. `read`: `offset` plus the
    bytes that were read of an unfinished record. `head` and `window`: SHA-256 of the first KiB
    and of the KiB before `read`, or of less if less was read. `nameless`: the followed name does
    not lead to this file any more. `shown`: up to this byte an unfinished record was returned as
    a peek (`Chunk.peek`); 0 if none. `checksum`: of the bytes that were read, or the last of them.
    """

    path: str
    place: str
    device: _Number
    inode: _Number
    generation: _Number
    offset: Offset
    line: Offset
    read: Offset
    head: str
    window: str
    nameless: bool = False
    shown: Offset = 0
    checksum: Checksum = Checksum()

    @classmethod
    def at_start(cls, path: str, file: FileId) -> FilePosition:
        """The position in a file (`path`, of identity `file`) of which nothing was read."""
        nothing = Fingerprint().digests()
        return cls(path, path, *file, 0, 1, 0, *nothing)

    @property
    def key(self) -> Key:
        """Device and inode, which name the file."""
        return self.device, self.inode

    @property
    def file(self) -> FileId:
        """Device, inode and generation, which name the content."""
        return self.device, self.inode, self.generation

    def verify(self, disk: Disk, descriptor: int) -> Fingerprint | None:
        """The fingerprint of the file at `descriptor`; None if the file has other content now."""
        found = Fingerprint.of(disk, descriptor, self.read)
        if found is None or found.digests() != (self.head, self.window):
            return None
        return found

    def is_copied(self, disk: Disk, descriptor: int) -> bool:
        """Whether the file behind `descriptor` begins with the content that was read."""
        return self.verify(disk, descriptor) is not None and self.checksum.fits(disk, descriptor)


class Known(NamedTuple):
    """Content that was read, and how far; `gone`: its file is closed or has new content."""

    position: FilePosition
    gone: bool = False


class FoundPath(NamedTuple):
    """What a path leads to.

    `name`: the followed name of the same file or the same content; empty if the content is new.
    `offset`: how many bytes of a copy count as read (0: none); None if it is the same file.
    `is_doubtful`: the path may be a copy that is still being written.
    """

    name: str = ""
    offset: int | None = 0
    is_doubtful: bool = False


NEW = FoundPath()  # the result for content that was never read


def originals(name: str) -> set[str]:
    """The file names that a rotation may have changed to `name`."""
    found = {uncompressed(name)} - {name}
    name = uncompressed(name)
    for added in _ADDED.finditer(name):
        ends = {added.end(), added.end() - (added[0][-1] in "-._")}
        starts = [i for i in range(*added.span()) if name[i] in _SEPARATORS]
        found |= {name[:start] + name[end:] for start in starts for end in ends if start < end}
    return found


class KnownContents:
    """The contents that are or were read, by file and by name."""

    def __init__(self, known: Iterable[Known], disk: Disk) -> None:
        self._disk = disk
        self._by_key: dict[Key, list[FilePosition]] = {}
        self._by_name: dict[str, list[Known]] = {}
        self._read: set[str] = set()
        for each in known:
            if not each.gone:
                self._read.add(each.position.path)
                self._by_key.setdefault(each.position.key, []).append(each.position)
            if each.position.read:
                self._by_name.setdefault(each.position.path, []).append(each)

    def find(self, path: Path) -> FoundPath:
        """Which of the known contents `path` leads to. Raises `OSError` if it cannot be read."""
        rotated = [
            each
            for name in originals(path.name)
            for each in self._by_name.get(str(path.with_name(name)), ())
        ]
        same = self._by_key.get(key := key_of(self._disk.stat(path)), ())
        log, added = rotated_from(str(path))
        # The file of a log that was rotated twice is read with it soon: `NamedFiles`.
        unknown = FoundPath(is_doubtful=bool(added) and log in self._read)
        if not (rotated or same):
            return unknown
        descriptor, _ = self._disk.open_regular(path)
        try:
            for position in same:
                if position.verify(self._disk, descriptor) is not None:
                    return FoundPath(position.path, None)
                with contextlib.suppress(OSError):  # otherwise it has a deleted file's inode
                    if key_of(self._disk.stat(Path(position.path))) == key:
                        return FoundPath(position.path, None)
            return self._as_copy(descriptor, rotated) or unknown
        finally:
            self._disk.close(descriptor)

    def _as_copy(self, descriptor: int, rotated: list[Known]) -> FoundPath | None:
        head = self._disk.pread(descriptor, WINDOW_BYTES, 0)
        if len(head) == WINDOW_BYTES:
            digest = sha256(head).hexdigest()
            rotated = [each for each in rotated if each.position.head == digest]
        # Little content is compared only if it is all that the rotation compressed.
        whole = self._disk.fstat(descriptor).st_size if is_decoded(descriptor) else COPY_BYTES
        least = min(whole, COPY_BYTES)
        rotated = [each for each in rotated if each.position.read >= least]
        copied = [each for each in rotated if each.position.is_copied(self._disk, descriptor)]
        if copied:
            furthest = max(copied, key=lambda each: (each.position.offset, each.gone))
            name, read = furthest.position.path, furthest.position.offset
            if furthest.gone:
                return FoundPath(name, read)
            # The original, not truncated yet, has all of the copy's bytes.
            size = self._disk.fstat(descriptor).st_size
            return FoundPath(name, size, is_doubtful=not is_decoded(descriptor))
        return FoundPath(is_doubtful=True) if rotated else None
