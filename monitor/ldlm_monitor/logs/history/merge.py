"""Bytes that files already hold, played in time order: finished logs, or a daemon's backlog.

This module judges nothing: it gives bytes their times (`arrival_times.py`) and merges the files,
so that rank 63 is not judged after rank 0's whole history.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeAlias

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.snapshot import GuessView
from ldlm_monitor.logs.history.arrival_times import StepClock, Timeline, at_once, from_bars
from ldlm_monitor.logs.history.file_head import form_of, name_by_content
from ldlm_monitor.logs.history.history_file import HistoryFile, StreamFile
from ldlm_monitor.logs.history.late_bytes import spread
from ldlm_monitor.logs.history.line_clock import between_lines, from_lines
from ldlm_monitor.logs.history.rotated_logs import JoinedStretch, logs_of
from ldlm_monitor.logs.history.row_moments import has_times
from ldlm_monitor.logs.history.stretch import Stretch, row_timeline
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.logs.source.backlog import Backlog
from ldlm_monitor.logs.source.file_system import DIRECT, Disk
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.open_files import affordable_files
from ldlm_monitor.logs.source.split import Splitter, split

APART_SECONDS = 0.2
"""Seconds; rows that span less are one piece. A choice: longer is faster, but judges rows late;
this is a fraction of an evaluation interval."""
ALONE_APART_SECONDS = 5.0
"""`APART_SECONDS` of a single file, merged with no other: the default `evaluation_interval`."""
LINES_APART_SECONDS = 0.25
"""`APART_SECONDS` of text where rows keep their exact order: a choice; each piece costs time, and
loggers with milliseconds would make one of each line."""
EXACT_APART_SECONDS = 0.0
"""`APART_SECONDS` where the rows of several files must keep the exact order of their times."""
AHEAD_SECONDS = 5.0
"""As `ALONE_APART_SECONDS`, of several files whose rows are read ahead of their times: by default
those between two evaluations."""
ROUNDED_SECONDS = 2.0  # loggers cut fractions, and write a little later
SLOW_SECONDS = 600.0
"""Where the last line of a followed log has a time before the last write, by up to so much, the
writer's clock is slow: otherwise its last step would be a stall. A choice: nodes without NTP lie
minutes apart; more takes a copy of a log for the log itself."""
# The time of the turn, order, numbers of file and piece, and the time.
_Entry: TypeAlias = tuple[float, float, int, int, float, Chunk]


@dataclass(slots=True)
class History:
    """Several files whose bytes have times. `notices`: a line for each file not read whole.

    `unreadable`: files that could not be read, or not to their end, with the error. `ends`: no
    more bytes will follow. `streams`: inputs that are no files, read once. `ahead`: rows with times
    come with those of the same `AHEAD_SECONDS`, before all else of these. `watch`: called by `play`
    after each piece with the bytes played and those of all files.
    """

    files: list[HistoryFile] = field(default_factory=list)
    streams: list[StreamFile] = field(default_factory=list)
    unreadable: dict[Path, OSError] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    ends: bool = True
    ahead: bool = False
    watch: Callable[[int, int], None] | None = None

    @property
    def size(self) -> int:
        """Bytes that are read from the files, without streams."""
        return sum(file.size for file in self.files)

    @property
    def all(self) -> list[HistoryFile | StreamFile]:
        """Files and streams."""
        return [*self.files, *self.streams]

    @property
    def end(self) -> float:
        """When the last byte of all files arrived (Unix seconds); 0 without files."""
        return max((file.timeline.end for file in self.all), default=0.0)

    @property
    def run_ends(self) -> dict[str, float]:
        """By run, when the last byte of its files arrived (Unix seconds)."""
        ordered = sorted(self.all, key=lambda file: file.timeline.end)
        return {file.run: file.timeline.end for file in ordered}

    @property
    def guesses(self) -> dict[str, GuessView]:
        """Why the times of runs are guesses: of those without a file whose times stand in it."""
        known = {each.run for each in self.all if each.timeline.dated and not each.timeline.guess}
        why = {each.run: each.timeline.guess for each in reversed(self.all) if each.timeline.guess}
        ends = self.run_ends
        return {run: GuessView(to=ends[run], why=why[run]) for run in why.keys() - known}

    @property
    def judged_to(self) -> dict[str, float]:
        """By run, up to when it is judged (Unix seconds): to its end, or that of another's times.

        A file without times of its own has no say about other files: its last write may be that of
        a copy, years later.
        """
        timed = sorted((file.timeline.end, file.run) for file in self.all if file.timeline.timed)
        own = self.run_ends | {run: end for end, run in timed}
        dated = (file.timeline.end for file in self.all if file.timeline.dated)
        last = max(dated, default=-math.inf)
        return {run: max(end, last) for run, end in own.items()}

    @property
    def untimed_runs(self) -> frozenset[str]:
        """Runs whose records have an order but no times."""
        timed = {file.run for file in self.all if file.timeline.timed}
        return frozenset(file.run for file in self.all) - timed

    def play(self) -> Iterator[tuple[float, Chunk, HistoryFile | StreamFile]]:
        """Time (Unix seconds), bytes and file of each piece; an unreadable file ends early."""
        files, total, done = self.all, self.size, 0
        for _, _, index, _, when, chunk in self._merged(files):
            yield when, chunk, files[index]
            done += len(chunk.data)
            if self.watch is not None:
                self.watch(done, total)

    def since(self, when: float, chunk: Chunk, file: HistoryFile | StreamFile) -> float | None:
        """The begin of the `AHEAD_SECONDS` at which a piece of the time `when` comes; None: then.

        Unix seconds, as for `Monitor.feed`.
        """
        is_file = isinstance(file, HistoryFile) and file.form == "rows"
        ahead = self.ahead and is_file and chunk.timed and has_times(chunk.data)
        return when // AHEAD_SECONDS * AHEAD_SECONDS if ahead else None

    def in_order(self) -> Iterator[tuple[float, float, Chunk, HistoryFile]]:
        """Pieces of files (not streams) in time order: time, `Arrival.order`, bytes, file."""
        for _, order, index, _, when, chunk in self._merged(self.files):
            yield when, order, chunk, self.files[index]

    def _merged(self, files: Sequence[HistoryFile | StreamFile]) -> Iterator[_Entry]:
        rests = len(self.files) > affordable_files()
        return heapq.merge(*(self._track(*each, rests=rests) for each in enumerate(files)))

    def _track(
        self, index: int, file: HistoryFile | StreamFile, *, rests: bool
    ) -> Iterator[_Entry]:
        """The pieces of a file; `rests`: it is closed while the others have their turn."""
        latest = -math.inf
        try:
            for number, (when, order, chunk) in enumerate(file.pieces(ends=self.ends)):
                if rests and isinstance(file, HistoryFile):
                    file.backlog.rest()
                latest = max(latest, when)  # rises even if a clock was set back
                since = self.since(latest, chunk, file)
                yield latest if since is None else since, order, index, number, latest, chunk
        except OSError as error:
            self.unreadable[Path(file.path)] = error


def place(
    paths: Iterable[Path],
    names: RunNames,
    *,
    continued: Sequence[HistoryFile] = (),
    floor: float = -math.inf,
    apart: float = APART_SECONDS,
    budget: int | None = None,
    now: float = math.inf,
    journal: Journal | None = None,
    ends: bool = True,
    ahead: bool = False,
    disk: Disk = DIRECT,
) -> History:
    """Give the bytes of files their times.

    Text logs come first: their progress bars are the clock of JSON lines that have no times.
    `continued`: files that were followed before a restart; bytes in them without an arrival time
    were written at `floor` (Unix seconds) or later. `names`: the runs of the files. `apart`: rows
    with times come in pieces that span less than these seconds, each at its last row's time.
    `budget`: bytes to read of a file, None for all. `now`: Unix seconds; inf for finished files.
    `journal` counts errors of reading, `disk` reads. `ends`: no more bytes will follow. Files that
    cannot be read are in the history's `unreadable`. `ahead`: see `History`.
    """
    history = History(list(continued), ends=ends, ahead=ahead)
    journal = Journal() if journal is None else journal
    for path in paths:
        try:
            backlog = Backlog.new(path, journal, disk, is_followed=not ends)
            if form_of(backlog) == "rows":
                name_by_content(path, names, disk)
            if backlog.trouble:
                history.notices.append(f"{path}: {backlog.trouble}; all before it counts")
            run = names.origin(str(path)).run
            file = HistoryFile(backlog, run, now=now, budget=budget, disk=disk)
            file.joins_repaints = apart == ALONE_APART_SECONDS and file.form == "text"
            history.files.append(file)
        except OSError as error:
            history.unreadable[path] = error
    clocks: dict[str, StepClock] = {}
    logs = sorted(logs_of(history.files), key=lambda log: log[0].form == "rows")
    for log in logs:
        is_ahead = ahead and log[0].form == "rows"
        for path, problem in _date(log, clocks, floor, AHEAD_SECONDS if is_ahead else apart):
            history.unreadable[path] = problem
    files = [file for log in logs for file in log]
    history.notices += [f"{file.path}: {file.note}" for file in files if file.note]
    history.files = [each for each in files if Path(each.path) not in history.unreadable]
    return history


def _date(
    log: Sequence[HistoryFile], clocks: dict[str, StepClock], floor: float, apart: float
) -> Iterator[tuple[Path, OSError]]:
    """Set the timelines of a log's files; yields those that cannot be read, with the error."""
    fresh = [file for file in log if file.seen is None]
    joined: dict[HistoryFile, Timeline] = {}
    if len(fresh) > 1:
        with suppress(OSError):  # each file is then dated alone
            stretch = JoinedStretch.of(fresh)
            whole = _estimate(fresh[0], stretch, clocks, apart)
            joined = dict(zip(fresh, stretch.split(whole), strict=True))
    latest = -math.inf
    for file in log:
        try:
            found = joined.get(file) or _timeline(file, clocks, floor, apart)
            file.timeline = found.without_start() if file.note else found
            if file.seen is None and latest > -math.inf:
                file.timeline = Timeline.joined([(0, latest, file.timeline)])
            latest = file.timeline.end
        except OSError as error:
            yield Path(file.path), error
        finally:
            file.backlog.rest()


def _timeline(
    file: HistoryFile, clocks: dict[str, StepClock], floor: float, apart: float
) -> Timeline:
    """The arrival times of a file's bytes: those in the read log, otherwise estimated ones.

    Bytes that arrived while no daemon ran came after all that was read before: at `floor` or later.
    """
    parts: list[tuple[int, float, Timeline]] = []
    earliest = -math.inf
    for start, stretch in file.stretches(apart):
        if isinstance(stretch, Timeline):
            parts.append((start, -math.inf, stretch))
            earliest = stretch.end
            continue
        try:
            estimate = _estimate(file, stretch, clocks, apart)
        except OSError:
            if file.seen is None:
                raise
            estimate = at_once(file.backlog.modified)
        if file.seen is not None:
            earliest = max(earliest, floor) if start == file.seen_to else earliest
            estimate = estimate if estimate.timed else spread(stretch, earliest)
        parts.append((start, earliest, estimate))
    return parts[0][2] if file.seen is None else Timeline.joined(parts)


def _estimate(
    file: HistoryFile, stretch: Stretch, clocks: dict[str, StepClock], apart: float
) -> Timeline:
    found = _by_its_own_times(file, stretch, clocks, apart)
    late = stretch.written_at - found.end
    is_slow = file.is_followed and found.dated and ROUNDED_SECONDS < late <= SLOW_SECONDS
    return found.moved(late) if is_slow and stretch.ends_with_a_time else found


def _by_its_own_times(
    file: HistoryFile, stretch: Stretch, clocks: dict[str, StepClock], apart: float
) -> Timeline:
    if file.form != "text":
        clock = clocks.get(file.run) if file.form == "rows" else None
        return row_timeline(stretch, clock, apart)
    known = None
    before = [mark for mark in stretch.marks_before() if not mark.inner] if stretch.start else []
    if before and (at := file.seen_at(before[-1].offset)) is not None:
        known = before[-1], at
    placed = from_bars(stretch.marks(), stretch.written_at, known)
    apart = min(max(apart, LINES_APART_SECONDS), 1.0)
    lines = stretch.line_times(apart, spread=placed is None)
    if placed is None:
        return from_lines(lines) if lines else at_once(stretch.written_at)
    timeline, clock = between_lines(*placed, lines)
    clocks.setdefault(file.run, clock)
    return timeline


def place_stream(name: str, stream: BinaryIO, names: RunNames, now: float) -> StreamFile:
    """A stream that ends, such as standard input of `--once`; all arrives at `now` (Unix s)."""
    chunks = split(stream, Splitter(name, (0, 0, 0)))
    return StreamFile(name, names.origin(name).run, at_once(now), chunks)
