"""Judges the bytes that files already hold: at the first start, after a restart, in new files."""

from __future__ import annotations

import logging
import math
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ldlm_monitor.core.monitor import Monitor
from ldlm_monitor.daemon.discovery import Inputs
from ldlm_monitor.daemon.restart import Restart
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.chunk import Chunk, FileId
from ldlm_monitor.parse.blocks import BLOCK_SECONDS
from ldlm_monitor.playback.history import History, place
from ldlm_monitor.playback.history_file import HistoryFile
from ldlm_monitor.source.file_identity import FilePosition, Found, Known
from ldlm_monitor.source.file_system import Disk
from ldlm_monitor.source.follow import Follower
from ldlm_monitor.source.input_patterns import mode_of
from ldlm_monitor.state.read_log import Arrival
from ldlm_monitor.state.state_store import State, StateStore

JOIN_BYTES = 8 * 1024 * 1024
"""Bytes of new files that one turn judges: less than a second, for which live files wait."""

log = logging.getLogger(__name__)


Feed: TypeAlias = Callable[[Chunk, float, bool], list[Transition]]
"""`Monitor.feed` with arguments chunk, time (Unix seconds) and `counted`, by position."""


class BackfillResult(NamedTuple):
    """The transitions in the order of their times, each with whether it is news.

    News is what a restart missed; other transitions are history. `end`: when the last byte of all
    files arrived (Unix seconds).
    """

    passed: list[tuple[Transition, bool]]
    end: float


class Backfill:
    """Plays the bytes that files already hold in time order, then lets the follower follow them.

    Their alerts are history, which is sent only if it still holds. Bytes after the position up to
    which a file was judged before a restart are news. `budget`: see `history.place`. `feed` judges
    a chunk. `reading`: the share that was judged, 0 to 1; None if nothing is being played.
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
        self._known: list[Known] = []
        self.reading: float | None = None

    def take_contents(self) -> list[Arrival]:
        """The backlog ranges judged since the last call, to be committed with the state."""
        taken, self._contents = self._contents, []
        return taken

    def resume(self, restart: Restart, store: StateStore, now: float) -> set[Path]:
        """Adopt the files of a restart; return the names that lead to other files now."""
        if restart.state.counts is not None:
            self._monitor.restore_counts(restart.state.counts)
        restart.open(
            store,
            self._monitor.names,
            self._follower.journal,
            now,
            budget=self._budget,
            disk=self._disk,
        )
        self._inputs.adopt(restart.paths, restart.state.runs.values())
        self._known = restart.contents
        self._replaced = {
            path for path in restart.unnamed if stat.S_ISREG(mode_of(path, self._disk))
        }
        return self._replaced

    def batch(self, queued: set[Path]) -> set[Path]:
        """The files to judge in this turn: all of the first runs, up to `JOIN_BYTES` or more."""
        runs: dict[str, set[Path]] = {}
        for path in sorted(queued):
            runs.setdefault(self._monitor.names.origin(str(path)).run, set()).add(path)
        chosen: set[Path] = set()
        size = 0
        for paths in runs.values():
            if size < JOIN_BYTES:
                chosen |= paths
                size += sum(self._size(path) for path in paths)
        return chosen

    def known(self) -> list[Known]:
        """The contents that were read so far, including those of before a restart."""
        return [*self._follower.contents(), *self._known]

    def go_on(self, path: Path, found: Found) -> None:
        """Follow a known file under its new name; a copy, from the offset already read."""
        names = self._monitor.names
        names.tie(str(path), names.origin(found.name).run)
        if found.offset is None:
            self._follower.add(path)
        else:
            self.pass_over(path, found.offset)
        log.info("%s: has the content of %s; reading continues there", path, found.name)

    def pass_over(self, path: Path, offset: int | None = None) -> None:
        """Follow a file from `offset` on; None: from its present end."""
        try:
            status = self._disk.stat(path)
        except TimeoutError:
            self._inputs.forget(path)
        except OSError:  # gone again: if it comes back, it is a new file, read from its start
            self._follower.add(path)
        else:
            file = (status.st_dev, status.st_ino, 0)
            offset = status.st_size if offset is None else offset
            self._follower.add(path, offset=offset)
            self._contents.append(
                Arrival(status.st_mtime, str(path), file, 0, offset, kind="skipped")
            )

    def play(
        self,
        paths: list[Path],
        now: float,
        restart: Restart | None,
        *,
        cut_short: Callable[[], bool],
    ) -> BackfillResult | None:
        """Judge the bytes that files hold, then follow them; None if `cut_short` returned True."""
        floor = restart.floor if restart else math.inf
        history = place(
            paths,
            self._monitor.names,
            budget=self._budget,
            continued=restart.files if restart else (),
            floor=floor,
            now=now,
            journal=self._follower.journal,
            ends=False,
            disk=self._disk,
        )
        for notice in history.notices:
            log.info("%s", notice)
        passed: list[tuple[Transition, bool]] = []
        if not self._judge(history, now, restart, passed, cut_short=cut_short):
            return None
        kept = restart.positions() if restart else {}
        self._put_off(history, kept)
        for file in history.files:
            self._keep(file, kept)
        for name, positions in kept.items():
            self._follower.add(Path(name), resume=positions)
        # First to the time at which the multi-line blocks left open by the last byte are complete.
        for at in (min(history.end + BLOCK_SECONDS, now), now):
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
        *,
        cut_short: Callable[[], bool],
    ) -> bool:
        """Judge all pieces in order, appending to `passed`; return False if it was cut short."""
        observed = list(restart.observed) if restart else []
        late = {
            file.path
            for file in history.files
            if file.seen is None and self._is_late(file, restart)
        }
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
                return False  # half a history leads to states that never were: nothing is sent
            observe_until(when, order)
            news = counted = file.is_news(chunk, order)
            rest: Chunk | None = chunk
            if file.seen is None:
                rest, news, counted = self._not_played(chunk), file.path in late, True
            if rest is not None:
                found = self._feed(rest, min(when, now), counted)
                passed += [(each, news) for each in found]
        observe_until(math.inf, math.inf)
        self.reading = None
        return True

    def _carry_over(
        self, state: State, passed: Iterable[tuple[Transition, bool]]
    ) -> list[tuple[Transition, bool]]:
        """Continue alerts that fired before a restart and did not fire when reading again."""
        fired = {each.key for each, _ in passed if each.state == "firing"}
        carried = self._monitor.carry_over(each for each in state.alerts if each.key not in fired)
        return [(each, False) for each in carried]

    def _restore_starts(self, state: State, passed: Iterable[tuple[Transition, bool]]) -> None:
        """Restore alerts' starts, except of those that ended meanwhile: they began anew."""
        ended = {each.key for each, news in passed if news and each.state not in _ACTIVE}
        self._monitor.restore_starts(
            {each.key: each.active_at for each in state.alerts if each.key not in ended}
        )

    def _keep(self, file: HistoryFile, kept: dict[str, list[FilePosition]]) -> None:
        """Note for the next restart the ranges without an arrival time, as `backlog`."""
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

    def _is_late(self, file: HistoryFile, restart: Restart | None) -> bool:
        """Whether a file that was not followed before was written while nothing ran."""
        if restart is None:
            return False
        return Path(file.path) in self._replaced or file.backlog.modified > restart.floor

    def _not_played(self, chunk: Chunk) -> Chunk | None:
        """The part that was not fed yet: a backfill that a dead mount ended is played again."""
        played = self._played.get(chunk.path)
        rest = chunk.after(played[1]) if played and played[0] == chunk.file else chunk
        if rest is not None:
            self._played[chunk.path] = (rest.file, rest.offset + len(rest.data))
        return rest

    def _put_off(self, history: History, kept: dict[str, list[FilePosition]]) -> None:
        """Follow unreadable files, to try again; those of silent mounts are discovered again."""
        for path, error in history.unreadable.items():
            if str(path) in kept:
                continue
            if isinstance(error, TimeoutError):
                self._inputs.forget(path)
                history.files = [file for file in history.files if file.path != str(path)]
            elif not any(file.path == str(path) for file in history.files):
                self._follower.add(path)  # it reports the error and tries again at every poll
        for file in history.files:
            self._played.pop(file.path, None)

    def _size(self, path: Path) -> int:
        try:
            return self._disk.stat(path).st_size
        except OSError:  # `history.place` reports the error
            return 0


_ACTIVE = ("pending", "firing")  # the states of an alert that has not ended
