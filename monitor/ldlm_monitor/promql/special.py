"""Functions whose closures need the node itself: the values of its arguments do not suffice."""

import math
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from ldlm_monitor.model.points import Storage
from ldlm_monitor.promql.functions import histogram_quantile, labels_of_absent
from ldlm_monitor.promql.nodes import Call, Node, Range, Rename, Selector, Subquery
from ldlm_monitor.promql.ranges import QueryTimes, Windows, samples_of, unique

Compute: TypeAlias = Callable[[QueryTimes, float], Any]
"""Returns a node's value at a time (Unix seconds); callers must not change a returned vector."""


class Compiler(Protocol):
    """What makes the closures: `evaluate.Evaluator`. `unnamed` drops metric names."""

    storage: Storage
    unnamed: Rename

    def compute(self, node: Node) -> Compute:
        """The closure that evaluates a node."""

    def windows(self, node: Node) -> Windows:
        """The closure that selects a range vector, or evaluates a subquery."""


def _timestamp(evaluator: Compiler, node: Call) -> Compute:
    operand = node.arguments[0]
    unnamed = evaluator.unnamed
    if isinstance(operand, Selector):
        samples = samples_of(operand, evaluator.storage)
        return lambda query, at: unique(
            [(unnamed(labels), time) for labels, time, _ in samples(query, at)]
        )
    compute = evaluator.compute(operand)
    return lambda query, at: unique([(unnamed(labels), at) for labels, _ in compute(query, at)])


def _scalar(evaluator: Compiler, node: Call) -> Compute:
    operand = evaluator.compute(node.arguments[0])
    return lambda query, at: found[0][1] if len(found := operand(query, at)) == 1 else math.nan


def _vector(evaluator: Compiler, node: Call) -> Compute:
    operand = evaluator.compute(node.arguments[0])
    return lambda query, at: [((), operand(query, at))]


def _histogram_quantile(evaluator: Compiler, node: Call) -> Compute:
    rank, buckets = map(evaluator.compute, node.arguments)
    return lambda query, at: unique(histogram_quantile(rank(query, at), buckets(query, at)))


def _absent(evaluator: Compiler, node: Call) -> Compute:
    operand = node.arguments[0]
    is_range = isinstance(operand, Range | Subquery)
    series = evaluator.windows(operand) if is_range else evaluator.compute(operand)
    labels = labels_of_absent(operand)
    return lambda query, at: [] if any(True for _ in series(query, at)) else [(labels, 1.0)]


SPECIAL: dict[str, Callable[[Compiler, Call], Compute]] = {
    "time": lambda evaluator, node: lambda query, at: at,
    "pi": lambda evaluator, node: lambda query, at: math.pi,
    "vector": _vector,
    "scalar": _scalar,
    "timestamp": _timestamp,
    "histogram_quantile": _histogram_quantile,
    "absent": _absent,
    "absent_over_time": _absent,
}
