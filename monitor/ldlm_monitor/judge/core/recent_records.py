"""The last events, and the last transitions, of all runs, divided fairly among the runs."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from ldlm_monitor.base.alert import Transition

_T = TypeVar("_T")


class RecentRecords(Generic[_T]):
    """At most `limit` items, in the order in which they came; `run_of` names the run of one.

    When full, the oldest item of the run with the most items is dropped: a run that logs a warning
    at each step does not displace the one error of another run.
    """

    def __init__(self, limit: int, run_of: Callable[[_T], str]) -> None:
        self._limit = limit
        self._run_of = run_of
        self._by_run: dict[str, deque[tuple[int, _T]]] = {}
        self._count = self._order = 0
        self._sorted: tuple[_T, ...] | None = ()

    def extend(self, items: Iterable[_T]) -> None:
        """Add items, the newest last."""
        for item in items:
            self._sorted = None
            self._order += 1
            self._count += 1
            self._by_run.setdefault(self._run_of(item), deque()).append((self._order, item))
            if self._count > self._limit:
                max(self._by_run.values(), key=len).popleft()
                self._count -= 1

    def forget(self, run: str) -> None:
        """Drop the items of a run."""
        self._count -= len(self._by_run.pop(run, ()))
        self._sorted = None

    def items(self) -> tuple[_T, ...]:
        """All items, the newest last; the same object until one is added."""
        if self._sorted is None:
            found = [each for items in self._by_run.values() for each in items]
            self._sorted = tuple(item for _, item in sorted(found, key=lambda each: each[0]))
        return self._sorted

    def of_run(self, run: str) -> list[_T]:
        """The items of a run, the newest last."""
        return [item for _, item in self._by_run.get(run, ())]


def alerted_run(transition: Transition) -> str:
    """The run of an alert's labels; "" if it is of none."""
    return transition.labels.get("run", "")
