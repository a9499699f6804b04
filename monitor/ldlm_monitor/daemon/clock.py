"""The time that is judged by: it goes on as time does, whatever the wall clock does."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ldlm_monitor.text.format import duration

JUMP_SECONDS = 1.0
"""NTP slews what is less, and steps a clock that is wrong by more (chrony: `makestep 1`)."""

log = logging.getLogger(__name__)


class JudgingClock:
    """Unix seconds of the wall clock, and of the monotonic one where that was set back.

    After it was set back, time goes on from where it was, at the monotonic clock's rate, until
    the wall clock is there again: alerts keep their `for`, and none fires twice. Set forward, or
    after a sleep of the machine, which the monotonic clock of Linux does not count, it is right.
    `ahead`: seconds that judged time is before the wall clock. `skipped`: seconds that the last
    call went forward more than time did; nobody was silent in them.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._steady = steady
        self.ahead = self.skipped = 0.0
        self._last = wall()
        self._read_at = steady()

    def now(self) -> float:
        """The time to judge by; it never falls."""
        wall, steady = self._wall(), self._steady()
        expected = self._last + steady - self._read_at
        behind = expected - wall
        self.skipped = -behind if behind < -JUMP_SECONDS else 0.0
        if self.skipped:
            log.warning(
                "the clock went forward by %s, or this machine slept: silence begins anew",
                duration(self.skipped),
            )
        if behind > JUMP_SECONDS and abs(behind - self.ahead) > JUMP_SECONDS:
            log.warning(
                "the clock was set back by %s: until it is there again, or a restart, time goes on"
                " from where it was",
                duration(behind - self.ahead),
            )
        self.ahead = behind if behind > JUMP_SECONDS else 0.0
        self._last = expected if self.ahead else max(wall, self._last)
        self._read_at = steady
        return self._last
