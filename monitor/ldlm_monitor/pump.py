"""The turn of the pump: what is new is read, judged, and handed on to who should hear."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from ldlm_monitor.alert import Transition
from ldlm_monitor.assemble import assemble, rules_of, stall_of
from ldlm_monitor.chunk import Chunk
from ldlm_monitor.config import Settings
from ldlm_monitor.history import has_bars, is_rows, launch_facts, place
from ldlm_monitor.ledger import Ledger, still_holds
from ldlm_monitor.lines import transition_line
from ldlm_monitor.monitor import Monitor
from ldlm_monitor.notify import Courier, Outbox, from_transition
from ldlm_monitor.run.identity import launch_time
from ldlm_monitor.source import (
    Companion,
    Follower,
    StdinSource,
    Waker,
    companions,
    resolve,
    undecided,
)
from ldlm_monitor.view import Snapshot

POLL_SECONDS = 1.0
"""Every file is looked at this often, whatever the doorbell said."""
COMPANION_SECONDS = 5.0
SELDOM_SECONDS = 320.0
"""How often companions of a log are looked for, at first and later."""
SNAPSHOT_SECONDS = 0.25
COMMIT_SECONDS = 10.0
"""How much is read again after a crash, at most; what was told is committed at once."""
HEARD_OF = 10_000
"""Paths that rang and are remembered."""
NEWS_SECONDS = 3600.0
"""An alert found in history is told only if its run was active within this time."""

log = logging.getLogger(__name__)


class Pump:
    """Reads what is new, judges it, and hands on what people should hear.

    `turn` is the whole of it; the threads around it only decide when it is called.
    `snapshot` is replaced whole, for readers in other threads.
    """

    def __init__(
        self,
        settings: Settings,
        outbox: Outbox,
        ledger: Ledger,
        receivers: Collection[str],
        waker: Waker,
    ) -> None:
        self._outbox = outbox
        self._ledger = ledger
        self._judged = ledger.positions()
        self._starts = ledger.starts()
        self._receivers = list(receivers)
        self._seeks_companions = settings.companions
        self._waker = waker
        self._followed: dict[Path, Path] = {}
        self._names: set[Path] = set()
        self._heard_of: set[Path] = set()
        self._said: set[str] = set()
        self._seek: dict[Path, tuple[float, float]] = {}
        self._looked_at = self._committed_at = self._picture_at = -math.inf
        self._stdin: StdinSource | None = None
        self.monitor: Monitor = assemble(settings, time.perf_counter)
        self.patterns = resolve(settings.files, base=Path())
        self.follower = Follower()
        self.snapshot: Snapshot = self.monitor.snapshot()
        self.couriers: list[Courier] = []
        self.caught_up = False
        self.stopping = False

    def turn(self, dirty: Collection[Path], now: float) -> None:
        """One round at `now` (Unix seconds): new files, new bytes, the passing of time."""
        everything = not dirty or now - self._looked_at >= POLL_SECONDS
        if everything or self._hears_of_new(dirty):
            self._looked_at = now
            self._join(now)
        transitions: list[Transition] = []
        for chunk in self.follower.read(None if everything else dirty, now):
            transitions += self._feed(chunk, now)
        if self._stdin is not None:
            for chunk in self._stdin.read(now):
                transitions += self._feed(chunk, now)
        transitions += self.monitor.tick(now)
        self._tell(transitions, now)
        if transitions or now - self._committed_at >= COMMIT_SECONDS:
            self._commit(now)
        for notice in self.follower.journal.drain():
            log.warning("%s", notice)
        self._picture(now)
        self.caught_up = True

    def reload(self, settings: Settings) -> None:
        """Go on with other rules, limits and inputs. Raises `UsageError`, and changes nothing."""
        rules, patterns = rules_of(settings), resolve(settings.files, base=Path())
        self.monitor.reconfigure(rules, stall_of(settings))
        self.patterns = patterns
        self._seeks_companions = settings.companions
        self._looked_at = -math.inf

    def pause(self, now: float) -> float:
        """Seconds that the pump may wait if nothing rings."""
        wishes = (self.monitor.due(), self.follower.next_peek())
        until = min([now + POLL_SECONDS, *(wish for wish in wishes if wish is not None)])
        return max(until - now, 0.0)

    def close(self) -> None:
        """Keep how far was read, and give the files back."""
        self._ledger.commit(self.follower.positions(), self.monitor.starts())
        self.follower.close()

    def _feed(self, chunk: Chunk, now: float) -> list[Transition]:
        """Judge a chunk. A fault of ours costs that chunk, said and counted, not the night."""
        try:
            return self.monitor.feed(chunk, now)
        except Exception:  # whatever is wrong with us, the other files go on being watched
            self.monitor.count_dropped("internal_error")
            log.exception("%s, line %d: a bug of ours, passed over", chunk.path, chunk.line)
            return []

    def _join(self, now: float) -> None:
        """Start following files that are there now and were not before."""
        fresh = [path for path in self.patterns.files() if self._is_new(path)]
        if self._seeks_companions:
            fresh += self._companions(now)
        if self.patterns.standard_input and self._stdin is None:
            self._stdin = StdinSource(sys.stdin.buffer, self._waker.ring)
        if fresh:
            self._catch_up(fresh, now)
            self._waker.watch({*self.patterns.folders(), *(path.parent for path in fresh)})

    def _hears_of_new(self, dirty: Collection[Path]) -> bool:
        """Whether something rang that never did before: it may be a file to join."""
        fresh = {path for path in dirty if path not in self._heard_of}
        if len(self._heard_of) > HEARD_OF:
            self._heard_of.clear()
        self._heard_of |= fresh
        return bool(fresh)

    def _is_new(self, path: Path) -> bool:
        """Whether a file was not followed yet, under any name; it is from now on."""
        if path in self._names:
            return False
        self._names.add(path)
        real = path.resolve()
        if real in self._followed:
            return False
        self._followed[real] = path
        return True

    def _companions(self, now: float) -> list[Path]:
        """Tie files to the log that they belong to; those that are not followed yet."""
        fresh = []
        for companion, log_path in self._claims(now).items():
            name = str(self._followed.get(companion.path.resolve(), companion.path))
            run = self.monitor.names.origin(str(log_path)).run
            if self.monitor.names.origin(name).run != run:
                self.monitor.names.tie(name, run)
            if not self._is_new(companion.path):
                continue
            log.info("%s: following too, %s", companion.path, companion.reason)
            if is_rows(companion.path) and not self._has_trained(log_path):
                # Rows are written in the training loop only: these are an earlier launch's.
                self.follower.add(companion.path, offset=companion.path.stat().st_size)
            else:
                fresh.append(companion.path)
        return fresh

    def _claims(self, now: float) -> dict[Companion, Path]:
        """Which log each companion belongs to: of several that claim it, the newest launch."""
        claims: dict[Path, tuple[Companion, Path]] = {}
        logs = [path for path in self._followed.values() if self._is_due(path, now)]
        for path in sorted(logs, key=lambda path: (launch_time(str(path)) or 0.0, path)):
            facts = launch_facts(path)
            for companion in companions(path, facts):
                claims[companion.path.resolve()] = (companion, path)
            if (reason := undecided(path, facts)) and reason not in self._said:
                self._said.add(reason)
                log.info("%s", reason)
        return dict(claims.values())

    def _is_due(self, path: Path, now: float) -> bool:
        """Whether to look for a log's companions: often at first, ever more rarely later."""
        at, pause = self._seek.get(path, (now, COMPANION_SECONDS))
        if now < at or path.suffix == ".jsonl":
            return False
        standing = self.monitor.standing_of(str(path))
        if standing is not None and standing.has_ended:
            return False
        starting = standing is None or standing.state == "starting"
        self._seek[path] = (now + pause, pause if starting else min(2 * pause, SELDOM_SECONDS))
        return True

    def _has_trained(self, path: Path) -> bool:
        standing = self.monitor.standing_of(str(path))
        return (standing is not None and standing.has_steps) or has_bars(path)

    def _catch_up(self, paths: list[Path], now: float) -> None:
        """Play what files hold when they are first seen.

        It is history, told only where it still holds; what came after the point up to
        which a file was judged before a restart is news.
        """
        history = place(paths, self.monitor.names)
        judged = {path: self._judged_to(path) for path in map(str, paths)}
        passed: list[tuple[Transition, bool]] = []
        read_to: dict[str, int] = {}
        for when, chunk in history.play():
            if self.stopping:
                break
            if chunk.final:
                read_to[chunk.path] = chunk.offset
                continue
            known = judged[chunk.path]
            news = known is not None and chunk.offset >= known
            passed += [(each, news) for each in self._feed(chunk, min(when, now))]
        for file in history.files:
            self.follower.add(Path(file.path), offset=read_to.get(file.path, 0))
        restarted = any(known is not None for known in judged.values())
        passed += [(each, restarted) for each in self.monitor.tick(now)]
        self.monitor.restore_starts(self._starts)
        self._tell_history(passed, now, recent=now - history.end <= NEWS_SECONDS)

    def _judged_to(self, path: str) -> int | None:
        """Up to which byte a file was judged before a restart; None: it was not, or it changed."""
        position = self._judged.get(path)
        return position.offset if position is not None and still_holds(position) else None

    def _tell_history(
        self, passed: list[tuple[Transition, bool]], now: float, *, recent: bool
    ) -> None:
        """News are told; of history what still holds, unless it was told before a restart."""
        told = set(self._outbox.standing())
        standing: dict[str, Transition] = {}
        over = 0
        for transition, news in passed:
            key = transition.key
            if transition.state == "firing":
                if news and key not in told:
                    self._tell([transition], now)
                    told.add(key)
                else:
                    standing[key] = transition
            elif transition.state != "pending":
                standing.pop(key, None)
                over += not news
                if key in told:
                    self._tell([transition], now)
                    told.discard(key)
        for key, transition in standing.items():
            self._tell([transition], now, notify=recent and key not in told)
        if over:
            log.info("%d alerts in what the files already held are over: replay shows them", over)

    def _tell(self, transitions: Iterable[Transition], now: float, *, notify: bool = True) -> None:
        for transition in transitions:
            print(transition_line(transition), flush=True)
            if notify and transition.state != "pending":
                self._outbox.add(from_transition(transition), self._receivers, now)
        for notice in (*self._outbox.take_notices(), *self._ledger.take_notices()):
            log.error("%s", notice)
        for courier in self.couriers:
            courier.wake()

    def _commit(self, now: float) -> None:
        self._committed_at = now
        self._ledger.commit(self.follower.positions(), self.monitor.starts())

    def _picture(self, now: float) -> None:
        """A new snapshot if anything changed; taking them costs a twentieth of the time at most."""
        if self.monitor.version == self.snapshot.version or now < self._picture_at:
            return
        started = time.perf_counter()
        self.snapshot = self.monitor.snapshot()
        taken = time.perf_counter() - started
        self._picture_at = now + max(SNAPSHOT_SECONDS, 20 * taken)
