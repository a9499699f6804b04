"""Evaluates accepted expressions over a storage.

Pure: the same samples, expression and time give the same vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ldlm_monitor.model.alert import VectorSample
from ldlm_monitor.model.points import Labels, Storage
from ldlm_monitor.promql.analysis import Expression
from ldlm_monitor.promql.functions import (
    ELEMENTWISE,
    KEEPS_NAME,
    OVER_VECTOR,
    histogram_quantile,
    labels_of_absent,
)
from ldlm_monitor.promql.nodes import (
    Aggregation,
    Binary,
    Call,
    Negation,
    Node,
    Number,
    Range,
    RangeWindow,
    Rename,
    Selector,
    Subquery,
    Text,
    Value,
    Vector,
    name_later,
    settled,
    without_name,
)
from ldlm_monitor.promql.operators import (
    OPERATORS,
    SET_OPERATORS,
    aggregate,
    combine_sets,
    combine_vectors,
    combine_with_scalar,
)
from ldlm_monitor.promql.ranges import OVER_RANGE, Selection, exact, unique


class Evaluator:
    """Evaluates expressions over `storage`; an implementation of `model.alert.Query`.

    `step` is the resolution in seconds of subqueries without one; its default is Prometheus'
    (`evaluation_interval`). `delayed_name_removal` is the feature flag of Prometheus: metric
    names are dropped at the end of a query, not at once.
    """

    def __init__(
        self, storage: Storage, *, step: float = 60.0, delayed_name_removal: bool = False
    ) -> None:
        self._storage = storage
        self._step = step
        self._unnamed = name_later if delayed_name_removal else without_name

    def __call__(self, expr: Expression, at: float) -> list[VectorSample]:
        """The instant vector at `at`; a scalar becomes one sample without labels.

        Raises RuleError if the data do not permit the operation, such as a match of many to many.
        """
        value = self.value(expr, at)
        if isinstance(value, float):
            return [VectorSample((), value)]
        return [VectorSample(without_name(labels), number) for labels, number in value]

    def value(
        self, expr: Expression, at: float, *, start: float | None = None, end: float | None = None
    ) -> float | Vector:
        """The value at `at`, with metric names; `start` and `end` are the ends that `@` names."""
        at = float(at)
        first, last = at if start is None else start, at if end is None else end
        selection = Selection(self._storage, first, last)
        value = _Evaluation(selection, self._step, self._unnamed).number(expr.root, at)
        if isinstance(value, float) or self._unnamed is without_name:
            return value
        return unique([(settled(labels), number) for labels, number in value])


class _Evaluation:
    """One evaluation of an expression: caches the values of its nodes at one or many times."""

    def __init__(self, selection: Selection, step: float, unnamed: Rename) -> None:
        self.selection = selection
        self.unnamed = unnamed
        self._step = step
        self._computed: dict[tuple[int, float], Value] = {}

    def value(self, node: Node, at: float) -> Value:
        """The node's value; callers must not change the vector."""
        if not isinstance(node, Selector | Aggregation):
            return _HANDLERS[type(node)](self, node, at)
        key = (id(node), at)  # `parse` makes equal nodes one object, which is evaluated once
        value = self._computed.get(key)
        if value is None:
            value = self._computed[key] = _HANDLERS[type(node)](self, node, at)
        return value

    def vector(self, node: Node, at: float) -> Vector:
        value = self.value(node, at)
        assert isinstance(value, list), node
        return value

    def number(self, node: Node, at: float) -> float | Vector:
        value = self.value(node, at)
        assert not isinstance(value, str), node
        return value

    def scalar(self, node: Node, at: float) -> float:
        value = self.value(node, at)
        assert isinstance(value, float), node
        return value

    def selected(self, node: Selector, at: float) -> Vector:
        return [(labels, value) for labels, _, value in self.selection.latest(node, at)]

    def windows(self, node: Node, at: float) -> Iterator[RangeWindow]:
        """The samples of each series of a range vector; series without any are left out."""
        if isinstance(node, Subquery):
            return self._resampled(node, at)
        assert isinstance(node, Range), node
        return self.selection.windows(node, at)

    def _resampled(self, node: Subquery, at: float) -> Iterator[RangeWindow]:
        end = self.selection.shifted(node.shift, at)
        start = exact(end - node.seconds)
        step = node.step or self._step
        samples: dict[Labels, tuple[list[float], list[float]]] = {}
        # Steps are aligned to zero, not to the query. Rounding removes the division's error.
        slot = math.floor(round(start / step, 6)) + 1
        while (time := exact(slot * step)) <= end:
            value = self.number(node.operand, time)
            for labels, number in [((), value)] if isinstance(value, float) else value:
                times, values = samples.setdefault(labels, ([], []))
                times.append(time)
                values.append(number)
            slot += 1
        for labels, (times, values) in samples.items():
            yield RangeWindow(labels, times, values, start, end)

    def negated(self, node: Negation, at: float) -> Value:
        value = self.number(node.operand, at)
        if isinstance(value, float):
            return -value
        return unique([(self.unnamed(labels), -number) for labels, number in value])

    def combined(self, node: Binary, at: float) -> Value:
        left, right = self.number(node.left, at), self.number(node.right, at)
        if isinstance(left, float):
            if isinstance(right, float):
                return float(OPERATORS[node.operator](left, right))
            return unique(combine_with_scalar(node, right, left, self.unnamed, scalar_left=True))
        if isinstance(right, float):
            return unique(combine_with_scalar(node, left, right, self.unnamed, scalar_left=False))
        if node.operator in SET_OPERATORS:
            return combine_sets(node.operator, left, right, node.matching)
        return combine_vectors(node, left, right, self.unnamed)

    def aggregated(self, node: Aggregation, at: float) -> Vector:
        parameter = None if node.parameter is None else self.value(node.parameter, at)
        return aggregate(node, self.vector(node.operand, at), parameter)

    def called(self, node: Call, at: float) -> Value:
        special = SPECIAL.get(node.function)
        if special is not None:
            return special(self, node, at)
        if node.function in OVER_RANGE:
            return self._over_range(node, at)
        vector = self.vector(node.arguments[0], at)
        others = [self.value(argument, at) for argument in node.arguments[1:]]
        whole = OVER_VECTOR.get(node.function)
        if whole is not None:
            return self._renamed(node, whole(vector, *others))
        compute = ELEMENTWISE[node.function]
        rename = self.unnamed
        return unique([(rename(labels), compute(value, *others)) for labels, value in vector])

    def _over_range(self, node: Call, at: float) -> Vector:
        scalars: list[float] = []
        operand: Node | None = None
        for argument in node.arguments:
            if isinstance(argument, Range | Subquery):
                operand = argument
            else:
                scalars.append(self.scalar(argument, at))
        assert operand is not None, node
        if node.function == "predict_linear":
            scalars.insert(0, at)
        compute = OVER_RANGE[node.function]
        found = [(each.labels, compute(each, *scalars)) for each in self.windows(operand, at)]
        result = [(labels, value) for labels, value in found if value is not None]
        return self._renamed(node, result)

    def _renamed(self, node: Call, result: Vector) -> Vector:
        if node.function not in KEEPS_NAME:
            result = [(self.unnamed(labels), value) for labels, value in result]
        return unique(result)


def _timestamp(query: _Evaluation, node: Call, at: float) -> Vector:
    operand = node.arguments[0]
    if isinstance(operand, Selector):
        found = [(labels, time) for labels, time, _ in query.selection.latest(operand, at)]
    else:
        found = [(labels, at) for labels, _ in query.vector(operand, at)]
    return unique([(query.unnamed(labels), time) for labels, time in found])


def _scalar(query: _Evaluation, node: Call, at: float) -> float:
    vector = query.vector(node.arguments[0], at)
    return vector[0][1] if len(vector) == 1 else math.nan


def _histogram_quantile(query: _Evaluation, node: Call, at: float) -> Vector:
    rank, buckets = node.arguments
    return unique(histogram_quantile(query.scalar(rank, at), query.vector(buckets, at)))


def _absent(query: _Evaluation, node: Call, at: float) -> Vector:
    operand = node.arguments[0]
    if isinstance(operand, Range | Subquery):
        found = next(query.windows(operand, at), None) is not None
    else:
        found = bool(query.vector(operand, at))
    return [] if found else [(labels_of_absent(operand), 1.0)]


SPECIAL: dict[str, Callable[[_Evaluation, Call, float], Value]] = {
    "time": lambda query, node, at: at,
    "pi": lambda query, node, at: math.pi,
    "vector": lambda query, node, at: [((), query.scalar(node.arguments[0], at))],
    "scalar": _scalar,
    "timestamp": _timestamp,
    "histogram_quantile": _histogram_quantile,
    "absent": _absent,
    "absent_over_time": _absent,
}
"""Functions that need the evaluation itself: its time or its samples."""
_HANDLERS: dict[type, Callable[[_Evaluation, Any, float], Value]] = {  # all nodes but ranges
    Number: lambda query, node, at: node.value,
    Text: lambda query, node, at: node.value,
    Selector: _Evaluation.selected,
    Negation: _Evaluation.negated,
    Binary: _Evaluation.combined,
    Aggregation: _Evaluation.aggregated,
    Call: _Evaluation.called,
}
