"""File system calls with a time limit of a second, for files whose server may be dead.

A thread per network file system makes the calls. A call that is not answered in time
raises `TimeoutError`; until its answer has come, every later call raises it at once.
The daemon's main loop, the pump, calls network file systems only through `TimedDisk`. The logs
there are read in a second thread (`file_system_reader`), since a read may take longer.
"""

import errno
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ldlm_monitor.logs.source.file_system import (
    DIRECT,
    MOUNT_SECONDS,
    Disk,
    Mount,
    MountTable,
    Worker,
    read_mounts,
)
from ldlm_monitor.logs.source.notices import Journal

CALL_SECONDS = 1.0
"""How long a call may take: healthy servers answer in milliseconds, and a longer time would
delay the pump, which waits. A later answer is discarded, and the pump repeats the call."""
JOIN_SECONDS = 0.1
"""How long `close` waits for a thread that no call blocks: enough to close its files, and
below what a user notices at the end."""

T = TypeVar("T")


class TimedDisk:
    """Makes the calls of a `Disk` with a time limit.

    The attribute `disk` has the timed calls; only one thread may use it. `journal` gets a
    notice of a file system that does not answer. `seconds`: how long a call may take. `check` is
    called before each call that looks or reads, and may raise. Tests replace `mounts` and `clock`
    (monotonic seconds).
    """

    def __init__(
        self,
        journal: Journal,
        *,
        disk: Disk = DIRECT,
        seconds: float = CALL_SECONDS,
        mounts: Callable[[], MountTable] = read_mounts,
        clock: Callable[[], float] = time.monotonic,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._real = real = disk
        self._check = check
        self._journal = journal
        self._seconds = seconds
        self._read_mounts = mounts
        self._clock = clock
        self._table = mounts()
        self._table_at = clock()
        self._callers: dict[str, _Caller] = {}
        self._descriptors: dict[int, _Caller] = {}
        self.disk = Disk(
            stat=self._of_path(real.stat),
            open=self._open,
            pread=self._of_descriptor(real.pread),
            lstat=self._of_path(real.lstat),
            fstat=self._of_descriptor(real.fstat),
            status=self._of_descriptor(real.status),
            lseek=self._of_descriptor(real.lseek),
            close=self._close,
            listing=self._of_path(real.listing),
            realpath=self._of_path(real.realpath),
        )

    def close(self) -> None:
        """End the threads, without waiting for those that are blocked in a call."""
        for caller in self._callers.values():
            caller.close()

    def _caller(self, path: Path) -> "_Caller | None":
        """The caller for the file system of `path`; None if it is local."""
        if self._clock() - self._table_at >= MOUNT_SECONDS:
            self._table, self._table_at = self._read_mounts(), self._clock()
        mount = self._table.of(path) if self._table.has_remote else Mount()
        if not mount.remote:
            return None
        if mount.device not in self._callers:
            caller = _Caller(mount, self._journal, self._seconds, self._clock)
            self._callers[mount.device] = caller
        return self._callers[mount.device]

    def _of_path(self, call: Callable[[Path], T]) -> Callable[[Path], T]:
        def timed(path: Path) -> T:
            self._check()
            caller = self._caller(path)
            return call(path) if caller is None else caller.call(lambda: call(path), path)

        return timed

    def _of_descriptor(self, call: Callable[..., T]) -> Callable[..., T]:
        def timed(descriptor: int, *args: int) -> T:
            self._check()
            caller = self._descriptors.get(descriptor)
            if caller is None:
                return call(descriptor, *args)
            return caller.call(lambda: call(descriptor, *args))

        return timed

    def _open(self, path: Path, flags: int) -> int:
        caller = self._caller(path)
        if caller is None:
            return self._real.open(path, flags)
        descriptor = caller.call(
            lambda: self._real.open(path, flags), path, discard=self._real.close
        )
        self._descriptors[descriptor] = caller
        return descriptor

    def _close(self, descriptor: int) -> None:
        """Close without waiting: close(2) can block on a server too."""
        caller = self._descriptors.pop(descriptor, None)
        if caller is None:
            self._real.close(descriptor)
        else:
            caller.worker.submit(lambda: self._real.close(descriptor))


@dataclass(eq=False)
class _Caller:
    """Makes the calls to one file system one after the other, in a thread."""

    _mount: Mount
    _journal: Journal
    _seconds: float
    _clock: Callable[[], float]
    _pending: Future[Any] | None = None
    _place: str = ""
    _since: float = 0.0

    def __post_init__(self) -> None:
        self.worker = Worker(f"call {self._mount.point}")

    @property
    def blocked(self) -> bool:
        return self._pending is not None and not self._pending.done()

    def call(
        self,
        work: Callable[[], T],
        path: Path | None = None,
        *,
        discard: Callable[[T], None] | None = None,
    ) -> T:
        """The result or exception of `work`. Raises `TimeoutError` if `work` takes too long.

        `path`: the file that a notice names; None stands for that of the call before. A result
        that comes too late is passed to `discard`, in the thread.
        """
        self._place = self._place if path is None else str(path)
        if self.blocked:
            self._journal.stalled(self._place, self._mount, self._clock() - self._since, self)
            raise _no_answer(self._place)
        self._journal.answered(self._mount, self)
        self._since = self._clock()
        self._pending = pending = self.worker.submit(work)
        try:
            return pending.result(self._seconds)
        except LateError as error:
            if pending.done():  # the call raised TimeoutError itself, or ended just now
                return pending.result()
            if discard is not None:
                pending.add_done_callback(lambda late: self._discard(late, discard))
            raise _no_answer(self._place) from error

    def close(self) -> None:
        self.worker.close(0.0 if self.blocked else JOIN_SECONDS)

    def _discard(self, late: "Future[T]", discard: Callable[[T], None]) -> None:
        if late.exception() is None:
            self.worker.submit(lambda: discard(late.result()))


def _no_answer(place: str) -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, "no answer", place)
