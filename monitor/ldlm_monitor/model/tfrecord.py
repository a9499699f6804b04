"""TFRecord files: frames of any bytes, each with its length and two checksums.

A frame is `length` (u64, little-endian), the masked CRC-32C of these eight bytes (u32),
`length` bytes, and their masked CRC-32C (u32): tensorflow/core/lib/io/record_writer.h.
TensorBoard's event files are of this form. A length whose checksum holds can be believed;
where it does not, the next frame is looked for, byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

HEADER_BYTES = 12
FOOTER_BYTES = 4
_UPPER_LENGTH = b"\0\0\0\0"
"""Bytes 4 to 8 of a length below 4 GiB, which no text has."""
_LENGTH = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8


class TfRecordFrame(NamedTuple):
    """Bytes `start` to `end` of a buffer; the payload is `end - FOOTER_BYTES` at most.

    `found`: it is a frame. Otherwise it is what stands between two, and can't be read.
    """

    start: int
    end: int
    found: bool = True

    def payload(self, data: bytes) -> bytes | None:
        """What it holds; None where the checksum says that it was damaged."""
        if not self.found:
            return None
        content = data[self.start + HEADER_BYTES : self.end - FOOTER_BYTES]
        (checksum,) = _CHECKSUM.unpack_from(data, self.end - FOOTER_BYTES)
        return content if masked_crc(content) == checksum else None


def begins_tfrecord(data: bytes) -> bool | None:
    """Whether a file begins with a frame, by its checksum; None: too little is there to say."""
    if data[4:8] != _UPPER_LENGTH[: max(len(data) - 4, 0)]:
        return False
    unwritten = not data[:HEADER_BYTES].strip(b"\0")
    return None if unwritten or len(data) < HEADER_BYTES else frame_bytes(data, 0) is not None


def frame_bytes(data: bytes, start: int) -> int | None:
    """How long the frame at `start` is with all that belongs to it; None: there is none."""
    length, checksum = _LENGTH.unpack_from(data, start)
    if masked_crc(data[start : start + 8]) != checksum:
        return None
    return int(length) + HEADER_BYTES + FOOTER_BYTES


def frames(data: bytes, *, ended: bool = True) -> Iterator[TfRecordFrame]:
    """The frames of a buffer that are whole, and what stands between them.

    `ended`: nothing follows, so a broken part at the end is given as well; else it is
    kept back as far as a frame may begin in it.
    """
    start = 0
    while len(data) - start >= HEADER_BYTES:
        size = frame_bytes(data, start)
        if size is None:
            found = _next_header(data, start + 1)
            end = found if found is not None else len(data) - (0 if ended else HEADER_BYTES - 1)
            yield TfRecordFrame(start, end, found=False)
        elif size > len(data) - start:
            return
        else:
            end = start + size
            yield TfRecordFrame(start, end)
        start = end


def masked_crc(data: bytes) -> int:
    """The CRC-32C of some bytes, rotated and moved as TFRecord does."""
    crc = _crc32c()(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _next_header(data: bytes, start: int) -> int | None:
    at = data.find(_UPPER_LENGTH, start + 4)
    while at >= 0:
        begin = at - 4
        if len(data) - begin < HEADER_BYTES:
            return None
        if frame_bytes(data, begin) is not None:
            return begin
        at = data.find(_UPPER_LENGTH, at + 1)
    return None


@lru_cache(maxsize=1)
def _crc32c() -> Callable[[bytes], int]:
    """Loaded when the first such file is read."""
    from google_crc32c import value

    crc: Callable[[bytes], int] = value
    return crc
