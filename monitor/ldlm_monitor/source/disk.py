"""The calls to the operating system that a dead server can hold up for ever."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from ldlm_monitor.model.errors import InputError

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
