"""The turn of the pump: what is new is read, judged, and handed on to who should hear."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from ldlm_monitor.alert import Transition
from ldlm_monitor.assemble import assemble
from ldlm_monitor.config import Settings
from ldlm_monitor.history import has_bars, is_rows, launch_facts, place
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
SNAPSHOT_SECONDS = 0.25
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
        self, settings: Settings, outbox: Outbox, receivers: Collection[str], waker: Waker
    ) -> None:
        self._outbox = outbox
        self._receivers = list(receivers)
        self._seeks_companions = settings.companions
        self._waker = waker
        self._followed: dict[Path, Path] = {}
        self._heard_of: set[Path] = set()
        self._said: set[str] = set()
        self._looked_at = self._sought_at = self._pictured_at = -math.inf
        self._stdin: StdinSource | None = None
        self.monitor: Monitor = assemble(settings, time.perf_counter)
        self.patterns = resolve(settings.files, base=Path())
        self.follower = Follower()
        self.snapshot: Snapshot = self.monitor.snapshot()
        self.couriers: list[Courier] = []
        self.caught_up = False

    def turn(self, dirty: Collection[Path], now: float) -> None:
        """One round at `now` (Unix seconds): new files, new bytes, the passing of time."""
        everything = not dirty or now - self._looked_at >= POLL_SECONDS
        if everything or self._hears_of_new(dirty):
            self._looked_at = now
            self._join(now)
        transitions: list[Transition] = []
        for chunk in self.follower.read(None if everything else dirty, now):
            transitions += self.monitor.feed(chunk, now)
        if self._stdin is not None:
            for chunk in self._stdin.read(now):
                transitions += self.monitor.feed(chunk, now)
        transitions += self.monitor.tick(now)
        self._tell(transitions, now)
        for notice in self.follower.journal.drain():
            log.warning("%s", notice)
        self._picture(now)
        self.caught_up = True

    def pause(self, now: float) -> float:
        """Seconds that the pump may wait if nothing rings."""
        wishes = (self.monitor.due(), self.follower.next_peek())
        until = min([now + POLL_SECONDS, *(wish for wish in wishes if wish is not None)])
        return max(until - now, 0.0)

    def close(self) -> None:
        """Give the files back."""
        self.follower.close()

    def _join(self, now: float) -> None:
        """Start following files that are there now and were not before."""
        fresh = [path for path in self.patterns.files() if self._is_new(path)]
        if self._seeks_companions and (fresh or now - self._sought_at >= COMPANION_SECONDS):
            self._sought_at = now
            fresh += self._companions()
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
        real = path.resolve()
        if real in self._followed:
            return False
        self._followed[real] = path
        return True

    def _companions(self) -> list[Path]:
        """Tie files to the log that they belong to; those that are not followed yet."""
        fresh = []
        for companion, log_path in self._claims().items():
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

    def _claims(self) -> dict[Companion, Path]:
        """Which log each companion belongs to: of several that claim it, the newest launch."""
        claims: dict[Path, tuple[Companion, Path]] = {}
        logs = [path for path in self._followed.values() if not self._is_settled(path)]
        for path in sorted(logs, key=lambda path: (launch_time(str(path)) or 0.0, path)):
            facts = launch_facts(path)
            for companion in companions(path, facts):
                claims[companion.path.resolve()] = (companion, path)
            if (reason := undecided(path, facts)) and reason not in self._said:
                self._said.add(reason)
                log.info("%s", reason)
        return dict(claims.values())

    def _is_settled(self, path: Path) -> bool:
        """Whether no companion can turn up any more, or `path` is one itself."""
        view = self.monitor.run_of(str(path))
        return path.suffix == ".jsonl" or (view is not None and view.ended_at is not None)

    def _has_trained(self, path: Path) -> bool:
        view = self.monitor.run_of(str(path))
        return (view is not None and view.step is not None) or has_bars(path)

    def _catch_up(self, paths: list[Path], now: float) -> None:
        """Play what files hold when they are first seen: shown, told only if it still holds."""
        history = place(paths, self.monitor.names)
        passed: list[Transition] = []
        read_to: dict[str, int] = {}
        for when, chunk in history.play():
            if chunk.final:
                read_to[chunk.path] = chunk.offset
            else:
                passed += self.monitor.feed(chunk, min(when, now))
        for file in history.files:
            self.follower.add(Path(file.path), offset=read_to.get(file.path, 0))
        passed += self.monitor.tick(now)
        recent = now - history.end <= NEWS_SECONDS
        self._tell_history(passed, now, recent=recent)

    def _tell_history(self, passed: list[Transition], now: float, *, recent: bool) -> None:
        """What still holds is told, unless it was told before a restart; so is its end."""
        last = {transition.key: transition for transition in passed}
        told = self._outbox.standing()
        over = 0
        for key, transition in last.items():
            firing = transition.state == "firing"
            over += not firing and transition.previous == "firing"
            if firing or key in told:
                self._tell([transition], now, notify=firing != (key in told) and recent)
        if over:
            log.info("%d alerts in what the files already held are over: replay shows them", over)

    def _tell(self, transitions: Iterable[Transition], now: float, *, notify: bool = True) -> None:
        for transition in transitions:
            print(transition_line(transition), flush=True)
            if notify and transition.state != "pending":
                self._outbox.add(from_transition(transition), self._receivers, now)
        for notice in self._outbox.take_notices():
            log.error("%s", notice)
        for courier in self.couriers:
            courier.wake()

    def _picture(self, now: float) -> None:
        if now - self._pictured_at >= SNAPSHOT_SECONDS:
            self._pictured_at = now
            self.snapshot = self.monitor.snapshot()
