"""What a query may take: PromQL has no bound of its own."""

import time
from collections.abc import Iterable, Iterator, Sequence

from ldlm_monitor.service.serve.request_parameters import QueryError
from ldlm_promrules.samples import Column, Labels, Matcher, Reader, Series, Storage

QUERY_SECONDS = 10.0
"""Seconds that a query may take. A choice: boards' queries take less than one; what takes more
shares the processor with the judging of logs for too long."""
MAX_VALUES = 5_000_000
"""Values that a query may select in all. A choice: 800 runs at 5,000 steps have fewer, and each
takes 100 bytes until the answer is sent."""
MAX_MADE = 20_000_000
"""Values that all nodes of a query may make. A choice: four nodes over MAX_VALUES; each takes 32
bytes, if all are kept until the last is made."""


class QueryBudget:
    """An implementation of `promql.special.Budget`; `until` is on the monotonic clock.

    Its methods raise `QueryError` after `until`, after MAX_VALUES samples, or MAX_MADE values.
    """

    def __init__(self, until: float) -> None:
        self._until = until
        self._selected = 0
        self._made = 0

    def ask(self) -> None:
        """Raise if the time is up."""
        if time.monotonic() > self._until:
            raise QueryError("query timed out in expression evaluation", "timeout")

    def makes(self, values: int) -> None:
        """As of `Budget`."""
        self._made += values
        if self._made > MAX_MADE:
            raise QueryError("the query computes too many values; ask for fewer steps", "execution")
        self.ask()

    def selects(self, samples: int) -> None:
        """As of `Budget`."""
        self._selected += samples
        if self._selected > MAX_VALUES:
            raise QueryError("the query selects too many samples; ask for fewer steps", "execution")
        self.ask()


class BoundedStorage(Storage):
    """A storage that counts the samples that are selected, and so may raise `QueryError`."""

    def __init__(self, storage: Storage, budget: QueryBudget) -> None:
        self._storage = storage
        self._selects = budget.selects

    def reader(self, matchers: Sequence[Matcher]) -> Reader:
        """As `Storage.reader`; what it reads may raise QueryError."""
        reader = self._storage.reader(matchers)

        def select(start: float, end: float) -> Iterator[Series]:
            for series in reader.select(start, end):
                self._selects(len(series.times))
                yield series

        def latest(since: float, until: float) -> Iterable[tuple[Labels, float, float]]:
            found = [*reader.latest(since, until)]
            self._selects(len(found))
            return found

        def columns(
            since: Sequence[float], until: Sequence[float]
        ) -> Iterator[tuple[Labels, Column]]:
            for labels, column in reader.columns(since, until):
                self._selects(len(column))
                yield labels, column

        return Reader(select, latest, columns)
