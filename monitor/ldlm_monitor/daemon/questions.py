"""Questions about the monitor from other threads, answered by the pump's thread between its turns.

Nothing else may read the monitor: the pump's thread changes it all the time.
"""

import queue
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from ldlm_monitor.core.monitor import Monitor
from ldlm_monitor.daemon.pump import Pump

ANSWER_SECONDS = 5.0
"""Seconds that a question waits. A choice: a turn takes a quarter, with some evaluations a second;
more would only hide that the monitor is busy."""

_T = TypeVar("_T")


class Questions:
    """Questions to the monitor of `pump`. `wake` ends the wait of the pump's thread."""

    def __init__(self, pump: Pump, wake: Callable[[], None]) -> None:
        self._pump = pump
        self._wake = wake
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def ask(self, question: Callable[[Monitor], _T]) -> _T:
        """What `question` returns; other threads call this.

        Raises `TimeoutError` if no turn ended, as while the pump reads what the logs hold.
        """
        answer: Future[_T] = Future()

        def work() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(question(self._pump.monitor))
                except Exception as problem:  # noqa: BLE001 # raised again where it was asked
                    answer.set_exception(problem)

        if not self._pump.caught_up:
            raise TimeoutError
        self._asked.put(work)
        self._wake()
        try:
            return answer.result(ANSWER_SECONDS)
        finally:
            answer.cancel()

    def answer(self) -> None:
        """Answer what was asked; the pump's thread calls this between two turns."""
        with suppress(queue.Empty):
            while self._pump.caught_up:
                self._asked.get_nowait()()
