"""A storage that ends what takes too much: PromQL has no bound of its own."""

import time
from collections.abc import Iterable, Iterator, Sequence

from ldlm_monitor.serve.request_parameters import QueryError
from ldlm_promrules.samples import Column, Labels, Matcher, Reader, Series, Storage

QUERY_SECONDS = 10.0
"""Seconds that a query may take. A choice: boards' queries take less than one; what takes more
shares the processor with the judging of logs for too long."""
MAX_VALUES = 5_000_000
"""Values that a query may select in all. A choice: 800 runs at 5,000 steps have fewer, and each
takes 100 bytes until the answer is sent."""


class BoundedStorage(Storage):
    """A storage that raises `QueryError` after `until` (monotonic), or MAX_VALUES values."""

    def __init__(self, storage: Storage, until: float) -> None:
        self._storage = storage
        self._until = until
        self._values = 0

    def reader(self, matchers: Sequence[Matcher]) -> Reader:
        """As `Storage.reader`; what it reads may raise QueryError."""
        reader = self._storage.reader(matchers)

        def select(start: float, end: float) -> Iterator[Series]:
            for series in reader.select(start, end):
                self._count(len(series.times))
                yield series

        def latest(since: float, until: float) -> Iterable[tuple[Labels, float, float]]:
            found = [*reader.latest(since, until)]
            self._count(len(found))
            return found

        def columns(
            since: Sequence[float], until: Sequence[float]
        ) -> Iterator[tuple[Labels, Column]]:
            for labels, column in reader.columns(since, until):
                self._count(len(column))
                yield labels, column

        return Reader(select, latest, columns)

    def _count(self, values: int) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise QueryError("the query selects too many samples; ask for fewer steps", "execution")
        if time.monotonic() > self._until:
            raise QueryError("query timed out in expression evaluation", "timeout")
