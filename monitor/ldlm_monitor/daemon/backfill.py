"""Taking files in: what they hold when they are first seen, and what they got during a restart."""

from __future__ import annotations

import logging
import math
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ldlm_monitor.core.monitor import Monitor
from ldlm_monitor.daemon.discovery import Inputs
from ldlm_monitor.daemon.restart import Restart
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.chunk import Chunk, FileId
from ldlm_monitor.playback.history import History, place
from ldlm_monitor.playback.resumed_file import ResumedFile
from ldlm_monitor.source import Disk, Follower, Position
from ldlm_monitor.state.read_log import Observed
from ldlm_monitor.state.state_store import StateStore, still_holds

Feed: TypeAlias = Callable[[Chunk, float], list[Transition]]

log = logging.getLogger(__name__)


class Told(NamedTuple):
    """The transitions of what was taken in, each with whether it is news.

    `end` (Unix seconds) is when the last byte of all came.
    """

    passed: list[tuple[Transition, bool]]
    end: float


class Backfill:
    """Plays what files hold in time order, then has them followed.

    It is history, told only where it still holds. What came after the point up to which
    a file was judged before a restart is news. `budget` is `history.place`'s; `feed`
    judges a chunk; `reading` is how much was judged, 0 to 1, None: nothing is being played.
    A daemon that cannot go on with a checkpoint knows from its `ledger` at least how far was
    judged, since when alerts hold, and when steps were taken.
    """

    def __init__(
        self,
        monitor: Monitor,
        inputs: Inputs,
        follower: Follower,
        ledger: StateStore,
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
        self._judged = ledger.positions()
        self._starts = ledger.starts()
        self._progress = ledger.progress()
        self._played: dict[str, tuple[FileId, int]] = {}
        self._replaced: set[Path] = set()
        self.reading: float | None = None

    def resume(self, restart: Restart, now: float) -> set[Path]:
        """Find the files of a checkpoint; names under which there is another file by now."""
        restart.open(self._follower.journal, now, self._disk)
        self._inputs.adopt(restart.paths)
        self._replaced = {path for path in restart.unnamed if stat.S_ISREG(self._mode(path))}
        return self._replaced

    def pass_over(self, path: Path) -> None:
        """Follow a file from its present end."""
        try:
            self._follower.add(path, offset=self._disk.stat(path).st_size)
        except TimeoutError:
            self._inputs.forget(path)
        except OSError:  # gone again: it begins anew
            self._follower.add(path)

    def play(
        self,
        paths: list[Path],
        now: float,
        restart: Restart | None,
        *,
        cut_short: Callable[[], bool],
    ) -> Told | None:
        """RuleEngine what files hold, and follow them; None if it was `cut_short`."""
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
        judged = {path: self._judged_to(path, floor) for path in map(str, paths)}
        passed: list[tuple[Transition, bool]] = []
        reached: dict[str, Chunk] = {}
        observed = list(restart.observed) if restart else []
        total, read = max(history.size, 1), 0
        for when, order, chunk, file in history.in_order():
            read += len(chunk.data)
            self.reading = min(read / total, 1.0)
            if cut_short():
                return None  # half a history tells nothing, and was not judged
            while observed and (observed[0].at, observed[0].order) < (when, order):
                passed += self._observe(observed.pop(0))
            if isinstance(file, ResumedFile):
                passed += [(each, True) for each in self._feed(chunk, min(when, now))]
            elif chunk.final:
                reached[chunk.path] = chunk
            elif (rest := self._not_played(chunk)) is not None:
                known = judged[rest.path]
                news = known is not None and rest.offset >= known
                passed += [(each, news) for each in self._feed(rest, min(when, now))]
        self.reading = None
        passed += [told for each in observed for told in self._observe(each)]
        kept = restart.positions() if restart else {}
        self._put_off(history, kept)
        self._follow(reached, kept)
        restarted = restart is not None or any(known is not None for known in judged.values())
        if restart is None:
            self._monitor.runs.restore_progress(self._progress)
        for at in (min(history.end + 2.0, now), now):  # open blocks end in their own time
            passed += [(each, restarted) for each in self._monitor.tick(at)]
        if restart is None:
            self._monitor.restore_starts(self._starts)
        return Told(passed, history.end)

    @property
    def is_amid(self) -> bool:
        """Whether files were judged in part, whose servers fell silent amid that."""
        return bool(self._played)

    def judged_before(self, silent: Callable[[Path], bool]) -> list[Position]:
        """How far files were judged before a restart that are not followed yet: `silent` ones."""
        ahead = (Path(path) for path in self._judged)
        waiting = [path for path in ahead if path not in self._follower.paths and silent(path)]
        return [self._judged[str(path)] for path in waiting]

    def _observe(self, observed: Observed) -> list[tuple[Transition, bool]]:
        return [(each, True) for each in self._monitor.observe(observed.records, observed.at)]

    def _follow(self, reached: dict[str, Chunk], kept: dict[str, list[Position]]) -> None:
        """Read on where history ended: at the last chunk of a file, which holds its unread rest."""
        for name, rest in reached.items():
            here = Position.reached(name, rest.offset, rest.line, self._disk)
            if here is not None:
                kept.setdefault(name, []).append(here)
            elif name not in kept:
                self._follower.add(Path(name), offset=rest.offset, line=rest.line)
        for name, positions in kept.items():
            self._follower.add(Path(name), resume=positions)

    def _judged_to(self, path: str, floor: float) -> int | None:
        """From which byte on a file's content is news; None: it is all history."""
        if Path(path) in self._replaced:
            return 0
        position = self._judged.get(path)
        try:
            if position is not None and still_holds(position, self._disk):
                return position.offset
            return 0 if self._disk.stat(Path(path)).st_mtime > floor else None
        except TimeoutError:  # whoever reads it now hears no more of it
            return position.offset if position is not None else None
        except OSError:
            return None

    def _not_played(self, chunk: Chunk) -> Chunk | None:
        """What of it was not fed yet, before its server fell silent amid a first reading."""
        played = self._played.get(chunk.path)
        rest = chunk.after(played[1]) if played and played[0] == chunk.file else chunk
        if rest is not None:
            self._played[chunk.path] = (rest.file, rest.offset + len(rest.data))
        return rest

    def _put_off(self, history: History, kept: dict[str, list[Position]]) -> None:
        """Follow what could not be read from where it was not; a silent server's files later."""
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
