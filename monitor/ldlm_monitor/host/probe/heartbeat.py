"""Heartbeat pages of the training callback: the last step and phase of each rank.

Format: `ldlm_callback/rank.py`. Anyone who may write into the folder may write such a
file, so its claims about a process are used only after a check with the kernel (`is_process`).
"""

import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ldlm_callback.rank import BEAT, BEAT_AT, IDENTITY, MAGIC, SIZE, pid_namespace
from ldlm_monitor.base.records import Heartbeat, Position
from ldlm_monitor.host.probe import process

PREFIX = "heartbeat_rank"  # of the callback's file names
MAX_PAGES = 4096  # pages read per look: a shared folder may have those of thousands of ranks
_TRIES = 20
"""Most reads until two in a row are equal: a choice; a page that always changes is no heartbeat."""


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a rank's heartbeat file. `time` (of the beat) and `phase_since`: Unix seconds.

    `owner`: the file's user id. `started` (clock ticks after boot) and `pid_namespace` (an inode)
    identify the process together with `pid`. `stack_signal`: the signal on which it writes its
    stacks to `stack_file`, or 0. `recorder`: the socket of its flight recorder, or "". `step`: -1
    before the first. `status`: running, finished or failed. `heeds_stop`: whether its loop stops
    where it is asked to.
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
    heeds_stop: int
    step: int
    time: float
    phase_since: float
    phase: str
    status: str

    @classmethod
    def of_process(cls, rank: int, host: str, pid: int, now: float) -> "Page":
        """What is known at `now` of a rank whose process writes no page."""
        return cls(
            Path(), 0, pid, 0, 0, 0, rank, host, "", "", 0, -1, now, now, phase="", status="running"
        )

    def record(self, run: str) -> Heartbeat:
        """The page as a `Heartbeat` record of a run."""
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
    """The pages in `folders`, sorted by rank, at most MAX_PAGES; other files are ignored."""
    names = [(folder, name) for folder in {*folders} for name in sorted(process.names(folder))]
    paths = [folder / name for folder, name in names if name.startswith(PREFIX)]
    found = filter(None, map(read, paths[:MAX_PAGES]))
    yield from sorted(found, key=lambda page: (page.rank, str(page.path)))


def read(path: Path) -> Page | None:
    """The page in a file; None if it is no heartbeat, or cannot be read."""
    try:
        with open(process.open_regular(path), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            data = _stable(file.fileno()) if status.st_size == SIZE else None
    except OSError:
        return None
    return None if data is None else page_of(data, path, status.st_uid)


def page_of(data: bytes, path: Path, owner: int = -1) -> Page | None:
    """The page in a file's bytes; None if they are no page, half written, or without a beat yet."""
    if len(data) != SIZE or not data.startswith(MAGIC):
        return None
    _, *identity = IDENTITY.unpack_from(data)
    first, *beat, last = BEAT.unpack_from(data, BEAT_AT)
    if not first or first != last:
        return None
    return Page(path, owner, *map(_plain, (*identity, *beat)))


def is_process(page: Page) -> bool:
    """Whether the page's process lives on this host: its pid may be another process' by now."""
    if page.host != socket.gethostname() or page.pid <= 0:
        return False
    found = process.look(page.pid)
    is_same = found is not None and found.started == page.started and found.state != "Z"
    return is_same and page.pid_namespace == pid_namespace()


def may_live(page: Page) -> bool:
    """Whether the page's process lives, or cannot be seen from here."""
    is_here = page.host == socket.gethostname() and page.pid_namespace == pid_namespace()
    return not is_here or page.pid <= 0 or is_process(page)


def _stable(fd: int) -> bytes | None:
    """The page's bytes once two reads are alike; None if they never are."""
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
