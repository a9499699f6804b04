"""Functions that ask more than the values of their arguments: the time, or the samples behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Protocol

from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.promql.functions import labels_of_absent
from ldlm_monitor.promql.histograms import histogram_quantile
from ldlm_monitor.promql.labels import Rename
from ldlm_monitor.promql.nodes import Call, Node, Selector, Value, Vector, Window
from ldlm_monitor.promql.selection import Selection


class Query(Protocol):
    """One query, as a function sees it: `ahead`, so many seconds later `time()` says it is."""

    ahead: float
    selection: Selection
    unnamed: Rename

    def vector(self, node: Node, at: float) -> Vector:
        """The instant vector that a node is worth at `at`."""
        ...

    def scalar(self, node: Node, at: float) -> float:
        """The number that a node is worth at `at`."""
        ...

    def windows(self, node: Node, at: float) -> Iterator[Window]:
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


def _timestamp(query: Query, node: Call, at: float) -> Vector:
    operand = node.arguments[0]
    if isinstance(operand, Selector):
        found = [
            (query.unnamed(labels), time) for labels, time, _ in query.selection.latest(operand, at)
        ]
        return unique(found)
    return unique([(query.unnamed(labels), at) for labels, _ in query.vector(operand, at)])


def _scalar(query: Query, node: Call, at: float) -> float:
    vector = query.vector(node.arguments[0], at)
    return vector[0][1] if len(vector) == 1 else math.nan


def _histogram_quantile(query: Query, node: Call, at: float) -> Vector:
    rank, buckets = node.arguments
    return unique(histogram_quantile(query.scalar(rank, at), query.vector(buckets, at)))


def _absent(query: Query, node: Call, at: float) -> Vector:
    operand = node.arguments[0]
    if query.vector(operand, at):
        return []
    return [(labels_of_absent(operand), 1.0)]


def _absent_over_time(query: Query, node: Call, at: float) -> Vector:
    operand = node.arguments[0]
    if next(query.windows(operand, at), None) is not None:
        return []
    return [(labels_of_absent(operand), 1.0)]


SPECIAL: dict[str, Callable[[Query, Call, float], Value]] = {
    "time": lambda query, node, at: at + query.ahead,
    "pi": lambda query, node, at: math.pi,
    "vector": lambda query, node, at: [((), query.scalar(node.arguments[0], at))],
    "scalar": _scalar,
    "timestamp": _timestamp,
    "histogram_quantile": _histogram_quantile,
    "absent": _absent,
    "absent_over_time": _absent_over_time,
}
