"""Writes rows to disk: a bounded queue, and a thread that may block where the loop must not."""

from __future__ import annotations

import errno
import json
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ldlm_monitor.callback.rows import Entry, Row, event_row, spelled

MAX_ROWS = 10_000
"""Rows that wait for the disk; beyond, the oldest are dropped and counted."""
MAX_TEXT = 16 * 1024
"""Characters of a text in a row; a traceback's end fits."""
POLL_SECONDS = 0.5
"""How often waiting rows are written: a row is that old at most when it reaches the disk.
To wake costs more than to write a row, so not at each."""
RETRY_SECONDS = 1.0
"""A full disk or a dead mount is tried again this often, not at each row."""
_BATCH = 256
"""Rows in one write: some 64 KiB, so that one write rarely waits for a disk twice."""
_STAYS_OPEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EAGAIN})
"""After these errors the file may take more later; after others it is opened anew."""


class RowWriter:
    """Appends rows to a file as strict JSON lines, in a thread of its own.

    `put` never waits and never raises; it takes rows, and entries of which `make` makes
    them in the thread. `header` makes the first row of each opening.
    `prepare` runs first in the thread, because what it does may hang with the disk;
    `idle` runs there between writes. Both must not raise.
    """

    def __init__(
        self,
        path: Path,
        header: Callable[[], Row],
        *,
        make: Callable[[Entry], list[Row]] = lambda entry: [],
        prepare: Callable[[], None] = lambda: None,
        idle: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda text: None,
        limit: int = MAX_ROWS,
    ) -> None:
        self.dropped = 0
        self.problem: str | None = None
        self.is_ready = False
        self._path = path
        self._header = header
        self._make = make
        self._prepare = prepare
        self._idle = idle
        self._say = say
        self._limit = limit
        self._half = limit // 2
        self._rows: deque[Row | Entry] = deque(maxlen=limit)
        self._tail = b""
        self._fd: int | None = None
        self._reported = 0
        self._retry_at = -math.inf
        self._closing = False
        self._has_said = False
        # A queue and not an event: its `put` may interrupt itself in a signal handler.
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ldlm-health-rows", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, row: Row | Entry) -> None:
        """Take a row; the oldest that waits goes if there are too many."""
        waiting = len(self._rows)
        if waiting >= self._limit:
            self.dropped += 1
        elif waiting == self._half:
            self.hurry()
        self._rows.append(row)

    def hurry(self) -> None:
        """Write what waits now. Waits for nothing."""
        self._bell.put(None)

    def flush(self, seconds: float) -> bool:
        """Wait until what was put is written, that long at most; whether it is.

        Takes no lock: a signal handler may call it.
        """
        self.hurry()
        until = time.monotonic() + seconds
        while (self._rows or self._tail) and self._thread.is_alive():
            if time.monotonic() >= until:
                return False
            time.sleep(0.002)
        return not (self._rows or self._tail)

    def close(self, seconds: float) -> bool:
        """Write what waits and end the thread, within that time; whether all is written."""
        self._closing = True
        self.hurry()
        self._thread.join(seconds)
        return not (self._rows or self._tail)

    def _run(self) -> None:
        self._guarded(self._prepare)
        self.is_ready = True
        while True:
            closing = self._closing
            try:
                self._drain(force=closing)
            except OSError as error:
                self._fail(error)
            if closing:
                break
            self._guarded(self._idle)
            with suppress(Empty):
                self._bell.get(timeout=POLL_SECONDS)
        if self._fd is not None:
            os.close(self._fd)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 the rows go on being written
            if not self._has_said:
                self._has_said = True
                self._say(f"{type(error).__name__}: {error}; rows go on being written")

    def _drain(self, *, force: bool) -> None:
        if not force and time.monotonic() < self._retry_at:
            return
        while self._fd is None or self._rows or self._tail:
            if self._fd is None:
                self._open()
            if not self._tail:
                self._tail = self._encoded()
            assert self._fd is not None
            self._tail = self._tail[os.write(self._fd, self._tail) :]
            if self._tail:
                continue
            self.problem = None
            self._tail = self._drops()

    def _open(self) -> None:
        """Append; a line that an earlier process did not finish is closed first."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o644)
        try:
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        except OSError:  # a device, or what must not be read
            torn = False
        self._fd = fd
        self._tail = (b"\n" if torn else b"") + encode(self._header())

    def _encoded(self) -> bytes:
        lines: list[bytes] = []
        while self._rows and len(lines) < _BATCH:
            row = self._rows.popleft()
            try:
                rows = [row] if isinstance(row, dict) else self._make(row)
                lines += [encode(each) for each in rows]
            except Exception:  # noqa: BLE001 what is in it costs this row alone
                self.dropped += 1
        return b"".join(lines)

    def _drops(self) -> bytes:
        """An event of the rows dropped since the last such event, or nothing."""
        if self.dropped == self._reported:
            return b""
        new, self._reported = self.dropped - self._reported, self.dropped
        message = f"the callback dropped {new} rows that could not be written in time"
        fields = {"dropped": new, "family": "process", "role": "context"}
        return encode(event_row("warning", "warning", message, time=time.time(), fields=fields))

    def _fail(self, error: OSError) -> None:
        self._retry_at = time.monotonic() + RETRY_SECONDS
        if self._fd is not None and error.errno not in _STAYS_OPEN:
            os.close(self._fd)
            # A line that was begun is closed when the file is opened again.
            self.dropped += self._tail.count(b"\n")
            self._fd, self._tail = None, b""
        if self.problem is None:
            self._say(
                f"{self._path}: {error.strerror}; training goes on, "
                f"{self._limit} rows wait at most until it can be written"
            )
        self.problem = error.strerror


def encode(row: Mapping[str, Any]) -> bytes:
    """The row as one strict JSON line; NaN and infinities are strings (contract section 6)."""
    try:
        text = json.dumps(row, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        text = json.dumps(plain(row), allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def plain(value: Any, depth: int = 6) -> Any:
    """What JSON can say of a value. Objects are named by their type: `str` could do anything."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return spelled(value)
    if isinstance(value, str | Path):
        return str(value)[:MAX_TEXT]
    if depth and isinstance(value, Mapping):
        return {str(key)[:128]: plain(part, depth - 1) for key, part in list(value.items())[:512]}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [plain(part, depth - 1) for part in list(value)[:512]]
    return f"<{type(value).__name__}>"
