"""The turn of the pump: what is new is read, judged, and handed on to who should hear."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Collection
from pathlib import Path

from ldlm_monitor.alert import Transition
from ldlm_monitor.assemble import assemble, fingerprint, rules_of, stall_of
from ldlm_monitor.checkpoint import Checkpoint
from ldlm_monitor.chunk import Chunk
from ldlm_monitor.config import Settings
from ldlm_monitor.continued import ContinuedFile
from ldlm_monitor.history import History, place
from ldlm_monitor.inputs import Inputs
from ldlm_monitor.ledger import Ledger, still_holds
from ldlm_monitor.monitor import Monitor
from ldlm_monitor.notify import Outbox, Silences
from ldlm_monitor.restart import Restart, is_news, recall
from ldlm_monitor.source import Follower, Position, StdinSource, Waker, resolve
from ldlm_monitor.telling import Telling
from ldlm_monitor.view import Snapshot

POLL_SECONDS = 1.0
"""Every file is looked at this often, whatever the doorbell said."""
SNAPSHOT_SECONDS = 0.25
COMMIT_SECONDS = 10.0
"""How often the whole state is kept; between, when which bytes came is noted at once."""
COMMIT_SHARE = 50
"""Keeping it may take a fiftieth of the time at most."""
NEWS_SECONDS = 3600.0
"""An alert found in history is told only if its run was active within this time."""

log = logging.getLogger(__name__)


class Pump:
    """Reads what is new, judges it, and hands on what people should hear.

    `turn` is the whole of it; the threads around it only decide when it is called.
    `snapshot` is replaced whole, for readers in other threads. `ended`: standard
    input was all there was to follow, and it is closed.
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
    ) -> None:
        self.telling = Telling(outbox, receivers, silences)
        self._ledger = ledger
        self._judged = ledger.positions()
        self._starts = ledger.starts()
        self._progress = ledger.progress()
        self._budget = settings.history_bytes
        self._waker = waker
        self._looked_at = self._picture_at = -math.inf
        self._commit_at = -math.inf
        self._turn_noted = 0
        self._kept: tuple[int, int, list[Position]] | None = None
        self._stdin: StdinSource | None = None
        self._stamp = fingerprint(settings)
        fresh = assemble(settings, time.perf_counter)
        self._restart = recall(ledger, self._stamp, fresh)
        self.monitor: Monitor = self._restart.checkpoint.monitor if self._restart else fresh
        self.inputs = Inputs(
            resolve(settings.files, base=Path()), self.monitor, companions=settings.companions
        )
        self.follower = Follower()
        self.snapshot: Snapshot = self.monitor.snapshot()
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
        transitions = self._read(None if everything else dirty, now)
        transitions += self.monitor.tick(now)
        self.telling.tell(transitions, now)
        self.telling.tell_unsilenced(transitions, self.monitor.starts(), now)
        if self.follower.notices:  # what was read may not be there to be read again
            self._commit_at = -math.inf
        for notice in (*self.follower.journal.drain(), *self._ledger.take_notices()):
            log.warning("%s", notice)
        if now >= self._commit_at:
            self._commit(now)
        elif transitions:
            self._ledger.commit(
                self.follower.positions(), self.monitor.starts(), self.monitor.progress()
            )
        self._picture(now)
        self.caught_up = True

    def reload(self, settings: Settings) -> None:
        """Go on with other rules, limits and inputs. Raises `UsageError`, and changes nothing."""
        rules, patterns = rules_of(settings), resolve(settings.files, base=Path())
        self.monitor.reconfigure(rules, stall_of(settings))
        self._stamp = fingerprint(settings)
        self._commit_at = -math.inf
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
            self._commit(self.monitor.clock)
        self.follower.close()

    def _read(self, dirty: Collection[Path] | None, now: float) -> list[Transition]:
        """Judge what is new, of these files or (None) of all."""
        transitions: list[Transition] = []
        chunks = list(self.follower.read(dirty, now))
        if chunks:
            self._turn_noted = self._ledger.arrivals.note(chunks, now)
            if not self.follower.nameless().isdisjoint(chunk.file for chunk in chunks):
                self._commit_at = -math.inf
        for chunk in chunks:
            transitions += self._feed(chunk, now)
        if self._stdin is not None:
            for chunk in self._stdin.read(now):
                transitions += self._feed(chunk, now)
            if self._stdin.ended and not self.ended:
                self.ended = not self.inputs.patterns.sources
                transitions += self.monitor.finish(now, ["-"]) if self.ended else []
        return transitions

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
        restart, self._restart = self._restart, None
        again: set[Path] = set()
        if restart is not None:
            restart.open(self.follower.journal, now)
            self.telling.withheld.restore(restart.checkpoint.withheld)
            self.inputs.adopt(restart.paths)
            again = {path for path in restart.unnamed if path.is_file()}
        joining = self.inputs.joining(now, rung=rung)
        for file in joining:
            if file.stale:
                self.follower.add(file.path, offset=file.path.stat().st_size)
        if self.inputs.patterns.standard_input and self._stdin is None:
            self._stdin = StdinSource(sys.stdin.buffer, self._waker.ring, self.follower.journal)
        if not joining and restart is None:
            return True
        self._waker.watch(self.inputs.folders())
        fresh = {file.path for file in joining if not file.stale} | again
        self._commit_at = -math.inf
        return self._catch_up(sorted(fresh), now, restart)

    def _catch_up(self, paths: list[Path], now: float, restart: Restart | None) -> bool:
        """Play what files hold when they are first seen; False if the end was asked for before.

        It is history, told only where it still holds. What came after the point up to
        which a file was judged before a restart is news.
        """
        floor = restart.floor if restart else math.inf
        continued = restart.files if restart else []
        names = self.monitor.names
        history = place(paths, names, budget=self._budget, continued=continued, floor=floor)
        for notice in history.notices:
            log.info("%s", notice)
        judged = {path: self._judged_to(path, floor) for path in map(str, paths)}
        passed: list[tuple[Transition, bool]] = []
        reached: dict[str, Chunk] = {}
        for when, chunk, file in history.play():
            if self.stopping and not self.caught_up:
                return False  # half a history tells nothing, and was not judged
            known: int | None = 0
            if not isinstance(file, ContinuedFile):
                known = judged[chunk.path]
                if chunk.final:
                    reached[chunk.path] = chunk
                    continue
            news = known is not None and chunk.offset >= known
            passed += [(each, news) for each in self._feed(chunk, min(when, now))]
        self._follow(history, reached, restart)
        restarted = restart is not None or any(known is not None for known in judged.values())
        if restart is None:
            self.monitor.restore_progress(self._progress)
        for at in (min(history.end + 2.0, now), now):  # open blocks end in their own time
            passed += [(each, restarted) for each in self.monitor.tick(at)]
        if restart is None:
            self.monitor.restore_starts(self._starts)
        self.telling.tell_history(passed, now, recent=now - history.end <= NEWS_SECONDS)
        return True

    def _follow(self, history: History, reached: dict[str, Chunk], restart: Restart | None) -> None:
        """Read on where history ended: at the last chunk of a file, which holds its unread rest."""
        kept = restart.positions() if restart else {}
        for path in history.unreadable:  # tried again with every look, which says so
            self.follower.add(path)
        for name, rest in reached.items():
            if name not in kept:
                self.follower.add(Path(name), offset=rest.offset, line=rest.line)
            elif (here := Position.reached(name, rest.offset, rest.line)) is not None:
                kept[name].append(here)
        for name, positions in kept.items():
            self.follower.add(Path(name), resume=positions)

    def _judged_to(self, path: str, floor: float) -> int | None:
        """From which byte on a file's content is news; None: it is all history."""
        if is_news(path, floor):
            return 0
        position = self._judged.get(path)
        return position.offset if position is not None and still_holds(position) else None

    def _commit(self, now: float) -> None:
        """Keep the whole state, if anything changed since it was kept last."""
        started = time.perf_counter()
        positions = self.follower.positions()
        standing = (self.monitor.version, self._turn_noted, positions)
        body = None
        if standing != self._kept and self._stdin is None:
            held = self.telling.withheld.held()
            body = Checkpoint(self.monitor, positions, held, self._turn_noted).freeze()
        if standing != self._kept:
            self._ledger.commit(
                positions,
                self.monitor.starts(),
                self.monitor.progress(),
                checkpoint=None if body is None else (self._stamp, body),
            )
            self._ledger.arrivals.forget(self._turn_noted)
        self._kept = standing
        taken = time.perf_counter() - started
        self._commit_at = now + max(COMMIT_SECONDS, COMMIT_SHARE * taken)

    def _picture(self, now: float) -> None:
        """A new snapshot if anything changed; taking them costs a twentieth of the time at most."""
        if self.monitor.version == self.snapshot.version or now < self._picture_at:
            return
        started = time.perf_counter()
        self.snapshot = self.monitor.snapshot()
        taken = time.perf_counter() - started
        self._picture_at = now + max(SNAPSHOT_SECONDS, 20 * taken)
