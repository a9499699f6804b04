"""A thread that does what it is asked, one thing after the other, and may never come back."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """A daemon thread: nothing can wake it from a call that a dead server holds.

    So it holds up no end of the process either, as those of `concurrent.futures` would.
    """

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]
        self._work = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, work: Callable[[], T]) -> "Future[T]":
        """Have it done; what it gives or raises."""
        answer: Future[T] = Future()
        self._work.put((work, answer))
        return answer

    def close(self, patience: float) -> None:
        """End it when it has done what it was asked, waited for `patience` seconds."""
        self._work.put(None)
        if patience:
            self._thread.join(patience)

    def _run(self) -> None:
        while (order := self._work.get()) is not None:
            work, answer = order
            try:
                answer.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised again where it is taken
                answer.set_exception(error)
