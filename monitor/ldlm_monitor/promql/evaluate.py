"""Evaluates accepted expressions over a storage.

Pure: the same samples, expression and time give the same vector. Each node becomes a closure
when its expression is first asked: walking the tree at each evaluation took twice as long.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

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
    is_scalar,
    name_later,
    settled,
    walk,
    without_name,
)
from ldlm_monitor.promql.operators import (
    OPERATORS,
    SET_OPERATORS,
    aggregate,
    set_operation,
    vector_operation,
    with_scalar,
)
from ldlm_monitor.promql.ranges import OVER_RANGE, Selection, exact, unique


@dataclass(slots=True)
class _Query:
    """What one query reads, and its values so far of nodes that its expression has twice."""

    selection: Selection
    known: dict[tuple[int, float], Value] = field(default_factory=dict)


Compute: TypeAlias = Callable[[_Query, float], Any]
"""The value of a node at a time (Unix seconds); callers must not change a vector."""
Windows: TypeAlias = Callable[[_Query, float], Iterator[RangeWindow]]
"""The samples of each series of a range vector; series without any are left out."""


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
        self._compiled: dict[str, Compute] = {}

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
        compute = self._compiled.get(expr.text)
        if compute is None:
            compiler = _Compiler(expr.root, self._step, self._unnamed)
            compute = self._compiled[expr.text] = compiler.compute(expr.root)
        first, last = at if start is None else start, at if end is None else end
        value: float | Vector = compute(_Query(Selection(self._storage, first, last)), at)
        if isinstance(value, float) or self._unnamed is without_name:
            return value
        return unique([(settled(labels), number) for labels, number in value])


class _Compiler:
    """Makes the closures of one expression."""

    def __init__(self, root: Node, step: float, unnamed: Rename) -> None:
        self.unnamed = unnamed
        self._step = step
        self._count = Counter(id(node) for node in walk(root))  # equal nodes are one object

    def compute(self, node: Node) -> Compute:
        """A node's closure."""
        compute = _HANDLERS[type(node)](self, node)
        if self._count[id(node)] == 1 or not isinstance(node, Selector | Aggregation):
            return compute

        def once(query: _Query, at: float) -> Value:
            key = (id(node), at)
            if key not in query.known:
                query.known[key] = compute(query, at)
            return query.known[key]

        return once

    def windows(self, node: Node) -> Windows:
        """The closure of a range vector."""
        if isinstance(node, Subquery):
            return self._resampled(node)
        assert isinstance(node, Range), node
        return lambda query, at: query.selection.windows(node, at)

    def _resampled(self, node: Subquery) -> Windows:
        operand, step = self.compute(node.operand), node.step or self._step

        def windows(query: _Query, at: float) -> Iterator[RangeWindow]:
            end = query.selection.shifted(node.shift, at)
            start = exact(end - node.seconds)
            samples: dict[Labels, tuple[list[float], list[float]]] = {}
            # Steps are aligned to zero, not to the query; rounding removes the error of division.
            slot = math.floor(round(start / step, 6)) + 1
            while (time := exact(slot * step)) <= end:
                value = operand(query, time)
                for labels, number in [((), value)] if isinstance(value, float) else value:
                    times, values = samples.setdefault(labels, ([], []))
                    times.append(time)
                    values.append(number)
                slot += 1
            for labels, (times, values) in samples.items():
                yield RangeWindow(labels, times, values, start, end)

        return windows

    def selector(self, node: Selector) -> Compute:
        return lambda query, at: [
            (labels, value) for labels, _, value in query.selection.latest(node, at)
        ]

    def negation(self, node: Negation) -> Compute:
        operand, unnamed = self.compute(node.operand), self.unnamed
        if is_scalar(node.operand):
            return lambda query, at: -operand(query, at)
        return lambda query, at: unique(
            [(unnamed(labels), -number) for labels, number in operand(query, at)]
        )

    def binary(self, node: Binary) -> Compute:
        left, right = self.compute(node.left), self.compute(node.right)
        if is_scalar(node.left):
            if is_scalar(node.right):
                compute = OPERATORS[node.operator]
                return lambda query, at: float(compute(left(query, at), right(query, at)))
            on_left = with_scalar(node, self.unnamed, scalar_left=True)
            return lambda query, at: on_left(right(query, at), left(query, at))
        if is_scalar(node.right):
            on_right = with_scalar(node, self.unnamed, scalar_left=False)
            return lambda query, at: on_right(left(query, at), right(query, at))
        is_set = node.operator in SET_OPERATORS
        combine = set_operation(node) if is_set else vector_operation(node, self.unnamed)
        if node.operator == "or":
            return lambda query, at: combine(left(query, at), right(query, at))

        def matched(query: _Query, at: float) -> Vector:
            found: Vector = left(query, at)
            # Most rules end here at each step of a healthy run: nothing matches nothing.
            return combine(found, right(query, at)) if found else found

        return matched

    def aggregation(self, node: Aggregation) -> Compute:
        operand = self.compute(node.operand)
        if node.parameter is None:
            return lambda query, at: aggregate(node, operand(query, at), None)
        parameter = self.compute(node.parameter)
        return lambda query, at: aggregate(node, operand(query, at), parameter(query, at))

    def call(self, node: Call) -> Compute:
        special = SPECIAL.get(node.function)
        if special is not None:
            return special(self, node)
        if node.function in OVER_RANGE:
            return self._over_range(node)
        operand, *others = map(self.compute, node.arguments)
        whole = OVER_VECTOR.get(node.function)
        if whole is not None:
            return lambda query, at: self._renamed(
                node, whole(operand(query, at), *(other(query, at) for other in others))
            )
        compute, unnamed = ELEMENTWISE[node.function], self.unnamed

        def elementwise(query: _Query, at: float) -> Vector:
            given = [other(query, at) for other in others]
            return unique(
                [(unnamed(labels), compute(value, *given)) for labels, value in operand(query, at)]
            )

        return elementwise

    def _over_range(self, node: Call) -> Compute:
        (operand,) = (each for each in node.arguments if isinstance(each, Range | Subquery))
        windows = self.windows(operand)
        scalars = [self.compute(each) for each in node.arguments if each is not operand]
        if node.function == "predict_linear":
            scalars.insert(0, lambda query, at: at)
        compute = OVER_RANGE[node.function]

        def over_range(query: _Query, at: float) -> Vector:
            given = [scalar(query, at) for scalar in scalars]
            found = [(each.labels, compute(each, *given)) for each in windows(query, at)]
            return self._renamed(node, [(labels, x) for labels, x in found if x is not None])

        return over_range

    def _renamed(self, node: Call, result: Vector) -> Vector:
        if node.function not in KEEPS_NAME:
            result = [(self.unnamed(labels), value) for labels, value in result]
        return unique(result)


def _timestamp(compiler: _Compiler, node: Call) -> Compute:
    operand = node.arguments[0]
    unnamed, compute = compiler.unnamed, compiler.compute(operand)
    if isinstance(operand, Selector):
        return lambda query, at: unique(
            [(unnamed(labels), time) for labels, time, _ in query.selection.latest(operand, at)]
        )
    return lambda query, at: unique([(unnamed(labels), at) for labels, _ in compute(query, at)])


def _scalar(compiler: _Compiler, node: Call) -> Compute:
    operand = compiler.compute(node.arguments[0])
    return lambda query, at: found[0][1] if len(found := operand(query, at)) == 1 else math.nan


def _vector(compiler: _Compiler, node: Call) -> Compute:
    operand = compiler.compute(node.arguments[0])
    return lambda query, at: [((), operand(query, at))]


def _histogram_quantile(compiler: _Compiler, node: Call) -> Compute:
    rank, buckets = map(compiler.compute, node.arguments)
    return lambda query, at: unique(histogram_quantile(rank(query, at), buckets(query, at)))


def _absent(compiler: _Compiler, node: Call) -> Compute:
    operand = node.arguments[0]
    is_range = isinstance(operand, Range | Subquery)
    series = compiler.windows(operand) if is_range else compiler.compute(operand)
    labels = labels_of_absent(operand)
    return lambda query, at: [] if any(True for _ in series(query, at)) else [(labels, 1.0)]


SPECIAL: dict[str, Callable[[_Compiler, Call], Compute]] = {
    "time": lambda compiler, node: lambda query, at: at,
    "pi": lambda compiler, node: lambda query, at: math.pi,
    "vector": _vector,
    "scalar": _scalar,
    "timestamp": _timestamp,
    "histogram_quantile": _histogram_quantile,
    "absent": _absent,
    "absent_over_time": _absent,
}
_HANDLERS: dict[type, Callable[[_Compiler, Any], Compute]] = {
    Number: lambda compiler, node: lambda query, at: node.value,
    Text: lambda compiler, node: lambda query, at: node.value,
    Selector: _Compiler.selector,
    Negation: _Compiler.negation,
    Binary: _Compiler.binary,
    Aggregation: _Compiler.aggregation,
    Call: _Compiler.call,
}
