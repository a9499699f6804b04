"""Columns of vectors: which samples there are at each time of a query."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ldlm_promrules.errors import RuleError
from ldlm_promrules.promql.nodes import Vector
from ldlm_promrules.samples import Column, Labels


def present(vector: Vector) -> Vector:
    """The columns that have a sample at some time."""
    return [each for each in vector if any(value is not None for value in each[1])]


def present_rows(vector: Sequence[tuple[Labels, Iterable[Any]]], count: int) -> list[list[Any]]:
    """The samples at each of `count` times."""
    if not vector:
        return [[] for _ in range(count)]
    rows = zip(*(column for _, column in vector), strict=True)
    return [[value for value in row if value is not None] for row in rows]


def overlap(columns: Iterable[Column]) -> bool:
    """Whether two columns have a sample at the same time."""
    rows = zip(*columns, strict=True)
    return any(sum(value is not None for value in row) > 1 for row in rows)


def merged(
    vector: Vector, signature: Callable[[Labels], Labels] = lambda labels: labels
) -> dict[Labels, Column]:
    """The columns by their groups; of a group's columns the first sample at each time."""
    found: dict[Labels, Column] = {}
    for labels, column in vector:
        group = signature(labels)
        if (known := found.setdefault(group, column)) is not column:
            pairs = zip(known, column, strict=True)
            found[group] = [second if first is None else first for first, second in pairs]
    return found


def unique(vector: Vector) -> Vector:
    """Return `vector`. Raises RuleError if two elements have the same labels at a time."""
    if len(vector) > 1 and len({labels for labels, _ in vector}) != len(vector):
        same: dict[Labels, list[Column]] = {}
        for labels, column in vector:
            same.setdefault(labels, []).append(column)
        if any(len(columns) > 1 and overlap(columns) for columns in same.values()):
            raise RuleError(
                "the result has several series with the same labels once the metric name is"
                " dropped",
                remedy="select one metric, or aggregate",
            )
    return vector
