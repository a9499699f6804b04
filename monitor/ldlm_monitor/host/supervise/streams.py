"""What the relay of a run reads and writes: its log, streams, terminal and links."""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import termios
import time
import tty
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ldlm_monitor.base.names import RUN_PREFIX
from ldlm_monitor.base.text.format import iso

STOP = signal.SIGURG
"""What `ldlm-monitor stop` sends to the relay, which sends SIGTERM on: none that a scheduler
sends to every process of a job on request, as SIGUSR2 (`--signal=USR2@60`)."""
READ_BYTES = 65_536  # of one read: the capacity of a Linux pipe (pipe(7))
WRITE_BYTES = select.PIPE_BUF
"""Bytes of one write: a pipe that poll(2) calls writable takes so many without blocking (pipe(7)),
so a slow reader delays the command, as it would without the relay, and never the signals."""


class RunLog:
    """The command's output, in order of arrival; full files are renamed to `NAME.1`, `NAME.2`.

    A line that is cut by one of the other stream is ended first. `lost`: bytes that the disk did
    not take; the command goes on without them.
    """

    def __init__(self, path: Path, rotate_bytes: int) -> None:
        self._path = path
        self._rotate_bytes = rotate_bytes
        self._descriptor = self._open()
        self._size = 0
        self._stream: int | None = None
        self._in_line = False
        self._rotated = 0
        self.lost = 0

    def write(self, stream: int, data: bytes) -> None:
        """Add output of the command's descriptor `stream` (1 or 2; 0: a line of ours)."""
        if self._in_line and stream != self._stream:
            data = b"\n" + data
        self._stream, self._in_line = stream, not data.endswith(b"\n")
        try:
            written = os.write(self._descriptor, data)
        except OSError:  # a full disk or a quota: the log has a hole, the training goes on
            written = 0
        self.lost += len(data) - written
        self._size += written
        if self._size >= self._rotate_bytes and not self._in_line:
            self._rotate()

    def note(self, text: str) -> None:
        """Add a line of ours, with the time."""
        self.line(f"{iso(time.time())} {RUN_PREFIX} {text}")

    def line(self, text: str) -> None:
        """Add a line of ours as it is."""
        self.write(0, f"{text}\n".encode("utf-8", "backslashreplace"))

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self._path, flags, 0o644)

    def _rotate(self) -> None:
        try:
            self._path.rename(f"{self._path}.{self._rotated + 1}")
            fresh = self._open()
        except OSError:  # no room for a name: the file goes on growing
            self._rotate_bytes *= 2
            return
        os.close(self._descriptor)
        self._descriptor, self._size = fresh, 0
        self._rotated += 1


class OutputStream:
    """One stream of the command: bytes from `source` go to `target`, then the next are read.

    `target` is None where nobody sees them. `number`: the command's descriptor, 1 or 2.
    """

    def __init__(self, number: int, source: int, target: int | None) -> None:
        self.number = number
        self.source: int | None = source
        self.target = target
        self.pending = b""

    def read(self) -> bytes:
        """What the command wrote; b"" at the end (a pseudo-terminal answers EIO there)."""
        assert self.source is not None
        try:
            data = os.read(self.source, READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self.close()
        elif self.target is not None:
            self.pending = data
        return data

    def write(self) -> None:
        """Pass some pending bytes on; if their reader is gone, the command's writes fail, too."""
        assert self.target is not None
        try:
            self.pending = self.pending[os.write(self.target, self.pending[:WRITE_BYTES]) :]
        except BrokenPipeError:
            self.pending = b""
            self.close()
        except OSError:  # a terminal that was closed, a full disk: the log goes on
            self.pending, self.target = b"", None

    def close(self) -> None:
        """Close the command's side."""
        if self.source is not None:
            os.close(self.source)
            self.source = None


class Terminal:
    """Our terminal, and the pseudo-terminal that the command has in its place.

    `streams`: which of our descriptors 0, 1, 2 are the terminal. `master`: our side of the
    command's one; None before a start.
    """

    def __init__(self, streams: Iterable[int]) -> None:
        self.streams = frozenset(streams)
        self.master: int | None = None
        self._ours = min(self.streams, default=0)
        self._before: list[Any] | None = None
        self._modes = termios.tcgetattr(self._ours) if self.streams else []
        if self.streams and 0 not in self.streams:  # ours is not raw then, and writes \r\n itself
            self._modes[1] &= ~termios.OPOST

    def open(self) -> int:
        """Make a pseudo-terminal like ours; returns the command's side."""
        self.master, slave = os.openpty()
        termios.tcsetattr(slave, termios.TCSANOW, self._modes)
        self.resize()
        return slave

    def resize(self) -> None:
        """Give the command's terminal the size of ours."""
        if self.master is not None:
            with contextlib.suppress(OSError):
                size = fcntl.ioctl(self._ours, termios.TIOCGWINSZ, bytes(8))
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def grab(self) -> None:
        """Pass every key on as it is: the command's terminal makes signals and lines of them."""
        if self._before is None:
            with contextlib.suppress(termios.error):
                self._before = termios.tcgetattr(self._ours)
                tty.setraw(self._ours, termios.TCSADRAIN)

    def release(self) -> None:
        """Set the terminal back as it was."""
        if self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._ours, termios.TCSADRAIN, self._before)
            self._before = None


class Link:
    """A socket on which each side writes JSON objects, one a line."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._received = b""
        self.is_open = True

    def fileno(self) -> int:
        """Its descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close our side."""
        self._socket.close()
        self.is_open = False

    def send(self, what: Mapping[str, Any]) -> None:
        """Write one object; a side that is gone is noticed by `receive`."""
        if self.is_open:
            with contextlib.suppress(OSError):
                self._socket.sendall(json.dumps(what).encode() + b"\n")

    def receive(self, seconds: float | None = None) -> list[dict[str, Any]]:
        """The objects that came; none if none did for `seconds`. Closes if the other side has."""
        if not select.select([self._socket], [], [], seconds and max(0.0, seconds))[0]:
            return []
        try:
            data = self._socket.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self.close()
        *lines, self._received = (self._received + data).split(b"\n")
        return [json.loads(line) for line in lines]
