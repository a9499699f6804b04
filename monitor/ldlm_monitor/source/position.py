"""How far a file was read, and the fingerprint that identifies what was read.

Training logs begin alike, so the first KiB alone proves nothing: the KiB before the
reading position must match too.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field

from ldlm_monitor.model.chunk import FileId
from ldlm_monitor.model.errors import InputError
from ldlm_monitor.source.file_system import Disk, Key

WINDOW_BYTES = 1024
"""Compared at every read of every file: more would cost a second page of each file, and a
KiB of a training log holds several lines with times or losses, which no other log repeats."""


class Fingerprint:
    """The first KiB of a file, and the KiB before `position`, up to which it was read."""

    __slots__ = ("head", "position", "window")

    def __init__(self, head: bytes = b"", window: bytes = b"", position: int = 0) -> None:
        self.head = head
        self.window = window
        self.position = position

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
        self.position += len(data)

    def skip(self, count: int) -> None:
        """Append `count` NUL bytes."""
        self.add(bytes(min(count, WINDOW_BYTES)))
        self.position += max(0, count - WINDOW_BYTES)

    def fits(self, disk: Disk, descriptor: int) -> bool:
        """Whether the file behind `descriptor` still holds the bytes that were read."""
        before = self.position - len(self.window)
        return (
            disk.pread(descriptor, len(self.window), before) == self.window
            and disk.pread(descriptor, len(self.head), 0) == self.head
        )

    def digests(self) -> tuple[str, str]:
        """SHA-256 of head and window: a state file must not contain log text."""
        return sha256(self.head).hexdigest(), sha256(self.window).hexdigest()


Count: TypeAlias = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class FilePosition:
    """The reading position in one generation of one file, with its fingerprint.

    `path` is the followed name, `place` the resolved path. Chunks covered everything
    before `offset`; `line` (1-based, counts `\\n`) is the line at `offset`. `read` is
    `offset` plus the bytes that were read of an unfinished record. `head` and `window` are
    SHA-256 of the first KiB and of the KiB before `read`, or of less if less was read.
    `nameless`: the followed name no longer led to this file. `shown`: an unfinished record
    was emitted as a peek up to this byte.
    """

    path: str
    place: str
    device: Count
    inode: Count
    generation: Count
    offset: Count
    line: Count
    read: Count
    head: str
    window: str
    nameless: bool = False
    shown: Count = 0

    @classmethod
    def at_start(cls, path: str, file: FileId) -> FilePosition:
        """The position in a file of which nothing was read."""
        nothing = Fingerprint().digests()
        return cls(path, path, *file, 0, 1, 0, *nothing)

    @classmethod
    def reached(cls, path: str, offset: int, line: int, disk: Disk) -> FilePosition | None:
        """The position at `offset` of the file named `path`; None if it cannot be read."""
        try:
            descriptor, key = disk.open_regular(Path(path))
            try:
                found = Fingerprint.of(disk, descriptor, offset)
            finally:
                disk.close(descriptor)
            place = str(disk.realpath(Path(path)))
        except (OSError, InputError):
            return None
        if found is None:
            return None
        return cls(path, place, *key, 0, offset, line, offset, *found.digests())

    @property
    def key(self) -> Key:
        """Device and inode."""
        return self.device, self.inode

    @property
    def file(self) -> FileId:
        """Names the content."""
        return self.device, self.inode, self.generation

    def verify(self, disk: Disk, descriptor: int) -> Fingerprint | None:
        """The file's fingerprint if it still holds the content that was read, else None."""
        found = Fingerprint.of(disk, descriptor, self.read)
        if found is None or found.digests() != (self.head, self.window):
            return None
        return found
