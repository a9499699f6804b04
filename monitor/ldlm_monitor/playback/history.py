"""What files already hold, played in time order: finished logs, and a backlog at the start.

Nothing here is judged: bytes are placed in time (`run/timeline.py`) and merged over
files, so that rank 63 is not judged after rank 0's whole history.
"""

from __future__ import annotations

import heapq
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeAlias

from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.parse import clock_marks
from ldlm_monitor.playback.content import BEFORE_BYTES, Content, row_timeline, split
from ldlm_monitor.playback.resumed_file import UNSEEN, Piece, ResumedFile
from ldlm_monitor.run.identity import RunNames
from ldlm_monitor.run.timeline import StepClock, Timeline, at_once, from_bars
from ldlm_monitor.source import DIRECT, Disk, LaunchFacts
from ldlm_monitor.source.split import Splitter

ROWS_BUDGET = 8
HEAD_BYTES = 256 * 1024
"""Where a log says which launch it is."""
_DIRECTORY = re.compile(
    rb"^(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d )?Working directory: (\S[^\r\n]*)", re.MULTILINE
)
"""As MM-LDLM's trainer prints it; `ldlm_trainer` puts the time before it."""
_NCCL_FILE = re.compile(rb"\bNCCL_DEBUG_FILE=([^\s'\"]+)")
_RUN_NAME = re.compile(rb"\blogging\.run_name=([^\s'\",\]]+)")
_CALLBACK_SCHEMA = "ldlm.health/"
APART_SECONDS = 0.2
"""Rows that tell their times come together where they span less than this."""
ALONE_APART_SECONDS = 5.0
"""The same where nothing else can fall between them, because there is no other file."""
EXACT_APART_SECONDS = 0.0
"""The same where rows of several files are to come in the very order of their times."""


@dataclass(slots=True)
class PlacedFile:
    """What is read of a file, and when it arrived; `chunks` are read as they are played.

    `written_at` (Unix seconds): the last time.
    """

    path: str
    run: str
    timeline: Timeline
    chunks: Iterable[Chunk]
    written_at: float = 0.0

    def pieces(self) -> Iterator[Piece]:
        """Pieces with their times, and their order among those of the same time."""
        for chunk in self.chunks:
            for when, piece in self.timeline.split(chunk):
                yield when, UNSEEN, piece


Played: TypeAlias = "PlacedFile | ResumedFile"


@dataclass(slots=True)
class History:
    """Several files, placed. `notices` say what of them was left out.

    `unreadable`: files of which nothing could be read, or not all, and why. `size`: bytes
    that are read.
    """

    files: list[Played] = field(default_factory=list)
    unreadable: dict[Path, OSError] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    size: int = 0

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
        """Pieces of all files, each with its time and its file, in time order.

        A file that cannot be read any more comes to no end: it is `unreadable` then.
        """
        for when, _, chunk, file in self.in_order():
            yield when, chunk, file

    def in_order(self) -> Iterator[tuple[float, float, Chunk, Played]]:
        """The same, each with its order among those of the same time."""
        tracks = [self._track(index, file) for index, file in enumerate(self.files)]
        for when, order, index, _, chunk in heapq.merge(*tracks):
            yield when, order, chunk, self.files[index]

    def _track(self, index: int, file: Played) -> Iterator[tuple[float, float, int, int, Chunk]]:
        latest = -math.inf
        try:
            for number, (when, order, chunk) in enumerate(file.pieces()):
                latest = max(latest, when)  # a clock that was set back
                yield latest, order, index, number, chunk
        except OSError as error:
            self.unreadable[Path(file.path)] = error


def place(
    paths: Iterable[Path],
    names: RunNames,
    *,
    budget: int | None = None,
    continued: Sequence[ResumedFile] = (),
    floor: float = -math.inf,
    apart: float = APART_SECONDS,
    disk: Disk = DIRECT,
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
        file.timeline = _joined(file, clocks, floor)
        history.files.append(file)
        history.size += file.size
    for path in paths:
        try:
            if is_rows(path, disk):
                name_by_content(path, names, disk)
                rows.append(path)
                continue
            content = Content(path, budget, disk)
            if content.form == "text":
                _place_text(history, content, names, clocks, apart)
            else:
                _add(history, content, names, row_timeline(content, None, apart))
        except OSError as error:
            history.unreadable[path] = error
    for path in rows:
        try:
            content = Content(path, None if budget is None else ROWS_BUDGET * budget, disk)
            clock = clocks.get(names.origin(str(path)).run)
            _add(history, content, names, row_timeline(content, clock, apart))
        except OSError as error:
            history.unreadable[path] = error
    return history


def _joined(file: ResumedFile, clocks: dict[str, StepClock], floor: float) -> Timeline:
    """When the bytes of a file came: as was seen, and else as is estimated.

    What came while nothing ran came after all that had been seen: not before `floor`.
    """
    parts: list[tuple[int, float, Timeline]] = []
    earliest = -math.inf
    for start, stretch in file.stretches():
        if isinstance(stretch, Timeline):
            parts.append((start, -math.inf, stretch))
            earliest = stretch.end
            continue
        is_last = stretch.stop is None
        try:
            estimate = _estimate(file, file.content(stretch), clocks)
        except OSError:
            estimate = at_once(file.continuation.modified)
        parts.append((start, floor if is_last else earliest, estimate))
    return Timeline.joined(parts)


def _estimate(file: ResumedFile, content: Content, clocks: dict[str, StepClock]) -> Timeline:
    """When the bytes came that a file got unseen."""
    if file.is_rows or content.is_stamped or content.form in ("frames", "metric"):
        return row_timeline(content, clocks.get(file.run), APART_SECONDS)
    start = content.last.start
    before = [
        mark
        for mark in clock_marks(content.before(), max(0, start - BEFORE_BYTES))
        if not mark.inner
    ]
    known = None
    if before and (at := file.seen_at(before[-1].offset)) is not None:
        known = before[-1], at
    placed = from_bars(content.marks(), content.written_at, known)
    if placed is None:
        return at_once(content.written_at)
    clocks.setdefault(file.run, placed[1])
    return placed[0].without_start() if content.note else placed[0]


def _place_text(
    history: History,
    content: Content,
    names: RunNames,
    clocks: dict[str, StepClock],
    apart: float,
) -> None:
    placed = from_bars(content.marks(), content.written_at)
    timeline = at_once(content.written_at)
    if placed is not None:
        timeline, clock = placed
        clocks.setdefault(names.origin(str(content.path)).run, clock)
    if content.is_stamped:
        timeline = row_timeline(content, None, apart)
    _add(history, content, names, timeline)


def _add(history: History, content: Content, names: RunNames, timeline: Timeline) -> None:
    path = str(content.path)
    if content.note:
        history.notices.append(f"{path}: {content.note}")
        timeline = timeline.without_start()
    chunks = content.chunks()
    history.size += content.size
    run = names.origin(path).run
    history.files.append(PlacedFile(path, run, timeline, chunks, content.written_at))


def place_stream(name: str, stream: BinaryIO, names: RunNames, now: float) -> PlacedFile:
    """A stream that ends, such as standard input of `--once`: all of it at `now`."""
    splitter = Splitter(name, (0, 0, 0))
    chunks = split(stream, splitter, None)
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
        blocks = (head, file.read())
        return any(not mark.inner for block in blocks for mark in clock_marks(block))


def name_by_content(path: Path, names: RunNames, disk: Disk = DIRECT) -> None:
    """The callback writes its run's name into the first row of its file: that name counts."""
    if not names.is_tied(str(path)) and (told := callback_run(path, disk)) is not None:
        names.tie(str(path), told)


def callback_run(path: Path, disk: Disk = DIRECT) -> str | None:
    """The run's name as the callback wrote it into a file's first row; None: it did not.

    Raises `TimeoutError` where its server does not answer.
    """
    try:
        with disk.reader(path) as file:
            header = json.loads(file.read(HEAD_BYTES).split(b"\n", 1)[0])
        ours = header["type"] == "run" and header["schema"].startswith(_CALLBACK_SCHEMA)
        return str(header["run"]) if ours else None
    except TimeoutError:
        raise
    except OSError:  # whoever reads it says so
        return None
    except (ValueError, LookupError, TypeError, AttributeError):  # it is no header
        return None


def is_rows(path: Path, disk: Disk = DIRECT) -> bool:
    """Whether the file begins like JSON lines."""
    with disk.reader(path) as file:
        return file.read(256).lstrip()[:1] == b"{"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()
