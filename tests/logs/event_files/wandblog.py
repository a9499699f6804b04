"""W&B's transaction logs as its writer makes them, for tests that need special ones."""

import json
import struct
from zlib import crc32

HEADER = b":W&B\xe1\xbe\x00"
BLOCK_BYTES = 32 * 1024


def field(number: int, content: bytes | int) -> bytes:
    """A field of a message: a varint, or bytes with their length."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; negative numbers as 64 bits."""
    value &= (1 << 64) - 1
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def row(**values: object) -> bytes:
    """A record of history; `__` in a name is a step down a nested value."""
    items = b""
    for name, value in values.items():
        keys = b"".join(field(2, part.encode()) for part in name.split("__"))
        items += field(1, keys + field(16, json.dumps(value).encode()))
    return field(2, items)


def ended(code: int) -> bytes:
    """A record of the exit; the code 0 is left out, as protocol buffers do."""
    return field(18, field(1, code) if code else b"")


def log_of(*records: bytes, start: int = 0) -> bytes:
    """A log of these records; with `start`, what follows a log of that many bytes."""
    data = bytearray() if start else bytearray(HEADER)
    for content in records:
        left, first = content, True
        while first or left:
            room = BLOCK_BYTES - (start + len(data)) % BLOCK_BYTES
            if room < 7:
                data += bytes(room)
                continue
            part, left = left[: room - 7], left[room - 7 :]
            kind = (1 if first else 4) if not left else (2 if first else 3)
            body = bytes([kind]) + part
            data += struct.pack("<IH", crc32(body), len(part)) + body
            first = False
    return bytes(data)
