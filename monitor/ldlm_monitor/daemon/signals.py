"""What signals ask of the daemon: to end, or to reload. It imports nothing that takes time."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Callable
from types import FrameType

from ldlm_monitor.model.errors import INTERRUPTED

RELOAD_SECONDS = 10.0
"""How long who asks over HTTP waits for the outcome."""


class CutShort(BaseException):
    """A signal ends the first reading, however long the call takes that it is in."""


class Signals:
    """What signals ask of the pump's thread: to end, or to reload.

    A reload may also be asked for over HTTP, by a thread that waits for its outcome.
    `has_screen`: a screen has the terminal. The daemon sets `wake`, which
    makes it look here at once, and `cuts_short` while the main thread is at what need not be
    finished: then a signal to end raises `CutShort` there.
    """

    def __init__(self, *, has_screen: bool = False) -> None:
        self.has_screen = has_screen
        self.stop = self.cuts_short = False
        self.reload = False
        self.exit_code = 0
        self.wake: Callable[[], None] = lambda: None
        self._outcomes: list[queue.SimpleQueue[str]] = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._heed)

    def end(self) -> None:
        """The daemon is to end."""
        self.stop = True
        self.wake()

    def ask_reload(self) -> str:
        """Reload, from another thread; what went wrong, or an empty text."""
        outcome: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._outcomes.append(outcome)
        self.reload = True
        self.wake()
        try:
            return outcome.get(timeout=RELOAD_SECONDS)
        except queue.Empty:
            return "the monitor is busy; it will reload as soon as it can"

    def reloaded(self, problem: str) -> None:
        """Pass the outcome to all who wait for it."""
        self.reload = False
        while self._outcomes:
            self._outcomes.pop().put(problem)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP and not self._terminal_is_gone():
            self.reload = True
            self.wake()
        else:
            self.exit_code = INTERRUPTED if number == signal.SIGINT else 0
            self.end()
            if self.cuts_short:
                raise CutShort

    def _terminal_is_gone(self) -> bool:
        """A screen whose terminal was closed ends; a daemon never had one."""
        if not self.has_screen or os.isatty(2):
            return False
        # What the screen still draws would fail, and its writer hold up the end.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
        return True
