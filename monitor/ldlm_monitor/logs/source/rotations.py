"""What rotations and copies do to a followed file: where its content lies afterwards."""

import errno
import re
from difflib import SequenceMatcher
from operator import attrgetter
from pathlib import Path

from ldlm_monitor.logs.source.file_identity import COPY_BYTES
from ldlm_monitor.logs.source.file_system import key_of
from ldlm_monitor.logs.source.rotated_files import rotated_beside
from ldlm_monitor.logs.source.tail import Tail

REST_BYTES = 8 * 1024 * 1024
"""If a file has more unread bytes, its copy is read from the start. A choice, as much as a turn
reads (`follower.TURN_BYTES`): comparing more delays the other files."""

EDITED_BYTES = 64 * 1024
EDITED_LINES = 50
"""Last bytes and lines of a log by which its edited copy is known. A choice: `sed` that works on
the whole file rarely leaves half of so many lines as they were."""
LEAST_LINES = 3
"""Different lines that an edited log must have of these, and half of them. A choice: of fewer,
other logs have some, too."""
_LINE = re.compile(rb"([^\r\n]*)(?:\r\n?|\n)")


def files_since(last: Tail, place: Path) -> list[Path] | None:
    """The files that were at `place` after that of `last`, the oldest first, and are rotated now.

    None if `last` itself was not rotated. A file that was written after the last look at `last`
    lay at `place` in between; it may have been read since.
    """
    found = rotated_beside(last.disk, place)
    if last.key not in map(key_of, found.values()):
        return None
    since = {path: each.st_mtime_ns for path, each in found.items()}
    return sorted((path for path in since if since[path] >= last.modified), key=since.__getitem__)


def is_copy_of(tail: Tail | None, descriptor: int) -> bool:
    """Whether a file begins with what was read of `tail`, as copies do. Raises `OSError`."""
    enough = tail is not None and tail.fingerprint.position >= COPY_BYTES
    return tail is not None and enough and tail.same_content(descriptor)


def is_copied_by(tail: Tail, descriptor: int) -> bool:
    """Whether the file behind `descriptor` is a copy that replaced the file of `tail`.

    rsync replaces a file so: the copy has the old file's whole content, and the old file is
    deleted. After a rotation the old file would have another name. Raises `OSError`.
    """
    disk, offset, size, names = tail.disk, tail.splitter.offset, tail.size, 0
    if tail.descriptor is not None:
        try:
            status = disk.fstat(tail.descriptor)
            size, names = status.st_size, status.st_nlink
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            tail.close()  # the file is deleted, and its handle cannot be read any more
    rest = size - offset
    if names or offset < COPY_BYTES or rest > REST_BYTES:
        return False
    if not tail.position().is_copied(disk, descriptor):
        return False
    copied = disk.pread(descriptor, rest, offset)
    if tail.descriptor is None:
        return len(copied) == rest
    return disk.pread(tail.descriptor, rest, offset) == copied


def place_in_edited(tail: Tail, descriptor: int) -> int | None:
    """Where to go on in the file behind `descriptor`, if it is that of `tail`, edited.

    `sed -i` and editors write a new file and rename it over the old one. It goes on behind the
    last lines of the old one, half of which it must have: a log of another launch has none of
    them. None for that, and where the old file can be read no more. Raises `OSError`.
    """
    disk, old = tail.disk, tail.descriptor
    if old is None or tail.splitter.framed or tail.fingerprint.position < COPY_BYTES:
        return None
    status = disk.fstat(old)
    if status.st_nlink:
        return None
    begin = max(status.st_size - EDITED_BYTES, 0)
    last = [line for line, _ in _lines(disk.pread(old, EDITED_BYTES, begin))]
    size = disk.fstat(descriptor).st_size
    begin = max(size - REST_BYTES, 0)
    found = _behind(last[-EDITED_LINES:], disk.pread(descriptor, size - begin, begin))
    return None if found is None else begin + found


def _behind(last: list[bytes], text: bytes) -> int | None:
    """The index in `text` behind those of `last`, in order; None if it has not half of them.

    What follows the first place where `text` has more lines than `last` may be new, and is read.
    """
    lines = _lines(text)
    matcher = SequenceMatcher(None, last[::-1], [line for line, _ in lines[::-1]])
    blocks = matcher.get_matching_blocks()[:-1]
    same = {each for start, _, size in blocks for each in last[::-1][start : start + size]}
    if len(same) < max(len(set(last)) / 2, LEAST_LINES):
        return None
    surest = max(blocks, key=attrgetter("size"))
    old, new = surest.a, surest.b  # lines that stand behind
    for block in reversed(blocks[: blocks.index(surest)]):
        if new - block.b > old - block.a:
            break
        old, new = block.a, block.b
    return lines[len(lines) - new - 1][1]


def _lines(text: bytes) -> list[tuple[bytes, int]]:
    """The whole lines of a text, also those that a bar overwrites, and the index behind each."""
    return [(each[1], each.end()) for each in _LINE.finditer(text)]


def leave_rest(tail: Tail) -> None:
    """Skip the unread bytes of `tail`, which the copy of its file has. Raises `OSError`."""
    if tail.descriptor is not None:
        offset, line = tail.splitter.offset, tail.splitter.line
        rest = tail.disk.pread(tail.descriptor, REST_BYTES, offset)
        counted = None if tail.splitter.framed else line + rest.count(b"\n")
        checksum = tail.fingerprint.checksum
        if checksum is not None:
            checksum = checksum.more(rest, offset)
        tail.start_at(offset + len(rest), counted, checksum=checksum)
