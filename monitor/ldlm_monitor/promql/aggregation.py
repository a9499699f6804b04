"""Aggregations: many elements of a vector become one a group, or the k first of a group."""

import math
from collections.abc import Callable, Sequence

from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.model.points import Labels
from ldlm_monitor.promql.floats import (
    decimal_text,
    greatest_of,
    least_of,
    mean_of,
    quantile_of,
    rising,
    sum_of,
    variance_of,
)
from ldlm_monitor.promql.labels import MARK, NAME, signature_of, with_label
from ldlm_monitor.promql.nodes import Aggregation, Value, Vector

REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": sum_of,
    "avg": mean_of,
    "min": least_of,
    "max": greatest_of,
    "count": lambda values: float(len(values)),
    "group": lambda values: 1.0,
    "stddev": lambda values: math.sqrt(variance_of(values)),
    "stdvar": variance_of,
}
RANKINGS = frozenset({"topk", "bottomk"})
AGGREGATIONS = frozenset({*REDUCTIONS, *RANKINGS, "quantile", "count_values"})


def aggregate(node: Aggregation, vector: Vector, parameter: Value | None) -> Vector:
    """Apply the aggregation. Raises RuleError where the parameter has no meaning."""
    if node.operator == "count_values":
        return _count_values(node, vector, str(parameter))
    groups = _group(node, vector)
    if node.operator in RANKINGS:
        return _rank(node.operator, groups, parameter)
    if node.operator == "quantile":
        rank = parameter if isinstance(parameter, float) else math.nan
        return [
            (labels, quantile_of(rank, [value for _, value in members]))
            for labels, members in groups.items()
        ]
    reduce = REDUCTIONS[node.operator]
    return [(labels, reduce([value for _, value in members])) for labels, members in groups.items()]


def _group(node: Aggregation, vector: Vector) -> dict[Labels, Vector]:
    signature = signature_of(not node.without, node.labels)
    groups: dict[Labels, Vector] = {}
    by_name = NAME in node.labels and not node.without
    for sample in vector:
        group = signature(sample[0])
        if by_name and sample[0][:1] == (MARK,):  # the name by which it is grouped goes later
            group = (MARK, *group)
        groups.setdefault(group, []).append(sample)
    return groups


def _rank(operator: str, groups: dict[Labels, Vector], parameter: Value | None) -> Vector:
    if not isinstance(parameter, float) or not abs(parameter) < 2**63:
        raise RuleError(f"{operator}: {parameter} is not a number of elements")
    count = int(parameter)
    if count < 1:
        return []
    sign = 1.0 if operator == "bottomk" else -1.0

    def order(sample: tuple[Labels, float]) -> tuple[bool, float]:
        number, value = rising(sample[1])
        return (not number, sign * value)  # NaN ranks last either way

    return [sample for members in groups.values() for sample in sorted(members, key=order)[:count]]


def _count_values(node: Aggregation, vector: Vector, label: str) -> Vector:
    names = node.labels if node.without else (*node.labels, label)
    signature = signature_of(not node.without, names)
    counts: dict[Labels, float] = {}
    for labels, value in vector:
        group = signature(with_label(labels, label, decimal_text(value)))
        counts[group] = counts.get(group, 0.0) + 1
    return list(counts.items())
