"""Judges the bytes that files already hold: at the first start, after a restart, in new files."""

import logging
import math
import stat
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.arrival import Arrival
from ldlm_monitor.base.chunk import Chunk, FileId
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.logs.history.history_file import HistoryFile
from ldlm_monitor.logs.history.merge import History, place
from ldlm_monitor.logs.parse.blocks import BLOCK_SECONDS
from ldlm_monitor.logs.source.file_identity import FilePosition, FoundPath, Known
from ldlm_monitor.logs.source.file_system import Disk
from ldlm_monitor.logs.source.follower import Follower
from ldlm_monitor.logs.source.input_patterns import mode_of
from ldlm_monitor.service.daemon.discovery import Inputs
from ldlm_monitor.service.daemon.restart import Restart
from ldlm_monitor.service.state.read_log import arrival_of
from ldlm_monitor.service.state.state_store import StateStore

SLICE_SECONDS = 0.1
"""Seconds of a turn for history. A choice: longer delays live alerts (due in a second), shorter
makes the history last longer."""
JOIN_BYTES = 8 * 1024 * 1024
"""New files of a running daemon are judged together, by whole runs, up to about so many bytes. A
choice: with more, there are fewer histories to play; with less, the first ends sooner."""
JOIN_SECONDS = 2.0
"""Seconds after a history until its runs' silence counts: by then each file was asked for what was
written meanwhile. A choice: twice the time between two polls of all files."""
JOIN_FILES = 32  # likewise; a choice: finding out when their lines were written takes 50 ms at once

log = logging.getLogger(__name__)


class BackfillResult(NamedTuple):
    """The transitions in the order of their times, each with whether it is news.

    News come from bytes that were written while no daemon ran; other transitions are history.
    `end`: when the last byte of all files arrived (Unix seconds).
    """

    passed: list[tuple[Transition, bool]]
    end: float


class _Unread(NamedTuple):
    """A file that waits to be judged: its size in bytes, and when it was written (Unix seconds)."""

    size: int
    written: float


@dataclass(slots=True)
class Backfill:
    """Plays the bytes that files already hold in time order, then lets the follower follow them.

    Their alerts are history, which is sent only if it still holds. Bytes after the position up to
    which a file was judged before a restart are news. `budget`: bytes that are read of each log,
    None for all. `feed` is `Monitor.feed`, by position, and `set_ends` that of its `runs`.
    `reading`: the share of bytes that was judged, and `judged_to` (Unix seconds) up to when; None
    if nothing is being played. `ahead`: the first reading may take
    rows before their times.
    """

    monitor: Monitor
    inputs: Inputs
    follower: Follower
    disk: Disk
    budget: int | None
    feed: Callable[[Chunk, float, bool, float | None], list[Transition]]
    set_ends: Callable[[Mapping[str, float]], None]
    ahead: bool
    reading: float | None = field(default=None, init=False)
    judged_to: float | None = field(default=None, init=False)
    _waiting: dict[Path, _Unread] = field(default_factory=dict, init=False)
    _queued: int = field(default=0, init=False)
    _left: int = field(default=0, init=False)
    _played: dict[str, tuple[FileId, int]] = field(default_factory=dict, init=False)
    _replaced: set[Path] = field(default_factory=set, init=False)
    _contents: list[Arrival] = field(default_factory=list, init=False)
    _known: list[Known] = field(default_factory=list, init=False)
    _playing: Generator[None, None, BackfillResult] | None = field(default=None, init=False)
    _runs: set[str] = field(default_factory=set, init=False)
    _held: list[tuple[Transition, bool]] = field(default_factory=list, init=False)
    _found_at: dict[Path, float] = field(default_factory=dict, init=False)
    _live: list[Transition] = field(default_factory=list, init=False)
    _read: set[str] = field(default_factory=set, init=False)
    _joins: bool = field(default=False, init=False)
    _joined: bool = field(default=False, init=False)
    _released_at: float = field(default=math.inf, init=False)

    @property
    def is_busy(self) -> bool:
        """Whether the bytes of files are being judged, in slices, or wait for it."""
        return self._playing is not None or bool(self._waiting)

    @property
    def behind(self) -> int:
        """Bytes that are still to be judged; any thread may ask."""
        return self._queued + self._left

    @property
    def late(self) -> Iterable[tuple[str, float]]:
        """The files with bytes that are still to be judged, and when (Unix s) they were found."""
        return [(str(path), at) for path, at in self._found_at.items()]

    @property
    def partial(self) -> Collection[str]:
        """The runs whose history is still being judged."""
        return self._runs

    def is_partial(self, labels: Mapping[str, str]) -> bool:
        """Whether an alert belongs to a run whose history is still being judged."""
        return labels.get("run") in self._runs

    def hold(self, transitions: list[Transition]) -> list[Transition]:
        """Keep back transitions of runs that are `is_partial`; return the others."""
        self._held += [(each, False) for each in transitions if self.is_partial(each.labels)]
        return [each for each in transitions if not self.is_partial(each.labels)]

    def release(self, now: float) -> None:
        """At `now` (Unix seconds), count the silence of runs that joined some time ago, too."""
        if self._joined:
            self._joined, self._released_at = False, now + JOIN_SECONDS
        elif now >= self._released_at and not self.follower.has_backlog:
            self._released_at = math.inf
            reading = self._runs if self._joins else ()
            self.set_ends(dict.fromkeys(reading, -math.inf))

    def take_live(self) -> list[Transition]:
        """Transitions, since the last call, of runs that were live while others joined."""
        taken, self._live = self._live, []
        return taken

    def take_contents(self) -> list[Arrival]:
        """The ranges judged or skipped since the last call, to be committed with the state."""
        taken, self._contents = self._contents, []
        return taken

    def resume(self, restart: Restart, store: StateStore, now: float) -> set[Path]:
        """Adopt the files of a restart; return the names that lead to other files now."""
        if restart.state.counts is not None:
            self.monitor.own.restore(restart.state.counts)
        names, journal = self.monitor.names, self.follower.journal
        restart.open(store, names, journal, now, budget=self.budget, disk=self.disk)
        self.inputs.adopt(restart.paths, restart.state.runs.values())
        self._known = restart.contents
        self._replaced = {
            path for path in restart.unnamed if stat.S_ISREG(mode_of(path, self.disk))
        }
        return self._replaced

    def known(self) -> list[Known]:
        """The contents that were read so far, including those of before a restart."""
        return [*self.follower.contents(), *self._known]

    def go_on(self, path: Path, found: FoundPath) -> None:
        """Follow a known file under its new name; a copy, from the offset read of its original."""
        names = self.monitor.names
        names.tie(str(path), names.origin(found.name).run)
        if found.offset is None:
            self.follower.add(path)
        else:
            self.pass_over(path, found.offset)
        log.info("%s: has the content of %s; reading continues there", path, found.name)

    def pass_over(self, path: Path, offset: int | None = None) -> None:
        """Follow a file from `offset` on (None: from its present end); nothing before is judged."""
        try:
            status = self.disk.stat(path)
        except TimeoutError:
            self.inputs.forget(path)
        except OSError:  # gone again: if it comes back, it is a new file, read from its start
            self.follower.add(path)
        else:
            name, file = str(path), (status.st_dev, status.st_ino, 0)
            offset = status.st_size if offset is None else offset
            self.follower.add(path, offset=offset)
            self._contents.append(Arrival(status.st_mtime, name, file, 0, offset, kind="skipped"))

    def add(self, paths: Iterable[Path]) -> None:
        """Add files whose bytes wait to be judged."""
        for path in paths:
            self._waiting[path] = _Unread(0, 0.0)
            with suppress(OSError):  # reading the file reports the error
                status = self.disk.stat(path)
                self._waiting[path] = _Unread(status.st_size, status.st_mtime)
        self._queued = sum(each.size for each in self._waiting.values())

    def begin(self, now: float, restart: Restart | None, *, everything: bool) -> bool:
        """Prepare to judge, by `step`, the bytes at `now` (Unix seconds) of waiting files.

        Of all (`everything`), or of some. Returns whether there is anything to judge.
        """
        for path in self._waiting:
            self._found_at.setdefault(path, now)
        if self._playing is None and (self._waiting or restart is not None):
            self._joins, self.reading = not everything, 0.0
            self._playing = self._play(self._take(everything=everything), now, restart)
        return self._playing is not None

    def _take(self, *, everything: bool) -> list[Path]:
        """The files to judge next, by whole runs: those that were written last come first."""
        by_run: dict[str, list[Path]] = {}
        for path in sorted(self._waiting, key=lambda path: -self._waiting[path].written):
            by_run.setdefault(self.monitor.names.origin(str(path)).run, []).append(path)
        chosen: list[Path] = []
        for paths in by_run.values():
            is_full = self._left >= JOIN_BYTES or len(chosen) >= JOIN_FILES
            if is_full and not everything:
                break
            chosen += paths
            self._left += sum(self._waiting.pop(path).size for path in paths)
        self._queued -= self._left
        return sorted(chosen)

    def step(self) -> BackfillResult | None:
        """Judge for `SLICE_SECONDS`; None until all is judged and the files are followed."""
        assert self._playing is not None
        until = time.monotonic() + SLICE_SECONDS
        try:
            next(self._playing)
            while time.monotonic() < until:
                next(self._playing)
        except StopIteration as end:
            self._playing = self.reading = self.judged_to = None
            return cast("BackfillResult", end.value)
        return None

    def _play(
        self, paths: list[Path], now: float, restart: Restart | None
    ) -> Generator[None, None, BackfillResult]:
        history = place(
            paths,
            self.monitor.names,
            budget=self.budget,
            continued=restart.files if restart else (),
            floor=restart.state.read_to if restart else math.inf,
            now=now,
            journal=self.follower.journal,
            ends=False,
            ahead=self.ahead,
            disk=self.disk,
        )
        yield
        for notice in history.notices:
            log.info("%s", notice)
        # Kept back for new runs only: alerts of other runs may be due to their live records.
        self._runs = {file.run for file in history.files if not self.monitor.runs.get(file.run)}
        self._read = {file.run for file in history.files}
        self.monitor.runs.guesses.update(history.guesses)
        if self._joins:
            ends = dict.fromkeys(self._runs, -math.inf)
            self.set_ends({**self.monitor.runs.ends, **ends})
        passed = self._held = []
        yield from self._judge(history, now, restart, passed)
        kept = restart.positions() if restart else {}
        self._put_off(history, kept)
        for file in history.files:
            self._keep(file, kept)
        for name, positions in kept.items():
            self.follower.add(Path(name), resume=positions)
        # Multi-line blocks are complete `BLOCK_SECONDS` after the last byte: first to that time.
        for at in (min(history.end + BLOCK_SECONDS, now), now):
            while self.monitor.clock < (due := self.monitor.due() or at) < at:
                self._note_ticked(self.monitor.tick(due), passed, restart)
                yield
            self._note_ticked(self.monitor.tick(at), passed, restart)
        if restart is not None:
            passed += restart.compare(self.monitor, passed)
        if self._joins:  # what they wrote meanwhile is read by the turns that follow
            self._joined = True
            ends = dict.fromkeys(self._runs, now)
            self.set_ends({**self.monitor.runs.ends, **ends})
        self._runs, self._held, self.ahead = set(), [], False
        for path in paths:
            self._found_at.pop(path, None)
        return BackfillResult(passed, history.end)

    def _judge(
        self,
        history: History,
        now: float,
        restart: Restart | None,
        passed: list[tuple[Transition, bool]],
    ) -> Generator[None]:
        """Judge all pieces in order, appending to `passed`; yield after each piece."""
        observed = list(restart.observed) if restart else []
        floor = restart.floor if restart else math.inf
        total, read, was_news = max(history.size, 1), 0, False

        def begin(*, news: bool) -> None:  # what was read ahead is no news because this is
            nonlocal was_news
            if news != was_news:
                self._note(self.monitor.play_ahead(), passed, news=was_news)
                was_news = news

        def observe_until(when: float, order: float) -> None:
            while observed and (observed[0].at, observed[0].order) < (when, order):
                found = observed.pop(0)
                begin(news=restart is not None and found.order > restart.state.judged)
                transitions = self.monitor.observe((found.record,), found.at)
                self._note(transitions, passed, news=was_news)

        for when, order, chunk, file in history.in_order():
            read += len(chunk.data)
            self.reading, self.judged_to = min(read / total, 1.0), min(when, now)
            self._left = max(total - read, 0)
            observe_until(when, order)
            news = counted = file.is_news(chunk, order)
            rest: Chunk | None = chunk
            if file.seen is None:
                rest, news, counted = self._not_played(chunk), self._is_late(file, floor), True
            begin(news=news)
            if rest is not None:
                since = history.since(at := min(when, now), chunk, file)
                self._note(self.feed(rest, at, counted, since), passed, news=news)
            if chunk.peek and math.isinf(order):
                self._contents.append(arrival_of(chunk, when))
            yield
        observe_until(math.inf, math.inf)
        self._note(self.monitor.play_ahead(), passed, news=was_news)
        self._left = 0

    def _note(
        self, transitions: list[Transition], passed: list[tuple[Transition, bool]], *, news: bool
    ) -> None:
        """Add transitions to `passed`, but those of live runs without a file in this history."""
        for each in transitions:
            if self._joins and each.labels.get("run") not in self._read:
                self._live.append(each)
            else:
                passed.append((each, news))

    def _note_ticked(
        self,
        transitions: list[Transition],
        passed: list[tuple[Transition, bool]],
        restart: Restart | None,
    ) -> None:
        """Add what timers did behind the last bytes: news if it was while no daemon ran."""
        for each in transitions:
            news = restart is not None and (each.time or math.inf) > restart.state.clock
            self._note([each], passed, news=news)

    def _keep(self, file: HistoryFile, kept: dict[str, list[FilePosition]]) -> None:
        """Note the ranges of a file that have no arrival time, for the next restart."""
        if file.seen is None:
            if (reached := file.position()) is not None:
                kept.setdefault(file.path, []).append(reached)
            file.backlog.tail.close()
        name, written = file.backlog.file, file.backlog.modified
        for position in kept.get(file.path, ()):
            if position.file == name and position.offset > file.seen_to:
                self._contents.append(
                    Arrival(written, file.path, name, file.seen_to, position.offset)
                )

    def _is_late(self, file: HistoryFile, floor: float) -> bool:
        """Whether a file that was not followed before was written while no daemon ran."""
        return floor < math.inf and (
            Path(file.path) in self._replaced or file.backlog.modified > floor
        )

    def _not_played(self, chunk: Chunk) -> Chunk | None:
        """The part not judged yet, if any: a mount that was dead has its files played again."""
        played = self._played.get(chunk.path)
        rest = chunk.after(played[1]) if played and played[0] == chunk.file else chunk
        if rest is not None:
            self._played[chunk.path] = (rest.file, rest.offset + len(rest.data))
        return rest

    def _put_off(self, history: History, kept: dict[str, list[FilePosition]]) -> None:
        """Follow unreadable files, to try again; let those of silent mounts be found again."""
        for path, error in history.unreadable.items():
            if str(path) in kept:
                continue
            if isinstance(error, TimeoutError):
                self.inputs.forget(path)
                history.files = [file for file in history.files if file.path != str(path)]
            elif not any(file.path == str(path) for file in history.files):
                self.follower.add(path)  # it reports the error and tries again at every poll
        for file in history.files:
            self._played.pop(file.path, None)
