"""The turn of the pump: what is new is read, judged, and sent."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ldlm_monitor.config import Settings
from ldlm_monitor.core.assemble import assemble, rules_of, stall_of
from ldlm_monitor.core.monitor import Monitor
from ldlm_monitor.core.self_metrics import edge_points
from ldlm_monitor.daemon.backfill import Backfill
from ldlm_monitor.daemon.discovery import Inputs
from ldlm_monitor.daemon.dispatcher import Dispatcher
from ldlm_monitor.daemon.join_queue import JoinQueue
from ldlm_monitor.daemon.restart import recall
from ldlm_monitor.daemon.stall_probe import Probing
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.model.view import Snapshot
from ldlm_monitor.notify.courier import Courier
from ldlm_monitor.notify.outbox import Outbox
from ldlm_monitor.notify.silences import Silences
from ldlm_monitor.playback.recording import Recorder
from ldlm_monitor.source.file_identity import FilePosition
from ldlm_monitor.source.file_system import DIRECT, Disk, MountTable, read_mounts
from ldlm_monitor.source.follow import Follower, StdinSource
from ldlm_monitor.source.input_patterns import resolve
from ldlm_monitor.source.timed_disk import TimedDisk
from ldlm_monitor.source.wake import Rota, Waker
from ldlm_monitor.state.state_dir import StateDir
from ldlm_monitor.state.state_store import State, StateStore

POLL_SECONDS = 1.0
"""How often files are checked although nothing rang; of very many, a part each time (`Rota`)."""
RELOADED = ("rules", "files", "companions", "stall")
"""Settings that a reload takes up."""
EDGE_SECONDS = 5.0
"""Between two looks at the outbox, the backlog and the free disk for the monitor's own metrics:
as often as rules are evaluated by default."""
COMMIT_SECONDS = 10.0
"""How often the state is kept where nothing changed that must be kept at once: what is lost of
it is judged again, and which bytes came when is noted in every turn."""
SNAPSHOT_SECONDS = 0.25
NEWS_SECONDS = 3600.0
"""An alert found in history is sent only if its run was active within this time."""

log = logging.getLogger(__name__)


class Pump:
    """Reads what is new, judges it, and sends it.

    `turn` is the whole of it; the threads around it only decide when it is called. `snapshot` is
    replaced whole, for readers in other threads. `ended`: standard input was all there was to
    follow, and it is closed. `turns` counts the turns that have ended. `probing` inspects this
    host where a run stalls; None: nothing does. `folder` is the state folder, whose free space is
    watched; None: it is not. `recorder` keeps what is judged. `stopping` returns whether it has to
    end. `prints`: a line for each transition.
    """

    def __init__(
        self,
        settings: Settings,
        outbox: Outbox,
        store: StateStore,
        receivers: Collection[str],
        waker: Waker,
        *,
        silences: Silences | None = None,
        couriers: Sequence[Courier] = (),
        probing: Probing | None = None,
        folder: StateDir | None = None,
        recorder: Recorder | None = None,
        disk: Disk = DIRECT,
        mounts: Callable[[], MountTable] = read_mounts,
        stopping: Callable[[], bool] = lambda: False,
        prints: bool = True,
    ) -> None:
        self.dispatcher = Dispatcher(outbox, receivers, silences, couriers, prints=prints)
        self._outbox = outbox
        self._store = store
        self._probing = probing
        self._folder = folder
        self._recorder = recorder
        self._waker = waker
        self._rota = Rota(waker.watches)
        self._looked_at = self._picture_at = self._edge_at = self._commit_at = -math.inf
        self._unreadable: set[str] = set()
        self._stdin: StdinSource | None = None
        self._settings = settings
        self._committed: tuple[int, int, list[FilePosition]] | None = None
        self._restart = recall(store, time.time())
        self.monitor: Monitor = assemble(settings, time.perf_counter)
        self.follower = Follower(disk=disk, mounts=mounts)
        self._calls = TimedDisk(self.follower.journal, disk=disk, mounts=mounts)
        self._disk = self._calls.disk
        self.inputs = Inputs(
            resolve(settings.files, base=Path(), disk=self._disk),
            self.monitor,
            companions=settings.companions,
            disk=self._disk,
        )
        self._queue = JoinQueue(self.monitor.names, self._disk)
        self._backfill = Backfill(
            self.monitor,
            self.inputs,
            self.follower,
            disk=self._disk,
            budget=settings.history_bytes,
            feed=self._feed,
        )
        self.snapshot: Snapshot = self.monitor.snapshot()
        self.caught_up = self.ended = self._is_whole = False
        self._stopping = stopping
        self.turns = 0

    @property
    def reading(self) -> float | None:
        """How much of what the files held at first was judged, 0 to 1; None: all of it."""
        return self._backfill.reading if self.caught_up else self._backfill.reading or 0.0

    def turn(self, dirty: Collection[Path], now: float) -> None:
        """One round at `now` (Unix seconds): new files, new bytes, the passing of time."""
        self._is_whole = False
        everything = not dirty or now - self._looked_at >= POLL_SECONDS
        rung = self.inputs.has_new(dirty)
        if everything or rung or self._queue or self._backfill.is_playing:
            self._looked_at = now if everything or rung else self._looked_at
            if not self._join(now, rung=rung):
                return
        transitions: list[Transition] = []
        if self._probing is not None and self.caught_up:
            log_of_reads = self._store.read_log
            transitions += self._probing.judge(self.monitor, log_of_reads, self._recorder, now)
        part = self._rota.turn(self.inputs.followed) if everything else set()
        transitions += self._read(part if part is None else part.union(dirty), now)
        self._note_edge(now, everything=everything)
        transitions = self._backfill.hold(transitions + self.monitor.tick(now))
        self.dispatcher.dispatch(transitions, now)
        self.dispatcher.update_silences(transitions, self.monitor.active, now)
        if transitions or self.follower.journal.notices or now >= self._commit_at:
            self._commit(now)
        for notice in self.follower.journal.drain():
            log.warning("%s", notice)
            if notice.kind == "unreadable":
                self._unreadable.add(notice.path)
            elif notice.kind in ("readable", "vanished"):
                self._unreadable.discard(notice.path)
        if self._recorder is not None:
            self._recorder.turn(now)
        self._picture(now)
        self.caught_up = self._is_whole = True
        self.turns += 1

    def reload(self, settings: Settings) -> None:
        """Go on with other rules, limits and inputs. Raises `UsageError`, and changes nothing."""
        rules = rules_of(settings)
        patterns = resolve(settings.files, base=Path(), disk=self._disk)
        taken = {name: getattr(settings, name) for name in RELOADED}
        self._settings = self._settings.model_copy(update=taken)
        self.monitor.reconfigure(rules, stall_of(self._settings))
        self.inputs.replace(patterns, companions=self._settings.companions)
        self._looked_at = self._commit_at = -math.inf

    def pause(self, now: float) -> float:
        """Seconds that the pump may wait if nothing rings; none while a backlog is read."""
        if self._queue or self._backfill.is_playing or self.follower.has_backlog:
            return 0.0
        times = (self.monitor.due(), self.follower.next_peek())
        until = min([now + POLL_SECONDS, *(time for time in times if time is not None)])
        return max(until - now, 0.0)

    def behind(self) -> int:
        """Bytes that are in the files and were not judged. May be called from any thread."""
        return self.follower.behind() + self._queue.behind + self._backfill.behind

    def close(self) -> None:
        """Keep how far was read, unless a turn or the first reading was cut short."""
        if self.caught_up and self._is_whole:
            self._commit(self.monitor.clock)
        self.follower.close()
        self._calls.close()

    def _read(self, dirty: Collection[Path] | None, now: float) -> list[Transition]:
        """Judge what is new, of these files or (None) of all."""
        transitions: list[Transition] = []
        chunks = list(self.follower.read(dirty, now))
        if chunks:
            self._store.read_log.note(chunks, now)
        for chunk in chunks:
            transitions += self._feed(chunk, now)
        if self._stdin is not None:
            for chunk in self._stdin.read(now):
                transitions += self._feed(chunk, now)
            if self._stdin.ended and not self.ended:
                self.ended = not self.inputs.patterns.sources
                if self.ended and self._recorder is not None:
                    self._recorder.finished(["-"], now)
                transitions += self.monitor.finish(now, ["-"]) if self.ended else []
        return transitions

    def _feed(self, chunk: Chunk, now: float, counted: bool = True) -> list[Transition]:
        """Judge a chunk. A fault of ours costs that chunk, reported and counted, not the night."""
        if self._recorder is not None:
            self._recorder.fed(chunk, self.monitor.names.origin(chunk.path).run, now)
        try:
            return self.monitor.feed(chunk, now, counted=counted)
        except Exception:  # whatever is wrong with us, the other files go on being watched
            self.monitor.count_dropped("internal_error")
            log.exception("%s, line %d: a bug of ours, passed over", chunk.path, chunk.line)
            return []

    def _note_edge(self, now: float, *, everything: bool) -> None:
        """What the monitor exports of itself is judged too: whether it reads and delivers."""
        if everything:
            hindered = len(self._unreadable) + len(self.follower.journal.silent)
            self.monitor.count_dropped("unreadable", hindered)
        if now - self._edge_at >= EDGE_SECONDS:
            self._edge_at = now
            free = self._folder.look() if self._folder is not None else None
            points = edge_points(self._outbox.counts(), self.behind(), free)
            self.monitor.note_edge(list(points))

    def _join(self, now: float, *, rung: bool) -> bool:
        """Start following files that are there now and were not before; False: cut short."""
        restart, self._restart = self._restart, None
        again: set[Path] = set()
        if restart is not None:
            again = self._backfill.resume(restart, self._store, now)
        joining = self.inputs.joining(now, rung=rung, known=self._backfill.known)
        for file in joining:
            if file.stale:
                self._backfill.pass_over(file.path)
            elif file.found.name:
                self._backfill.go_on(file.path, file.found)
        if self.inputs.patterns.standard_input and self._stdin is None:
            self._stdin = StdinSource(sys.stdin.buffer, self._waker.ring, self.follower.journal)
        self._queue.add({file.path for file in joining if file.is_new} | again)
        if joining or restart is not None:
            self._waker.watch(self.inputs.folders())
        if not self._backfill.is_playing:
            if not self._queue and restart is None:
                return True
            waiting = self._queue.behind
            fresh = self._queue.take(everything=not self.caught_up)
            self._backfill.behind = waiting - self._queue.behind
            self._backfill.begin(fresh, now, restart)
        while (found := self._backfill.step()) is None:
            if self.caught_up:
                return True
            if self._stopping():
                return False  # what half a history leads to was never so
        self._commit_at = -math.inf
        recent = now - found.end <= NEWS_SECONDS
        self.dispatcher.dispatch_history(found.passed, now, recent=recent)
        return True

    def _commit(self, now: float) -> None:
        """Keep the state. What it says was judged is in the outbox by now."""
        self._commit_at = now + COMMIT_SECONDS
        positions = self.follower.positions()
        standing = (self.monitor.version, self._store.read_log.last, positions)
        if standing == self._committed:
            return
        self._committed = standing
        state = State(
            positions,
            [each for each in self.monitor.alerts() if not self._backfill.is_partial(each.labels)],
            counts=self.monitor.counts(),
            runs={each.path: self.monitor.names.origin(each.path).run for each in positions},
            clock=self.monitor.clock,
            judged=self._store.read_log.last,
        )
        self._store.commit(state, self._backfill.take_contents())

    def _picture(self, now: float) -> None:
        """A new snapshot if anything changed; taking them costs a twentieth of the time at most."""
        if self.monitor.version == self.snapshot.version or now < self._picture_at:
            return
        started = time.perf_counter()
        self.snapshot = self.monitor.snapshot()
        self.dispatcher.update_incidents(self.snapshot.incidents, now)
        self._picture_at = now + max(SNAPSHOT_SECONDS, 20 * (time.perf_counter() - started))
