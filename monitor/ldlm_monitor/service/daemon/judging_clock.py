"""The clock of judging: it never goes back, even if the wall clock is set back."""

import logging
import time
from collections.abc import Callable

from ldlm_monitor.base.text.format import duration

JUMP_SECONDS = 1.0
"""Least seconds of a clock's step: NTP slews smaller errors (chrony: `makestep 1`)."""
STOPPED_SECONDS = 10.0
"""If so many seconds, in which it neither computed nor waited for a core, lie between two turns,
the monitor was stopped. A choice: a third of the least default stall limit."""

log = logging.getLogger(__name__)


def runnable_seconds() -> float:
    """For how long this process has computed, or this thread waited for a core.

    A starved monitor was not stopped: the trainings ran, and what they wrote is read first.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            _, waited_ns, _ = file.read().split()  # ns run, ns waited, slices: proc(5)
        waited = int(waited_ns) / 1e9
    except (OSError, ValueError):  # another system, or a sandbox
        waited = 0.0
    return time.process_time() + waited


class JudgingClock:
    """The wall clock's Unix seconds; after it was set back, the monotonic clock's continuation.

    The continuation lasts until the wall clock has caught up: alerts keep their `for`, and none
    fires twice. A clock that was set forward is taken as right, as after a sleep of the machine,
    which the monotonic clock of Linux does not count. `ahead`: seconds by which the result exceeds
    the wall clock. `skipped`: seconds that the last call of `now` found to be such a step forward,
    or for which this process did not run since the call before (SIGSTOP, a freezer, a paused VM),
    while the trainings may have stood, too. `runnable`: as `runnable_seconds`.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        runnable: Callable[[], float] = runnable_seconds,
    ) -> None:
        self._wall = wall
        self._runnable = runnable
        self._ran = runnable()
        self._steady = steady
        self.ahead = self.skipped = 0.0
        self._last = wall()
        self._read_at = steady()

    def now(self) -> float:
        """The time to judge by (Unix seconds); it never falls."""
        wall, steady = self._wall(), self._steady()
        expected = self._last + steady - self._read_at
        behind = expected - wall
        self.skipped = -behind if behind < -JUMP_SECONDS else 0.0
        if self.skipped:
            log.warning(
                "the clock went forward by %s, or this machine slept: time without steps is"
                " counted from now",
                duration(self.skipped),
            )
        ran = self._runnable()
        stopped = steady - self._read_at - (ran - self._ran)
        self._ran = ran
        if stopped > STOPPED_SECONDS:
            log.warning(
                "this monitor was stopped for %s: that counts as no silence",
                duration(stopped),
            )
            self.skipped += stopped
        if behind - self.ahead > JUMP_SECONDS:
            log.warning(
                "the clock was set back by %s: the monitor goes on from its last time until the"
                " clock has caught up",
                duration(behind - self.ahead),
            )
        self.ahead = behind if behind > JUMP_SECONDS else 0.0
        self._last = expected if self.ahead else max(wall, self._last)
        self._read_at = steady
        return self._last
