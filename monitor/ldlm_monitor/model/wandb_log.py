"""W&B's transaction logs (`run-ID.wandb`): records in fragments, which fill blocks of 32 KiB.

The file begins with `:W&B`, a magic number (u16, little-endian) and a version. A fragment is the
CRC-32 of its kind and content (u32), the content's length (u16), its kind (whole, or first, middle
or last part of a record) and the content; none crosses the end of a block, which is padded
where no header fits (wandb's core/pkg/leveldb; LevelDB's doc/log_format.md, but for the
checksum). Blocks count from the file's start, so it matters where bytes stand.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

HEADER = b":W&B\xe1\xbe\x00"
BLOCK_BYTES = 32 * 1024
MAX_RECORD_BYTES = 1024 * 1024
"""A longer record is passed over."""
_FRAGMENT = struct.Struct("<IHB")
_CHECKED = _FRAGMENT.size - 1
"""The checksum covers what follows from here: the kind, and the content."""
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class Transaction(NamedTuple):
    """Bytes `start` to `end` of a buffer, with the padding before it.

    `found`: it is a record. Otherwise it is what stands between two, and can't be read.
    `fragments`: where each begins, and where it ends.
    """

    start: int
    end: int
    found: bool = True
    fragments: tuple[tuple[int, int], ...] = ()

    def payload(self, data: bytes) -> bytes | None:
        """What it holds; None where a checksum says that it was damaged."""
        for begin, end in self.fragments:
            (checksum,) = struct.unpack_from("<I", data, begin)
            if crc32(data[begin + _CHECKED : end]) != checksum:
                return None
        parts = [data[begin + _FRAGMENT.size : end] for begin, end in self.fragments]
        return b"".join(parts) if self.found else None


def begins_wandb_log(data: bytes) -> bool | None:
    """Whether a file begins with the header of such a log; None: too little is there to say."""
    if not HEADER.startswith(data[: len(HEADER)]):
        return False
    return True if len(data) >= len(HEADER) else None


def transactions(data: bytes, offset: int) -> Iterator[Transaction]:
    """The records of a buffer that are whole, and what stands between them.

    `offset`: where the buffer begins in the file, which is at its start or behind a record.
    """
    start, at = 0, 0 if offset else len(HEADER)
    fragments: list[tuple[int, int]] = []
    while True:
        room = BLOCK_BYTES - (offset + at) % BLOCK_BYTES
        if room < _FRAGMENT.size:
            at += room
            continue
        if at + _FRAGMENT.size > len(data):
            return
        _, size, kind = _FRAGMENT.unpack_from(data, at)
        end = at + _FRAGMENT.size + size
        known = _WHOLE <= kind <= _LAST and end <= at + room
        if not known:
            end = at + room
        if end > len(data):
            return
        begins = kind in (_WHOLE, _FIRST)
        if known and begins and fragments:  # its predecessor has no end
            yield Transaction(start, at, found=False)
            start, fragments = at, []
        if not known or not (begins or fragments):
            yield Transaction(start, end, found=False)
            start, fragments = end, []
        else:
            fragments.append((at, end))
            if kind in (_WHOLE, _LAST):
                yield Transaction(start, end, fragments=tuple(fragments))
                start, fragments = end, []
            elif end - start > MAX_RECORD_BYTES:
                yield Transaction(start, end, found=False)
                start, fragments = end, []
        at = end
