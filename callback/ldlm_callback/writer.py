"""Writes rows to disk: a bounded queue, and a thread that may block where the loop must not."""

import errno
import json
import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ldlm_callback.own_files import open_to_append
from ldlm_callback.rows import MAX_NAME, Entry, Row, event_row, spelled

MAX_ROWS = 10_000
"""Most rows that wait for the disk. A choice: more take memory (these 2.5 MB), fewer lose rows."""
MAX_TEXT = 16 * 1024  # characters of a text in a row. A choice: last frames fit, files stay small
POLL_SECONDS = 0.5
"""Seconds between two writes, so the greatest age of a waiting row. Not at each row, because waking
the thread costs more than writing a row."""
RETRY_SECONDS = 1.0
"""Seconds between tries on a full disk or a dead mount. A choice: less costs time, more rows."""
_BATCH = 256
"""Rows in one write: some 64 KiB, which is at most what is lost if the file breaks during it."""
_STAYS_OPEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EAGAIN})
"""After these errors the open file may accept rows later; after others it is opened again."""


@dataclass(eq=False)
class RowWriter:
    """Appends rows to a file as strict JSON lines, in a thread of its own.

    `put` never waits and never raises; it takes rows, and entries, which `make` turns into rows
    in the thread. `header` makes the first row whenever the file is opened.
    `prepare` runs first in the thread, because what it does may hang with the disk;
    `idle` runs there between writes. `say` gets the first error of both, and of a failing disk.
    `limit`: most waiting `rows`; at `half` of them the thread is woken. `dropped` counts lost
    rows. `problem`: why the disk fails, or None.
    """

    path: Path
    header: Callable[[], Row]
    make: Callable[[Entry], list[Row]] = lambda entry: []
    prepare: Callable[[], None] = lambda: None
    idle: Callable[[], None] = lambda: None
    say: Callable[[str], None] = lambda text: None
    limit: int = MAX_ROWS
    dropped: int = field(default=0, init=False)
    problem: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.half = self.limit // 2
        self.rows: deque[Row | Entry] = deque(maxlen=self.limit)
        self._tail = b""
        self._encoding = False
        self._fd: int | None = None
        self._reported = 0
        self._retry_at = -math.inf
        self._closing = False
        self._has_said = False
        # `SimpleQueue.put` is reentrant, unlike `Event.set`: a signal handler may call it.
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ldlm-health-rows", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, row: Row | Entry) -> None:
        """Take a row or an entry; if too many wait, the oldest is dropped."""
        rows = self.rows
        if len(rows) >= self.half:
            self._crowded(len(rows))
        rows.append(row)

    def _crowded(self, waiting: int) -> None:
        if waiting >= self.limit:
            self.dropped += 1
        elif waiting == self.half:
            self.hurry()

    def hurry(self) -> None:
        """Wake the thread, to write now; returns at once."""
        self._bell.put(None)

    def flush(self, seconds: float) -> bool:
        """Wait until all rows are written, or `seconds` are over; returns whether all are.

        Takes no lock: a signal handler may call it.
        """
        self.hurry()
        until = time.monotonic() + seconds
        while not self._is_written() and self._thread.is_alive() and time.monotonic() < until:
            time.sleep(0.002)  # not in the loop: at its end, or upon SIGTERM
        return self._is_written()

    def close(self, seconds: float) -> bool:
        """Write all rows and end the thread within `seconds`; returns whether all is written."""
        self._closing = True
        self.hurry()
        self._thread.join(seconds)
        return self._is_written()

    def _is_written(self) -> bool:
        """Whether no row is queued, encoded or being written: checked in a row's order."""
        return not (self.rows or self._encoding or self._tail)

    def _run(self) -> None:
        # A file above the limit of its size is an error then, also where SIGXFSZ ends the process.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGXFSZ})
        self._guarded(self.prepare)
        while True:
            closing = self._closing
            try:
                self._drain(force=closing)
            except OSError as error:
                self._fail(error)
            if closing:
                break
            self._guarded(self.idle)
            with suppress(Empty):
                self._bell.get(timeout=POLL_SECONDS)
        if self._fd is not None:
            os.close(self._fd)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 rows are still written
            if not self._has_said:
                self._has_said = True
                self.say(f"{type(error).__name__}: {error}; rows go on being written")

    def _drain(self, *, force: bool) -> None:
        if not force and time.monotonic() < self._retry_at:
            return
        while self._fd is None or self.rows or self._tail:
            if self._fd is None:
                self._open()
            if not self._tail:
                self._encoding = True  # set before rows leave the queue: see `_is_written`
                self._tail = self._encoded()
                self._encoding = False
            assert self._fd is not None
            self._tail = self._tail[os.write(self._fd, self._tail) :]
            if self._tail:
                continue
            self.problem = None
            self._tail = self._drops()

    def _open(self) -> None:
        """Open to append; first end a line that an earlier process left unfinished."""
        fd = open_to_append(self.path)
        try:
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        except OSError:  # a disk that fails: the next write reports it
            torn = False
        self._fd = fd
        self._tail = (b"\n" if torn else b"") + encode(self.header())

    def _encoded(self) -> bytes:
        lines: list[bytes] = []
        while self.rows and len(lines) < _BATCH:
            row = self.rows.popleft()
            try:
                rows = [row] if isinstance(row, dict) else self.make(row)
                lines += [encode(each) for each in rows]
            except Exception:  # noqa: BLE001 a value that cannot be encoded costs only its row
                self.dropped += 1
        return b"".join(lines)

    def _drops(self) -> bytes:
        if self.dropped == self._reported:
            return b""
        new, self._reported = self.dropped - self._reported, self.dropped
        message = f"the callback dropped {new} rows that could not be written, or not in time"
        fields = {"dropped": new, "family": "process", "role": "context"}
        return encode(event_row("warning", "warning", message, time=time.time(), fields=fields))

    def _fail(self, error: OSError) -> None:
        self._retry_at = time.monotonic() + RETRY_SECONDS
        if self._fd is not None and error.errno not in _STAYS_OPEN:
            os.close(self._fd)
            # `_open` ends the line that was begun.
            self.dropped += self._tail.count(b"\n")
            self._fd, self._tail = None, b""
        if self.problem is None:
            self.say(
                f"{self.path}: {error.strerror}; training goes on, "
                f"{self.limit} rows wait at most until it can be written"
            )
        self.problem = error.strerror


def encode(row: Mapping[str, Any]) -> bytes:
    """The row as one strict JSON line; NaN and infinities, which JSON lacks, are strings."""
    try:
        text = json.dumps(row, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        text = json.dumps(plain(row), allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def plain(value: Any, depth: int = 6) -> Any:
    """The value in JSON's types, cut at `depth` levels and 512 parts.

    Both are choices: more lets a row grow, less cuts settings. Other objects become the name of
    their type: their `str` may run any code.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return spelled(value)
    if isinstance(value, str | Path):
        return str(value)[:MAX_TEXT]
    if depth and isinstance(value, Mapping):
        items = list(value.items())[:512]
        return {str(key)[:MAX_NAME]: plain(part, depth - 1) for key, part in items}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [plain(part, depth - 1) for part in list(value)[:512]]
    return f"<{type(value).__name__}>"
