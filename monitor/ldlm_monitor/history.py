"""What files already hold, played in time order: finished logs, and a backlog at the start.

Nothing here is judged: bytes are placed in time (`run/timeline.py`) and merged over
files, so that rank 63 is not judged after rank 0's whole history.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ldlm_monitor.chunk import Chunk, ClockMark
from ldlm_monitor.parse import clock_marks
from ldlm_monitor.run.identity import RunNames
from ldlm_monitor.run.timeline import StepClock, Timeline, at_once, from_bars, from_rows, from_steps
from ldlm_monitor.source import DIRECT, Disk, LaunchFacts
from ldlm_monitor.source.excerpt import START_BYTES, Span, excerpt
from ldlm_monitor.source.split import CHUNK_BYTES, Splitter

BLOCK_BYTES = 8 * 1024 * 1024
ROWS_BUDGET = 8
HEAD_BYTES = 256 * 1024
"""Where a log says which launch it is."""
_DIRECTORY = re.compile(rb"^Working directory: (\S[^\r\n]*)", re.MULTILINE)
_NCCL_FILE = re.compile(rb"\bNCCL_DEBUG_FILE=([^\s'\"]+)")
_RUN_NAME = re.compile(rb"\blogging\.run_name=([^\s'\",\]]+)")
_CALLBACK_RUN = re.compile(
    rb'\{"schema": ?"ldlm\.health/1", ?"type": ?"run", ?"run": ?"([^"\\]{1,512})"'
)
_ROW_TIME = re.compile(rb'"(?:time|timestamp|_timestamp)":\s?(\d{9,}(?:\.\d+)?)')
NOMINAL_ROWS = 3_600
"""Rows of a file without any time are told apart up to this many, one a nominal second."""
_DISTANT_SECONDS = 0.2
"""Rows closer than this are fed together."""


@dataclass(slots=True)
class PlacedFile:
    """What is read of a file, and when it arrived; `chunks` are read as they are played."""

    path: str
    run: str
    timeline: Timeline
    chunks: Iterable[Chunk]


@dataclass(slots=True)
class History:
    """Several files, placed. `notices` say what of them was left out.

    `unreadable`: files of which nothing could be read, or not all, and why.
    """

    files: list[PlacedFile] = field(default_factory=list)
    unreadable: dict[Path, OSError] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)

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
        """Pieces of all files, each with its time, in time order.

        A file that cannot be read any more comes to no end: it is `unreadable` then.
        """
        tracks = [self._track(index, file) for index, file in enumerate(self.files)]
        for when, _, _, chunk in heapq.merge(*tracks):
            yield when, chunk

    def _track(self, index: int, file: PlacedFile) -> Iterator[tuple[float, int, int, Chunk]]:
        number = 0
        try:
            for chunk in file.chunks:
                for when, piece in file.timeline.split(chunk):
                    number += 1
                    yield when, index, number, piece
        except OSError as error:
            self.unreadable[Path(file.path)] = error


def place(
    paths: Iterable[Path],
    names: RunNames,
    *,
    budget: int | None = None,
    disk: Disk = DIRECT,
) -> History:
    """Place files in time: progress bars first, whose clock step logs without times borrow.

    `budget`: bytes of a log that are read at most, its start and its end, and
    `ROWS_BUDGET` times as many of JSON lines, which are read faster. None: all.
    """
    clocks: dict[str, StepClock] = {}
    history = History()
    rows: list[Path] = []
    for path in paths:
        try:
            if is_rows(path, disk):
                name_by_content(path, names, disk)
                rows.append(path)
            else:
                _place_text(history, _Content(path, budget, disk), names, clocks)
        except OSError as error:
            history.unreadable[path] = error
    for path in rows:
        try:
            content = _Content(path, None if budget is None else ROWS_BUDGET * budget, disk)
            clock = clocks.get(names.origin(str(path)).run)
            _add(history, content, names, _row_timeline(content, clock))
        except OSError as error:
            history.unreadable[path] = error
    return history


def _place_text(
    history: History, content: _Content, names: RunNames, clocks: dict[str, StepClock]
) -> None:
    placed = from_bars(content.marks(), content.written_at)
    timeline = at_once(content.written_at)
    if placed is not None:
        timeline, clock = placed
        clocks.setdefault(names.origin(str(content.path)).run, clock)
    _add(history, content, names, timeline)


def _add(history: History, content: _Content, names: RunNames, timeline: Timeline) -> None:
    path = str(content.path)
    if content.note:
        history.notices.append(f"{path}: {content.note}")
        timeline = timeline.without_start()
    chunks = content.chunks()
    history.files.append(PlacedFile(path, names.origin(path).run, timeline, chunks))


def place_stream(name: str, stream: BinaryIO, names: RunNames, now: float) -> PlacedFile:
    """A stream that ends, such as standard input of `--once`: all of it at `now`."""
    splitter = Splitter(name, (0, 0, 0))
    chunks = _split(stream, splitter, None)
    return PlacedFile(name, names.origin(name).run, at_once(now), chunks)


def launch_facts(log: Path, disk: Disk = DIRECT) -> LaunchFacts:
    """What a log says of its launch, for finding the files that belong to it.

    Raises `TimeoutError` where its server does not answer.
    """
    try:
        with disk.reader(log) as file:
            head = file.read(HEAD_BYTES)
    except TimeoutError:
        raise
    except OSError:
        return LaunchFacts()
    directory, nccl = (pattern.search(head) for pattern in (_DIRECTORY, _NCCL_FILE))
    names = {_text(name) for name in _RUN_NAME.findall(head)}
    return LaunchFacts(
        working_directory=_text(directory[1]) if directory else None,
        run_names=tuple(sorted(names)),
        nccl_debug_file=_text(nccl[1]) if nccl else None,
    )


def has_bars(log: Path, disk: Disk = DIRECT) -> bool:
    """Whether the training loop has begun, by a progress bar near the log's start or end."""
    with disk.reader(log) as file:
        size = disk.fstat(file.fileno()).st_size
        head = file.read(HEAD_BYTES)
        file.seek(max(size - HEAD_BYTES, 0))
        return any(True for block in (head, file.read()) for _ in clock_marks(block))


def name_by_content(path: Path, names: RunNames, disk: Disk = DIRECT) -> None:
    """The callback writes its run's name into the first row of its file: that name counts."""
    if names.is_tied(str(path)):
        return
    with disk.reader(path) as file:
        told = _CALLBACK_RUN.match(file.read(HEAD_BYTES).split(b"\n", 1)[0])
    if told is not None:
        names.tie(str(path), _text(told[1]))


def is_rows(path: Path, disk: Disk = DIRECT) -> bool:
    """Whether the file begins like JSON lines."""
    with disk.reader(path) as file:
        return file.read(256).lstrip()[:1] == b"{"


class _Content:
    """The parts of a file that are read: all of it, or its start and its end."""

    def __init__(self, path: Path, budget: int | None, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        with disk.reader(path) as file:
            status = disk.fstat(file.fileno())
            self.written_at = status.st_mtime
            self._identity = (status.st_dev, status.st_ino, 0)
            self._spans: tuple[Span, ...] = (Span(0, status.st_size, 1),)
            self.note = ""
            if budget is not None and status.st_size > budget:
                start = min(START_BYTES, budget // 2)
                parts = excerpt(
                    file.fileno(), status.st_size, budget=budget, start=start, disk=disk
                )
                self._spans, self.note = parts.spans(), parts.note(skipped=True)

    @property
    def last(self) -> Span:
        """The part that ends where the file does."""
        return self._spans[-1]

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """The last part in blocks that end where a record ends, with their offsets."""
        with self._disk.reader(self.path) as file:
            offset, rest = self.last.start, b""
            file.seek(offset)
            while read := file.read(min(BLOCK_BYTES, self.last.end - offset - len(rest))):
                data = rest + read
                end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 or len(data)
                yield offset, data[:end]
                offset, rest = offset + end, data[end:]
            if rest:
                yield offset, rest

    def marks(self) -> Iterator[ClockMark]:
        """Steps, and what bars tell of time."""
        for offset, block in self.blocks():
            yield from clock_marks(block, offset)

    def row_times(self) -> Iterator[tuple[int, float]]:
        """Offsets of rows that tell their time, not too close to each other."""
        last = -1.0
        for offset, block in self.blocks():
            for match in _ROW_TIME.finditer(block):
                when = float(match[1])
                if when - last >= _DISTANT_SECONDS:
                    last = when
                    yield offset + block.rfind(b"\n", 0, match.start()) + 1, when

    def row_offsets(self) -> Iterator[int]:
        """Where rows begin: every one of a short file, evenly spaced ones of a long file."""
        rows = sum(block.count(b"\n") for _, block in self.blocks())
        start, size = self.last.start, self.last.size
        with self._disk.reader(self.path) as file:
            file.seek(start)
            if rows <= NOMINAL_ROWS:
                for line in file:
                    yield start
                    start += len(line)
                return
            last = -1
            for index in range(NOMINAL_ROWS):
                file.seek(start + index * size // NOMINAL_ROWS)
                offset = file.tell() + (len(file.readline()) if index else 0)
                if last < offset < self.last.end:
                    last = offset
                    yield offset

    def chunks(self) -> Iterator[Chunk]:
        """The parts in order; the last chunk is `final`."""
        with self._disk.reader(self.path) as file:
            for span in self._spans:
                file.seek(span.start)
                splitter = Splitter(
                    str(self.path), self._identity, offset=span.start, line=span.line
                )
                for chunk in _split(file, splitter, span.size):
                    if not chunk.final or span is self.last:
                        yield chunk


def _row_timeline(content: _Content, clock: StepClock | None) -> Timeline:
    times = list(content.row_times())
    if times:
        return Timeline([0, *(offset for offset, _ in times[1:])], [when for _, when in times])
    if clock is not None:
        return from_steps(content.marks(), clock)
    offsets = list(content.row_offsets())
    return from_rows([0, *offsets[1:]], content.written_at)


def _split(file: BinaryIO, splitter: Splitter, size: int | None) -> Iterator[Chunk]:
    left = size
    while data := file.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left)):
        left = None if left is None else left - len(data)
        yield from splitter.feed(data, 0.0)
    yield splitter.finish()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()
