"""Binary operators and aggregations on vectors.

Semantics: Prometheus 3 `promql/engine.go` (`VectorBinop`, set operators, `aggregation`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from ldlm_promrules.errors import RuleError
from ldlm_promrules.promql.floats import (
    ARITHMETIC,
    COMPARISON,
    REDUCTIONS,
    decimal_text,
    nan_last,
    quantile_of,
)
from ldlm_promrules.promql.nodes import (
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
from ldlm_promrules.promql.vector_columns import merged, overlap, present, present_rows, unique
from ldlm_promrules.samples import Column, Labels

OPERATORS: dict[str, Callable[[float, float], float]] = {**ARITHMETIC, **COMPARISON}
SET_OPERATORS = frozenset({"and", "or", "unless"})  # of two vectors, by labels alone


def set_operation(node: Binary) -> Callable[[Vector, Vector], Vector]:
    """A function that applies `and`, `or` or `unless` to two vectors."""
    signature = signature_of(node.matching.on, node.matching.labels)
    keep = node.operator == "and"

    def filtered(vector: Vector, other: Vector, *, keep: bool = keep) -> Vector:
        known, found = merged(other, signature), []
        for labels, column in vector:
            partner = known.get(signature(labels))
            if partner is None:
                found += [] if keep else [(labels, column)]
            elif len(column) > 1:
                pairs = zip(column, partner, strict=True)
                masked = [x if (y is not None) is keep else None for x, y in pairs]
                found += present([(labels, masked)])
            elif keep:
                found.append((labels, column))
        return found

    if node.operator == "or":
        return lambda left, right: left + filtered(right, left, keep=False)
    return filtered


def with_scalar(
    node: Binary, unnamed: Rename, *, scalar_left: bool
) -> Callable[[Vector, Sequence[float]], Vector]:
    """A function that applies an operator to a vector and a scalar; `unnamed` drops metric names.

    `scalar_left`: the scalar is the left side. A comparison without `bool` filters the vector.
    """
    operator = OPERATORS[node.operator]
    compute = (lambda value, scalar: operator(scalar, value)) if scalar_left else operator

    def filtered(vector: Vector, scalar: Sequence[float]) -> Vector:
        if len(scalar) == 1:
            (number,) = scalar
            return [
                (labels, (x,)) for labels, (x,) in vector if x is not None and compute(x, number)
            ]
        return present(
            [
                (
                    labels,
                    [
                        x if x is not None and compute(x, y) else None
                        for x, y in zip(column, scalar, strict=True)
                    ],
                )
                for labels, column in vector
            ]
        )

    def computed(vector: Vector, scalar: Sequence[float]) -> Vector:
        return unique(
            [
                (
                    unnamed(labels),
                    [
                        None if x is None else float(compute(x, y))
                        for x, y in zip(column, scalar, strict=True)
                    ],
                )
                for labels, column in vector
            ]
        )

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
        partners = _by_signature(one, signature, many, side="left" if swapped else "right")
        claims: dict[tuple[Labels, Labels | None], list[Column]] = {}
        result: Vector = []
        for labels, column in many:
            group = signature(labels)
            for other, values in partners.get(group, ()):
                pairs = [*zip(column, values, strict=True)]
                outcome = [None if x is None or y is None else compute(x, y) for x, y in pairs]
                metric = rename(labels, other)
                claim = (group, metric if node.matching.many else None)
                # A pair claims its place also where a comparison then drops it.
                met = [None if x is None or y is None else 0.0 for x, y in pairs]
                claims.setdefault(claim, []).append(met)
                if any(value is not None for value in outcome):
                    result.append((metric, outcome))
        if any(len(each) > 1 and overlap(each) for each in claims.values()):
            raise RuleError("multiple matches for labels", remedy=remedy)
        return result

    return combined


def _by_signature(
    vector: Vector, signature: Callable[[Labels], Labels], others: Vector, *, side: str
) -> dict[Labels, Vector]:
    """The elements by group, of which each has one at most when there are `others`."""
    found: dict[Labels, Vector] = {}
    for sample in vector:
        found.setdefault(signature(sample[0]), []).append(sample)
    several = [(group, members) for group, members in found.items() if len(members) > 1]
    rows = present_rows(others, len(vector[0][1])) if several else []
    for group, members in several:
        if _has_several(members, rows):
            shown = ", ".join(f'{name}="{value}"' for name, value in group)
            raise RuleError(
                f"several series for the match group {{{shown}}} on the {side}-hand side",
                remedy="many-to-many matching is not allowed: aggregate, or match on more labels",
            )
    return found


def _has_several(members: Vector, others: list[list[Any]]) -> bool:
    rows = zip(present_rows(members, len(others)), others, strict=True)
    return any(len(row) > 1 and other for row, other in rows)


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
    if node.operator == "quantile":
        ranks = [math.nan] if parameter is None or isinstance(parameter, str) else parameter
        return [(labels, _quantiles(ranks, members)) for labels, members in groups.items()]
    reduce: Callable[[Sequence[float]], float]
    reduce = REDUCTIONS.get(node.operator, lambda row: 1.0)  # `group`
    return [
        (labels, [reduce(row) if row else None for row in _rows(members)])
        for labels, members in groups.items()
    ]


def _rows(members: Vector) -> list[list[float]]:
    return present_rows(members, len(members[0][1]))


def _quantiles(ranks: Any, members: Vector) -> Column:
    pairs = zip(ranks, _rows(members), strict=True)
    return [quantile_of(rank, row) if row else None for rank, row in pairs]


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
    sign = 1.0 if operator == "bottomk" else -1.0
    counts = [_number_of_elements(operator, each) for each in parameter or ()]
    result: Vector = []
    for members in groups.values():
        kept: dict[int, list[float | None]] = {}
        for index, count in enumerate(counts):
            ranked = [
                (m, x) for m, (_, column) in enumerate(members) if (x := column[index]) is not None
            ]
            ranked.sort(key=lambda each: nan_last(sign * each[1]))
            for member, value in ranked[:count]:
                kept.setdefault(member, [None] * len(counts))[index] = value
        result += [(members[member][0], column) for member, column in kept.items()]
    return result


def _number_of_elements(operator: str, parameter: object) -> int:
    if not isinstance(parameter, float) or not abs(parameter) < 2**63:  # Prometheus' int64
        raise RuleError(f"{operator}: {parameter} is not a number of elements")
    return max(int(parameter), 0)


def _count_values(node: Aggregation, vector: Vector, label: str) -> Vector:
    names = node.labels if node.without else (*node.labels, label)
    signature = signature_of(not node.without, names)
    counts: dict[Labels, list[float | None]] = {}
    for labels, column in vector:
        for index, value in enumerate(column):
            if value is not None:
                group = signature(with_label(labels, label, decimal_text(value)))
                counted = counts.setdefault(group, [None] * len(column))
                counted[index] = (counted[index] or 0.0) + 1
    return [*counts.items()]
