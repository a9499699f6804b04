"""What a restarted daemon goes on with: the last checkpoint, and what the files got since."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ldlm_monitor.core.monitor import Monitor
from ldlm_monitor.daemon.checkpoint import Checkpoint, thaw
from ldlm_monitor.model.chunk import FileId
from ldlm_monitor.model.errors import CheckpointError, InputError
from ldlm_monitor.playback.resumed_file import ResumedFile
from ldlm_monitor.source import Continuation, Disk, Journal, Position
from ldlm_monitor.state.read_log import Arrival, Observed
from ldlm_monitor.state.state_store import StateStore

SKEW_SECONDS = 60.0
"""A clock that was set back by more is no clock to go on with."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Restart:
    """A checkpoint, and the files of its positions.

    `files` are read on; `waiting` are positions, by name, whose files cannot be read now;
    of these names, `missing` lead nowhere.
    `floor` (Unix seconds): until then everything was seen. `observed` no file tells.
    """

    checkpoint: Checkpoint
    floor: float
    arrivals: list[Arrival]
    observed: list[Observed] = field(default_factory=list)
    files: list[ResumedFile] = field(default_factory=list)
    waiting: dict[str, list[Position]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)

    def open(self, journal: Journal, now: float, disk: Disk) -> None:
        """Look for the files. What was judged and is not there any more is counted as lost."""
        names = self.checkpoint.monitor.names
        kept = sorted(self.checkpoint.positions, key=lambda position: position.nameless)
        own: dict[tuple[str, FileId], list[Arrival]] = {}
        for arrival in self.arrivals:
            own.setdefault((arrival.path, arrival.file), []).append(arrival)
        for position in [*kept, *_begun_since(kept, self.arrivals)]:
            try:
                found = Continuation.of(position, now, journal, disk)
            except (OSError, InputError) as error:
                self.waiting.setdefault(position.path, []).append(position)
                if isinstance(error, FileNotFoundError | NotADirectoryError):
                    self.missing.add(position.path)
                continue
            if found is not None:
                run = names.origin(position.path).run
                seen = own.get((found.path, found.file), [])
                later = [each for each in seen if each.start >= found.offset]
                self.files.append(
                    ResumedFile(found, later, run, now, was_named=not position.nameless)
                )
        # An old one before the new, as in the daemon's life.
        self.files.sort(key=lambda file: (file.continuation.has_name, file.was_named))
        self._count_lost(journal)

    @property
    def paths(self) -> set[Path]:
        """The names that are followed again: their files are there, or are waited for."""
        return {Path(name) for name in (*self.waiting, *(file.path for file in self.files))}

    @property
    def unnamed(self) -> set[Path]:
        """Names of which only files that they led to before are known."""
        named = {file.path for file in self.files if file.continuation.has_name}
        return self.paths - {Path(name) for name in (*named, *self.waiting)}

    def positions(self) -> dict[str, list[Position]]:
        """By name, where reading stands now, and the files are given back."""
        found = {str(path): [*self.waiting.get(str(path), ())] for path in self.paths}
        for file in self.files:
            if (position := file.continuation.position()) is not None:
                found[file.path].append(position)
            file.continuation.close()
        return found

    def _count_lost(self, journal: Journal) -> None:
        known = {(file.path, file.continuation.file) for file in self.files}
        lost: Counter[str] = Counter()
        for each in self.arrivals:
            if each.kind != "peek" and (each.path, each.file) not in known:
                lost[each.path] += each.stop - each.start
        for path, count in lost.items():
            if count and (path in self.missing or path not in self.waiting):
                journal.lost(path, count)


def recall(ledger: StateStore, stamp: str, fresh: Monitor, now: float) -> Restart | None:
    """What was kept under `stamp`; None: nothing, or nothing of use. `fresh`: as for `thaw`."""
    body = ledger.checkpoint(stamp)
    if body is None:
        return None
    try:
        kept = thaw(body, fresh)
    except CheckpointError as problem:
        log.warning("the state that was kept cannot be used (%s); reading the logs anew", problem)
        return None
    arrivals = ledger.arrivals.since(kept.turn)
    if kept.monitor.clock > now + SKEW_SECONDS:
        log.warning("the state that was kept is of the future; reading the logs anew")
        return None
    observed = ledger.arrivals.observed_since(kept.turn)
    seen = [*(each.at for each in arrivals), *(each.at for each in observed)]
    floor = max([kept.monitor.clock, *seen])
    return Restart(kept, floor, arrivals, observed)


def _begun_since(kept: list[Position], arrivals: list[Arrival]) -> list[Position]:
    """The beginnings of files that were begun after the checkpoint."""
    known = {position.key for position in kept}
    begun = {(each.path, each.file) for each in arrivals if each.file[:2] not in known}
    return [Position.at_start(path, file) for path, file in sorted(begun)]
