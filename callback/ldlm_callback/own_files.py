"""Opens the callback's files: who may write into their folder may have put something else there."""

import errno
import os
import stat
from pathlib import Path

_NO_FILE = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV, errno.EMLINK})
"""What open(2) says of links, folders, sockets and devices; FreeBSD's EMLINK is a link."""


def open_to_append(path: Path) -> int:
    """A descriptor of the regular file at `path`, which is made if there is none.

    The folder may be reached by links, the file may not. Raises `OSError`, for what is no regular
    file, and for the file of a user to whom the folder does not belong either; its `strerror` says
    what to do.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        # What we make is ours, also where a server gives it to another user (NFS, root_squash).
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        pass
    try:
        fd = os.open(path, flags)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise _refused(path, "is a link, folder, pipe or device") from error
        raise
    found = os.fstat(fd)
    problem = ""
    if not stat.S_ISREG(found.st_mode):
        problem = "is a link, folder, pipe or device"
    elif found.st_uid not in (os.geteuid(), os.stat(path.parent).st_uid):
        problem = f"belongs to another user ({found.st_uid}), as the folder does not"
    if problem:
        os.close(fd)
        raise _refused(path, problem)
    os.set_blocking(fd, True)
    return fd


def _refused(path: Path, problem: str) -> OSError:
    return OSError(errno.EPERM, f"{problem}, and is not written to: remove it", str(path))
