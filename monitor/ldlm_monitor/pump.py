"""The turn of the pump: what is new is read, judged, and handed on to who should hear."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from ldlm_monitor.alert import Transition
from ldlm_monitor.assemble import assemble, rules_of, stall_of
from ldlm_monitor.chunk import Chunk, FileId
from ldlm_monitor.config import Settings
from ldlm_monitor.history import History, place
from ldlm_monitor.inputs import Inputs
from ldlm_monitor.ledger import Ledger, still_holds
from ldlm_monitor.lines import transition_line
from ldlm_monitor.monitor import Monitor
from ldlm_monitor.notify import Courier, Outbox, Silences, Withheld, from_transition
from ldlm_monitor.plain import plain
from ldlm_monitor.source import DIRECT, Disk, Follower, StdinSource, TimedDisk, Waker, resolve
from ldlm_monitor.source.mounts import MountTable, read_mounts
from ldlm_monitor.view import Snapshot

POLL_SECONDS = 1.0
"""Every file is looked at this often, whatever the doorbell said."""
SNAPSHOT_SECONDS = 0.25
COMMIT_SECONDS = 10.0
"""How much is read again after a crash, at most; what was told is committed at once."""
NEWS_SECONDS = 3600.0
"""An alert found in history is told only if its run was active within this time."""

log = logging.getLogger(__name__)


class Pump:
    """Reads what is new, judges it, and hands on what people should hear.

    `turn` is the whole of it; the threads around it only decide when it is called.
    `snapshot` is replaced whole, for readers in other threads. `ended`: standard
    input was all there was to follow, and it is closed. `disk` and `mounts` are what
    the system offers.
    """

    def __init__(
        self,
        settings: Settings,
        outbox: Outbox,
        ledger: Ledger,
        receivers: Collection[str],
        waker: Waker,
        *,
        silences: Silences | None = None,
        disk: Disk = DIRECT,
        mounts: Callable[[], MountTable] = read_mounts,
    ) -> None:
        self._outbox = outbox
        self._withheld = Withheld(silences)
        self._ledger = ledger
        self._judged = ledger.positions()
        self._starts = ledger.starts()
        self._progress = ledger.progress()
        self._receivers = list(receivers)
        self._budget = settings.history_bytes
        self._waker = waker
        self._looked_at = self._committed_at = self._picture_at = -math.inf
        self._stdin: StdinSource | None = None
        self.monitor: Monitor = assemble(settings, time.perf_counter)
        self.follower = Follower(disk=disk, mounts=mounts)
        self._calls = TimedDisk(self.follower.journal, disk=disk, mounts=mounts)
        self._disk = self._calls.disk
        self._played: dict[str, tuple[FileId, int]] = {}
        self.inputs = Inputs(
            resolve(settings.files, base=Path(), disk=self._disk),
            self.monitor,
            companions=settings.companions,
            disk=self._disk,
        )
        self.snapshot: Snapshot = self.monitor.snapshot()
        self.couriers: list[Courier] = []
        self.caught_up = False
        self.stopping = False
        self.ended = False

    def turn(self, dirty: Collection[Path], now: float) -> None:
        """One round at `now` (Unix seconds): new files, new bytes, the passing of time."""
        everything = not dirty or now - self._looked_at >= POLL_SECONDS
        rung = self.inputs.hears_of_new(dirty)
        if everything or rung:
            self._looked_at = now
            if not self._join(now, rung=rung):
                return
        transitions: list[Transition] = []
        for chunk in self.follower.read(None if everything else dirty, now):
            transitions += self._feed(chunk, now)
        if self._stdin is not None:
            for chunk in self._stdin.read(now):
                transitions += self._feed(chunk, now)
            if self._stdin.ended and not self.ended:
                self.ended = not self.inputs.patterns.sources
                transitions += self.monitor.finish(now, ["-"]) if self.ended else []
        transitions += self.monitor.tick(now)
        self._tell(transitions, now)
        self._tell_unsilenced(transitions, now)
        if transitions or now - self._committed_at >= COMMIT_SECONDS:
            self._committed_at = now
            self._commit()
        for notice in self.follower.journal.drain():
            log.warning("%s", notice)
        self._picture(now)
        self.caught_up = True

    def reload(self, settings: Settings) -> None:
        """Go on with other rules, limits and inputs. Raises `UsageError`, and changes nothing."""
        rules = rules_of(settings)
        patterns = resolve(settings.files, base=Path(), disk=self._disk)
        self.monitor.reconfigure(rules, stall_of(settings))
        self.inputs.replace(patterns, companions=settings.companions)
        self._looked_at = -math.inf

    def pause(self, now: float) -> float:
        """Seconds that the pump may wait if nothing rings."""
        wishes = (self.monitor.due(), self.follower.next_peek())
        until = min([now + POLL_SECONDS, *(wish for wish in wishes if wish is not None)])
        return max(until - now, 0.0)

    def close(self) -> None:
        """Keep how far was read, unless the first reading was cut short; give the files back."""
        if self.caught_up:
            self._commit()
        self.follower.close()
        self._calls.close()

    def _feed(self, chunk: Chunk, now: float) -> list[Transition]:
        """Judge a chunk. A fault of ours costs that chunk, said and counted, not the night."""
        try:
            return self.monitor.feed(chunk, now)
        except Exception:  # whatever is wrong with us, the other files go on being watched
            self.monitor.count_dropped("internal_error")
            log.exception("%s, line %d: a bug of ours, passed over", chunk.path, chunk.line)
            return []

    def _join(self, now: float, *, rung: bool) -> bool:
        """Start following files that are there now and were not before; False: cut short."""
        joining = self.inputs.joining(now, rung=rung)
        for file in joining:
            if file.stale:
                self._pass_over(file.path)
        if self.inputs.patterns.standard_input and self._stdin is None:
            self._stdin = StdinSource(sys.stdin.buffer, self._waker.ring, self.follower.journal)
        if not joining:
            return True
        self._waker.watch(self.inputs.folders())
        return self._catch_up([file.path for file in joining if not file.stale], now)

    def _pass_over(self, path: Path) -> None:
        """Follow a file from its present end."""
        try:
            self.follower.add(path, offset=self._disk.stat(path).st_size)
        except TimeoutError:
            self.inputs.forget(path)
        except OSError:  # gone again: it begins anew
            self.follower.add(path)

    def _catch_up(self, paths: list[Path], now: float) -> bool:
        """Play what files hold when they are first seen; False if the end was asked for before.

        It is history, told only where it still holds; what came after the point up to
        which a file was judged before a restart is news.
        """
        history = place(paths, self.monitor.names, budget=self._budget, disk=self._disk)
        for notice in history.notices:
            log.info("%s", notice)
        judged = {path: self._judged_to(path) for path in map(str, paths)}
        passed: list[tuple[Transition, bool]] = []
        read_to: dict[str, Chunk] = {}
        for when, chunk in history.play():
            if self.stopping and not self.caught_up:
                return False  # half a history tells nothing, and was not judged
            if chunk.final:
                read_to[chunk.path] = chunk
                continue
            rest = self._not_played(chunk)
            if rest is None:
                continue
            known = judged[rest.path]
            news = known is not None and rest.offset >= known
            passed += [(each, news) for each in self._feed(rest, min(when, now))]
        self._put_off(history)
        for name, rest in read_to.items():
            self.follower.add(Path(name), offset=rest.offset, line=rest.line)
        restarted = any(known is not None for known in judged.values())
        self.monitor.restore_progress(self._progress)
        for at in (min(history.end + 2.0, now), now):  # open blocks end in their own time
            passed += [(each, restarted) for each in self.monitor.tick(at)]
        self.monitor.restore_starts(self._starts)
        self._tell_history(passed, now, recent=now - history.end <= NEWS_SECONDS)
        return True

    def _judged_to(self, path: str) -> int | None:
        """Up to which byte a file was judged before a restart; None: it was not, or it changed."""
        position = self._judged.get(path)
        try:
            known = position is not None and still_holds(position, self._disk)
        except TimeoutError:  # whoever reads it now hears no more of it
            known = True
        return position.offset if position is not None and known else None

    def _not_played(self, chunk: Chunk) -> Chunk | None:
        """What of it was not fed yet, before its server fell silent amid a first reading."""
        played = self._played.get(chunk.path)
        rest = chunk.after(played[1]) if played and played[0] == chunk.file else chunk
        if rest is not None:
            self._played[chunk.path] = (rest.file, rest.offset + len(rest.data))
        return rest

    def _put_off(self, history: History) -> None:
        """Follow what could not be read from where it was not; a silent server's files later."""
        for path, error in history.unreadable.items():
            if isinstance(error, TimeoutError):
                self.inputs.forget(path)
            else:  # tried again with every look, which says so
                _, offset = self._played.pop(str(path), (None, 0))
                self.follower.add(path, offset=offset)
        for file in history.files:
            if Path(file.path) not in history.unreadable:
                self._played.pop(file.path, None)

    def _tell_history(
        self, passed: list[tuple[Transition, bool]], now: float, *, recent: bool
    ) -> None:
        """News are told; of history what still holds, unless it was told before a restart."""
        told = set(self._outbox.standing())
        before: dict[str, Transition] = {}
        over = 0
        for transition, news in passed:
            key, firing = transition.key, transition.state == "firing"
            if transition.state == "pending":
                continue
            if not news:
                before[key] = transition
                over += not firing
                continue
            past = before.pop(key, None)
            if past is not None and past.state != "firing" and key in told:
                self._tell([past], now)
                told.discard(key)
            if firing != (key in told):
                self._tell([transition], now)
                told ^= {key}
            elif firing:
                self._tell([transition], now, notify=False)
        for key, past in before.items():
            if past.state == "firing":
                wanted = recent or key in self._withheld
                self._tell([past], now, notify=wanted and key not in told)
            elif key in told:
                self._tell([past], now)
        if over:
            log.info("alerts in what the files already held that are over: %d (see replay)", over)

    def _tell(self, transitions: Iterable[Transition], now: float, *, notify: bool = True) -> None:
        for transition in transitions:
            silence = self._withheld.judge(transition, now, hold=notify)
            mark = f"  [silenced by {plain(silence.by)}]" if silence else ""
            print(transition_line(transition) + mark, flush=True)
            if notify and silence is None and transition.state != "pending":
                self._outbox.add(from_transition(transition), self._receivers, now)
        for kept in (self._outbox, self._ledger, self._withheld):
            for notice in kept.take_notices():
                log.error("%s", notice)
        for courier in self.couriers:
            courier.wake()

    def _tell_unsilenced(self, passed: list[Transition], now: float) -> None:
        """What a silence held back is told once that is over, if it fires still."""
        if self._withheld.waits:
            for transition in self._withheld.release(passed, self.monitor.starts(), now):
                log.info("%s: its silence is over", plain(transition.key))
                self._outbox.add(from_transition(transition), self._receivers, now)
                for courier in self.couriers:
                    courier.wake()
        self._withheld.save()

    def _commit(self) -> None:
        """How far was read; of a silent server's files, how far they were before a restart."""
        ahead = [Path(path) for path in self._judged if Path(path) not in self.follower.paths]
        kept = [self._judged[str(path)] for path in ahead if self._calls.silent(path)]
        self._ledger.commit(
            [*self.follower.positions(), *kept], self.monitor.starts(), self.monitor.progress()
        )

    def _picture(self, now: float) -> None:
        """A new snapshot if anything changed; taking them costs a twentieth of the time at most."""
        if self.monitor.version == self.snapshot.version or now < self._picture_at:
            return
        started = time.perf_counter()
        self.snapshot = self.monitor.snapshot()
        taken = time.perf_counter() - started
        self._picture_at = now + max(SNAPSHOT_SECONDS, 20 * taken)
