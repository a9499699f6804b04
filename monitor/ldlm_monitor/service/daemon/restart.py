"""What a restart reads again: the files that were followed, and their bytes' arrival times."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.arrival import Arrival
from ldlm_monitor.base.chunk import FileId
from ldlm_monitor.base.text.format import byte_size
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.logs.history.history_file import HistoryFile, JudgedBefore
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.logs.source.backlog import Backlog
from ldlm_monitor.logs.source.file_identity import FilePosition, Known
from ldlm_monitor.logs.source.file_system import Disk
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.service.state.read_log import ObservedRecords, file_key
from ldlm_monitor.service.state.state_store import State, StateStore

SKEW_SECONDS = 60.0
"""If the clock was set back by more seconds, the read log's times are not used: NTP steps less."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Restart:
    """The state of the daemon that ran before; `open` finds the files of its positions.

    `arrivals`, `observed`: the read log. `files`: the files to read again. `waiting`: by name, the
    positions in files that cannot be read now; `missing`: the names among them that do not exist.
    `contents`: what was read before, to recognise a renamed or copied file.
    """

    state: State
    arrivals: list[Arrival]
    observed: list[ObservedRecords]
    files: list[HistoryFile] = field(default_factory=list)
    waiting: dict[str, list[FilePosition]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    contents: list[Known] = field(default_factory=list)

    @property
    def floor(self) -> float:
        """The time (Unix seconds) at which the daemon read last."""
        seen = [*(each.at for each in self.arrivals), *(each.at for each in self.observed)]
        return max([self.state.clock, *seen])

    def compare(
        self, monitor: Monitor, passed: Sequence[tuple[Transition, bool]]
    ) -> list[tuple[Transition, bool]]:
        """Continue the alerts of before the restart; return those that are carried over.

        `passed`: the transitions of the bytes read again, each with whether it is news. An alert
        that none of them made fire is carried over. An alert that ended in the news and is active
        again keeps its new start.
        """
        fired = {each.key for each, _ in passed if each.state == "firing"}
        ended = {
            each.key for each, news in passed if news and each.state not in ("pending", "firing")
        }
        carried = monitor.carry_over(
            (each for each in self.state.alerts if each.key not in fired),
            {each.key: each.active_at for each in self.state.alerts if each.key not in ended},
        )
        return [(each, False) for each in carried]

    def open(
        self,
        store: StateStore,
        names: RunNames,
        journal: Journal,
        now: float,
        *,
        budget: int | None,
        disk: Disk,
    ) -> None:
        """Find the files, tie them to their runs, and log how many bytes cannot be read again."""
        for path, run in self.state.runs.items():
            if names.origin(path).run != run:
                names.tie(path, run)
        kept = sorted(self.state.positions, key=lambda position: position.nameless)
        own: dict[tuple[str, FileId], list[Arrival]] = {}
        for arrival in self.arrivals:
            own.setdefault((arrival.path, arrival.file), []).append(arrival)
        for position in [*kept, *_begun_since(kept, self.arrivals)]:
            try:
                found = Backlog.of(position, now, journal, disk)
                is_same = found is not None and found.offset == position.offset
                self.contents.append(Known(position, gone=not is_same))
                if found is not None:
                    if is_same and (here := found.position()) is not None:
                        self.contents.append(Known(here))
                    seen = self._seen(found, position, own, store)
                    run = names.origin(position.path).run
                    file = HistoryFile(found, run, now=now, seen=seen, budget=budget, disk=disk)
                    self.files.append(file)
            except OSError as error:
                self.waiting.setdefault(position.path, []).append(position)
                if isinstance(error, FileNotFoundError | NotADirectoryError):
                    self.missing.add(position.path)
        _note_lost(store, self._present(), journal)
        # Rotated files, which lost their names, come first: they are older than the named ones.
        self.files.sort(
            key=lambda each: (each.backlog.has_name, each.seen and not each.seen.position.nameless)
        )

    def _seen(
        self,
        found: Backlog,
        position: FilePosition,
        own: dict[tuple[str, FileId], list[Arrival]],
        store: StateStore,
    ) -> JudgedBefore:
        # Another offset: the file was truncated, and another content begins in it.
        is_same = found.offset == position.offset
        before = position.file if is_same else found.file
        if before != found.file:  # a copy, or the device's number changed with a mount
            store.read_log.rename(position.path, before, found.file)
        kept = position if is_same else FilePosition.at_start(found.path, found.file)
        arrivals = own.get((found.path, before), [])
        return JudgedBefore(kept, arrivals, self.state.judged)

    @property
    def paths(self) -> set[Path]:
        """The names that are followed again, whether or not their files can be read now."""
        return {Path(name) for name in (*self.waiting, *(file.path for file in self.files))}

    @property
    def unnamed(self) -> set[Path]:
        """Names whose known files were all replaced: each may lead to a new file now."""
        named = {file.path for file in self.files if file.backlog.has_name}
        return self.paths - {Path(name) for name in (*named, *self.waiting)}

    def positions(self) -> dict[str, list[FilePosition]]:
        """Name to the positions up to which its files were read now; closes the files."""
        found = {str(path): [*self.waiting.get(str(path), ())] for path in self.paths}
        for file in self.files:
            if (position := file.position()) is not None:
                found[file.path].append(position)
            file.backlog.tail.close()
        return found

    def _present(self) -> set[str]:
        waiting = {
            file_key(each.path, each.file)
            for path, positions in self.waiting.items()
            if path not in self.missing
            for each in positions
        }
        return waiting | {file_key(file.path, file.backlog.file) for file in self.files}


def recall(store: StateStore, now: float) -> Restart | None:
    """The state of the daemon that ran before, for a start at `now`; None on a first start."""
    state = store.load()
    if state is None:
        return None
    arrivals, observed = store.read_log.arrivals(), store.read_log.observed()
    found = Restart(state, arrivals, observed)
    if not found.floor <= now + SKEW_SECONDS:  # also if a damaged state file made it NaN
        log.warning(
            "the clock was set back since the monitor last ran: times of bytes read before are"
            " estimated from the logs"
        )
        state.clock, found.arrivals, found.observed = now, [], []
        store.read_log.forget_all()  # otherwise the next start would find these times again
    return found


def _note_lost(store: StateStore, present: Collection[str], journal: Journal) -> None:
    """Note, in one line, how many bytes were read before and cannot be read again."""
    lost = {path: count for path, count in store.read_log.forget_others(present).items() if count}
    if lost:
        first, *others = sorted(lost)
        more = f" and {len(others)} more" if others else ""
        journal.note(
            "gone",
            first,
            f"{byte_size(sum(lost.values()))} of this file{more}, read before the restart,"
            " were rotated away or emptied since, and are not judged again; active alerts"
            " continue",
        )


def _begun_since(kept: list[FilePosition], arrivals: list[Arrival]) -> list[FilePosition]:
    """Start positions of files that the daemon first read after its last commit."""
    known = {position.key for position in kept}
    begun = {(each.path, each.file) for each in arrivals if each.file[:2] not in known}
    return [FilePosition.at_start(path, file) for path, file in sorted(begun)]
