"""What files already hold, played in time order: finished logs, and a backlog at the start.

Nothing here is judged: bytes are placed in time (`run/timeline.py`) and merged over
files, so that rank 63 is not judged after rank 0's whole history.
"""

from __future__ import annotations

import heapq
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeAlias

from ldlm_monitor.chunk import Chunk, ClockMark
from ldlm_monitor.continued import UNSEEN, ContinuedFile, Piece
from ldlm_monitor.parse import clock_marks
from ldlm_monitor.parse.patterns import compile_pattern
from ldlm_monitor.run.identity import RunNames
from ldlm_monitor.run.timeline import StepClock, Timeline, at_once, from_bars, from_rows, from_steps
from ldlm_monitor.source import LaunchFacts
from ldlm_monitor.source.excerpt import START_BYTES, Span, excerpt
from ldlm_monitor.source.split import CHUNK_BYTES, RECORD_BYTES, Splitter, after_last_end

ROWS_BUDGET = 8
BEFORE_BYTES = 64 * 1024
HEAD_BYTES = 256 * 1024
"""Where a log says which launch it is."""
_DIRECTORY = re.compile(rb"^Working directory: (\S[^\r\n]*)", re.MULTILINE)
_NCCL_FILE = re.compile(rb"\bNCCL_DEBUG_FILE=([^\s'\"]+)")
_RUN_NAME = re.compile(rb"\blogging\.run_name=([^\s'\",\]]+)")
_CALLBACK_RUN = re.compile(
    rb'\{"schema": ?"ldlm\.health/1", ?"type": ?"run", ?"run": ?"([^"\\]{1,512})"'
)
_ROW_TIME = re.compile(rb'"(?:time|timestamp|_timestamp)":\s?(\d{9,}(?:\.\d+)?)')
_TIME_KEY = compile_pattern(r'"(?:time|timestamp|_timestamp)":')
"""Where `_ROW_TIME` can be: re2 says no twice as fast, and yes half as fast."""
NOMINAL_ROWS = 3_600
"""Rows of a file without any time are told apart up to this many, one a nominal second."""
APART_SECONDS = 0.2
"""Rows that tell their times come together where they span less than this."""
ALONE_APART_SECONDS = 5.0
"""The same where nothing else can fall between them, because there is no other file."""


@dataclass(slots=True)
class PlacedFile:
    """What is read of a file, and when it arrived; `chunks` are read as they are played."""

    path: str
    run: str
    timeline: Timeline
    chunks: Iterable[Chunk]

    def pieces(self) -> Iterator[Piece]:
        """Pieces with their times, and their order among those of the same time."""
        for chunk in self.chunks:
            for when, piece in self.timeline.split(chunk):
                yield when, UNSEEN, piece


Played: TypeAlias = "PlacedFile | ContinuedFile"


@dataclass(slots=True)
class History:
    """Several files, placed. `notices` say what of them was left out.

    `unreadable`: files of which nothing could be read, and why.
    """

    files: list[Played] = field(default_factory=list)
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

    def play(self) -> Iterator[tuple[float, Chunk, Played]]:
        """Pieces of all files, each with its time and its file, in time order."""
        tracks = [_track(index, file) for index, file in enumerate(self.files)]
        for when, _, index, _, chunk in heapq.merge(*tracks):
            yield when, chunk, self.files[index]


def place(
    paths: Iterable[Path],
    names: RunNames,
    *,
    budget: int | None = None,
    continued: Sequence[ContinuedFile] = (),
    floor: float = -math.inf,
    apart: float = APART_SECONDS,
) -> History:
    """Place files in time: progress bars first, whose clock step logs without times borrow.

    `budget`: bytes of a log that are read at most, its start and its end, and
    `ROWS_BUDGET` times as many of JSON lines, which are read faster. None: all.
    `continued`: files that are read on; what they got unseen came not before `floor`.
    `apart`: rows that tell their times come in pieces that span less than these seconds,
    each at the time of its last row.
    """
    clocks: dict[str, StepClock] = {}
    history = History()
    rows: list[Path] = []
    for file in sorted(continued, key=lambda file: file.is_rows):
        try:
            estimate = _estimate(file, clocks)
        except OSError:
            estimate = at_once(file.continuation.modified)
        file.place(estimate, floor)
        history.files.append(file)
    for path in paths:
        try:
            if is_rows(path):
                name_by_content(path, names)
                rows.append(path)
            else:
                _place_text(history, _Content(path, budget), names, clocks)
        except OSError as error:
            history.unreadable[path] = error
    for path in rows:
        try:
            content = _Content(path, None if budget is None else ROWS_BUDGET * budget)
            clock = clocks.get(names.origin(str(path)).run)
            _add(history, content, names, _row_timeline(content, clock, apart))
        except OSError as error:
            history.unreadable[path] = error
    return history


def _estimate(file: ContinuedFile, clocks: dict[str, StepClock]) -> Timeline:
    """When the bytes came that a file got unseen."""
    content = _Content(file.continuation.place, None, start=file.seen_to)
    if file.is_rows:
        return _row_timeline(content, clocks.get(file.run), APART_SECONDS)
    before = clock_marks(content.before(), max(0, file.seen_to - BEFORE_BYTES))
    known = None
    if before and (at := file.seen_at(before[-1].offset)) is not None:
        known = before[-1], at
    placed = from_bars(content.marks(), content.written_at, known)
    if placed is None:
        return at_once(content.written_at)
    clocks.setdefault(file.run, placed[1])
    return placed[0]


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


def name_by_content(path: Path, names: RunNames) -> None:
    """The callback writes its run's name into the first row of its file: that name counts."""
    if names.is_tied(str(path)):
        return
    with path.open("rb") as file:
        told = _CALLBACK_RUN.match(file.read(HEAD_BYTES).split(b"\n", 1)[0])
    if told is not None:
        names.tie(str(path), _text(told[1]))


def is_rows(path: Path) -> bool:
    """Whether the file begins like JSON lines."""
    with path.open("rb") as file:
        return file.read(256).lstrip()[:1] == b"{"


class _Content:
    """The parts of a file that are read: all of it from `start` on, or its start and its end."""

    def __init__(self, path: Path, budget: int | None, *, start: int = 0) -> None:
        self.path = path
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            self.written_at = status.st_mtime
            self._identity = (status.st_dev, status.st_ino, 0)
            self._spans: tuple[Span, ...] = (Span(start, max(start, status.st_size), 1),)
            self.note = ""
            if budget is not None and status.st_size > budget:
                start = min(START_BYTES, budget // 2)
                parts = excerpt(file.fileno(), status.st_size, budget=budget, start=start)
                self._spans, self.note = parts.spans(), parts.note(skipped=True)

    @property
    def last(self) -> Span:
        """The part that ends where the file does."""
        return self._spans[-1]

    def before(self) -> bytes:
        """What stands before the last part, as far as a progress bar is worth looking for."""
        with self.path.open("rb") as file:
            start = max(0, self.last.start - BEFORE_BYTES)
            file.seek(start)
            return file.read(self.last.start - start)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """The last part in blocks that end where a record ends, with their offsets."""
        with self.path.open("rb", buffering=0) as file:
            offset, rest = self.last.start, b""
            file.seek(offset)
            while read := file.read(min(CHUNK_BYTES, self.last.end - offset - len(rest))):
                end = after_last_end(read)
                if not end and len(rest) < RECORD_BYTES:
                    rest += read
                    continue
                end = end or len(read)
                block = b"".join((rest, memoryview(read)[:end]))
                yield offset, block
                offset, rest = offset + len(block), read[end:]
            if rest:
                yield offset, rest

    def marks(self, *, rows: bool = False) -> Iterator[ClockMark]:
        """Steps of rows, or of bars and what they tell of time."""
        for offset, block in self.blocks():
            yield from clock_marks(block, offset, rows=rows)

    def row_times(self, apart: float) -> Iterator[tuple[int, float]]:
        """Where rows begin that span less than `apart` seconds, and the last time they tell.

        The first row is alone: what comes before it and tells no time takes its time.
        """
        begin, first, last = -1, -math.inf, -math.inf
        for offset, block in self.blocks():
            if _TIME_KEY.search(block) is None:
                continue
            for match in _ROW_TIME.finditer(block):
                when = float(match[1])
                if when - first < apart:
                    last = max(last, when)
                    continue
                if begin >= 0:
                    yield begin, last
                first, last = -math.inf if begin < 0 else when, when
                begin = offset + block.rfind(b"\n", 0, match.start()) + 1
        if begin >= 0:
            yield begin, last

    def row_offsets(self) -> Iterator[int]:
        """Where rows begin: every one of a short file, evenly spaced ones of a long file."""
        rows = 0
        for _, block in self.blocks():
            rows += block.count(b"\n")
            if rows > NOMINAL_ROWS:
                break
        start, size = self.last.start, self.last.size
        with self.path.open("rb") as file:
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
        with self.path.open("rb") as file:
            for span in self._spans:
                file.seek(span.start)
                splitter = Splitter(
                    str(self.path), self._identity, offset=span.start, line=span.line
                )
                for chunk in _split(file, splitter, span.size):
                    if not chunk.final or span is self.last:
                        yield chunk


def _row_timeline(content: _Content, clock: StepClock | None, apart: float) -> Timeline:
    times = list(content.row_times(apart))
    if times:
        return Timeline([0, *(offset for offset, _ in times[1:])], [when for _, when in times])
    if clock is not None:
        return from_steps(content.marks(rows=True), clock)
    offsets = list(content.row_offsets())
    return from_rows([0, *offsets[1:]], content.written_at)


def _split(file: BinaryIO, splitter: Splitter, size: int | None) -> Iterator[Chunk]:
    left = size
    while data := file.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left)):
        left = None if left is None else left - len(data)
        yield from splitter.feed(data, 0.0)
    yield splitter.finish()


def _track(index: int, file: Played) -> Iterator[tuple[float, tuple[float, int], int, int, Chunk]]:
    latest = -math.inf
    for number, (when, order, chunk) in enumerate(file.pieces()):
        latest = max(latest, when)  # a clock that was set back
        yield latest, order, index, number, chunk


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()
