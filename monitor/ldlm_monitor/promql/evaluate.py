"""Evaluates accepted expressions over a storage.

The same samples, expression and time give the same vector. Each node becomes a closure when its
expression is first evaluated: walking the tree at each evaluation takes twice as long.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from ldlm_monitor.model.alert import VectorSample
from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.model.points import Labels, Series, Storage
from ldlm_monitor.promql.analysis import Expression
from ldlm_monitor.promql.functions import ELEMENTWISE, KEEPS_NAME, OVER_VECTOR
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
    Vector,
    is_scalar,
    name_later,
    never_fails,
    settled,
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
from ldlm_monitor.promql.ranges import (
    OVER_RANGE,
    QueryTimes,
    Windows,
    exact,
    samples_of,
    unique,
    windows_of,
)
from ldlm_monitor.promql.special import SPECIAL, Compute

COMPILED = 1024
"""Expressions whose closures are kept: far more than all rules have. More would cost memory, since
queries over HTTP may be ever new."""


class Evaluator:
    """Evaluates expressions over `storage`; an implementation of `model.alert.Query`.

    `step` is the step in seconds of subqueries that give none; its default is that of Prometheus'
    `evaluation_interval`. `delayed_name_removal`: drop metric names at the end of a query, not at
    once, as Prometheus does with its feature flag `promql-delayed-name-removal`. `watch` returns
    for a node a function of the time that is true if its value may differ from the last one, which
    is used again otherwise; or None, to compute it each time. Times then must not fall.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        step: float = 60.0,
        delayed_name_removal: bool = False,
        watch: Callable[[Node], Callable[[float], bool] | None] = lambda node: None,
    ) -> None:
        self.storage = storage
        self._step = step
        self._watch = watch
        self._watched: dict[str, Compute] = {}
        self.unnamed: Rename = (
            name_later if delayed_name_removal else without_name
        )  # drops metric names
        self._closure = lru_cache(COMPILED)(lambda expr: self.compute(expr.root))

    def __call__(self, expr: Expression, at: float) -> list[VectorSample]:
        """The instant vector at `at` (Unix seconds); a scalar becomes one sample without labels.

        Raises RuleError if the data do not permit the operation, such as a match of many to many.
        """
        value = self.value(expr, at)
        if isinstance(value, float):
            return [VectorSample((), value)]
        return [VectorSample(without_name(labels), number) for labels, number in value]

    def value(self, expr: Expression, at: float) -> float | Vector:
        """The value at `at` (Unix seconds): a float for a scalar, or a vector with metric names.

        Raises RuleError as `__call__`.
        """
        at = float(at)
        return self._at(self._closure(expr), QueryTimes(at, at), at)

    def over(self, expr: Expression, times: Sequence[float]) -> list[Series]:
        """The values at `times` (Unix seconds, rising) as series, sorted by their labels.

        That is Prometheus' range query: `@ start()` and `@ end()` are the first time and the last,
        and a series has no sample where it has no value. A scalar becomes one series without
        labels. Raises RuleError as `value`, if it does so at any of the times.
        """
        if not times:
            return []
        compute = self._closure(expr)
        query = QueryTimes(float(times[0]), float(times[-1]))
        found: dict[Labels, tuple[list[float], list[float]]] = {}
        for at in map(float, times):
            value = self._at(compute, query, at)
            for labels, number in [((), value)] if isinstance(value, float) else value:
                sampled, values = found.setdefault(labels, ([], []))
                sampled.append(at)
                values.append(number)
        return [Series(labels, *samples) for labels, samples in sorted(found.items())]

    def _at(self, compute: Compute, query: QueryTimes, at: float) -> float | Vector:
        value: float | Vector = compute(query, at)
        if isinstance(value, float) or self.unnamed is without_name:
            return value
        return unique([(settled(labels), number) for labels, number in value])

    def compute(self, node: Node) -> Compute:
        """The closure that evaluates a node."""
        name = repr(node)  # nodes compare 0 and -0 as equal
        if name in self._watched:
            return self._watched[name]
        compute = _HANDLERS[type(node)](self, node)
        may_differ = self._watch(node)
        if may_differ is None:
            return compute
        return self._watched.setdefault(name, _reused(compute, may_differ))

    def windows(self, node: Node) -> Windows:
        """The closure that selects a range vector, or evaluates a subquery."""
        if isinstance(node, Subquery):
            return self._resampled(node)
        assert isinstance(node, Range), node
        return windows_of(node, self.storage)

    def _resampled(self, node: Subquery) -> Windows:
        watch, self._watch = self._watch, lambda node: None  # it is evaluated at other times
        operand, step = self.compute(node.operand), node.step or self._step
        self._watch = watch

        def windows(query: QueryTimes, at: float) -> Iterator[RangeWindow]:
            end = query.shifted(node.shift, at)
            start = exact(end - node.seconds)
            samples: dict[Labels, tuple[list[float], list[float]]] = {}
            # Times are multiples of `step`, as in Prometheus; `round` removes the division's error.
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

    def _selector(self, node: Selector) -> Compute:
        samples = samples_of(node, self.storage)
        return lambda query, at: [(labels, value) for labels, _, value in samples(query, at)]

    def _negation(self, node: Negation) -> Compute:
        operand, unnamed = self.compute(node.operand), self.unnamed
        if is_scalar(node.operand):
            return lambda query, at: -operand(query, at)
        return lambda query, at: unique(
            [(unnamed(labels), -number) for labels, number in operand(query, at)]
        )

    def _binary(self, node: Binary) -> Compute:
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
        if node.operator == "or" or not never_fails(node.right):
            return lambda query, at: combine(left(query, at), right(query, at))

        def matched(query: QueryTimes, at: float) -> Vector:
            found: Vector = left(query, at)
            # The left side of most rules is empty while a run is healthy. The right side is then
            # skipped, but only if it cannot raise: Prometheus reports its errors in any case.
            return combine(found, right(query, at)) if found else found

        return matched

    def _aggregation(self, node: Aggregation) -> Compute:
        operand = self.compute(node.operand)
        if node.parameter is None:
            return lambda query, at: aggregate(node, operand(query, at), None)
        parameter = self.compute(node.parameter)
        return lambda query, at: aggregate(node, operand(query, at), parameter(query, at))

    def _call(self, node: Call) -> Compute:
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

        def elementwise(query: QueryTimes, at: float) -> Vector:
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

        def over_range(query: QueryTimes, at: float) -> Vector:
            given = [scalar(query, at) for scalar in scalars]
            found = [(each.labels, compute(each, *given)) for each in windows(query, at)]
            return self._renamed(node, [(labels, x) for labels, x in found if x is not None])

        return over_range

    def _renamed(self, node: Call, result: Vector) -> Vector:
        if node.function not in KEEPS_NAME:
            result = [(self.unnamed(labels), value) for labels, value in result]
        return unique(result)


def _reused(compute: Compute, may_differ: Callable[[float], bool]) -> Compute:
    """A closure that returns its last value, or raises its last error, unless it may differ."""
    value: Any = None

    def reused(query: QueryTimes, at: float) -> Any:
        nonlocal value
        if may_differ(at):
            try:
                value = compute(query, at)
            except RuleError as problem:
                value = problem
        if isinstance(value, RuleError):
            raise value
        return value

    return reused


_HANDLERS: dict[type, Callable[[Evaluator, Any], Compute]] = {
    Number: lambda evaluator, node: lambda query, at: node.value,
    Text: lambda evaluator, node: lambda query, at: node.value,
    Selector: Evaluator._selector,
    Negation: Evaluator._negation,
    Binary: Evaluator._binary,
    Aggregation: Evaluator._aggregation,
    Call: Evaluator._call,
}
