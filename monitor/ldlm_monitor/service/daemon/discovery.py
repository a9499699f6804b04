"""Discovers the files to follow: those that match the user's patterns, and their companions."""

import logging
import math
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from ldlm_monitor.base.text.sanitize import plain
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.run.training_run import TrainingRun
from ldlm_monitor.logs.history.file_head import callback_run
from ldlm_monitor.logs.history.kinship import has_losses, kin
from ldlm_monitor.logs.history.launches import join_launches
from ldlm_monitor.logs.history.strangers import Apart, notices_of, set_apart
from ldlm_monitor.logs.parse.run_names import launch_time
from ldlm_monitor.logs.source.companions import Companion, Surroundings
from ldlm_monitor.logs.source.file_identity import NEW, FoundPath, Known, KnownContents
from ldlm_monitor.logs.source.file_system import Disk
from ldlm_monitor.logs.source.input_patterns import InputPatterns

COMPANION_SECONDS = 5.0  # least pause between two searches for a log's companions. A choice
COMPANION_SHARE = 0.25
"""A pause takes this part of the time for which the run has trained: on a loaded machine, whose
files they are shows minutes after a launch. A choice: a search takes 0.3 ms for each log."""
SELDOM_SECONDS = 320.0  # longest pause, and that of logs not written to for so long. A choice
SEARCH_SECONDS = 0.02
"""Seconds of a turn for the search of companions: urgent lines wait for so long. A choice."""
SCAN_SECONDS = 10.0
"""Seconds between two matches of all patterns if no folder's time changed: for files that wait
(`DOUBT_SECONDS`, a silent mount). A choice: a longer pause delays them, a shorter lists more."""
SCAN_SHARE = 100
"""If no folder's time changed, the patterns are matched again after so many times the duration of
the last match: with ten thousand files too, matching takes a hundredth of the time at most."""
DOUBT_SECONDS = 3.0
"""Seconds for which a file waits that may be a copy of a followed one, still being written: by then
copytruncate has copied a few GB and truncated the original."""
SETTLED_SECONDS = 0.1
"""Seconds after its time for which a folder counts as changed: another file may be made without
a later time, which Linux takes from a clock that ticks 100 to 1000 times a second."""

_Claims: TypeAlias = dict[Path, tuple[Companion, Path]]
"""Real path of a companion to the companion, and the newest launch's log that claims it."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to follow. `stale`: an earlier launch wrote it. `found`: its content read before."""

    path: Path
    stale: bool = False
    found: FoundPath = NEW

    @property
    def is_new(self) -> bool:
        """Whether its present bytes are to be judged."""
        return not (self.stale or self.found.name)


class Inputs:
    """Finds files that exist now and were not followed before, each once.

    Files of a mount that does not answer (`disk` raises `TimeoutError`) are found later.
    `companions`: whether to find companions. `joins`: whether the files of one launch are one run.
    `followed`: names of the files found, by real path.
    `search`: goes on at the next turn, as of thousands of logs it takes long; None if none does.
    """

    def __init__(
        self,
        patterns: InputPatterns,
        monitor: Monitor,
        *,
        companions: bool,
        joins: bool = True,
        disk: Disk,
    ) -> None:
        self.patterns = patterns
        self._disk = disk
        self._monitor = monitor
        self._seeks_companions = companions
        self._joins = joins
        self.followed: dict[Path, Path] = {}
        self._names: set[Path] = set()
        self._named: set[str] = set()
        self._said: set[str | Apart] = set()
        self._doubted: dict[Path, float] = {}
        self._unread: set[Path] = set()  # found empty, and empty since
        self._seek: dict[Path, tuple[float, float]] = {}  # next search; when its run still started
        self._seek_at = -math.inf
        self.search: Generator[None, None, _Claims] | None = None
        self._folders: dict[Path, int] = {}
        self._scan_at = -math.inf

    def replace(self, patterns: InputPatterns, *, companions: bool, joins: bool = True) -> None:
        """Use other patterns from now on; files that are followed stay followed."""
        self.patterns = patterns
        self._seeks_companions = companions
        self._joins = joins
        self._scan_at = -math.inf

    def adopt(self, paths: Iterable[Path], runs: Iterable[str]) -> None:
        """Mark `paths`, followed before a restart, as followed; `runs` keep their names."""
        self._named |= set(runs)
        for path in paths:
            if not self._is_new(path) and path not in self._names:  # its mount does not answer
                self._names.add(path)
                self.followed[path] = path

    def folders(self) -> set[Path]:
        """Folders in which files to follow may appear."""
        return {*self.patterns.folders(), *(path.parent for path in self.followed.values())}

    def joining(
        self,
        now: float,
        dirty: Collection[Path] | None,
        known: Callable[[], Iterable[Known]] = tuple,
    ) -> list[NewFile]:
        """New files.

        `dirty`: paths that changed, None if any may have. `known` returns the contents read so far.
        """
        fresh: list[NewFile] = []
        looked = set(self._folders)
        if dirty is not None:
            looked &= {path.parent for path in dirty}
        changed = (self._changed(folder) != self._folders[folder] for folder in looked)
        if now >= self._scan_at or any(changed):
            started = time.perf_counter()
            self._scan_at = now + SCAN_SECONDS
            # Before the match: a file that is made while it runs is then found at the next look.
            settled = time.time_ns() - int(SETTLED_SECONDS * 1e9)
            folders = self.patterns.folders()
            self._folders = {each: min(self._changed(each), settled) for each in folders}
            fresh += self._matching(now, known)
            self._scan_at += SCAN_SHARE * (time.perf_counter() - started)
        new = [each.path for each in fresh if each.is_new]
        filled = [*self._filled()]
        self._unread.update(path for path in new if not self._size(path))
        if new or filled:
            self._join([*new, *filled])
        if fresh and self.search is not None:  # that search leaves the new files out
            fresh += self._companions(now, math.inf)
        if self._seeks_companions and (fresh or now >= self._seek_at):
            fresh += self._companions(now, math.inf if fresh else SEARCH_SECONDS)
        return fresh

    def _filled(self) -> Iterator[Path]:
        """Files that were empty when they were found, have bytes now, and no record yet; once."""
        for path in [*filter(self._size, self._unread)]:
            self._unread.discard(path)
            run = self._run_of(path)
            if run is None or str(path) not in run.files:
                yield path

    def _join(self, new: Collection[Path]) -> None:
        """Give files of which nothing was read yet the runs of their launches."""
        try:
            names, files = self._monitor.names, self.followed.values()
            for notice in join_launches(new, files, names, joins=self._joins, disk=self._disk):
                self._say(notice)
        except TimeoutError:  # their names stand for what they hold
            return

    def _matching(self, now: float, known: Callable[[], Iterable[Known]]) -> Iterator[NewFile]:
        paths = [path for path in self.patterns.files() if path not in self._names]
        contents = KnownContents(known() if paths else (), self._disk)
        for path in paths:
            try:
                found = contents.find(path)
            except OSError:  # the backfill reports the error
                found = NEW
            if found.is_doubtful and now - self._doubted.setdefault(path, now) < DOUBT_SECONDS:
                self._scan_at = -math.inf
            elif self._is_new(path):
                yield NewFile(path, found=found)

    def forget(self, path: Path) -> None:
        """Let a file be found again: its mount stopped answering before it could be read."""
        self._names.discard(path)
        self.followed = {real: name for real, name in self.followed.items() if name != path}
        self._seek.clear()
        self._seek_at = -math.inf
        self._scan_at = -math.inf

    def _is_new(self, path: Path) -> bool:
        """Mark a file as followed; return False if it was followed before, under any name."""
        if path in self._names:
            return False
        try:
            real = self._disk.realpath(path)
        except TimeoutError:
            return False
        self._names.add(path)
        if real in self.followed:
            return False
        self.followed[real] = path
        return True

    def _companions(self, now: float, seconds: float) -> Iterator[NewFile]:
        """Tie companions to their logs; yield the companions that are not followed yet."""
        names = self._monitor.names
        for real, (companion, log_path) in self._searched(now, seconds).items():
            name = str(self.followed.get(real, companion.path))
            run = names.origin(str(log_path)).run
            if names.origin(name).run != run:
                names.tie(name, run)
                if real in self.followed and companion.reason:
                    self._say(f"{name} and {log_path} are one run: {companion.reason}")
            if self._is_new(companion.path):
                try:
                    # Rows before the log's training loop has begun are of an earlier launch.
                    stale = companion.path.suffix == ".jsonl" and not self._has_trained(log_path)
                except TimeoutError:
                    self.forget(companion.path)
                    continue
                if not stale:
                    self._call(run, companion.path, log_path)
                log.info("%s: following too, %s", companion.path, companion.reason)
                yield NewFile(companion.path, stale=stale)

    def _call(self, run: str, companion: Path, log_path: Path) -> None:
        """Until a record arrives, use the callback's run name.

        Later the run keeps its name: alerts, silences and messages were sent under it, and
        would be sent a second time under another.
        """
        try:
            name = callback_run(companion, self._disk)
        except TimeoutError:
            return
        if name is None:
            return
        if self._run_of(log_path) is None and run not in self._named:
            self._monitor.names.rename(run, name)
        elif name != run and not self._monitor.names.is_given:
            self._say(
                f"{plain(run)}: its callback calls it {plain(name)}; "
                "the old name stays, because alerts may have been sent under it"
            )

    def _say(self, notice: str) -> None:
        if notice not in self._said:
            self._said.add(notice)
            log.info("%s", notice)

    def _searched(self, now: float, seconds: float) -> _Claims:
        """What a search has found, once it is done; nothing if it takes longer than `seconds`."""
        until = time.perf_counter() + seconds
        self.search = self.search or self._claims(now)
        try:
            next(self.search)
            while time.perf_counter() < until:
                next(self.search)
        except StopIteration as end:
            self.search, self._seek_at = None, now + COMPANION_SECONDS
            return cast("_Claims", end.value)
        return {}

    def _claims(self, now: float) -> Generator[None, None, _Claims]:
        """Find what the logs that are due claim, in launch order; yields after each log."""
        claims: _Claims = {}
        apart: list[Apart] = []
        around = Surroundings(self._disk)
        logs = [path for path in self.followed.values() if self._is_due(path, now)]
        tied = self._tied() if logs else {}
        rows = [path for path in self.followed.values() if path.suffix == ".jsonl"]
        given = [path for path in rows if self.patterns.names(path)] if logs else []
        for path in sorted(logs, key=lambda path: (launch_time(str(path)) or 0.0, path)):
            yield
            try:
                run = self._monitor.names.origin(str(path)).run
                found, strangers = kin(path, around, tied.get(run, ()), given)
                claims |= {self._disk.realpath(each.path): (each, path) for each in found}
                inputs = self._unread_inputs(path) if strangers else {}
                names = self._monitor.names
                apart += set_apart(path, strangers, names, inputs, self._disk)
            except TimeoutError:  # a file on the silent mount may be the better match: wait
                self._seek[path] = (now + COMPANION_SECONDS, now)
                continue
        for notice in notices_of(each for each in apart if each not in self._said):
            self._say(notice)
        self._said |= {*apart}
        return claims

    def _unread_inputs(self, path: Path) -> dict[Path, Path]:
        """Files of folders and globs of which the run of the log `path` has no record yet."""
        run = self._run_of(path)
        read = () if run is None else run.files
        named = self.patterns.names
        return {
            real: name
            for real, name in self.followed.items()
            if not named(name) and str(name) not in read
        }

    def _tied(self) -> dict[str, set[Path]]:
        """By run, the real paths of the files that were tied to it."""
        names = self._monitor.names
        tied: dict[str, set[Path]] = {}
        for real, name in self.followed.items():
            if names.is_tied(str(name)):
                tied.setdefault(names.origin(str(name)).run, set()).add(real)
        return tied

    def _is_due(self, path: Path, now: float) -> bool:
        """Whether to search a log's companions now; sets the time of the next search."""
        at, began = self._seek.get(path, (now, now))
        if now < at or path.suffix == ".jsonl":
            return False
        run, pause = self._run_of(path), SELDOM_SECONDS
        began = now if run is None or run.life.state == "starting" else began
        if run is not None and run.life.ended:
            pause = math.inf  # this search is the last, for companions of short runs
        elif now - self._changed(path) / 1e9 < SELDOM_SECONDS:
            pause = min(max((now - began) * COMPANION_SHARE, COMPANION_SECONDS), SELDOM_SECONDS)
        self._seek[path] = (now + pause, began)
        return True

    def _run_of(self, path: Path) -> TrainingRun | None:
        return self._monitor.runs.get(self._monitor.names.origin(str(path)).run)

    def _has_trained(self, path: Path) -> bool:
        run = self._run_of(path)
        has_steps = run is not None and run.life.progress_step is not None
        return has_steps or has_losses(path, self._disk)

    def _size(self, path: Path) -> int:
        try:
            return self._disk.stat(path).st_size
        except OSError:
            return 0

    def _changed(self, folder: Path) -> int:
        try:
            return self._disk.stat(folder).st_mtime_ns
        except OSError:
            return 0
