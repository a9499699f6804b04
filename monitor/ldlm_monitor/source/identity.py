"""Whether a path that appears is new, or a file that is read already.

Asked before anything of it is read. A rotation renames a log, which is then the same file,
or copies it and truncates it: then the copy has what was read, under a name that differs by
a number or a date.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ldlm_monitor.source.file_system import Disk, Key, key_of
from ldlm_monitor.source.position import WINDOW_BYTES, FilePosition

if TYPE_CHECKING:
    from ldlm_monitor.source.tail import Tail

COPY_BYTES = 1024
"""A content of which less was read is too short to be recognised (`WINDOW_BYTES`)."""
_ADDED = re.compile(r"[-._]?\d[\d\-._:TZ]*|[-._](?:old|bak|prev)\b|~")
"""What logrotate, loguru and Python's handlers put into a name, with digits beside it."""
_SEPARATORS = "-._~"

REST_BYTES = 8 * 1024 * 1024
"""A file of which more is unread is not compared with a copy: both would be read whole."""


class Known(NamedTuple):
    """A content that is read, or was: `gone` if its file has another by now."""

    position: FilePosition
    gone: bool = False


class Found(NamedTuple):
    """What a path leads to.

    `name`: the followed name of the same file or the same content, "" if it is new. `offset`:
    so much of it was read; None: it is that file. `is_doubtful`: it may still become a copy.
    """

    name: str = ""
    offset: int | None = 0
    is_doubtful: bool = False


NEW = Found()


def originals(name: str) -> set[str]:
    """The file names that a rotation may have made into this one."""
    found = set()
    for added in _ADDED.finditer(name):
        ends = {added.end(), added.end() - (added[0][-1] in "-._")}
        starts = [i for i in range(*added.span()) if name[i] in _SEPARATORS]
        found |= {name[:start] + name[end:] for start in starts for end in ends if start < end}
    return found


class KnownContents:
    """The contents that are read, or were, by file and by name."""

    def __init__(self, known: Iterable[Known], disk: Disk) -> None:
        self._disk = disk
        self._by_key: dict[Key, list[FilePosition]] = {}
        self._by_name: dict[str, list[Known]] = {}
        for each in known:
            if not each.gone:
                self._by_key.setdefault(each.position.key, []).append(each.position)
            if each.position.read >= COPY_BYTES:
                self._by_name.setdefault(each.position.path, []).append(each)

    def find(self, path: Path) -> Found:
        """What `path` is of them. Raises `OSError`."""
        rotated = [
            each
            for name in originals(path.name)
            for each in self._by_name.get(str(path.with_name(name)), ())
        ]
        status = self._disk.stat(path)
        same = self._by_key.get(key_of(status), ())
        if not (rotated or same):
            return NEW
        descriptor, _ = self._disk.open_regular(path)
        try:
            for position in same:
                if position.verify(self._disk, descriptor) is not None:
                    return Found(position.path, None)
            return self._as_copy(descriptor, status.st_size, rotated)
        finally:
            self._disk.close(descriptor)

    def _as_copy(self, descriptor: int, size: int, rotated: list[Known]) -> Found:
        head = self._disk.pread(descriptor, WINDOW_BYTES, 0)
        if len(head) == WINDOW_BYTES:
            digest = sha256(head).hexdigest()
            rotated = [each for each in rotated if each.position.head == digest]
        copied = [each for each in rotated if each.position.is_copied(self._disk, descriptor)]
        gone = [each.position for each in copied if each.gone]
        if gone:
            last = max(gone, key=lambda position: position.offset)
            return Found(last.path, last.offset)
        if copied:  # what it has beyond is in its original too, until that is truncated
            return Found(copied[0].position.path, size, is_doubtful=True)
        return Found(is_doubtful=bool(rotated))


def is_copied_by(tail: Tail, descriptor: int) -> bool:
    """Whether the file behind `descriptor` is a copy that replaced this one, as rsync does.

    It has the whole content of this file, and this file is deleted: after a rotation
    it would have another name. Short files may be equal by chance.
    """
    disk, offset, size, names = tail.disk, tail.splitter.offset, tail.size, 0
    if tail.descriptor is not None:
        with contextlib.suppress(OSError):  # a stale handle: the file is deleted
            status = disk.fstat(tail.descriptor)
            size, names = status.st_size, status.st_nlink
    rest = size - offset
    if names or offset < COPY_BYTES or rest > REST_BYTES or not tail.same_content(descriptor):
        return False
    checksum = tail.fingerprint.checksum
    if checksum is None or not checksum.fits(disk, descriptor):
        return False
    copied = disk.pread(descriptor, rest, offset)
    if tail.descriptor is None:
        return len(copied) == rest
    return disk.pread(tail.descriptor, rest, offset) == copied


def leave_rest(tail: Tail) -> None:
    """Skip the unread bytes: a copy of the file provides them."""
    if tail.descriptor is not None:
        offset, line = tail.splitter.offset, tail.splitter.line
        rest = tail.disk.pread(tail.descriptor, REST_BYTES, offset)
        counted = None if tail.splitter.framed else line + rest.count(b"\n")
        checksum = tail.fingerprint.checksum
        if checksum is not None:
            checksum = checksum.more(rest, offset)
        tail.start_at(offset + len(rest), counted, checksum=checksum)
