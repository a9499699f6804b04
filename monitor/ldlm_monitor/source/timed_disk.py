"""File system calls with a time limit of a second, for files whose server may be dead.

A thread per network file system makes the calls. A call that is not answered in time
raises `TimeoutError`, and so does every later one, at once, until the answer has come.
The pump's thread calls network file systems only through this.
"""

import errno
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from ldlm_monitor.source.file_system import (
    DIRECT,
    MOUNT_SECONDS,
    Disk,
    Mount,
    MountTable,
    Worker,
    read_mounts,
)
from ldlm_monitor.source.journal import Journal
from ldlm_monitor.source.mount_reader import STALL_SECONDS

CALL_SECONDS = 1.0
"""How long a call may take: healthy servers answer in milliseconds, and the pump waits for
it. A later answer is discarded, and the caller tries again."""
JOIN_SECONDS = 0.1
"""How long `close` waits for a thread that no call blocks."""

P = ParamSpec("P")
T = TypeVar("T")


class TimedDisk:
    """Makes the calls of a `Disk` with a time limit; its attribute `disk` is for one thread.

    `journal` gets a notice of a file system that does not answer. `seconds`: how long a
    call may take. `mounts` and `clock` (monotonic seconds) are the system's, or
    replacements.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        disk: Disk = DIRECT,
        seconds: float = CALL_SECONDS,
        mounts: Callable[[], MountTable] = read_mounts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._real = real = disk
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
            lseek=self._of_descriptor(real.lseek),
            close=self._close,
            listing=self._of_path(real.listing),
            realpath=self._of_path(real.realpath),
        )

    def close(self) -> None:
        """End the threads; one that is blocked in a call is not waited for."""
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
            caller = self._caller(path)
            return call(path) if caller is None else caller.call(lambda: call(path), path)

        return timed

    def _of_descriptor(
        self, call: Callable[Concatenate[int, P], T]
    ) -> Callable[Concatenate[int, P], T]:
        def timed(descriptor: int, /, *args: P.args, **kwargs: P.kwargs) -> T:
            caller = self._descriptors.get(descriptor)
            if caller is None:
                return call(descriptor, *args, **kwargs)
            return caller.call(lambda: call(descriptor, *args, **kwargs))

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
        """Closing can block on a server too; it is not waited for."""
        caller = self._descriptors.pop(descriptor, None)
        if caller is None:
            self._real.close(descriptor)
        else:
            caller.worker.submit(lambda: self._real.close(descriptor))


class _Caller:
    """Makes the calls to one file system one after the other, in a thread."""

    def __init__(
        self, mount: Mount, journal: Journal, seconds: float, clock: Callable[[], float]
    ) -> None:
        self._mount = mount
        self._journal = journal
        self._seconds = seconds
        self._clock = clock
        self._pending: Future[Any] | None = None
        self._place = ""
        self._since = 0.0
        self._stall_reported = False
        self.worker = Worker(f"call {mount.point}")

    @property
    def blocked(self) -> bool:
        """Whether a call is unanswered."""
        return self._pending is not None and not self._pending.done()

    def call(
        self,
        work: Callable[[], T],
        path: Path | None = None,
        *,
        discard: Callable[[T], None] | None = None,
    ) -> T:
        """The result or exception of `work`. Raises `TimeoutError` if it takes too long.

        The thread then passes a late result to `discard`.
        """
        self._place = self._place if path is None else str(path)
        if self.blocked:
            self._report_stall()
            raise _no_answer(self._place)
        if self._stall_reported:
            self._stall_reported = False
            self._journal.answered(self._mount)
        self._since = self._clock()
        self._pending = pending = self.worker.submit(work)
        try:
            return pending.result(self._seconds)
        except LateError as error:
            if pending.done():  # a TimeoutError of the system, or it finished just now
                return pending.result()
            if discard is not None:
                pending.add_done_callback(lambda late: self._discard(late, discard))
            raise _no_answer(self._place) from error

    def close(self) -> None:
        """End the thread after the submitted work."""
        self.worker.close(0.0 if self.blocked else JOIN_SECONDS)

    def _report_stall(self) -> None:
        waited = self._clock() - self._since
        if waited >= STALL_SECONDS and not self._stall_reported:
            self._stall_reported = True
            self._journal.stalled(self._place, self._mount, waited)

    def _discard(self, late: "Future[T]", discard: Callable[[T], None]) -> None:
        if late.exception() is None:
            self.worker.submit(lambda: discard(late.result()))


def _no_answer(place: str) -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, "no answer", place)
