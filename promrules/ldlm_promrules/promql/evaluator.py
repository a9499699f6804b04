"""Evaluates accepted expressions over a storage.

The same samples, expression and time give the same vector. Each node becomes a closure when its
expression is first evaluated: walking the tree at each evaluation takes twice as long.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, cast

from ldlm_promrules.promql.annotations import Notes
from ldlm_promrules.promql.expression import Expression, never_fails
from ldlm_promrules.promql.functions import ELEMENTWISE, KEEPS_NAME, OVER_VECTOR, RELABELS
from ldlm_promrules.promql.nodes import (
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
    settled,
    without_name,
)
from ldlm_promrules.promql.operators import (
    OPERATORS,
    SET_OPERATORS,
    aggregate,
    set_operation,
    vector_operation,
    with_scalar,
)
from ldlm_promrules.promql.ranges import (
    OVER_RANGE,
    QueryTimes,
    Spans,
    Windows,
    columns_of_selector,
    exact,
    subquery_slots,
    windows_of,
)
from ldlm_promrules.promql.special import SPECIAL, Budget, Compute
from ldlm_promrules.promql.vector_columns import merged, present, unique
from ldlm_promrules.samples import Column, Labels, Series, Storage, VectorSample

COMPILED = 1024
"""Expressions whose closures are kept: far more than all rules have. More would cost memory, since
queries over HTTP may be ever new."""


SUBQUERY_TIME = 5
"""Samples whose memory each time of a subquery takes, beside one for each series: its float, and
its bounds and indexes where a range ends at each. Measured (tracemalloc, 60,000 times): 130 to 160
bytes in an instant query, 320 to 380 where a range ends at each; a sample takes 64 to 96."""


class Evaluator:
    """Evaluates expressions over `storage`; an implementation of `samples.Query`.

    `step` is the step in seconds of subqueries that give none; its default is that of Prometheus'
    `evaluation_interval`. `delayed_name_removal`: drop metric names at the end of a query, not at
    once, as Prometheus does with its feature flag `promql-delayed-name-removal`. `notes`: filled
    with what there is to say beside the answer. `budget`: what the queries may take in all; without
    one they end when they are done, as those of rules, whose author is trusted.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        step: float = 60.0,
        delayed_name_removal: bool = False,
        notes: Notes | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.storage = storage
        self.notes = notes
        self._budget = budget
        self._step = step
        # Drops metric names.
        self.unnamed: Rename = name_later if delayed_name_removal else without_name
        self._closure = lru_cache(COMPILED)(lambda expr: self.compute(expr.root))

    def __call__(self, expr: Expression, at: float) -> list[VectorSample]:
        """The instant vector at `at` (Unix seconds); a scalar becomes one sample without labels.

        Raises RuleError if the data do not permit the operation, such as a match of many to many.
        """
        value = self.value(expr, at)
        if isinstance(value, float):
            return [VectorSample((), value)]
        return [VectorSample(labels, number) for labels, number in value]

    def value(self, expr: Expression, at: float) -> float | list[tuple[Labels, float]]:
        """The value at `at` (Unix seconds): a float for a scalar, or a vector with metric names.

        Raises RuleError as `__call__`.
        """
        at = float(at)
        value = self._over(expr, QueryTimes(at, at, (at,)))
        if is_scalar(expr.root):
            return float(value[0])
        return [(labels, number) for labels, (number,) in value]

    def over(
        self, expr: Expression, times: Sequence[float], end: float | None = None
    ) -> list[Series]:
        """The values at `times` (Unix seconds, rising) as series, sorted by their labels.

        That is Prometheus' range query: `@ start()` is the first time and `@ end()` is `end` (None:
        the last time), and a series has no sample where it has no value. A scalar becomes one
        series without labels. Raises RuleError as `value`, if it does so at any of the times.
        """
        if not times:
            return []
        times = [*map(float, times)]
        value = self._over(expr, QueryTimes(times[0], times[-1] if end is None else end, times))
        if is_scalar(expr.root):
            return [Series((), times, value)]
        return [_series(labels, times, column) for labels, column in sorted(merged(value).items())]

    def _over(self, expr: Expression, query: QueryTimes) -> Any:
        value = self._closure(expr)(query)
        if is_scalar(expr.root) or self.unnamed is without_name:
            return value
        return unique([(settled(labels), column) for labels, column in value])

    def compute(self, node: Node) -> Compute:
        """The closure that evaluates a node."""
        compute = _HANDLERS[type(node)](self, node)
        if (budget := self._budget) is None or isinstance(node, Text):
            return compute
        is_vector = not is_scalar(node)

        def counted(query: QueryTimes) -> Any:
            budget.makes(len(query.at))
            value = compute(query)
            if is_vector:
                budget.makes(len(query.at) * len(value))
            return value

        return counted

    def windows(self, node: Node) -> Windows:
        """The closure that selects a range vector, or evaluates a subquery."""
        if isinstance(node, Subquery):
            windows = self._resampled(node)
        else:
            assert isinstance(node, Range), node
            windows = windows_of(node, self.storage)
        if (budget := self._budget) is None:
            return windows

        def asked(window: RangeWindow | None) -> RangeWindow | None:
            budget.makes(0)
            return window

        return lambda query: ((labels, map(asked, each)) for labels, each in windows(query))

    def _resampled(self, node: Subquery) -> Windows:
        operand, step = self.compute(node.operand), node.step or self._step

        def windows(query: QueryTimes) -> Iterator[tuple[Labels, Iterator[RangeWindow | None]]]:
            spans = Spans(query.shifted(node.shift), node.seconds)
            slots = []
            for each in subquery_slots(spans.pairs(), step):
                if self._budget is not None:  # asked for each span: there may be a million
                    self._budget.selects(SUBQUERY_TIME * len(each))
                slots.append(each)
            times = [exact(slot * step) for each in slots for slot in each]
            if not times:
                return
            value = operand(QueryTimes(query.start, query.end, times))
            found = {(): value} if is_scalar(node.operand) else merged(value)
            for labels, column in found.items():
                if self._budget is not None:
                    self._budget.selects(len(times))
                series = _series(labels, times, column)
                yield labels, spans.of(series.times, series.values)

        return windows

    def _negation(self, node: Negation) -> Compute:
        operand, unnamed = self.compute(node.operand), self.unnamed
        if is_scalar(node.operand):
            return lambda query: [-number for number in operand(query)]
        return lambda query: unique(
            [
                (unnamed(labels), [None if x is None else -x for x in column])
                for labels, column in operand(query)
            ]
        )

    def _binary(self, node: Binary) -> Compute:
        left, right = self.compute(node.left), self.compute(node.right)
        if is_scalar(node.left):
            if is_scalar(node.right):
                compute = OPERATORS[node.operator]
                return lambda query: [*map(float, map(compute, left(query), right(query)))]
            on_left = with_scalar(node, self.unnamed, scalar_left=True)
            return lambda query: on_left(right(query), left(query))
        if is_scalar(node.right):
            on_right = with_scalar(node, self.unnamed, scalar_left=False)
            return lambda query: on_right(left(query), right(query))
        is_set = node.operator in SET_OPERATORS
        combine = set_operation(node) if is_set else vector_operation(node, self.unnamed)
        if node.operator == "or" or self.notes is not None or not never_fails(node.right):
            return lambda query: combine(left(query), right(query))
        if node.operator == "and" and never_fails(node.left):
            return _of_both(combine, left, right, right_first=isinstance(node.left, Selector))

        def matched(query: QueryTimes) -> Vector:
            found: Vector = left(query)
            # The left side of most rules is empty while a run is healthy. The right side is then
            # skipped, but only if it cannot raise: Prometheus reports its errors in any case.
            return combine(found, right(query)) if found else found

        return matched

    def _aggregation(self, node: Aggregation) -> Compute:
        operand = self.compute(node.operand)
        if node.parameter is None:
            return lambda query: aggregate(node, operand(query), None)
        parameter, notes = self.compute(node.parameter), self.notes

        def aggregated(query: QueryTimes) -> Vector:
            given, vector = parameter(query), operand(query)
            if notes is not None and node.operator == "quantile":
                unclear = [each for each in given if math.isnan(each)]
                notes.ranks(node, unclear or (max(given), min(given)))
            return aggregate(node, vector, given)

        return aggregated

    def _call(self, node: Call) -> Compute:
        if (special := SPECIAL.get(node.function)) is not None:
            return special(self, node)
        if node.function in OVER_RANGE:
            return self._over_range(node)
        operand, *others = map(self.compute, node.arguments)
        if (whole := OVER_VECTOR.get(node.function)) is not None:

            def over_vector(query: QueryTimes) -> Vector:
                vector = operand(query)
                if self.notes is not None:
                    self.notes.over_vector(node, query)
                given = [each(query) for each in others]
                if self._budget is None or node.function not in RELABELS:
                    return self._renamed(node, whole(vector, *given))
                found: Vector = []
                for each in vector:
                    self._budget.makes(_characters(each[0], given))
                    found += whole([each], *given)
                return self._renamed(node, found)

            return over_vector
        compute, unnamed = ELEMENTWISE[node.function], self.unnamed

        def elementwise(query: QueryTimes) -> Vector:
            given = _rows(others, query)
            return unique(
                [
                    (
                        unnamed(labels),
                        [
                            None if x is None else compute(x, *row)
                            for x, row in zip(column, given, strict=True)
                        ],
                    )
                    for labels, column in operand(query)
                ]
            )

        return elementwise

    def _over_range(self, node: Call) -> Compute:
        (operand,) = (each for each in node.arguments if isinstance(each, Range | Subquery))
        windows = self.windows(operand)
        scalars = [self.compute(each) for each in node.arguments if each is not operand]
        if node.function == "predict_linear":
            scalars.insert(0, lambda query: query.at)
        compute = OVER_RANGE[node.function]

        def over_range(query: QueryTimes) -> Vector:
            given = _rows(scalars, query)
            found: Vector = [
                (
                    labels,
                    [
                        None if window is None else compute(window, *row)
                        for window, row in zip(each, given, strict=True)
                    ],
                )
                for labels, each in windows(query)
            ]
            found = present(found)
            if self.notes is not None:
                self.notes.over_range(node, found, given)
            return self._renamed(node, found)

        return over_range

    def _renamed(self, node: Call, result: Vector) -> Vector:
        if node.function not in KEEPS_NAME:
            result = [(self.unnamed(labels), column) for labels, column in result]
        return unique(result)


def _of_both(
    combine: Callable[[Vector, Vector], Vector], left: Compute, right: Compute, *, right_first: bool
) -> Compute:
    """An `and` that computes the side first that was empty last, and then nothing else.

    `right_first`: at first the right side, as that of a selector is a condition, which seldom
    holds.
    """
    is_right_first = right_first

    def matched(query: QueryTimes) -> Vector:
        nonlocal is_right_first
        first, second = (right, left) if is_right_first else (left, right)
        if not (found := first(query)):
            return []
        if not (other := second(query)):
            is_right_first = not is_right_first
            return []
        return combine(other, found) if is_right_first else combine(found, other)

    return matched


def _rows(scalars: Sequence[Compute], query: QueryTimes) -> list[tuple[float, ...]]:
    """The values of scalars at each time."""
    if not scalars:
        return [()] * len(query.at)
    return [*zip(*(scalar(query) for scalar in scalars), strict=True)]


def _characters(labels: Labels, texts: Sequence[str]) -> int:
    """How long a label can become that is made of the texts and the values of other labels."""
    longest = max(map(len, [*texts, *(value for _, value in labels)]))
    return longest * (len(texts) + sum(text.count("$") for text in texts))


def _series(labels: Labels, times: Sequence[float], column: Column) -> Series:
    """The samples of a column; without a gap in it, with `times` themselves."""
    if any(value is None for value in column):
        pairs = zip(times, column, strict=True)
        times, column = zip(*(pair for pair in pairs if pair[1] is not None), strict=True)
    return Series(labels, times, cast("Sequence[float]", column))


_HANDLERS: dict[type, Callable[[Evaluator, Any], Compute]] = {
    Number: lambda evaluator, node: lambda query: [node.value] * len(query.at),
    Text: lambda evaluator, node: lambda query: node.value,
    Selector: lambda evaluator, node: columns_of_selector(node, evaluator.storage),
    Negation: Evaluator._negation,
    Binary: Evaluator._binary,
    Aggregation: Evaluator._aggregation,
    Call: Evaluator._call,
}
