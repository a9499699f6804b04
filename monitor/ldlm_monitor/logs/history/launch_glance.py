"""What a file shows of its launch by its first and last bytes: times, ranks, losses."""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

from ldlm_monitor.logs.history.file_head import moments
from ldlm_monitor.logs.history.kinship import FIRST_LOSS, SHARED_STEPS, Losses, losses_in
from ldlm_monitor.logs.history.row_moments import row_moments
from ldlm_monitor.logs.parse.run_names import SAME_LAUNCH_SECONDS
from ldlm_monitor.logs.source.file_system import Disk

LOOK_BYTES = 16 * 1024
"""Bytes at a file's start and at its end that are looked at. A choice: a launch's first steps stand
in them, and the parser reads a megabyte a second."""
LINE_BYTES = 1024
"""Bytes up to the end of the first line with a loss, whose time is that of the last stamp there."""
_OWN_RANK = re.compile(
    rb"\[rank(\d{1,9})\]|\b(?:process|global)[_ ]?(?:rank|index)\W{1,3}(\d{1,9})\b", re.IGNORECASE
)
_WORLD = re.compile(
    rb"\b(?:world[_ ]?size|num[_ ]processes|nranks)\W{1,3}(\d{1,9})\b", re.IGNORECASE
)
_COMMUNICATOR = re.compile(rb"\bcommId (0x[0-9a-f]{4,16}) ")
"""NCCL's number of a communicator, which all ranks of it print."""
_LOSS_TEXT = re.compile(rb"(?i)loss[^\d\n]{1,16}([\d.e+-]{1,24})")


@dataclass(frozen=True, slots=True)
class Glance:
    """What a file holds of its launch. Times are Unix seconds, None where no line has one.

    `stepped` is that of the first loss, `printed` the text of the first
    different losses. `ranks`, `worlds`: what its
    lines call their own rank and the number of all. `file`: path, inode and size, to read losses.
    """

    file: tuple[str, int, int]
    disk: Disk
    start: float | None = None
    end: float | None = None
    stepped: float | None = None
    printed: tuple[bytes, ...] = ()
    ranks: frozenset[int] = frozenset()
    worlds: frozenset[int] = frozenset()
    communicators: frozenset[bytes] = frozenset()

    @property
    def losses(self) -> Losses:
        """Those of the file's first and last bytes; parsed once."""
        return _losses_of(*self.file, self.disk)[0]

    @property
    def total(self) -> float | None:
        """The number of all steps beside the last loss."""
        return _losses_of(*self.file, self.disk)[1]

    def begins_with(self, other: "Glance") -> bool:
        """Whether both begin within `SAME_LAUNCH_SECONDS`."""
        known = self.start is not None and other.start is not None
        return known and abs((self.start or 0.0) - (other.start or 0.0)) <= SAME_LAUNCH_SECONDS


def glance(path: str, disk: Disk) -> Glance:
    """What a file shows now. Raises `TimeoutError`."""
    try:
        status = disk.stat(Path(path))
    except TimeoutError:
        raise
    except OSError:  # the error is reported where the file is followed
        return Glance((path, 0, 0), disk)
    return _looked_at(path, status.st_ino, status.st_size, disk)


@lru_cache(maxsize=1024)  # files. A choice: more cost memory, fewer are looked at again
def _looked_at(path: str, inode: int, size: int, disk: Disk) -> Glance:
    file = (path, inode, size)
    head, tail = _ends(path, size, disk)
    start = next((when for _, when in row_moments(head)), None) or next(moments(head), None)
    end = max((when for _, when in row_moments(tail)), default=None) or max(
        moments(tail), default=None
    )
    loss = FIRST_LOSS.search(head)
    line = b"" if loss is None else head[: head.find(b"\n", loss.span()[0]) + 1]
    printed = dict.fromkeys(match[1] for match in _LOSS_TEXT.finditer(head))
    return Glance(
        file,
        disk,
        start,
        end,
        max(moments(line[-LINE_BYTES:]), default=None),
        tuple(islice(printed, SHARED_STEPS)),
        frozenset(int(one or other) for one, other in _OWN_RANK.findall(head)),
        frozenset(map(int, _WORLD.findall(head))),
        frozenset(_COMMUNICATOR.findall(head)),
    )


@lru_cache(maxsize=1024)  # files, as above
def _losses_of(path: str, inode: int, size: int, disk: Disk) -> tuple[Losses, float | None]:
    """The losses of whole lines of a file's first and last bytes, and the number of all steps."""
    del inode  # only a key, as another file may get the name
    head, tail = _ends(path, size, disk)
    after = tail[max(2 * LOOK_BYTES - size, 0) :] if size > LOOK_BYTES else b""
    return losses_in(
        Path(path),
        head[: head.rfind(b"\n") + 1] or head,
        after[after.find(b"\n") + 1 : after.rfind(b"\n") + 1],
    )


def _ends(path: str, size: int, disk: Disk) -> tuple[bytes, bytes]:
    try:
        head = disk.part(Path(path), 0, LOOK_BYTES)
        return head, disk.part(Path(path), max(size - LOOK_BYTES, 0), LOOK_BYTES)
    except TimeoutError:
        raise
    except OSError:  # the error is reported where the file is followed
        return b"", b""
