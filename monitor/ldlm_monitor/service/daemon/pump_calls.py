"""Calls of other threads that read the monitor: the pump's thread runs them between its turns.

Nothing else may read the monitor: the pump's thread changes it all the time.
"""

import queue
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.service.daemon.pump import Pump

CALL_SECONDS = 5.0
"""Seconds that a call waits. A choice: a turn takes a quarter, with some evaluations a second;
more would only hide that the monitor is busy."""

_T = TypeVar("_T")


class PumpCalls:
    """Calls that read the monitor of `pump`. `wake` ends the wait of the pump's thread."""

    def __init__(self, pump: Pump, wake: Callable[[], None]) -> None:
        self._pump = pump
        self._wake = wake
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def call(self, read: Callable[[Monitor], _T]) -> _T:
        """What `read` returns; for other threads.

        Raises `TimeoutError` if no turn ended, as while the pump reads what the logs hold.
        """
        answer: Future[_T] = Future()

        def work() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(read(self._pump.monitor))
                except Exception as problem:  # noqa: BLE001 # raised again in the thread that called
                    answer.set_exception(problem)

        if not self._pump.caught_up:
            raise TimeoutError
        self._waiting.put(work)
        self._wake()
        try:
            return answer.result(CALL_SECONDS)
        finally:
            answer.cancel()

    def run(self) -> None:
        """Run what waits; the pump's thread does this between two turns."""
        with suppress(queue.Empty):
            while self._pump.caught_up:
                self._waiting.get_nowait()()
