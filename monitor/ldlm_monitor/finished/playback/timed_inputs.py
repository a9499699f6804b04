"""The input of a playback: pieces in the order of their times, and the monitor that judges them."""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.errors import InputError
from ldlm_monitor.finished.playback.log_replay import Replay, ReplaySettings
from ldlm_monitor.finished.playback.recording import (
    Begun,
    Entry,
    Fed,
    Finished,
    Observed,
    Passed,
    entries,
)
from ldlm_monitor.judge.core.assemble import MonitorSettings, assemble
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.logs.history.merge import History
from ldlm_monitor.logs.history.stretch import nominal
from ldlm_monitor.logs.source.log_parts import LogReader

Play: TypeAlias = Callable[[], list[Transition]]  # judges an input or the end


class Piece(NamedTuple):
    """An input that arrived at `at` (Unix seconds), of `size` bytes (0: none); `play` judges it."""

    at: float
    size: int
    play: Play


@dataclass(slots=True)
class TimedInputs:
    """A playback from `start` to `end` (Unix seconds); earlier pieces are the logs' old content.

    `runs`: the number of runs. `opened` opens a log up to where it was played. `finish` judges
    the end of all input.
    """

    start: float
    end: float
    runs: int
    monitor: Monitor
    pieces: Iterator[Piece]
    opened: Callable[[str], LogReader]
    finish: Play


def of_logs(settings: ReplaySettings) -> TimedInputs:
    """The finished logs that `settings` name. Raises as `Replay` does."""
    replay = Replay(settings, ahead=False)
    history, monitor = replay.history, replay.monitor
    _paced(history)
    ends: dict[str, int] = {}

    def feed(chunk: Chunk, when: float) -> list[Transition]:
        ends[chunk.path] = chunk.offset + len(chunk.data)
        return monitor.feed(chunk, when)

    return TimedInputs(
        start=min((file.timeline.start for file in history.all), default=history.end),
        end=history.end,
        runs=len({file.run for file in history.all}),
        monitor=monitor,
        pieces=(
            Piece(when, len(chunk.data), partial(feed, chunk, when))
            for when, chunk, _ in history.play()
        ),
        opened=lambda path: LogReader(path, ends.get(path, 0)),
        finish=lambda: monitor.finish(history.end, [file.path for file in history.all]),
    )


def of_recording(path: Path, settings: MonitorSettings, folder: Path) -> TimedInputs:
    """The inputs of a recording; playing it writes the logs into `folder`. Raises `InputError`."""
    start, end, runs = _extent(path)
    monitor = assemble(settings)
    logs = _Logs(folder)

    def play(entry: Entry) -> list[Transition]:
        match entry:
            case Fed():
                chunk = entry.chunk()
                logs.write(chunk)
                if monitor.names.origin(entry.path).run != entry.run:
                    monitor.names.tie(entry.path, entry.run)
                return monitor.feed(chunk, entry.at)
            case Observed():
                return monitor.observe(entry.observed(), entry.at)
            case Finished():
                return monitor.finish(entry.at, entry.paths)
            case Passed(read_to=None, left_out=0.0, ends=None) | Begun():
                return monitor.tick(entry.at)
            case Passed():
                if entry.left_out:
                    monitor.leave_out(entry.left_out)
                if entry.read_to is not None:
                    monitor.hold(entry.read_to)
                if entry.ends is not None:
                    ends = {run: -math.inf if at is None else at for run, at in entry.ends.items()}
                    monitor.runs.set_ends(ends)
                return []

    def pieces() -> Iterator[Piece]:
        for entry in entries(path):
            size = len(entry.text or entry.data) if isinstance(entry, Fed) else 0
            yield Piece(entry.at, size, partial(play, entry))

    return TimedInputs(
        start=start,
        end=end,
        runs=runs,
        monitor=monitor,
        pieces=pieces(),
        opened=logs.opened,
        finish=lambda: monitor.tick(end),
    )


def _extent(path: Path) -> tuple[float, float, int]:
    """The recording's first and last time (Unix seconds), and how many runs it has."""
    start = end = 0.0
    runs = set()
    for entry in entries(path):
        if isinstance(entry, Fed):
            runs.add(entry.run)
        start = entry.at if isinstance(entry, Begun) else start
        end = max(end, entry.at)
    if not end:
        raise InputError(
            "is empty", where=str(path), remedy="record for more than a second with --record"
        )
    return start, end, len(runs)


class _Logs:
    """The logs as far as they were played, in a temporary folder; bytes not recorded are holes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[Path, tuple[int, int, int]]] = {}

    def write(self, chunk: Chunk) -> None:
        """Write a chunk at its offset; if its name leads to another file now, empty it first."""
        place, held = self._known.get(chunk.path, (self._folder / str(len(self._known)), None))
        mode = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if chunk.file != held else 0)
        self._known[chunk.path] = place, chunk.file
        descriptor = os.open(place, mode, 0o600)
        try:
            os.pwrite(descriptor, chunk.data, chunk.offset)
        finally:
            os.close(descriptor)

    def opened(self, path: str) -> LogReader:
        """The log up to where it was played. Raises `FileNotFoundError`."""
        if path not in self._known:
            raise FileNotFoundError(2, os.strerror(2), path)
        return LogReader(str(self._known[path][0]))


def _paced(history: History) -> None:
    """Give text logs without times nominal ones, so that a player shows each line."""
    for file in history.files:
        if file.timeline.is_at_once and file.form == "text":
            file.timeline = nominal(file.whole())
            file.backlog.rest()
