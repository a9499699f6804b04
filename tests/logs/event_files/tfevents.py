"""Frames and scalar events as torch's writer makes them, for tests that need special ones."""

import struct

from ldlm_monitor.logs.parse.event_file import masked_crc


def frame(content: bytes) -> bytes:
    """The content with its length and both checksums."""
    head = struct.pack("<Q", len(content))
    checks = [struct.pack("<I", masked_crc(part)) for part in (head, content)]
    return head + checks[0] + content + checks[1]


def scalar(tag: str, value: float, step: int, time: float = 1.7e9) -> bytes:
    """A frame of one number; `step` is below 16384."""
    name = tag.encode()
    value = b"\x0a" + bytes([len(name)]) + name + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(value)]) + value
    head = b"\x09" + struct.pack("<d", time) + b"\x10" + bytes([step & 0x7F | 0x80, step >> 7])
    return frame(head + b"\x2a" + bytes([len(summary)]) + summary)


VERSION = frame(b"\x09" + struct.pack("<d", 1.7e9) + b"\x1a\x0dbrain.Event:2")
"""What every event file begins with."""
