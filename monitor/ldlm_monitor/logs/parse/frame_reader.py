"""What readers of binary frames share, and the fields of protobuf messages in these frames.

The wire format of the few fields that are read is decoded here, as packages that do it install all
of TensorFlow, TensorBoard or W&B.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import ClassVar, Self, TypeAlias

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.framing import Framing
from ldlm_monitor.base.records import Record
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.whole_file import WholeFile

Field: TypeAlias = tuple[int, int | bytes]
"""A field's number, and its value: the number of a varint, otherwise the field's bytes."""

_DAMAGE = (struct.error, IndexError, ValueError, OverflowError)
"""The errors that reading a damaged message raises: numbers of a wrong length, an index beyond the
message, an unknown type, a value that no number can have."""


def fields_of(content: bytes) -> Iterator[Field]:
    """A message's fields (protobuf.dev/programming-guides/encoding); raises errors of `_DAMAGE`."""
    at, end = 0, len(content)
    while at < end:
        key, at = varint(content, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(content, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = varint(content, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError("an unknown wire type")
        if size > end - at:
            raise ValueError("a field is longer than its message")
        yield key >> 3, content[at : at + size]
        at += size


def varint(content: bytes, at: int) -> tuple[int, int]:
    """The varint (seven bits per byte) at `at`, and the index after; raises errors of `_DAMAGE`."""
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than 64 bits")


class FrameReader(WholeFile):
    """Reads one file of binary frames. `errors` counts damaged frames."""

    framing: ClassVar[Framing]
    has_times = True

    @classmethod
    def of(cls, chunk: Chunk) -> Self | None:
        """A reader of any file with this reader's frames."""
        del chunk
        return cls()

    def feed(self, chunk: Chunk, origin: Origin) -> list[Record]:
        """The records of a chunk's frames, in order; a position's `line` is the frame's number."""
        found: list[Record] = []
        line = chunk.line
        for frame in self.framing.frames(chunk.data, chunk.offset):
            content = frame.payload(chunk.data)
            place = RecordPlace.of(chunk, line, chunk.offset + frame.start, origin)
            try:
                if content is None:
                    self.errors += 1
                else:
                    found += self.records(content, place)
            except _DAMAGE:
                self.errors += 1
            except Exception as fault:  # noqa: BLE001 # a bug of ours costs this frame alone
                self.on_fault(place.position, fault)
            line += frame.found
        return found

    @classmethod
    def times(cls, chunk: Chunk) -> Iterator[tuple[int, float]]:
        """The offset of each frame that has a time, and its time (Unix seconds)."""
        for frame in cls.framing.frames(chunk.data, chunk.offset):
            try:
                when = cls.time_of(frame.payload(chunk.data) or b"")
            except _DAMAGE:
                continue
            if when is not None:
                yield chunk.offset + frame.start, when

    def records(self, content: bytes, place: RecordPlace) -> Iterable[Record]:
        """The records of a frame. Raises an error of `_DAMAGE` if it is damaged."""
        raise NotImplementedError

    @staticmethod
    def time_of(content: bytes) -> float | None:
        """When a frame was written (Unix seconds); None if it has no time."""
        raise NotImplementedError
