"""Looking at files by name where a server may be dead: no call takes longer than a second.

The thread that judges all files asks here for whatever it wants of any of them. Calls
to a file system on a network are made by a thread of that file system. One that is not
answered in time fails with `TimeoutError`, and so does at once every later one, until
the answer has come.
"""

import errno
import io
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, ParamSpec, TypeVar

from ldlm_monitor.source.file_system import (
    DIRECT,
    MOUNT_SECONDS,
    OPEN_FLAGS,
    Disk,
    Mount,
    MountTable,
    Worker,
    read_mounts,
)
from ldlm_monitor.source.journal import Journal
from ldlm_monitor.source.mount_reader import STALL_SECONDS

CALL_SECONDS = 1.0
"""How long a call may take. What a slow server answers later is asked again."""
READ_BYTES = 256 * 1024
"""One call reads so much at most, which a slow network manages in time."""
JOIN_SECONDS = 0.1
"""How long the end waits for a thread that nothing holds up."""

P = ParamSpec("P")
T = TypeVar("T")


class TimedDisk:
    """`disk`: the calls, for one thread; those to the other `disk`, if given, stay in time.

    `journal` is told of a file system that does not answer. `seconds`: how long a call
    may take. `mounts` and `clock` (monotonic seconds) are what the system offers.
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
            reader=self._reader,
            listing=self._of_path(real.listing),
            realpath=self._of_path(real.realpath),
        )

    def silent(self, path: Path) -> bool:
        """Whether the file system that `path` leads to owes an answer."""
        caller = self._caller(path)
        return caller is not None and caller.waits

    def close(self) -> None:
        """End the threads; one that gets no answer is left to its fate."""
        for caller in self._callers.values():
            caller.close()

    def _caller(self, path: Path) -> "_Caller | None":
        """Who makes the calls for `path`; None: it is local."""
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
            lambda: self._real.open(path, flags), path, unwanted=self._real.close
        )
        self._descriptors[descriptor] = caller
        return descriptor

    def _close(self, descriptor: int) -> None:
        """Also to close a file, a server may be asked: that is not waited for."""
        caller = self._descriptors.pop(descriptor, None)
        if caller is None:
            self._real.close(descriptor)
        else:
            caller.post(lambda: self._real.close(descriptor))

    def _reader(self, path: Path) -> BinaryIO:
        if self._caller(path) is None:
            return self._real.reader(path)
        return io.BufferedReader(_RawFile(self.disk, self.disk.open(path, OPEN_FLAGS)), READ_BYTES)


class _Caller:
    """Makes the calls to one file system in a thread of its own, one after the other."""

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
        self._said = False
        self._worker = Worker(f"ask {mount.point}")

    @property
    def waits(self) -> bool:
        """Whether a call was not answered yet."""
        return self._pending is not None and not self._pending.done()

    def call(
        self,
        work: Callable[[], T],
        path: Path | None = None,
        *,
        unwanted: Callable[[T], None] | None = None,
    ) -> T:
        """What `work` gives or raises. Raises `TimeoutError` if that is not known in time.

        `unwanted` gets, in the thread, what then comes all the same.
        """
        self._place = self._place if path is None else str(path)
        if self.waits:
            self._complain()
            raise _no_answer(self._place)
        if self._said:
            self._said = False
            self._journal.answered(self._mount)
        self._since = self._clock()
        answer: Future[T] = self.post(work)
        self._pending = answer
        try:
            return answer.result(self._seconds)
        except LateError as error:
            if answer.done():  # the system's own error, or just now
                return answer.result()
            if unwanted is not None:
                answer.add_done_callback(lambda late: self._give_back(late, unwanted))
            raise _no_answer(self._place) from error

    def post(self, work: Callable[[], T]) -> "Future[T]":
        """Have the thread do it."""
        return self._worker.post(work)

    def close(self) -> None:
        """End the thread when it has done what it was asked."""
        self._worker.close(0.0 if self.waits else JOIN_SECONDS)

    def _complain(self) -> None:
        waited = self._clock() - self._since
        if waited >= STALL_SECONDS and not self._said:
            self._said = True
            self._journal.stalled(self._place, self._mount, waited)

    def _give_back(self, late: "Future[T]", unwanted: Callable[[T], None]) -> None:
        if late.exception() is None:
            self.post(lambda: unwanted(late.result()))


class _RawFile(io.RawIOBase):
    """A file to be read, through the calls of a `Disk`."""

    def __init__(self, disk: Disk, descriptor: int) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def readinto(self, buffer: Any) -> int:
        data = self._disk.pread(self._descriptor, min(len(buffer), READ_BYTES), self._position)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            raise io.UnsupportedOperation("seek from the end")
        self._position = offset + (self._position if whence == os.SEEK_CUR else 0)
        return self._position

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._disk.close(self._descriptor)


def _no_answer(place: str) -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, "no answer", place)
