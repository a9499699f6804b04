"""File events of Linux, inotify(7): which names in a folder were written, made, moved or deleted.

The kernel queues the events (16,384 by default) until `read` fetches them, thousands in one call.
The library watchdog, which other systems' events come by (`watchdog_events`), takes each event
through threads of Python one by one: with 10,000 writes a second, half the time of the thread that
judges went into waiting for the interpreter's lock.
"""

import ctypes
import os
import struct
from pathlib import Path

_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # IN_NONBLOCK and IN_CLOEXEC have their values
_IN_MODIFY, _IN_MOVED, _IN_CREATE, _IN_DELETE, _IN_MOVE_SELF = 0x2, 0xC0, 0x100, 0x200, 0x800
_WANTED = _IN_MODIFY | _IN_MOVED | _IN_CREATE | _IN_DELETE | _IN_MOVE_SELF
"""Not opening and closing, which the monitor's own reads cause. A truncation is a modification."""
_IN_OVERFLOW, _IN_IGNORED = 0x4000, 0x8000
_HEADER = struct.Struct("iIII")  # struct inotify_event: watch, mask, cookie, length of the name
_READ_BYTES = 256 * 1024
"""Bytes of one read. A choice: some 5,000 events with names of 30 bytes."""


class FileEvents:
    """Events in watched folders. Raises `OSError` beyond the system's limits."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self._checked(self._libc.inotify_init1(_FLAGS))
        self._names: dict[int, set[Path]] = {}  # several where links lead to one folder

    @property
    def folders(self) -> set[Path]:
        """The watched folders. One that is deleted or moved is not, after the next `read`."""
        return set().union(*self._names.values())

    def watch(self, folder: Path) -> None:
        """Watch a folder, not those in it. Raises `OSError`, as beyond the system's limit."""
        path = os.fsencode(folder)
        watch = self._checked(self._libc.inotify_add_watch(self.descriptor, path, _WANTED))
        self._names.setdefault(watch, set()).add(folder)

    def unwatch(self, folder: Path) -> None:
        """Watch a folder no more."""
        for watch, names in [*self._names.items()]:
            names.discard(folder)
            if not names:
                self._end(watch)

    def read(self) -> set[Path] | None:
        """The paths of the events since the last call; None if the kernel dropped some."""
        seen: set[tuple[int, bytes]] = set()
        complete = True
        while data := self._next():
            at = 0
            while at < len(data):
                watch, mask, _, length = _HEADER.unpack_from(data, at)
                at += _HEADER.size + length
                if mask & (_IN_IGNORED | _IN_MOVE_SELF):
                    self._end(watch)
                complete = complete and not mask & _IN_OVERFLOW
                seen.add((watch, data[at - length : at]))
        if not complete:
            return None
        return {
            folder / os.fsdecode(name.rstrip(b"\0"))
            for watch, name in seen
            for folder in self._names.get(watch, ())
        }

    def close(self) -> None:
        """Watch nothing any more."""
        os.close(self.descriptor)

    def _end(self, watch: int) -> None:
        if self._names.pop(watch, None) is not None:
            self._libc.inotify_rm_watch(self.descriptor, watch)

    def _next(self) -> bytes:
        try:
            return os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return b""

    @staticmethod
    def _checked(result: int) -> int:
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result
