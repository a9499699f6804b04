"""How a file of binary frames is divided: where each frame begins and ends."""

import struct
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple
from zlib import crc32

_CHECKSUM = struct.Struct("<I")  # of a fragment's content (u32)


class Fragment(NamedTuple):
    """A part of a frame, as indices in a buffer: its content is bytes `begin` to `end`.

    The checksum stands at `checksum`, and is that of bytes `checked` to `end`.
    """

    begin: int
    end: int
    checked: int
    checksum: int


class Frame(NamedTuple):
    """Bytes `start` to `end` of a buffer: a frame, or (without fragments) unreadable bytes."""

    start: int
    end: int
    crc: Callable[[bytes], int] = crc32  # computes the checksum of a fragment
    fragments: tuple[Fragment, ...] = ()

    @property
    def found(self) -> bool:
        """Whether the bytes are a frame; false for unreadable bytes between frames."""
        return bool(self.fragments)

    def payload(self, data: bytes) -> bytes | None:
        """The content of the frame; None if a checksum is wrong or the bytes are no frame."""
        for part in self.fragments:
            (checksum,) = _CHECKSUM.unpack_from(data, part.checksum)
            if self.crc(data[part.checked : part.end]) != checksum:
                return None
        parts = [data[part.begin : part.end] for part in self.fragments]
        return b"".join(parts) if parts else None


class Framing:
    """How the files of one format are divided into frames; `name` stands for it in recordings."""

    name: ClassVar[str]

    def begins(self, head: bytes) -> bool | None:
        """Whether a file that begins with `head` has such frames; None: `head` is too short."""
        raise NotImplementedError

    def frames(self, data: bytes, offset: int = 0, *, ended: bool = True) -> Iterator[Frame]:
        """The complete frames of a buffer, and the unreadable bytes between them, in order.

        `offset`: where the buffer begins in the file: at 0, or at the end of a frame. `ended`: the
        file does not grow, so that unreadable bytes at the end are returned, too. If false, the
        last bytes may be kept back, since a frame may begin in them.
        """
        raise NotImplementedError

    def size_at(self, data: bytes, start: int) -> int | None:
        """Size in bytes of the frame at `start`; None if its first bytes do not say it."""
        del data, start
        return None

    def count(self, data: bytes, offset: int) -> int:
        """The number of complete frames in a buffer that begins at byte `offset` of its file."""
        return sum(frame.found for frame in self.frames(data, offset))
