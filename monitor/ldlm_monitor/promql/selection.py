"""Reads selectors from a storage, and the functions that need time or samples themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.model.points import InstantStorage, Labels, Storage
from ldlm_monitor.promql.functions import histogram_quantile, labels_of_absent
from ldlm_monitor.promql.nodes import (
    Call,
    Node,
    Range,
    RangeWindow,
    Rename,
    Selector,
    Shift,
    Value,
    Vector,
)


def exact(time: float) -> float:
    """The time rounded to milliseconds, where it differs from them only by rounding errors.

    Prometheus counts in milliseconds; sums and products of seconds differ from them in the last
    bits, and samples at the edge of a range would appear and disappear.
    """
    whole = round(time, 3)
    return whole if abs(whole - time) < 1e-6 else time


@dataclass(frozen=True, slots=True)
class Selection:
    """Reads the selectors of one query; `start` and `end` are what `@` may refer to.

    `instant` is the storage itself if it can return the last samples.
    """

    storage: Storage
    instant: InstantStorage | None
    lookback: float
    start: float
    end: float

    def shifted(self, shift: Shift, at: float) -> float:
        """The time that a selector or a subquery reads when the query is evaluated at `at`."""
        anchor = shift.anchor
        if anchor == "start":
            at = self.start
        elif anchor == "end":
            at = self.end
        elif anchor is not None:
            at = anchor
        return exact(at - shift.offset) if shift.offset else at

    def latest(self, node: Selector, at: float) -> Iterator[tuple[Labels, float, float]]:
        """Labels, time and value of the last sample of each series at `at`."""
        until = self.shifted(node.shift, at)
        since = exact(until - self.lookback)
        if self.instant is not None:
            yield from self.instant.latest(node.matchers, since, until)
            return
        for series in self.storage.select(node.matchers, since, until):
            if not len(series.times):
                continue
            last = series.times[-1]
            if last <= since:
                continue
            if series.ended is not None and last <= series.ended <= until:
                continue
            yield series.labels, last, series.values[-1]

    def windows(self, node: Range, at: float) -> Iterator[RangeWindow]:
        """The samples of each series of a range; series without any are left out."""
        end = self.shifted(node.selector.shift, at)
        start = exact(end - node.seconds)
        for series in self.storage.select(node.selector.matchers, start, end):
            times, values = series.times, series.values
            if len(times) and times[0] <= start:
                times, values = times[1:], values[1:]
            if len(times):
                yield RangeWindow(series.labels, times, values, start, end)


class QueryContext(Protocol):
    """What functions use of a query."""

    selection: Selection
    unnamed: Rename

    def vector(self, node: Node, at: float) -> Vector:
        """The instant vector of a node at `at`."""
        ...

    def scalar(self, node: Node, at: float) -> float:
        """The number of a node at `at`."""
        ...

    def windows(self, node: Node, at: float) -> Iterator[RangeWindow]:
        """The samples of a range at `at`, a window a series."""
        ...


def unique(vector: Vector) -> Vector:
    """The vector itself. Raises RuleError where two elements have the same labels."""
    if len(vector) > 1 and len({labels for labels, _ in vector}) != len(vector):
        raise RuleError(
            "the result has several series with the same labels once the metric name is dropped",
            remedy="select one metric, or aggregate",
        )
    return vector


def _timestamp(query: QueryContext, node: Call, at: float) -> Vector:
    operand = node.arguments[0]
    if isinstance(operand, Selector):
        found = [
            (query.unnamed(labels), time) for labels, time, _ in query.selection.latest(operand, at)
        ]
        return unique(found)
    return unique([(query.unnamed(labels), at) for labels, _ in query.vector(operand, at)])


def _scalar(query: QueryContext, node: Call, at: float) -> float:
    vector = query.vector(node.arguments[0], at)
    return vector[0][1] if len(vector) == 1 else math.nan


def _histogram_quantile(query: QueryContext, node: Call, at: float) -> Vector:
    rank, buckets = node.arguments
    return unique(histogram_quantile(query.scalar(rank, at), query.vector(buckets, at)))


def _absent(query: QueryContext, node: Call, at: float) -> Vector:
    operand = node.arguments[0]
    if query.vector(operand, at):
        return []
    return [(labels_of_absent(operand), 1.0)]


def _absent_over_time(query: QueryContext, node: Call, at: float) -> Vector:
    operand = node.arguments[0]
    if next(query.windows(operand, at), None) is not None:
        return []
    return [(labels_of_absent(operand), 1.0)]


SPECIAL: dict[str, Callable[[QueryContext, Call, float], Value]] = {
    "time": lambda query, node, at: at,
    "pi": lambda query, node, at: math.pi,
    "vector": lambda query, node, at: [((), query.scalar(node.arguments[0], at))],
    "scalar": _scalar,
    "timestamp": _timestamp,
    "histogram_quantile": _histogram_quantile,
    "absent": _absent,
    "absent_over_time": _absent_over_time,
}
