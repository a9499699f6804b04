"""File systems: where each is mounted, the calls that read files, and threads for them.

A call to a network file system whose server is down can block for ever. `MountTable`
finds the file system of a path without such a call; `Disk` bundles the calls, so that
`timed_disk` can replace them; `Worker` makes them in a thread that may never return.
"""

import contextlib
import errno
import os
import queue
import re
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from ldlm_monitor.logs.source import decoded_files

_NETWORK_TYPES = (  # as mount(8) and the vendors' documentation name them
    "9p afs autofs beegfs ceph cifs davfs fhgfs fuse gfs2 glusterfs gpfs lustre nfs nfs4 ocfs2"
    " orangefs panfs pvfs2 smb3 smbfs virtiofs wekafs"
)
NETWORK_FILE_SYSTEMS = frozenset(_NETWORK_TYPES.split())
"""File system types whose files other machines write: inotify does not report such writes,
and a call blocks while the server is down."""
MOUNT_SECONDS = 5.0
"""Seconds between two readings of the mount table in /proc. A choice: a shorter time costs calls;
until a new network mount is read there, its files are read in a thread that it may block."""
MAX_LINKS = 40
"""The most symbolic links that the system resolves in one path, path_resolution(7)."""
_OCTAL = re.compile(r"\\([0-7]{3})")  # how mountinfo writes spaces and backslashes, proc(5)
BLOCK_BYTES = 256 * 1024
"""Bytes of one read where much of a file is read: larger reads are hardly faster, and one read of
a network file must end within `timed_disk.CALL_SECONDS`."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system; an empty `kind` means an unknown one, which counts as local.

    `device` is `major:minor`, the same at all mount points of the file system.
    """

    device: str = ""
    point: str = "/"
    kind: str = ""

    @property
    def remote(self) -> bool:
        """Whether the file system is on a network."""
        return self.kind in NETWORK_FILE_SYSTEMS

    def __str__(self) -> str:
        return f"{self.point} ({self.kind})" if self.kind else self.point


class MountTable:
    """The mounted file systems, parsed from `text`, the content of /proc/self/mountinfo.

    proc(5): field 3 is the device, field 5 the mount point, and the type follows ` - `.
    `fuse.sshfs` counts as `fuse`. `has_remote`: some file system is on a network.
    """

    def __init__(self, text: str) -> None:
        self._mounts: dict[str, Mount] = {}
        for line in text.splitlines():
            before, _, after = line.partition(" - ")
            fields = before.split(" ")
            if len(fields) > 4 and after:
                point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
                kind = after.split(" ", 1)[0].partition(".")[0]
                self._mounts[point] = Mount(fields[2], point, kind)
        self.has_remote = any(mount.remote for mount in self._mounts.values())

    def of(self, path: Path) -> Mount:
        """The mount that `path` leads to; an empty `Mount` if the table does not have it.

        Symbolic links are resolved one by one, only up to the first network mount:
        `os.path.realpath` would go further, and block on a server that is down.
        """
        real, mount = self._root()
        pending = _parts(os.path.join(working_folder(), path))
        links = 0
        while pending and not mount.remote and links <= MAX_LINKS:
            part = pending.pop()
            if part == "..":
                real, mount = self._above(real)
                continue
            step = os.path.join(real, part)
            below = self._mounts.get(step, mount)
            target = None if below.remote else _link(step)
            if target is None:
                real, mount = step, below
                continue
            links += 1
            pending += _parts(target)
            if target.startswith("/"):
                real, mount = self._root()
        return mount

    def _root(self) -> tuple[str, Mount]:
        return "/", self._mounts.get("/", Mount())

    def _above(self, real: str) -> tuple[str, Mount]:
        parent = folder = os.path.dirname(real)
        while folder not in self._mounts and folder != "/":
            folder = os.path.dirname(folder)
        return parent, self._mounts.get(folder, Mount())


def read_mounts() -> MountTable:
    """The current mount table; empty where /proc cannot be read."""
    try:
        text = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        text = ""
    return MountTable(text)


def _parts(path: str | Path) -> list[str]:
    return [part for part in reversed(os.fspath(path).split("/")) if part not in ("", ".")]


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:  # not a link, or missing
        return None


def working_folder() -> str:
    """The working folder; `/` if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return "/"


Key: TypeAlias = tuple[int, int]
"""(device, inode): the identity of a file."""
FileKind: TypeAlias = Literal["file", "folder", "link", "other"]  # of a name in a folder

# O_NONBLOCK: opening a named pipe without a writer would block the reading of all files.
# O_NOCTTY: a log that is a terminal must not become the one that controls this process.
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


def _listing(folder: Path) -> list[tuple[str, FileKind]]:
    with os.scandir(folder) as entries:
        return [(entry.name, _kind(entry)) for entry in entries]


def _kind(entry: "os.DirEntry[str]") -> FileKind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


@dataclass(frozen=True, slots=True)
class Disk:
    """The calls that inspect, open and read files; `timed_disk` and tests replace them.

    All raise `OSError`; `TimeoutError` if a server did not answer: the file may exist all
    the same. `pread` gives the decoded bytes of compressed and converted files
    (`decoded_files`). `fstat` decodes the file and gives their number as the size; `status` gives
    the size of the undecoded file. `listing`: the names in a folder and their kinds. `realpath`
    follows all symbolic links. The others are the system's calls of these names.
    """

    stat: Callable[[Path], os.stat_result] = os.stat
    open: Callable[[Path, int], int] = decoded_files.open_decoded
    pread: Callable[[int, int, int], bytes] = decoded_files.read_decoded
    lstat: Callable[[Path], os.stat_result] = os.lstat
    fstat: Callable[[int], os.stat_result] = decoded_files.fstat_decoded
    status: Callable[[int], os.stat_result] = os.fstat
    lseek: Callable[[int, int, int], int] = decoded_files.seek_decoded
    close: Callable[[int], None] = decoded_files.close_decoded
    listing: Callable[[Path], list[tuple[str, FileKind]]] = _listing
    # Not `Path.resolve`, which raises RuntimeError for a loop of links.
    realpath: Callable[[Path], Path] = lambda path: Path(os.path.realpath(path))

    def mode(self, path: Path) -> int:
        """`st_mode`; 0 if the file is missing or not accessible. Raises `TimeoutError`."""
        try:
            return self.stat(path).st_mode
        except TimeoutError:
            raise
        except (OSError, ValueError):  # ValueError: a name from a log may hold a NUL byte
            return 0

    def part(self, path: Path, start: int, size: int) -> bytes:
        """At most `size` bytes of a file from `start` on. Raises `OSError`."""
        descriptor = self.open(path, OPEN_FLAGS)
        try:
            return self.pread(descriptor, size, start)
        finally:
            self.close(descriptor)

    def blocks(self, descriptor: int, start: int, stop: int) -> Iterator[bytes]:
        """Bytes `start` to `stop` in order, `BLOCK_BYTES` at a time; ends where the file ends."""
        while start < stop:
            data = self.pread(descriptor, min(BLOCK_BYTES, stop - start), start)
            if not data:
                return
            yield data
            start += len(data)

    def open_regular(self, path: Path) -> tuple[int, Key]:
        """Open for reading: descriptor and key. Raises `OSError`, also for pipes and folders."""
        descriptor = self.open(path, OPEN_FLAGS)
        try:
            status = self.status(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(path))
        except BaseException:
            self.close(descriptor)
            raise
        return descriptor, key_of(status)


DIRECT = Disk()
"""The system's own calls, without a time limit."""


def key_of(status: os.stat_result) -> Key:
    """The identity of the file with this `status`; two names of one file have the same."""
    return status.st_dev, status.st_ino


T = TypeVar("T")


def likely_places(place: Path, inode: int, *, read: int) -> Iterator[Path]:
    """Where a file that was at `place` may be: there, or renamed in the same folder.

    `read`: how many of its bytes were read. If none were, no content can prove that a file with
    the same inode is the same file, so its name must begin with the old one.
    """
    yield place
    with contextlib.suppress(OSError), os.scandir(place.parent) as beside:
        for entry in beside:
            if entry.inode() == inode and (read or entry.name.startswith(place.name)):
                yield Path(entry.path)


class Worker:
    """Runs submitted calls one after the other in a daemon thread.

    A call to a dead server cannot be interrupted. The interpreter does not wait for a
    daemon thread when it exits; it would wait for a thread of `concurrent.futures`.
    """

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]
        self._work = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Queue a call. The future gets the call's result or exception."""
        future: Future[T] = Future()
        self._work.put((work, future))
        return future

    def close(self, patience: float) -> None:
        """Let the thread end after the queued calls; wait at most `patience` seconds for it."""
        self._work.put(None)
        self._thread.join(patience)

    def _run(self) -> None:
        while (queued := self._work.get()) is not None:
            work, future = queued
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - `future.result()` raises it again
                future.set_exception(error)
