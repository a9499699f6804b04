"""Up to when the files of each run were read, so that no time counts as silence in which bytes
waited to be read: behind a backlog, or because the monitor itself was stopped."""

import math
from collections.abc import Callable, Iterable, Mapping

from ldlm_monitor.judge.core.monitor import Monitor

LATE_SECONDS = 1.0
"""A reading that is later by more holds back the silence of its runs: within a second alerts are
due, and a healthy monitor looks at every file that changed."""


class ReadingLag:
    """Gives `monitor` the runs whose files were not read to the present; times in Unix seconds.

    A turn calls `begin`, then `read` with what it read, then, once that is judged, `judged`.
    `changed` is called with what the monitor is given, if it differs from before. `last_turn`: when
    the turn before began; infinite in the first.
    """

    def __init__(
        self, monitor: Monitor, changed: Callable[[Mapping[str, float]], None] = lambda held: None
    ) -> None:
        self._monitor = monitor
        self._changed = changed
        self._held: dict[str, float] = {}
        self._late: dict[str, float] = {}
        self._turned_at = self.last_turn = math.inf
        self._left_out = 0.0

    def begin(self, now: float) -> None:
        """Begin a turn: if the last one was long ago, no file was read since."""
        self.last_turn, self._turned_at = self._turned_at, now
        read_to, self._left_out = self.last_turn + self._left_out, 0.0
        if now - read_to > LATE_SECONDS:
            runs = (run.name for run in self._monitor.runs if not run.life.ended)
            self._hold({**dict.fromkeys(runs, read_to), **self._held})

    def leave_out(self, seconds: float) -> None:
        """Hold back no silence for `seconds`, which `Monitor.leave_out` has left out already.

        Otherwise they would be taken from it twice, and end a stall.
        """
        self._left_out = seconds

    def read(self, paths: Iterable[str], late: Iterable[tuple[str, float]]) -> None:
        """Note the files whose bytes are judged next, and those with bytes that were not read.

        `late`: with each, up to when it was read.
        """
        self._late = {}
        for path, at in late:
            if self._turned_at - at > LATE_SECONDS:
                run = self._run(path)
                self._late[run] = min(at, self._late.get(run, at))
        if self._held:
            in_hand = {run for path in paths if (run := self._run(path)) in self._held}
            self._hold({**{run: self._held[run] for run in in_hand}, **self._late})

    def judged(self) -> None:
        """Note that what the turn read was judged."""
        self._hold(self._late)

    def _run(self, path: str) -> str:
        return self._monitor.names.origin(path).run

    def _hold(self, held: dict[str, float]) -> None:
        if held != self._held:
            self._held = held
            self._changed(held)
            self._monitor.hold(held)
