"""Judging what files hold already: at the first start, after a restart, and as files join."""

from __future__ import annotations

import logging
import math
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from ldlm_monitor.core.monitor import Monitor
from ldlm_monitor.daemon.discovery import Inputs
from ldlm_monitor.daemon.restart import Restart
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.chunk import Chunk, FileId
from ldlm_monitor.playback.history import History, PlacedFile, place
from ldlm_monitor.playback.resumed_file import ResumedFile
from ldlm_monitor.source import Disk, FilePosition, Follower
from ldlm_monitor.state.read_log import Arrival
from ldlm_monitor.state.state_store import State

END_SECONDS = 2.0
"""After the last byte: blocks of several lines that it left open are complete by then."""

log = logging.getLogger(__name__)


class Feed(Protocol):
    """Judges a chunk that came at a time (Unix seconds), as `Monitor.feed` does."""

    def __call__(self, chunk: Chunk, now: float, *, counted: bool = True) -> list[Transition]:
        """What changed."""
        ...


class BackfillResult(NamedTuple):
    """The transitions of what was judged, each with whether it is news.

    `end` (Unix seconds) is when the last byte of all came.
    """

    passed: list[tuple[Transition, bool]]
    end: float


class Backfill:
    """Plays what files hold in time order, then has them followed.

    It is history, and sent only where it still holds. What came after the point up to which
    a file was judged before a restart is news. `budget` is `history.place`'s; `feed`
    judges a chunk; `reading` is how much was judged, 0 to 1, None: nothing is being played.
    """

    def __init__(
        self,
        monitor: Monitor,
        inputs: Inputs,
        follower: Follower,
        *,
        disk: Disk,
        budget: int | None,
        feed: Feed,
    ) -> None:
        self._monitor = monitor
        self._inputs = inputs
        self._follower = follower
        self._disk = disk
        self._budget = budget
        self._feed = feed
        self._played: dict[str, tuple[FileId, int]] = {}
        self._replaced: set[Path] = set()
        self._contents: list[Arrival] = []
        self.reading: float | None = None

    def take_contents(self) -> list[Arrival]:
        """What was judged since the last call, to be committed with the state."""
        taken, self._contents = self._contents, []
        return taken

    def resume(self, restart: Restart) -> set[Path]:
        """Adopt the files of a restart; names under which there is another file by now."""
        self._inputs.adopt(restart.paths, restart.state.runs.values())
        self._replaced = {path for path in restart.unnamed if stat.S_ISREG(self._mode(path))}
        return self._replaced

    def pass_over(self, path: Path) -> None:
        """Follow a file from its present end."""
        try:
            status = self._disk.stat(path)
        except TimeoutError:
            self._inputs.forget(path)
        except OSError:  # gone again: it begins anew
            self._follower.add(path)
        else:
            file = (status.st_dev, status.st_ino, 0)
            self._follower.add(path, offset=status.st_size)
            self._contents.append(
                Arrival(status.st_mtime, str(path), file, 0, status.st_size, kind="skipped")
            )

    def play(
        self,
        paths: list[Path],
        now: float,
        restart: Restart | None,
        *,
        cut_short: Callable[[], bool],
    ) -> BackfillResult | None:
        """Judge what files hold, and follow them; None if it was `cut_short`."""
        floor = restart.floor if restart else math.inf
        history = place(
            paths,
            self._monitor.names,
            budget=self._budget,
            continued=restart.files if restart else (),
            floor=floor,
            disk=self._disk,
        )
        for notice in history.notices:
            log.info("%s", notice)
        passed: list[tuple[Transition, bool]] = []
        reached: dict[str, Chunk] = {}
        if not self._judge(history, now, restart, passed, reached, cut_short=cut_short):
            return None
        kept = restart.positions() if restart else {}
        self._put_off(history, kept)
        self._keep_contents(history, reached, kept)
        self._follow(reached, kept)
        for at in (min(history.end + END_SECONDS, now), now):
            passed += [(each, restart is not None) for each in self._monitor.tick(at)]
        if restart is not None:
            passed += self._carry_over(restart.state, passed)
            self._restore_starts(restart.state, passed)
        return BackfillResult(passed, history.end)

    def _judge(
        self,
        history: History,
        now: float,
        restart: Restart | None,
        passed: list[tuple[Transition, bool]],
        reached: dict[str, Chunk],
        *,
        cut_short: Callable[[], bool],
    ) -> bool:
        """All pieces in their order, into `passed` and `reached`; False: cut short."""
        observed = list(restart.observed) if restart else []
        is_news = {file.path: self._is_news(file.path, restart) for file in history.files}
        total, read = max(history.size, 1), 0

        def observe_until(when: float, order: float) -> None:
            while observed and (observed[0].at, observed[0].order) < (when, order):
                found = observed.pop(0)
                transitions = self._monitor.observe((found.record,), found.at)
                news = restart is not None and found.order > restart.state.judged
                passed.extend((each, news) for each in transitions)

        for when, order, chunk, file in history.in_order():
            read += len(chunk.data)
            self.reading = min(read / total, 1.0)
            if cut_short():
                return False  # what half a history leads to was never so
            observe_until(when, order)
            if isinstance(file, ResumedFile):
                news = file.is_news(chunk, order)
                found = self._feed(chunk, min(when, now), counted=news)
                passed += [(each, news) for each in found]
            elif chunk.final:
                reached[chunk.path] = chunk
            elif (rest := self._not_played(chunk)) is not None:
                news = is_news[rest.path]
                passed += [(each, news) for each in self._feed(rest, min(when, now))]
        observe_until(math.inf, math.inf)
        self.reading = None
        return True

    def _carry_over(
        self, state: State, passed: Iterable[tuple[Transition, bool]]
    ) -> list[tuple[Transition, bool]]:
        """Alerts that fired before a restart, and that nothing read again made fire."""
        fired = {each.key for each, _ in passed if each.state == "firing"}
        carried = self._monitor.carry_over(each for each in state.alerts if each.key not in fired)
        return [(each, False) for each in carried]

    def _restore_starts(self, state: State, passed: Iterable[tuple[Transition, bool]]) -> None:
        """An alert that ended while nothing ran, and is active again, began anew."""
        ended = {each.key for each, news in passed if news and each.state not in _ACTIVE}
        self._monitor.restore_starts(
            {each.key: each.active_at for each in state.alerts if each.key not in ended}
        )

    def _keep_contents(
        self, history: History, reached: dict[str, Chunk], kept: dict[str, list[FilePosition]]
    ) -> None:
        """For the next restart: what nobody saw arrive, and when it was written."""
        for file in history.files:
            if isinstance(file, PlacedFile):
                if (end := reached.get(file.path)) is not None and end.offset:
                    self._contents.append(
                        Arrival(file.written_at, file.path, end.file, 0, end.offset)
                    )
                continue
            name, written = file.continuation.file, file.continuation.modified
            for position in kept.get(file.path, ()):
                if position.file == name and position.offset > file.seen_to:
                    self._contents.append(
                        Arrival(written, file.path, name, file.seen_to, position.offset)
                    )

    def _follow(self, reached: dict[str, Chunk], kept: dict[str, list[FilePosition]]) -> None:
        """Read on where history ended: at the last chunk of a file, which holds its unread rest."""
        for name, rest in reached.items():
            here = FilePosition.reached(name, rest.offset, rest.line, self._disk)
            if here is not None:
                kept.setdefault(name, []).append(here)
            elif name not in kept:
                self._follower.add(Path(name), offset=rest.offset, line=rest.line)
        for name, positions in kept.items():
            self._follower.add(Path(name), resume=positions)

    def _is_news(self, path: str, restart: Restart | None) -> bool:
        """Whether a file that was not followed before was written while nothing ran."""
        if restart is None:
            return False
        try:
            return (
                Path(path) in self._replaced or self._disk.stat(Path(path)).st_mtime > restart.floor
            )
        except OSError:
            return False

    def _not_played(self, chunk: Chunk) -> Chunk | None:
        """What of it was not fed yet: its mount may have stopped answering."""
        played = self._played.get(chunk.path)
        rest = chunk.after(played[1]) if played and played[0] == chunk.file else chunk
        if rest is not None:
            self._played[chunk.path] = (rest.file, rest.offset + len(rest.data))
        return rest

    def _put_off(self, history: History, kept: dict[str, list[FilePosition]]) -> None:
        """Follow what could not be read from where it was not; other mounts' files later."""
        for path, error in history.unreadable.items():
            if str(path) in kept:
                continue
            if isinstance(error, TimeoutError):
                self._inputs.forget(path)
            else:  # tried again with every look, which says so
                _, offset = self._played.pop(str(path), (None, 0))
                self._follower.add(path, offset=offset)
        for file in history.files:
            if Path(file.path) not in history.unreadable:
                self._played.pop(file.path, None)

    def _mode(self, path: Path) -> int:
        try:
            return self._disk.mode(path)
        except TimeoutError:
            return 0


_ACTIVE = ("pending", "firing")
