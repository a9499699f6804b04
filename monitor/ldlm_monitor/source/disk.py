"""The calls to the operating system that a dead server can hold up for ever."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ldlm_monitor.errors import InputError

Key: TypeAlias = tuple[int, int]
"""(device, inode)"""

# O_NONBLOCK: a named pipe without a writer must not hold up the other files.
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Disk:
    """How files are looked at, opened and read; another `stat`, `open` or `pread` may stand in."""

    stat: Callable[[Path], os.stat_result] = os.stat
    open: Callable[[Path, int], int] = os.open
    pread: Callable[[int, int, int], bytes] = os.pread

    def open_regular(self, path: Path) -> tuple[int, Key]:
        """A descriptor for reading. Raises `OSError`, or `InputError` for pipes and folders."""
        descriptor = self.open(path, OPEN_FLAGS)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise InputError(
                "not a regular file", where=str(path), remedy="feed pipes to standard input (`-`)"
            )
        return descriptor, key_of(status)


def key_of(status: os.stat_result) -> Key:
    """What makes two names lead to the same file."""
    return status.st_dev, status.st_ino
