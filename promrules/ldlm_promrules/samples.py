"""Labelled numbers (points, samples and series), and the protocol of a store that PromQL reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Sorted (name, value) pairs; a label with an empty value is left out."""


def sorted_labels(pairs: Mapping[str, str]) -> Labels:
    """The labels by their names, without empty ones."""
    return tuple(sorted((name, value) for name, value in pairs.items() if value))


@dataclass(slots=True)  # to create a frozen one takes four times as long, and there are many
class Point:
    """One exported value; `name` is the metric. Nobody changes it."""

    name: str
    labels: Labels
    value: float


@dataclass(slots=True)
class Series:
    """Samples of one series in time order.

    `labels` include `__name__`; `times` are Unix seconds, strictly increasing.
    `ended` is when the series was marked stale (None: not stale): from then on an
    instant selector does not return its last sample.
    """

    labels: Labels
    times: Sequence[float]
    values: Sequence[float]
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Matcher:
    """A label matcher of a PromQL selector; regular expressions match whole values (RE2)."""

    name: str
    op: Literal["=", "!=", "=~", "!~"]
    value: str


Column: TypeAlias = Sequence[float | None]
"""A series' values at several times; None where it has no sample."""


class Reader(NamedTuple):
    """Reads the series that all matchers of one selector select; times are Unix seconds.

    `select`: the series with their samples in [start, end]. `latest`: labels, time and value of the
    last sample in (since, until] of each; a series that was marked stale between that sample and
    `until` is left out. Most selectors of rules need only this, so a store may answer it without
    listing samples. `columns`: the values of `latest` for each pair of rising times, as a column
    for each series.
    """

    select: Callable[[float, float], Iterable[Series]]
    latest: Callable[[float, float], Iterable[tuple[Labels, float, float]]]
    columns: Callable[[Sequence[float], Sequence[float]], Iterable[tuple[Labels, Column]]]


class Storage(Protocol):
    """Where an evaluator finds samples."""

    def reader(self, matchers: Sequence[Matcher]) -> Reader:
        """A reader for a selector, which may be evaluated again and again."""


class ListedStorage(Storage, Protocol):
    """A storage that lists all samples of a range."""

    def select(self, matchers: Sequence[Matcher], start: float, end: float) -> Iterable[Series]:
        """As `Reader.select`."""

    def reader(self, matchers: Sequence[Matcher]) -> Reader:
        """As `Storage.reader`."""
        select = partial(self.select, matchers)
        latest = partial(_latest, select)
        return Reader(select, latest, partial(_columns, latest))


def _latest(
    select: Callable[[float, float], Iterable[Series]], since: float, until: float
) -> Iterator[tuple[Labels, float, float]]:
    for series in select(since, until):
        last = series.times[-1] if len(series.times) else since
        ended = series.ended is not None and last <= series.ended <= until
        if last > since and not ended:
            yield series.labels, last, series.values[-1]


def _columns(
    latest: Callable[[float, float], Iterable[tuple[Labels, float, float]]],
    since: Sequence[float],
    until: Sequence[float],
) -> Iterable[tuple[Labels, Column]]:
    pairs = zip(since, until, strict=True)
    return columns_of([[(each, x) for each, _, x in latest(*pair)] for pair in pairs])


def columns_of(
    vectors: Sequence[Iterable[tuple[Labels, float]]],
) -> list[tuple[Labels, Column]]:
    """Vectors at several times as a column for each series."""
    found: dict[Labels, list[float | None]] = {}
    for index, vector in enumerate(vectors):
        for labels, value in vector:
            if labels not in found:
                found[labels] = [None] * len(vectors)
            found[labels][index] = value
    return [*found.items()]


@dataclass(frozen=True, slots=True)
class VectorSample:
    """One element of an instant vector; the label `__name__`, where present, names its metric."""

    labels: Labels
    value: float


ExprT = TypeVar("ExprT")
Query: TypeAlias = Callable[[ExprT, float], list[VectorSample]]
"""Evaluates an expression at a time (Unix seconds); a scalar gives one sample without labels."""
