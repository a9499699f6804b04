"""Heartbeat pages of the training callback: the last step and phase of each rank.

Format: `ldlm_monitor/callback/heartbeat.py`. Anyone who may write into the folder may write
such a file, so a page counts for a process only as far as the kernel confirms it.
"""

from __future__ import annotations

import math
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ldlm_monitor.callback.heartbeat import BEAT, BEAT_AT, IDENTITY, MAGIC, SIZE
from ldlm_monitor.model.records import Heartbeat, Position
from ldlm_monitor.probe import process

PATTERN = "heartbeat_rank*"
MAX_PAGES = 4096
"""Pages read per look: a folder of thousands of ranks is one that a shared disk holds."""
_NO_BEAT: tuple[Any, ...] = (-1, -1, 0, math.nan, math.nan, math.nan, math.nan, b"", b"")
_TRIES = 20
"""A store takes nanoseconds; a page that changes this often is no heartbeat."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a rank's heartbeat file says. Times are Unix seconds, -1 and NaN: not known.

    `started` (clock ticks after boot) and `pid_namespace` (an inode) name the process
    beside its pid. `stack_signal` makes it write its stacks to `stack_file`; 0: nothing
    does. `recorder` is the socket of its flight recorder, if any. `status`: running,
    finished or failed.
    """

    path: Path
    owner: int
    pid: int
    started: int
    pid_namespace: int
    host: str
    rank: int
    stack_signal: int
    stack_file: str
    recorder: str
    step: int
    time: float
    phase: str
    phase_since: float
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
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size != SIZE:
            return None
        data = _stable(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    if data is None:
        return None
    page = page_of(data, path, status.st_uid)
    return _left_during_a_store(data, path, status.st_uid) if page is None else page


def page_of(data: bytes, path: Path, owner: int = -1, *, is_final: bool = False) -> Page | None:
    """What the bytes of a page say; None: they are none, or were read during a store.

    `is_final`: nobody writes any more, so a beat that was begun counts. Its cells are of
    two beats in a row, each of them whole.
    """
    if len(data) != SIZE or not data.startswith(MAGIC):
        return None
    _, pid, number, started, space, _, rank, _, host, _, stacks, recorder = IDENTITY.unpack_from(
        data
    )
    first, *beat, last = BEAT.unpack_from(data, BEAT_AT)
    if first != last and not is_final:
        return None
    step, _, _, time, _, since, _, phase, status = beat if first else _NO_BEAT
    return Page(
        path=path,
        owner=owner,
        pid=pid,
        started=started,
        pid_namespace=space,
        host=_text(host),
        rank=rank,
        stack_signal=number,
        stack_file=_text(stacks),
        recorder=_text(recorder),
        step=step,
        time=time,
        phase=_text(phase),
        phase_since=since,
        status=_text(status),
    )


def is_process(page: Page, proc: Path = Path("/proc")) -> bool:
    """Whether the process that writes the page lives, here: its pid could be another's by now."""
    if page.host != socket.gethostname() or page.pid <= 0:
        return False
    try:
        space = os.stat(proc / "self/ns/pid").st_ino
    except OSError:
        return False
    found = process.look(page.pid, proc)
    is_same = found is not None and found.started == page.started and found.state != "Z"
    return is_same and page.pid_namespace == space


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


def _left_during_a_store(data: bytes, path: Path, owner: int) -> Page | None:
    """The page of a process that was killed while it stored a beat; None for one that lives."""
    page = page_of(data, path, owner, is_final=True)
    here = page is not None and page.host == socket.gethostname()
    return page if page is not None and here and not is_process(page) else None


def _text(raw: bytes) -> str:
    text = raw.rstrip(b"\0").decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)
