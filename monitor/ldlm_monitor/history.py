"""What files already hold, played in time order: finished logs, and a backlog at the start.

Nothing here is judged: bytes are placed in time (`run/timeline.py`) and merged over
files, so that rank 63 is not judged after rank 0's whole history.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ldlm_monitor.chunk import Chunk, ClockMark
from ldlm_monitor.parse import clock_marks
from ldlm_monitor.run.identity import RunNames
from ldlm_monitor.run.timeline import StepClock, Timeline, at_once, from_bars, from_rows, from_steps
from ldlm_monitor.source import LaunchFacts
from ldlm_monitor.source.split import CHUNK_BYTES, Splitter

BLOCK_BYTES = 8 * 1024 * 1024
HEAD_BYTES = 256 * 1024
"""Where a log says which launch it is."""
_DIRECTORY = re.compile(rb"^Working directory: (\S[^\r\n]*)", re.MULTILINE)
_NCCL_FILE = re.compile(rb"\bNCCL_DEBUG_FILE=([^\s'\"]+)")
_RUN_NAME = re.compile(rb"\blogging\.run_name=([^\s'\",\]]+)")
_ROW_TIME = re.compile(rb'"(?:time|timestamp|_timestamp)":\s?(\d{9,}(?:\.\d+)?)')
NOMINAL_ROWS = 14_400
"""Rows of a file without any time are told apart up to this many, one a nominal second."""
_DISTANT_SECONDS = 0.2
"""Rows closer than this are fed together."""


@dataclass(slots=True)
class PlacedFile:
    """A file's content up to `size`, and when it arrived. `chunks` are read as they are played."""

    path: str
    run: str
    size: int
    timeline: Timeline
    chunks: Iterable[Chunk]


@dataclass(slots=True)
class History:
    """Several files, placed."""

    files: list[PlacedFile] = field(default_factory=list)

    @property
    def end(self) -> float:
        """When the last byte of all files arrived."""
        return max((file.timeline.end for file in self.files), default=0.0)

    @property
    def untimed_runs(self) -> frozenset[str]:
        """Runs of which only the order is known, no time."""
        timed = {file.run for file in self.files if file.timeline.timed}
        return frozenset(file.run for file in self.files) - timed

    def play(self) -> Iterator[tuple[float, Chunk]]:
        """Pieces of all files, each with its time, in time order."""
        tracks = [_track(index, file) for index, file in enumerate(self.files)]
        for when, _, _, chunk in heapq.merge(*tracks):
            yield when, chunk


def place(paths: Iterable[Path], names: RunNames) -> History:
    """Place files in time: progress bars first, whose clock step logs without times borrow."""
    clocks: dict[str, StepClock] = {}
    history = History()
    rows: list[Path] = []
    for path in paths:
        if is_rows(path):
            rows.append(path)
            continue
        status = path.stat()
        placed = from_bars(_marks(path, status.st_size), status.st_mtime)
        timeline = at_once(status.st_mtime)
        if placed is not None:
            timeline, clock = placed
            clocks.setdefault(names.origin(str(path)).run, clock)
        history.files.append(_placed(path, names, status.st_size, timeline))
    for path in rows:
        status = path.stat()
        timeline = _row_timeline(path, status, clocks.get(names.origin(str(path)).run))
        history.files.append(_placed(path, names, status.st_size, timeline))
    return history


def place_stream(name: str, stream: BinaryIO, names: RunNames, now: float) -> PlacedFile:
    """A stream that ends, such as standard input of `--once`: all of it at `now`."""
    splitter = Splitter(name, (0, 0, 0))
    chunks = _split(stream, splitter, None)
    return PlacedFile(name, names.origin(name).run, 0, at_once(now), chunks)


def launch_facts(log: Path) -> LaunchFacts:
    """What a log says of its launch, for finding the files that belong to it."""
    try:
        with log.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return LaunchFacts()
    directory, nccl = (pattern.search(head) for pattern in (_DIRECTORY, _NCCL_FILE))
    names = {_text(name) for name in _RUN_NAME.findall(head)}
    return LaunchFacts(
        working_directory=_text(directory[1]) if directory else None,
        run_names=tuple(sorted(names)),
        nccl_debug_file=_text(nccl[1]) if nccl else None,
    )


def has_bars(log: Path) -> bool:
    """Whether the training loop has begun, by a progress bar near the log's start or end."""
    with log.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEAD_BYTES)
        file.seek(max(size - HEAD_BYTES, 0))
        return any(True for block in (head, file.read()) for _ in clock_marks(block))


def is_rows(path: Path) -> bool:
    """Whether the file begins like JSON lines."""
    with path.open("rb") as file:
        return file.read(256).lstrip()[:1] == b"{"


def _placed(path: Path, names: RunNames, size: int, timeline: Timeline) -> PlacedFile:
    return PlacedFile(str(path), names.origin(str(path)).run, size, timeline, _read(path, size))


def _row_timeline(path: Path, status: os.stat_result, clock: StepClock | None) -> Timeline:
    times = list(_row_times(path, status.st_size))
    if times:
        return Timeline([0, *(offset for offset, _ in times[1:])], [when for _, when in times])
    if clock is not None:
        marks = _marks(path, status.st_size)
        if timeline := from_steps(marks, clock):
            return timeline
    return from_rows(list(_row_offsets(path, status.st_size)), status.st_mtime)


def _row_offsets(path: Path, size: int) -> Iterator[int]:
    """Where rows begin: every one of a short file, evenly spaced ones of a long file."""
    with path.open("rb") as file:
        rows = sum(block.count(b"\n") for block in iter(lambda: file.read(BLOCK_BYTES), b""))
        if rows <= NOMINAL_ROWS:
            file.seek(0)
            offset = 0
            for line in file:
                yield offset
                offset += len(line)
            return
        last = -1
        for index in range(NOMINAL_ROWS):
            file.seek(index * size // NOMINAL_ROWS)
            offset = file.tell() + (len(file.readline()) if index else 0)
            if last < offset < size:
                last = offset
                yield offset


def _marks(path: Path, size: int) -> Iterator[ClockMark]:
    for offset, block in _blocks(path, size):
        yield from clock_marks(block, offset)


def _row_times(path: Path, size: int) -> Iterator[tuple[int, float]]:
    last = -1.0
    for offset, block in _blocks(path, size):
        for match in _ROW_TIME.finditer(block):
            when = float(match[1])
            if when - last >= _DISTANT_SECONDS:
                last = when
                yield offset + block.rfind(b"\n", 0, match.start()) + 1, when


def _blocks(path: Path, size: int) -> Iterator[tuple[int, bytes]]:
    """Blocks that end where a record ends, with their offsets."""
    with path.open("rb") as file:
        offset, rest = 0, b""
        while read := file.read(min(BLOCK_BYTES, size - offset - len(rest))):
            data = rest + read
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 or len(data)
            yield offset, data[:end]
            offset, rest = offset + end, data[end:]
        if rest:
            yield offset, rest


def _read(path: Path, size: int) -> Iterator[Chunk]:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        splitter = Splitter(str(path), (status.st_dev, status.st_ino, 0))
        yield from _split(file, splitter, size)


def _split(file: BinaryIO, splitter: Splitter, size: int | None) -> Iterator[Chunk]:
    left = size
    while data := file.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left)):
        left = None if left is None else left - len(data)
        yield from splitter.feed(data, 0.0)
    yield splitter.finish()


def _track(index: int, file: PlacedFile) -> Iterator[tuple[float, int, int, Chunk]]:
    number = 0
    for chunk in file.chunks:
        for when, piece in file.timeline.split(chunk):
            number += 1
            yield when, index, number, piece


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()
