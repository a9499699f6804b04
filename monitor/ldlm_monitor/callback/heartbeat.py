"""The heartbeat: one page per rank with its position, readable also after `kill -9`.

A file of 4 KiB that is mapped into memory, so that a beat is a store and no system
call. All numbers are little-endian, as the processors are that train. The page holds
`IDENTITY`, which the start writes once, and at 1024 `BEAT`, which the loop writes at each
step and phase.

`BEAT` begins and ends with a sequence number (u64), which its one writer counts up. It
writes from front to back; so a reader of two different numbers has read during a store, and
reads again. What is written while a page is read twice alike was stable: that holds on
processors too that let others see stores out of order. The monitor's `probe/heartbeat.py`
reads the page.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SIZE = 4096
"""A page of memory: the smallest unit that is mapped."""
MAGIC = b"ldlmhb01"
BEAT_AT = 1024
IDENTITY = struct.Struct("<8sIIQQdii64s128s64s108s")
"""Magic, pid, stack signal (0: none), start of the process (clock ticks after boot, field
22 of /proc/PID/stat), inode of its pid namespace, creation (Unix seconds), rank, world
size (-1: unknown), host, run, name of the stack file beside this one, path of the flight
recorder's socket."""
BEAT = struct.Struct("<Qqqqdddd32s16sQ")
"""Sequence, `Beat`, sequence."""
_WORDS = struct.Struct("<32s16s")
_WORDS_AT = 64
_LAST = BEAT.size // 8 - 1
_SAFE_TO_MAP = frozenset({"ext2", "ext3", "ext4", "xfs", "tmpfs", "ramfs", "overlay", "f2fs"})
"""File systems where a page that is allocated stays so: a store can't fail (as SIGBUS would)."""


@dataclass(slots=True)
class Beat:
    """Where a rank is. Times are Unix seconds but for `monotonic`; NaN: not known.

    `steps`: calls of `on_step`. `time` and `monotonic`: of this beat. `loss`: where it was
    a number at hand. `status`: running, finished or failed.
    """

    step: int = -1
    batch: int = -1
    steps: int = 0
    time: float = 0.0
    monotonic: float = 0.0
    phase_since: float = 0.0
    loss: float = math.nan
    phase: bytes = b"init"
    status: bytes = b"running"


class Identity(NamedTuple):
    """Who writes the page; see `IDENTITY`."""

    pid: int
    stack_signal: int
    start_ticks: int
    pid_namespace: int
    created: float
    rank: int
    world_size: int
    host: bytes
    run: bytes
    stack_file: bytes
    recorder_socket: bytes


class HeartbeatPage:
    """The page of one rank. Raises `OSError` where the file cannot be made."""

    def __init__(self, path: Path, identity: Identity) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        self._fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            page = IDENTITY.pack(MAGIC, *identity).ljust(SIZE, b"\0")
            _fill(self._fd, page)
            self.is_mapped = _may_map(self._fd)
            self._page: mmap.mmap | bytearray = (
                mmap.mmap(self._fd, SIZE) if self.is_mapped else bytearray(page)
            )
            self._beats = 0
            self._phase = self._status = b""
            block = memoryview(self._page)[BEAT_AT : BEAT_AT + BEAT.size]
            self._whole, self._real = block.cast("q"), block.cast("d")
            # A reader that has the old page open keeps it: no mapping is ever truncated.
            os.replace(temporary, path)
        except OSError:
            os.close(self._fd)
            temporary.unlink(missing_ok=True)
            raise

    def beat(self, beat: Beat) -> None:
        """Store the rank's position. Called by the loop's thread alone.

        Cells are stored one by one, in the machine's byte order: the code of
        `struct.pack_into` would have to be fetched anew after each step's work.
        """
        whole, real = self._whole, self._real
        self._beats = number = self._beats + 1
        whole[0] = number
        whole[1] = beat.step
        whole[2] = beat.batch
        whole[3] = beat.steps
        real[4] = beat.time
        real[5] = beat.monotonic
        real[6] = beat.phase_since
        real[7] = beat.loss
        if beat.phase is not self._phase or beat.status is not self._status:
            self._phase, self._status = beat.phase, beat.status
            _WORDS.pack_into(self._page, BEAT_AT + _WORDS_AT, beat.phase, beat.status)
        whole[_LAST] = number

    def sync(self) -> None:
        """Write the page where it is not mapped; no thread that trains should wait for this."""
        if not self.is_mapped:
            os.pwrite(self._fd, bytes(self._page), 0)


def _fill(fd: int, page: bytes) -> None:
    """Write the page and make sure of its block. Raises `OSError`, on a full disk too."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, SIZE)
    if os.pwrite(fd, page, 0) != SIZE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _may_map(fd: int) -> bool:
    """Whether the file lies where a mapped page is coherent and a store cannot fail."""
    device = os.fstat(fd).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return False
    kinds = set()
    for line in lines:  # proc(5): ID, parent, major:minor, ..., " - ", type, ...
        left, _, right = line.partition(" - ")
        if left.split()[2:3] == [wanted]:
            kinds.add(right.split()[0])
    return bool(kinds) and kinds <= _SAFE_TO_MAP
