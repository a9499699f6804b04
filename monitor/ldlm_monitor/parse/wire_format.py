"""Protocol buffers' wire format: the fields of a message, by number.

The few fields that are read of trackers' files are not worth their protocol buffers, which
come with all of TensorFlow, TensorBoard or W&B.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

Field: TypeAlias = tuple[int, int | bytes]
"""A field's number, and its varint, its 4 or 8 bytes, or its content."""

DAMAGE = (struct.error, IndexError, ValueError, OverflowError)
"""What reading a message that is none may raise."""


def fields_of(content: bytes) -> Iterator[Field]:
    """The fields of a message (protobuf.dev/programming-guides/encoding). Raises `DAMAGE`."""
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
            raise ValueError("a wire type that nobody writes")
        if size > end - at:
            raise ValueError("a field is longer than its message")
        yield key >> 3, content[at : at + size]
        at += size


def varint(content: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
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
