"""What was read of a file, so that its content can be known again.

Training logs all begin alike, so the first KiB alone proves nothing: the KiB
before the place where reading stands must be there too.
"""

from __future__ import annotations

from hashlib import sha256

from ldlm_monitor.source.disk import Disk

WINDOW_BYTES = 1024


class Fingerprint:
    """The first KiB of a content, and the KiB before `position`, the end of what was read."""

    __slots__ = ("head", "position", "window")

    def __init__(self, head: bytes = b"", window: bytes = b"", position: int = 0) -> None:
        self.head = head
        self.window = window
        self.position = position

    @classmethod
    def of(cls, disk: Disk, descriptor: int, position: int) -> Fingerprint | None:
        """That of a file as if it had been read up to `position`; None: it is shorter."""
        length = min(WINDOW_BYTES, position)
        head = disk.pread(descriptor, length, 0)
        window = disk.pread(descriptor, length, position - length)
        return cls(head, window, position) if len(window) == len(head) == length else None

    def add(self, data: bytes) -> None:
        """Take in the bytes that were read next."""
        if len(self.head) < WINDOW_BYTES:
            self.head = (self.head + data[:WINDOW_BYTES])[:WINDOW_BYTES]
        self.window = (self.window + data[-WINDOW_BYTES:])[-WINDOW_BYTES:]
        self.position += len(data)

    def skip(self, count: int) -> None:
        """Take in `count` NULs."""
        self.add(bytes(min(count, WINDOW_BYTES)))
        self.position += max(0, count - WINDOW_BYTES)

    def fits(self, disk: Disk, descriptor: int) -> bool:
        """Whether that file holds, where it was read, what was read."""
        before = self.position - len(self.window)
        return (
            disk.pread(descriptor, len(self.window), before) == self.window
            and disk.pread(descriptor, len(self.head), 0) == self.head
        )

    def digests(self) -> tuple[str, str]:
        """SHA-256 of head and window: log text does not belong into a state file."""
        return sha256(self.head).hexdigest(), sha256(self.window).hexdigest()
