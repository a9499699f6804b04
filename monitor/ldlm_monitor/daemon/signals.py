"""What signals ask of the daemon: to end, or to reload."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from ldlm_monitor.daemon.pump import Pump
from ldlm_monitor.model.errors import INTERRUPTED
from ldlm_monitor.source import Waker

RELOAD_SECONDS = 10.0
"""How long who asks over HTTP waits for the outcome."""

Handler: TypeAlias = Callable[[int, FrameType | None], None]


class Signals:
    """What signals ask of the pump's thread: to end, or to reload.

    A reload may also be asked for over HTTP, by a thread that waits for its outcome.
    """

    def __init__(self, pump: Pump, waker: Waker) -> None:
        self._pump = pump
        self._waker = waker
        self._outcomes: list[queue.SimpleQueue[str]] = []
        self.stop = False
        self.closed = False
        self.has_screen = False
        self.reload = False
        self.exit_code = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """A signal arrived: SIGHUP reloads, any other ends."""
        if number == signal.SIGHUP and not self._terminal_is_gone():
            self.reload = True
        else:
            self.stop = self._pump.stopping = True
            self.exit_code = INTERRUPTED if number == signal.SIGINT else 0
        self._waker.ring(Path())

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

    def ask_reload(self) -> str:
        """Reload, from another thread; what went wrong, or an empty text."""
        outcome: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._outcomes.append(outcome)
        self.reload = True
        self._waker.ring(Path())
        try:
            return outcome.get(timeout=RELOAD_SECONDS)
        except queue.Empty:
            return "the monitor is busy; it will reload as soon as it can"

    def reloaded(self, problem: str) -> None:
        """Pass the outcome to all who wait for it."""
        self.reload = False
        while self._outcomes:
            self._outcomes.pop().put(problem)
