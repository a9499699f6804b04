"""When the state of a daemon is kept, for its restart."""

from __future__ import annotations

import logging
import math
import time

from ldlm_monitor.core.monitor import Monitor
from ldlm_monitor.daemon.backfill import Backfill
from ldlm_monitor.daemon.checkpoint import Checkpoint
from ldlm_monitor.notify import Withheld
from ldlm_monitor.source import Follower, Position, TimedDisk
from ldlm_monitor.state.state_store import StateStore

COMMIT_SECONDS = 10.0
"""How often the whole state is kept; between, when which bytes came is noted at once."""
COMMIT_SHARE = 50
"""Keeping it may take a fiftieth of the time at most,"""
QUICK_SECONDS = 0.02
"""unless it is quick and somebody may take away what was read."""

log = logging.getLogger(__name__)


class Keeping:
    """Keeps the monitor and how far files were read, under `stamp`, in the ledger.

    `turn_noted`: the last turn of which arrivals were noted. `can_resume`: nothing is followed
    that cannot be read on.
    """

    def __init__(
        self,
        monitor: Monitor,
        ledger: StateStore,
        stamp: str,
        follower: Follower,
        catch_up: Backfill,
        *,
        disk: TimedDisk,
        withheld: Withheld,
    ) -> None:
        self.stamp = stamp
        self.turn_noted = ledger.arrivals.last()
        self.can_resume = True
        self._monitor = monitor
        self._ledger = ledger
        self._follower = follower
        self._catch_up = catch_up
        self._disk = disk
        self._withheld = withheld
        self._kept: tuple[int, int, list[Position]] | None = None
        self._due = self._earliest = -math.inf

    def hurry(self) -> None:
        """What was read may not be there to be read again: keep it as soon as that is quick."""
        self._due = self._earliest

    def force(self) -> None:
        """Keep it with the next turn."""
        self._due = -math.inf

    def turn(self, now: float, *, judged: bool) -> None:
        """A turn is over; `judged`: something came of it, and was handed on."""
        if now >= self._due:
            self.commit(now)
        elif judged:
            known = self._monitor.starts(), self._monitor.runs.progress()
            self._ledger.commit(self._positions(), *known)

    def commit(self, now: float) -> None:
        """Keep the whole state, if anything changed since it was kept last."""
        started = time.perf_counter()
        positions = self._positions()
        standing = (self._monitor.version, self.turn_noted, positions)
        if standing != self._kept:
            self._ledger.commit(
                positions,
                self._monitor.starts(),
                self._monitor.runs.progress(),
                checkpoint=self._freeze(),
                turn=self.turn_noted,
            )
        self._kept = standing
        taken = time.perf_counter() - started
        self._due = now + max(COMMIT_SECONDS, COMMIT_SHARE * taken)
        self._earliest = now + (COMMIT_SHARE * taken if taken > QUICK_SECONDS else 0.0)

    def _freeze(self) -> tuple[str, bytes] | None:
        """The state, and under which stamp it is of use."""
        if not self.can_resume:
            self._ledger.drop_checkpoint()
            return None
        if self._catch_up.is_amid:
            return None
        positions, held = self._follower.positions(), self._withheld.held()
        try:
            body = Checkpoint(self._monitor, positions, held, self.turn_noted).freeze()
        except Exception:  # a fault of ours costs the quick restart, not the night
            self._monitor.count_dropped("internal_error")
            log.exception("a bug of ours: the state cannot be kept")
            self._ledger.drop_checkpoint()
            return None
        return self.stamp, body

    def _positions(self) -> list[Position]:
        """How far was read; of a silent server's files, how far they were before a restart."""
        return [
            *self._follower.positions(),
            *self._catch_up.judged_before(self._disk.silent),
        ]
