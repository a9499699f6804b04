"""Heartbeat pages of the training callback: the last step and phase of each rank.

Format: `ldlm_monitor/callback/rank.py`. Anyone who may write into the folder may write
such a file, so a page counts for a process only as far as the kernel confirms it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ldlm_monitor.callback.rank import BEAT, BEAT_AT, IDENTITY, MAGIC, SIZE, pid_namespace
from ldlm_monitor.model.records import Heartbeat, Position
from ldlm_monitor.probe import process

PATTERN = "heartbeat_rank*"
MAX_PAGES = 4096
"""Pages read per look: a folder of thousands of ranks is one that a shared disk holds."""
_TRIES = 20
"""A store takes nanoseconds; a page that changes this often is no heartbeat."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a rank's heartbeat file says, in its order. Times are Unix seconds; step -1: none yet.

    `started` (clock ticks after boot) and `pid_namespace` (an inode) name the process
    beside its pid. `stack_signal` makes it write its stacks to `stack_file`; 0: nothing
    does. `recorder` is the socket of its flight recorder, if any. `status`: running,
    finished or failed.
    """

    path: Path
    owner: int
    pid: int
    stack_signal: int
    started: int
    pid_namespace: int
    rank: int
    host: str
    stack_file: str
    recorder: str
    step: int
    time: float
    phase_since: float
    phase: str
    status: str

    def record(self, run: str) -> Heartbeat:
        """The same as a record of a run."""
        return Heartbeat(
            run=run,
            rank=self.rank,
            host=self.host,
            pid=self.pid,
            step=self.step,
            phase=self.phase,
            time=self.time,
            position=Position(str(self.path), 1, 0),
        )


def pages(folders: Iterable[Path]) -> Iterator[Page]:
    """The pages in some folders, by rank. What is none is passed over."""
    paths = [path for folder in {*folders} for path in _matching(folder)]
    found = filter(None, map(read, paths[:MAX_PAGES]))
    yield from sorted(found, key=lambda page: (page.rank, str(page.path)))


def read(path: Path) -> Page | None:
    """What a file says; None: it is no heartbeat, or is not to be had."""
    try:
        with open(process.open_regular(path), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            data = _stable(file.fileno()) if status.st_size == SIZE else None
    except OSError:
        return None
    return None if data is None else page_of(data, path, status.st_uid)


def page_of(data: bytes, path: Path, owner: int = -1) -> Page | None:
    """What the bytes of a page say; None: no beat yet, or one that is being stored."""
    if len(data) != SIZE or not data.startswith(MAGIC):
        return None
    _, *identity = IDENTITY.unpack_from(data)
    first, *beat, last = BEAT.unpack_from(data, BEAT_AT)
    if not first or first != last:
        return None
    return Page(path, owner, *map(_plain, (*identity, *beat)))


def is_process(page: Page) -> bool:
    """Whether the process that writes the page lives, here: its pid could be another's by now."""
    if page.host != socket.gethostname() or page.pid <= 0:
        return False
    found = process.look(page.pid)
    is_same = found is not None and found.started == page.started and found.state != "Z"
    return is_same and page.pid_namespace == pid_namespace()


def _matching(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob(PATTERN))
    except OSError:
        return []


def _stable(fd: int) -> bytes | None:
    """The page as it was twice in a row; None: it is written all the time."""
    before = os.pread(fd, SIZE, 0)
    for _ in range(_TRIES):
        after = os.pread(fd, SIZE, 0)
        if after == before:
            return after
        before = after
    return None


def _plain(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    text = value.rstrip(b"\0").decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)
