"""The pump: each turn reads new bytes, judges them, and queues their alerts for sending."""

import logging
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.finished.playback.recording import Recorder
from ldlm_monitor.judge.core.assemble import assemble, rules_of
from ldlm_monitor.judge.core.self_metrics import NO_HOSTS, edge_points
from ldlm_monitor.logs.parse.urgency import Urgency
from ldlm_monitor.logs.source.file_system import DIRECT, Disk, MountTable, read_mounts
from ldlm_monitor.logs.source.follower import Follower, StdinSource
from ldlm_monitor.logs.source.input_patterns import STANDARD_INPUT, resolve
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.timed_disk import TimedDisk
from ldlm_monitor.logs.source.wake import GATHER_SECONDS, Rota, Waker
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.backfill import Backfill
from ldlm_monitor.service.daemon.discovery import Inputs
from ldlm_monitor.service.daemon.dispatcher import Dispatcher
from ldlm_monitor.service.daemon.newest_lines import FIRST_SECONDS, MORE_SECONDS, NewestLines
from ldlm_monitor.service.daemon.pictures import Pictures
from ldlm_monitor.service.daemon.reading_lag import LATE_SECONDS, ReadingLag
from ldlm_monitor.service.daemon.restart import recall
from ldlm_monitor.service.daemon.stall_probe import Probing
from ldlm_monitor.service.daemon.turn_budget import TurnBudget
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.state.state_dir import StateDir
from ldlm_monitor.service.state.state_store import State, StateStore

POLL_SECONDS = 1.0
"""Seconds between two polls of all files (of thousands, a part at a time: `Rota`): network mounts
send no events, and alerts are due in a second."""
RELOADED = ("rules", "files", "companions", "join", "stall")
"""Settings that a reload changes; others are bound to threads, sockets or open files."""
EDGE_SECONDS = 5.0
"""Seconds between two reads of the daemon's own metrics: the default evaluation interval."""
COMMIT_SECONDS = 10.0
"""Seconds between commits without alerts. A choice: fewer writes, more read again after a kill."""
LOOK_SECONDS = 0.02
"""Seconds for which a turn judges before it looks for urgent bytes in files that changed since: a
choice; as long for all that is not urgent as for what is, if that takes longer."""
NEWS_SECONDS = 3600.0
"""Alerts of a history are sent up to so many seconds after its last byte: people saw older ones."""

log = logging.getLogger(__name__)


class CutShort(BaseException):
    """The monitor is to end during the first reading: alerts of half a history may be false."""


@dataclass(eq=False)
class Pump:
    """Reads new bytes, judges them, and queues alerts; one call of `turn` is one round.

    `pictures` has the snapshots. `caught_up`: all that the files held at the start was judged.
    `ended`: standard input was the only input, and it is closed.
    `turns`: how many turns have ended. `probing` inspects this host if a run stalls; `folder`: the
    state folder, for its free space; `recorder` records the input; all three may be None.
    `journal` gets notices, which each turn logs. `stopping` returns whether to end. `disk` reads
    the inputs; `mounts` returns the mount table. `meanwhile` is called while a first
    turn reads. A first turn that is to end raises `CutShort` and
    keeps no state, so that the next start judges it all.
    """

    settings: Settings
    outbox: Outbox
    store: StateStore
    dispatcher: Dispatcher
    waker: Waker
    _: KW_ONLY
    probing: Probing | None = None
    folder: StateDir | None = None
    recorder: Recorder | None = None
    journal: Journal = field(default_factory=Journal)
    disk: Disk = DIRECT
    mounts: Callable[[], MountTable] = read_mounts
    stopping: Callable[[], bool] = lambda: False
    meanwhile: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._rota = Rota(self.waker.watches)
        self._looked_at = self._edge_at = self._commit_at = -math.inf
        self._unreadable: set[str] = set()
        self._noted: set[Path] = set()  # paths that changed while a turn judged
        self._budget = TurnBudget()
        self._stdin: StdinSource | None = None
        self._committed: tuple[int, int, int] | None = None
        self._restart = recall(self.store, time.time())
        self.monitor = assemble(
            self.settings, time.perf_counter, retention=self.settings.retention_seconds
        )
        self.follower = Follower(
            disk=self.disk,
            mounts=self.mounts,
            journal=self.journal,
            urgent=Urgency(self.settings.formats),
        )
        self._calls = TimedDisk(self.journal, disk=self.disk, mounts=self.mounts, check=self._check)
        disk = self._calls.disk
        self.inputs = Inputs(
            resolve(self.settings.files, base=Path(), disk=disk),
            self.monitor,
            companions=self.settings.companions,
            joins=self.settings.join,
            disk=disk,
        )
        self._backfill = Backfill(
            self.monitor,
            self.inputs,
            self.follower,
            disk=disk,
            budget=self.settings.history_bytes,
            feed=self._feed,
            set_ends=self._set_ends,
            ahead=self.recorder is None,
        )
        self.pictures = Pictures(self.monitor)
        self._lag = ReadingLag(self.monitor, self._record_lag)
        self.dispatcher.look = self.monitor.look
        self.caught_up = self.ended = self._is_whole = False
        self.turns = 0

    @property
    def snapshot(self) -> Snapshot:
        """The last snapshot. Any thread may read it."""
        return self.pictures.snapshot

    @property
    def reading(self) -> float | None:
        """The share of what files held when they were found that was judged; None if all was."""
        found = self._backfill.reading
        return found if self.caught_up else found or 0.0

    def turn(self, dirty: Collection[Path] | None, now: float) -> None:
        """One round at `now` (Unix seconds): new files, new bytes, the passing of time.

        `dirty`: the paths that changed; None if any may have.
        """
        self._is_whole = False
        self._lag.begin(now)
        everything = dirty is None or now - self._looked_at >= POLL_SECONDS
        dirty = {*(dirty or ()), *self._noted}
        self._noted.clear()
        self._looked_at = now if everything else self._looked_at
        began = time.monotonic()
        self._join(now, None if everything else dirty)
        if self.probing is not None and self.caught_up:
            reads = self.store.read_log
            self._send(self.probing.judge(self.monitor, reads, self.recorder, now), now)
        # After a long first reading, what came meanwhile is not of `now`: the next turn reads it.
        if self.caught_up or time.monotonic() - began < LATE_SECONDS:
            part = self._rota.turn(self.inputs.followed) if everything else set()
            self._read(part if part is None else part.union(dirty), now)
        self._note_edge(now, everything=everything)
        self._backfill.release(now)
        self._send(self._backfill.take_live() + self.monitor.tick(now), now)
        self.dispatcher.end_acknowledgements([], self.monitor.engine.active_keys)
        if self.journal.notices or now >= self._commit_at:
            self._commit(now)
        for notice in self.journal.drain():
            log.warning("%s", notice)
            if notice.kind == "unreadable":
                self._unreadable.add(notice.path)
            elif notice.kind in ("readable", "vanished"):
                self._unreadable.discard(notice.path)
            elif notice.kind == "record_cut":
                self.monitor.count_dropped("truncated")
        if self.recorder is not None:
            self.recorder.turn(now)
        self.monitor.forget_ended(self.settings.ended_runs_kept)
        self._picture(now)
        self.caught_up = self._is_whole = True
        self.turns += 1

    def reload(self, settings: Settings) -> None:
        """Use other rules, limits and inputs. If it raises `UsageError`, nothing has changed."""
        rules = rules_of(settings)
        patterns = resolve(settings.files, base=Path(), disk=self._calls.disk)
        taken = {name: getattr(settings, name) for name in RELOADED}
        self.settings = self.settings.model_copy(update=taken)
        self.monitor.reconfigure(rules, self.settings.stall)
        self.inputs.replace(patterns, companions=self.settings.companions, joins=self.settings.join)
        self._looked_at = self._commit_at = -math.inf

    def leave_out(self, seconds: float) -> None:
        """Count no silence for `seconds`, by which the clock jumped or the monitor was stopped."""
        if self.recorder is not None:
            self.recorder.passed(max(self.monitor.clock, 0.0), left_out=seconds)
        self.monitor.leave_out(seconds)
        self._lag.leave_out(seconds)

    def pause(self, now: float) -> float:
        """Seconds to wait for a file event before the next turn; 0 while a backlog is read."""
        if self._backfill.is_busy or self.follower.has_backlog or self.inputs.search:
            return 0.0
        picture_at = self.pictures.due if self.pictures.is_old else None
        stdin_peek = None if self._stdin is None else self._stdin.next_peek()
        times = (self.monitor.due(), self.follower.next_peek(), stdin_peek, picture_at)
        look_at = self._looked_at + POLL_SECONDS if not self._noted else now + GATHER_SECONDS
        until = min([look_at, *(time for time in times if time is not None)])
        return max(until - now, 0.0)

    def behind(self) -> int:
        """Bytes of the files that are not judged yet. Any thread may call it."""
        return self.follower.behind() + self._backfill.behind

    def close(self) -> None:
        """Commit the state, unless a turn or the first reading was cut short; close the files."""
        if self.caught_up and self._is_whole:
            self._commit(self.monitor.clock)
        self.follower.close()
        self._calls.close()

    def _read(self, dirty: Collection[Path] | None, now: float) -> None:
        """Read and judge new bytes of the files `dirty` (None: all); urgent ones come first."""
        self._judge([*self.follower.read_urgent(dirty, now, self._budget.size)], now)
        chunks = [*self.follower.read((), now, self._budget.size)]
        piped = [] if self._stdin is None else [*self._stdin.read(now)]
        self._lag.read([chunk.path for chunk in (*chunks, *piped)], self._late(now))
        size, began = sum(len(chunk.data) for chunk in chunks), time.perf_counter()
        self._judge(chunks, now, looks=True)
        spent = time.perf_counter() - began
        self._budget.note(size, spent, has_backlog=self.follower.has_backlog)
        if self._stdin is not None:
            for chunk in piped:
                self._send(self._feed(chunk, now), now)
            if self._stdin.ended and not self.ended:
                self.ended = not self.inputs.patterns.sources
                if self.ended and self.recorder is not None:
                    self.recorder.finished(["-"], now)
                self._send(self.monitor.finish(now, ["-"]) if self.ended else [], now)
        self._lag.judged()

    def _judge(self, chunks: list[Chunk], now: float, *, looks: bool = False) -> None:
        """Judge chunks in their order. `looks`: meanwhile, urgent files that changed come first."""
        if chunks:
            self.store.read_log.note(chunks, now, self._lag.last_turn)
        look_at, waiting = time.perf_counter() + LOOK_SECONDS, deque(chunks)
        while waiting:
            self._send(self._feed(waiting.popleft(), now), now)
            if not looks or (began := time.perf_counter()) < look_at:
                continue
            urgent = self._look(now)
            paths = {chunk.path for chunk in urgent}
            self._send(
                [t for each in waiting if each.path in paths for t in self._feed(each, now)], now
            )
            waiting = deque(each for each in waiting if each.path not in paths)
            self._judge(urgent, now)
            ended = time.perf_counter()
            look_at = ended + max(LOOK_SECONDS, ended - began)

    def _look(self, now: float) -> list[Chunk]:
        """New bytes of urgent files among those that changed since the turn began."""
        changed = set() if self.waker.polling else self.waker.wait(0)
        if changed is None:  # events were lost: the next turn looks at every file
            self._looked_at = -math.inf
        if not changed:
            return []
        self._noted |= changed
        return [*self.follower.read_urgent(changed, now, self._budget.size, least=0)]

    def _send(self, transitions: list[Transition], now: float) -> None:
        """Queue alerts, but those of runs that are read in part."""
        if transitions := self._backfill.hold(transitions):
            self.dispatcher.dispatch(transitions, now - self.monitor.ahead)  # senders' wall clock
            self.dispatcher.end_acknowledgements(transitions, self.monitor.engine.active_keys)
            if any(each.state != "pending" for each in transitions):
                self._commit_at = -math.inf  # a restart would send them again

    def _late(self, now: float) -> Iterator[tuple[str, float]]:
        """The files with bytes that were not judged, and up to when (Unix s) each was."""
        yield from self._backfill.late
        yield from self.follower.late(now)
        if self._stdin is not None and self._stdin.is_behind:
            yield STANDARD_INPUT, self._lag.last_turn

    def _record_lag(self, read_to: Mapping[str, float]) -> None:
        if self.recorder is not None:
            self.recorder.passed(max(self.monitor.clock, 0.0), read_to=read_to)

    def _set_ends(self, ends: Mapping[str, float]) -> None:
        if self.recorder is not None:
            self.recorder.passed(max(self.monitor.clock, 0.0), ends=ends)
        self.monitor.runs.set_ends(ends)

    def _feed(
        self, chunk: Chunk, now: float, counted: bool = True, since: float | None = None
    ) -> list[Transition]:
        """Judge a chunk. If a bug of ours raises, that is logged and counted: the chunk is lost."""
        if self.recorder is not None:
            self.recorder.fed(chunk, self.monitor.names.origin(chunk.path).run, now)
        try:
            return self.monitor.feed(chunk, now, counted=counted, since=since)
        except Exception:  # a bug of ours: the other files are still read
            self.monitor.count_dropped("internal_error")
            log.exception("%s, line %d: a bug of ours; bytes dropped", chunk.path, chunk.line)
            return []

    def _note_edge(self, now: float, *, everything: bool) -> None:
        if everything:
            hindered = len(self._unreadable) + len(self.journal.silent)
            self.monitor.count_dropped("unreadable", hindered)
        if now - self._edge_at >= EDGE_SECONDS:
            self._edge_at = now
            free = self.folder.look() if self.folder is not None else None
            points = edge_points(self.outbox.counts(), self.behind(), free, self.outbox.durations)
            hosts = self.probing.hosts if self.probing is not None else NO_HOSTS
            self.monitor.note_edge(list(points), hosts)

    def _check(self) -> None:
        if self.stopping() and not self.caught_up:
            raise CutShort

    def _join(self, now: float, dirty: Collection[Path] | None) -> None:
        """Judge and follow files that are new, or were followed before."""
        restart, self._restart = self._restart, None
        again: set[Path] = set()
        if restart is not None:
            again = self._backfill.resume(restart, self.store, now)
        joining = self.inputs.joining(now, dirty, self._backfill.known)
        for file in joining:
            if file.stale:
                self._backfill.pass_over(file.path)
            elif file.found.name:
                self._backfill.go_on(file.path, file.found)
                self._commit_at = -math.inf  # the original, if it was emptied, leaves no trace
        if self.inputs.patterns.standard_input and self._stdin is None:
            self._stdin = StdinSource(sys.stdin.buffer, self.waker.ring, self.journal)
        self._backfill.add({file.path for file in joining if file.is_new} | again)
        if joining or restart is not None:
            self.waker.watch(self.inputs.folders())
        newest = None if self.caught_up else self._newest()
        if newest is not None:
            self._show(newest, FIRST_SECONDS)
        if not self._backfill.begin(now, restart, everything=not self.caught_up):
            return
        while (found := self._backfill.step()) is None:
            if newest is None:
                return
            self._check()
            self._show(newest, MORE_SECONDS)
            self.meanwhile()
        self._commit_at = -math.inf
        recent = now - found.end <= NEWS_SECONDS
        self.dispatcher.dispatch_history(found.passed, now - self.monitor.ahead, recent=recent)

    def _newest(self) -> NewestLines:
        files, disk = self.inputs.followed.values(), self._calls.disk
        return NewestLines(self.settings.formats, self.monitor.names, disk, files)

    def _show(self, newest: NewestLines, seconds: float) -> None:
        """Show what newest lines say, looking at more of them for so long, and how far it is."""
        if newest.has_more:
            self.pictures.newest = newest.read(seconds)
        self.pictures.show_reading(self.reading, self._backfill.judged_to)

    def _commit(self, now: float) -> None:
        """Commit the state; alerts of bytes that it marks as judged are in the outbox already."""
        self._commit_at = now + COMMIT_SECONDS
        standing = (self.monitor.version, self.store.read_log.last, len(self.follower.paths))
        if standing == self._committed:  # a file that only lost its name is found at the restart
            return
        self._committed, positions = standing, self.follower.positions()
        state = State(
            positions,
            [each for each in self.monitor.alerts() if not self._backfill.is_partial(each.labels)],
            counts=self.monitor.own.view(),
            runs={each.path: self.monitor.names.origin(each.path).run for each in positions},
            clock=self.monitor.clock,
            read_to=min([self.monitor.clock, *(at for _, at in self._late(now))]),
            judged=self.store.read_log.last,
        )
        self.store.commit(state, self._backfill.take_contents())

    def _picture(self, now: float) -> None:
        """Take a snapshot if it is due; the last one in any case: a report is made of it."""
        followed = map(str, self.inputs.followed.values())
        missing, positions = self.inputs.patterns.missing, self.follower.positions
        self.pictures.note_inputs(now, missing, self._unreadable, followed, positions)
        partial = self._backfill.partial
        reading, judged_to = self._backfill.reading, self._backfill.judged_to
        if self.pictures.take(
            now, at_once=self.stopping(), partial=partial, reading=reading, judged_to=judged_to
        ):
            self.dispatcher.update_incidents(self.snapshot, now - self.monitor.ahead)
