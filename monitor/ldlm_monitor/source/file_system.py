"""Which file system a path leads to, found out without asking any that may not answer.

The calls to the operating system that a dead server can hold up for ever.

A thread that does what it is asked, one thing after the other, and may never come back.
"""

import os
import queue
import re
import stat
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, TypeVar

from ldlm_monitor.model.errors import InputError

NETWORK_FILE_SYSTEMS = frozenset(
    (
        "9p",
        "afs",
        "autofs",
        "beegfs",
        "ceph",
        "cifs",
        "davfs",
        "fhgfs",
        "fuse",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb3",
        "smbfs",
        "virtiofs",
        "wekafs",
    )
)
"""On these another machine's writes ring nothing here, and a dead server answers never."""
MOUNT_SECONDS = 5.0
"""What is mounted is looked up anew so often."""
LINKS = 40
"""So many symbolic links the system follows in one path, path_resolution(7)."""
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system: `device` is `major:minor`, one for all places of the same one."""

    device: str = ""
    point: str = "/"
    kind: str = ""

    @property
    def remote(self) -> bool:
        """Whether it is on a network."""
        return self.kind in NETWORK_FILE_SYSTEMS

    def __str__(self) -> str:
        return f"{self.point} ({self.kind})" if self.kind else self.point


class MountTable:
    """What is mounted where, as /proc/self/mountinfo tells it (proc(5)); `text` is that file's.

    Field 3 is the device, field 5 the mount point, and the type follows ` - `.
    `fuse.sshfs` counts as `fuse`.
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
        """The mount that `path` leads to.

        Symbolic links are followed by hand, and no further than to the first mount on a
        network, so that a server that is away holds up nobody. An empty `Mount` where
        the system does not tell.
        """
        real, mount = self._root()
        pending = _parts(os.path.join(_working_folder(), path))
        links = 0
        while pending and not mount.remote and links <= LINKS:
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
    """What is mounted now; empty where the system does not tell."""
    try:
        text = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        text = ""
    return MountTable(text)


def file_system(folder: Path) -> str:
    """The type of the file system that holds `folder`; empty where the system does not tell."""
    return read_mounts().of(folder).kind


def _parts(path: str | Path) -> list[str]:
    """The parts of a path, the last one first."""
    return [part for part in reversed(os.fspath(path).split("/")) if part not in ("", ".")]


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:  # no link, or nothing there
        return None


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # deleted
        return "/"


Key: TypeAlias = tuple[int, int]
"""(device, inode)"""
Kind: TypeAlias = Literal["file", "folder", "link", "other"]

# O_NONBLOCK: a named pipe without a writer must not hold up the other files.
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


def _reader(path: Path) -> BinaryIO:
    return path.open("rb")


def _listing(folder: Path) -> list[tuple[str, Kind]]:
    with os.scandir(folder) as entries:
        return [(entry.name, _kind(entry)) for entry in entries]


def _kind(entry: "os.DirEntry[str]") -> Kind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


@dataclass(frozen=True, slots=True)
class Disk:
    """How files are looked at, opened and read; other calls may stand in.

    All raise `OSError`: `TimeoutError` where a server gave no answer, so that nothing
    is known. `reader` is a buffered file, `listing` the names in a folder and what
    they are, `realpath` follows all symbolic links, `lseek` is that of lseek(2).
    """

    stat: Callable[[Path], os.stat_result] = os.stat
    open: Callable[[Path, int], int] = os.open
    pread: Callable[[int, int, int], bytes] = os.pread
    lstat: Callable[[Path], os.stat_result] = os.lstat
    fstat: Callable[[int], os.stat_result] = os.fstat
    lseek: Callable[[int, int, int], int] = os.lseek
    close: Callable[[int], None] = os.close
    reader: Callable[[Path], BinaryIO] = _reader
    listing: Callable[[Path], list[tuple[str, Kind]]] = _listing
    realpath: Callable[[Path], Path] = Path.resolve

    def mode(self, path: Path) -> int:
        """`st_mode`; 0 where nothing is, or is not ours to see. Raises `TimeoutError`."""
        try:
            return self.stat(path).st_mode
        except TimeoutError:
            raise
        except (OSError, ValueError):  # a name from a log may be none
            return 0

    def open_regular(self, path: Path) -> tuple[int, Key]:
        """A descriptor for reading. Raises `OSError`, or `InputError` for pipes and folders."""
        descriptor = self.open(path, OPEN_FLAGS)
        status = self.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            self.close(descriptor)
            raise InputError(
                "not a regular file", where=str(path), remedy="feed pipes to standard input (`-`)"
            )
        return descriptor, key_of(status)


DIRECT = Disk()
"""The system's own calls, however long they take."""


def key_of(status: os.stat_result) -> Key:
    """What makes two names lead to the same file."""
    return status.st_dev, status.st_ino


T = TypeVar("T")


class Worker:
    """A daemon thread: nothing can wake it from a call that a dead server holds.

    So it holds up no end of the process either, as those of `concurrent.futures` would.
    """

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]
        self._work = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, work: Callable[[], T]) -> "Future[T]":
        """Have it done; what it gives or raises."""
        answer: Future[T] = Future()
        self._work.put((work, answer))
        return answer

    def close(self, patience: float) -> None:
        """End it when it has done what it was asked, waited for `patience` seconds."""
        self._work.put(None)
        if patience:
            self._thread.join(patience)

    def _run(self) -> None:
        while (order := self._work.get()) is not None:
            work, answer = order
            try:
                answer.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised again where it is taken
                answer.set_exception(error)
