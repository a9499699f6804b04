"""Signals and requests that end or reload the daemon.

Handlers are set first of all at a start, so this module imports nothing that takes time.
"""

import os
import queue
import signal
from collections.abc import Callable
from types import FrameType

from ldlm_monitor.base.errors import INTERRUPTED

RELOAD_SECONDS = 10.0
"""Seconds that an HTTP request waits for a reload: a turn takes less, unless a backlog is read."""
SEND_SECONDS = 1.0
"""Seconds that the end waits for all senders: the next start sends again what had no answer."""


class Signals:
    """Requests to the pump's thread, which polls `stop` and `reload`.

    SIGTERM and SIGINT end the daemon with `exit_code`, SIGHUP reloads it, and so does `ask_reload`.
    `has_screen`: a screen has the terminal. `send_seconds`: the longest wait for senders at the
    end. `outlasts`: SIGTERM and SIGINT keep the handlers that they have; only `end` ends the
    daemon. `wake`, set by the daemon, ends the pump's wait.
    """

    def __init__(
        self,
        *,
        has_screen: bool = False,
        send_seconds: float = SEND_SECONDS,
        outlasts: bool = False,
    ) -> None:
        self.has_screen = has_screen
        self.send_seconds = send_seconds
        self.stop = self.reload = False
        self.exit_code = 0
        self.wake: Callable[[], None] = lambda: None
        self._outcomes: list[queue.SimpleQueue[str]] = []
        ending = () if outlasts else (signal.SIGTERM, signal.SIGINT)
        for number in (*ending, signal.SIGHUP):
            signal.signal(number, self._heed)

    def end(self) -> None:
        """Ask the daemon to end."""
        self.stop = True
        self.wake()

    def ask_reload(self) -> str:
        """Ask for a reload and wait for it; returns the problem, or "" if it succeeded."""
        outcome: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._outcomes.append(outcome)
        self.reload = True
        self.wake()
        try:
            return outcome.get(timeout=RELOAD_SECONDS)
        except queue.Empty:
            return "the monitor is busy; it will reload as soon as it can"

    def run_reload(self, load: Callable[[], str]) -> None:
        """Call `load`, and pass its problem, if any, on to the calls of `ask_reload` so far."""
        self.reload = False  # before `load`: a request while it reads needs another reload
        waiting, self._outcomes = self._outcomes, []
        problem = load()
        for outcome in waiting:
            outcome.put(problem)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP and not (self.has_screen and leave_lost_terminal()):
            self.reload = True
            self.wake()
        else:
            self.exit_code = INTERRUPTED if number == signal.SIGINT else 0
            self.end()


def leave_lost_terminal() -> bool:
    """Whether a screen's terminal was closed; then the screen goes on without one.

    Its writes to the closed terminal would fail, and its end wait for them.
    """
    if os.isatty(2):
        return False
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    return True
