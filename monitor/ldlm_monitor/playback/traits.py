"""The facts in which launches differ, by the first and last bytes of a file."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ldlm_monitor.model.chunk import Chunk, Origin
from ldlm_monitor.model.records import Sample
from ldlm_monitor.parse import Parser
from ldlm_monitor.parse.patterns import compile_pattern
from ldlm_monitor.playback.content import (
    HEAD_BYTES,
    callback_header,
    first_moment,
    part,
    row_moments,
)
from ldlm_monitor.run.run_names import launch_time
from ldlm_monitor.source.file_system import Disk

LOOKS = (1024, 16 * 1024)
"""Bytes, where losses begin and at a log's end, that are compared with a file: the second if the
first share too few steps. A choice: the parser reads a megabyte a second, and logs are many."""
FEW_BYTES = 16 * 1024  # up to here, each row more is looked at; a choice, it takes 20 ms at most
_LOSS = compile_pattern(r"(?i)loss\D{1,16}\d")


@dataclass(slots=True)
class Traits:
    """The facts in which launches differ. Times are Unix seconds; `start` is None if unknown.

    `path` and `inode` are of the file, whose first `size` bytes are looked at. `run`: the name in a
    callback's first row. `processes`: HOST:PID of the callback, or of NCCL's lines in a log.
    """

    path: Path
    inode: int
    size: int
    disk: Disk
    start: float | None
    end: float
    run: str | None = None
    processes: frozenset[str] = frozenset()

    def losses(self, look: int) -> dict[int, list[float]]:
        """The finite losses at each step, in `look` first and last bytes."""
        return _losses(self.path, self.inode, self.size, look, self.disk)


_PROCESS = re.compile(rb"(?m)([\w.-]{1,253}:\d{1,10}):\d{1,10} \[\d{1,5}\] NCCL ")
"""NCCL's HOST:PID:THREAD [GPU]; 253 characters are the longest name of a host."""


def traits_of(path: Path, disk: Disk) -> Traits:
    """The traits of a file, by its first and last bytes. Raises `TimeoutError`."""
    try:
        status = disk.stat(path)
    except TimeoutError:
        raise
    except OSError:  # the error is reported where the file is followed
        return Traits(path, 0, 0, disk, None, math.inf)
    size, end = status.st_size, status.st_mtime
    if path.suffix == ".jsonl":
        end = _last_row(path, size, end, disk)
    # In eighths of it or less: a file that grows is not looked at again for each row.
    seen = size if size < FEW_BYTES else size - size % (1 << (size.bit_length() - 4))
    start, run, processes = _launch(path, status.st_ino, min(seen, HEAD_BYTES), disk)
    return Traits(path, status.st_ino, seen, disk, start, end, run, processes)


@lru_cache(maxsize=1)
def _parser() -> Parser:
    """One for all files, since it is slow to make; a chunk that is `final` leaves nothing in it."""
    return Parser()


@lru_cache(maxsize=1024)  # files. A choice: more cost memory, fewer are read again at each search
def _last_row(path: Path, size: int, written_at: float, disk: Disk) -> float:
    tail = part(path, max(size - LOOKS[1], 0), disk)
    return max((when for _, when in row_moments(tail)), default=written_at)


@lru_cache(maxsize=4096)  # logs and files; each takes 200 bytes
def _launch(
    path: Path, inode: int, size: int, disk: Disk
) -> tuple[float | None, str | None, frozenset[str]]:
    """The first time, the callback's run and the processes in a file's first `size` bytes."""
    del inode  # only a key, as another file may get the name
    head = part(path, 0, disk)[:size]
    found = _PROCESS.findall(head) if b"] NCCL " in head else ()
    named = {each.decode("ascii", "replace") for each in found}
    header = callback_header(head)
    start = next((when for _, when in row_moments(head)), None)
    start = start or launch_time(str(path)) or first_moment(head)
    if header is None:
        return start, None, frozenset(named)
    return start, str(header["run"]), frozenset({f"{header.get('host')}:{header.get('pid')}"})


@lru_cache(maxsize=1024)  # looks. A choice: more cost memory, fewer are repeated at each search
def _losses(path: Path, inode: int, size: int, look: int, disk: Disk) -> dict[int, list[float]]:
    del inode  # only a key, as in `_launch`
    losses: dict[int, list[float]] = {}
    for data in _looked_at(path, size, look, disk):
        chunk = Chunk(str(path), (0, 0, 0), 0, 1, data, final=True)
        for each in _parser().feed(chunk, Origin(""), 0.0):
            loss = each.values.get("loss", math.nan) if isinstance(each, Sample) else math.nan
            if isinstance(each, Sample) and each.step is not None and math.isfinite(loss):
                losses.setdefault(each.step, []).append(loss)
    return losses


def _looked_at(path: Path, size: int, look: int, disk: Disk) -> Iterator[bytes]:
    """`look` bytes from the first loss on, and the last ones, of the first `size` bytes."""
    head = part(path, 0, disk)[:size]
    first = _LOSS.search(head)
    start = 0 if first is None else max(head.rfind(b"\n", 0, first.span()[0]), 0)
    if first is not None:
        yield head[start : start + look]
    after = max(size - look, min(start + look, HEAD_BYTES))
    if after < size:
        tail = part(path, after, disk)[: size - after]
        yield tail[tail.find(b"\n") + 1 :]


def as_it_is(file: Traits) -> Traits:
    """The traits with the file's exact size."""
    try:
        return replace(file, size=file.disk.stat(file.path).st_size)
    except TimeoutError:
        raise
    except OSError:
        return file
