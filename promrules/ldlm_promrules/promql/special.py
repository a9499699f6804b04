"""Functions whose closures need the node itself: the values of its arguments do not suffice."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from ldlm_promrules.promql.annotations import Notes
from ldlm_promrules.promql.functions import histogram_quantile, labels_of_absent
from ldlm_promrules.promql.nodes import Call, Node, Range, Rename, Selector, Subquery, Vector
from ldlm_promrules.promql.ranges import QueryTimes, Windows, sample_times
from ldlm_promrules.promql.vector_columns import present, present_rows, unique
from ldlm_promrules.samples import Storage

Compute: TypeAlias = Callable[[QueryTimes], Any]
"""Returns a node's value at the times of a query; callers must not change a returned vector."""


class Budget(Protocol):
    """What a query may take. Each method raises an error, which ends the query, if it is used up.

    Both are called before the work. Between two calls there is the work of one node on one vector,
    or of one window.
    """

    def makes(self, values: int) -> None:
        """So many values, or characters of labels, are about to be made; 0: time will pass."""

    def selects(self, samples: int) -> None:
        """So many samples are about to be selected, by a selector or a subquery."""


class Compiler(Protocol):
    """What makes the closures: `evaluator.Evaluator`. `unnamed` drops metric names."""

    storage: Storage
    unnamed: Rename
    notes: Notes | None

    def compute(self, node: Node) -> Compute:
        """The closure that evaluates a node."""

    def windows(self, node: Node) -> Windows:
        """The closure that selects a range vector, or evaluates a subquery."""


def _timestamp(evaluator: Compiler, node: Call) -> Compute:
    operand = node.arguments[0]
    unnamed = evaluator.unnamed
    if isinstance(operand, Selector):
        times_of = sample_times(operand, evaluator.storage)
        return lambda query: unique([(unnamed(labels), each) for labels, each in times_of(query)])
    compute = evaluator.compute(operand)
    return lambda query: unique(
        [
            (
                unnamed(labels),
                [None if x is None else at for x, at in zip(column, query.at, strict=True)],
            )
            for labels, column in compute(query)
        ]
    )


def _scalar(evaluator: Compiler, node: Call) -> Compute:
    operand = evaluator.compute(node.arguments[0])

    def scalar(query: QueryTimes) -> Sequence[float]:
        rows = present_rows(operand(query), len(query.at))
        return [row[0] if len(row) == 1 else math.nan for row in rows]

    return scalar


def _vector(evaluator: Compiler, node: Call) -> Compute:
    operand = evaluator.compute(node.arguments[0])
    return lambda query: [((), operand(query))]


def _histogram_quantile(evaluator: Compiler, node: Call) -> Compute:
    rank, buckets = map(evaluator.compute, node.arguments)
    notes = evaluator.notes

    def quantiles(query: QueryTimes) -> Vector:
        ranks, vector = rank(query), buckets(query)
        if notes is not None:
            notes.buckets(node, query.at, ranks, vector)
        return unique(histogram_quantile(ranks, vector))

    return quantiles


def _absent(evaluator: Compiler, node: Call) -> Compute:
    operand = node.arguments[0]
    is_range = isinstance(operand, Range | Subquery)
    series = evaluator.windows(operand) if is_range else evaluator.compute(operand)
    labels = labels_of_absent(operand)

    def absent(query: QueryTimes) -> Vector:
        rows = present_rows([*series(query)], len(query.at))
        return present([(labels, [None if row else 1.0 for row in rows])])

    return absent


SPECIAL: dict[str, Callable[[Compiler, Call], Compute]] = {
    "time": lambda evaluator, node: lambda query: query.at,
    "pi": lambda evaluator, node: lambda query: [math.pi] * len(query.at),
    "vector": _vector,
    "scalar": _scalar,
    "timestamp": _timestamp,
    "histogram_quantile": _histogram_quantile,
    "absent": _absent,
    "absent_over_time": _absent,
}
