"""Binary operators and aggregations on vectors.

Semantics: Prometheus 3 `promql/engine.go` (`VectorBinop`, set operators, `aggregation`).
"""

import math
from collections.abc import Callable
from functools import partial

from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.model.points import Labels
from ldlm_monitor.promql.floats import (
    ARITHMETIC,
    COMPARISON,
    REDUCTIONS,
    decimal_text,
    nan_last,
    quantile_of,
)
from ldlm_monitor.promql.nodes import (
    MARK,
    NAME,
    Aggregation,
    Binary,
    Rename,
    Value,
    Vector,
    signature_of,
    unmarked,
    with_label,
    without_name,
)
from ldlm_monitor.promql.ranges import unique

OPERATORS: dict[str, Callable[[float, float], float]] = {**ARITHMETIC, **COMPARISON}
SET_OPERATORS = frozenset({"and", "or", "unless"})  # of two vectors, by labels alone


def set_operation(node: Binary) -> Callable[[Vector, Vector], Vector]:
    """A function that applies `and`, `or` or `unless` to two vectors."""
    signature = signature_of(node.matching.on, node.matching.labels)
    keep = node.operator == "and"

    def union(left: Vector, right: Vector) -> Vector:
        known = {signature(labels) for labels, _ in left}
        return left + [sample for sample in right if signature(sample[0]) not in known]

    def filtered(left: Vector, right: Vector) -> Vector:
        known = {signature(labels) for labels, _ in right}
        return [sample for sample in left if (signature(sample[0]) in known) is keep]

    return union if node.operator == "or" else filtered


def with_scalar(
    node: Binary, unnamed: Rename, *, scalar_left: bool
) -> Callable[[Vector, float], Vector]:
    """A function that applies an operator to a vector and a scalar; `unnamed` drops metric names.

    `scalar_left`: the scalar is the left side. A comparison without `bool` filters the vector.
    """
    operator = OPERATORS[node.operator]
    compute = (lambda value, scalar: operator(scalar, value)) if scalar_left else operator

    def filtered(vector: Vector, scalar: float) -> Vector:
        return [sample for sample in vector if compute(sample[1], scalar)]

    def computed(vector: Vector, scalar: float) -> Vector:
        return unique([(unnamed(labels), float(compute(x, scalar))) for labels, x in vector])

    return filtered if node.operator in COMPARISON and not node.as_bool else computed


def vector_operation(node: Binary, unnamed: Rename) -> Callable[[Vector, Vector], Vector]:
    """A function that applies an operator to elements that match; `unnamed` drops metric names.

    It raises RuleError if a group has several elements on a side that may have only one.
    """
    swapped = node.matching.many == "right"
    signature = signature_of(node.matching.on, node.matching.labels)
    operator = _elementwise(node)
    compute = (lambda many, one: operator(one, many)) if swapped else operator
    rename = _result_labels(node, unnamed)
    remedy = "many-to-one matching must be explicit (group_left/group_right)"
    if node.matching.many:
        remedy = "name the grouping labels that keep results apart in group_left/group_right"

    def combined(left: Vector, right: Vector) -> Vector:
        if not left or not right:
            return []
        many, one = (right, left) if swapped else (left, right)
        partners = _index_by_signature(one, signature, side="left" if swapped else "right")
        taken: set[tuple[Labels, Labels | None]] = set()
        result: Vector = []
        for labels, value in many:
            group = signature(labels)
            partner = partners.get(group)
            outcome = None if partner is None else compute(value, partner[1])
            if partner is None or outcome is None:
                continue
            metric = rename(labels, partner[0])
            claim = (group, metric if node.matching.many else None)
            if claim in taken:
                raise RuleError("multiple matches for labels", remedy=remedy)
            taken.add(claim)
            result.append((metric, outcome))
        return result

    return combined


def _index_by_signature(
    vector: Vector, signature: Callable[[Labels], Labels], *, side: str
) -> dict[Labels, tuple[Labels, float]]:
    found: dict[Labels, tuple[Labels, float]] = {}
    for sample in vector:
        group = signature(sample[0])
        if group in found:
            shown = ", ".join(f'{name}="{value}"' for name, value in group)
            raise RuleError(
                f"several series for the match group {{{shown}}} on the {side}-hand side",
                remedy="many-to-many matching is not allowed: aggregate, or match on more labels",
            )
        found[group] = sample
    return found


def _elementwise(node: Binary) -> Callable[[float, float], float | None]:
    """The operation on a pair; its result is None if a filtering comparison does not hold."""
    compute = OPERATORS[node.operator]
    if node.operator in ARITHMETIC:
        return compute
    if node.as_bool:
        return lambda left, right: float(compute(left, right))
    return lambda left, right: left if compute(left, right) else None


def _result_labels(node: Binary, unnamed: Rename) -> Callable[[Labels, Labels], Labels]:
    """A function from the labels of a pair (the element of the many side first) to the result's."""
    matching = node.matching
    listed = frozenset(matching.labels)
    include = frozenset(matching.include)
    first = without_name if node.operator in ARITHMETIC else unmarked

    def paired(labels: Labels, other: Labels) -> Labels:
        del other
        kept = first(labels)
        if matching.on or listed:
            kept = tuple(pair for pair in kept if (pair[0] in listed) is matching.on)
        return kept

    def grouped(labels: Labels, other: Labels) -> Labels:
        kept = first(labels)
        if not include:
            return kept
        pairs = [pair for pair in kept if pair[0] not in include]
        pairs += [pair for pair in other if pair[0] in include]
        return tuple(sorted(pairs))

    combined = paired if matching.many is None else grouped
    if not node.as_bool:
        return combined
    return lambda labels, other: unnamed(combined(labels, other))


RANKINGS = frozenset({"topk", "bottomk"})  # they return some elements unchanged
AGGREGATIONS = frozenset({*REDUCTIONS, *RANKINGS, "group", "quantile", "count_values"})


def aggregate(node: Aggregation, vector: Vector, parameter: Value | None) -> Vector:
    """Apply the aggregation. Raises RuleError if `topk` or `bottomk` get no number of elements."""
    if node.operator == "count_values":
        return _count_values(node, vector, str(parameter))
    groups = _group(node, vector)
    if node.operator in RANKINGS:
        return _rank(node.operator, groups, parameter)
    if node.operator == "group":
        return [(labels, 1.0) for labels in groups]
    reduce = REDUCTIONS.get(node.operator)
    if reduce is None:  # `quantile`
        reduce = partial(quantile_of, parameter if isinstance(parameter, float) else math.nan)
    return [(labels, reduce([value for _, value in members])) for labels, members in groups.items()]


def _group(node: Aggregation, vector: Vector) -> dict[Labels, Vector]:
    signature = signature_of(not node.without, node.labels)
    groups: dict[Labels, Vector] = {}
    by_name = NAME in node.labels and not node.without
    for sample in vector:
        group = signature(sample[0])
        if by_name and sample[0][:1] == (MARK,):  # drop the group's name at the end, too
            group = (MARK, *group)
        groups.setdefault(group, []).append(sample)
    return groups


def _rank(operator: str, groups: dict[Labels, Vector], parameter: Value | None) -> Vector:
    if not isinstance(parameter, float) or not abs(parameter) < 2**63:  # Prometheus' int64
        raise RuleError(f"{operator}: {parameter} is not a number of elements")
    count = int(parameter)
    if count < 1:
        return []
    sign = 1.0 if operator == "bottomk" else -1.0
    ranked = (
        sorted(members, key=lambda sample: nan_last(sign * sample[1]))
        for members in groups.values()
    )
    return [sample for members in ranked for sample in members[:count]]


def _count_values(node: Aggregation, vector: Vector, label: str) -> Vector:
    names = node.labels if node.without else (*node.labels, label)
    signature = signature_of(not node.without, names)
    counts: dict[Labels, float] = {}
    for labels, value in vector:
        group = signature(with_label(labels, label, decimal_text(value)))
        counts[group] = counts.get(group, 0.0) + 1
    return list(counts.items())
