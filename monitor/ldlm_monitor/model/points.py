"""Labelled numbers (points, series, histograms), and the protocol of a store that PromQL reads."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol, TypeAlias

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Sorted (name, value) pairs; a label with an empty value is left out."""

MAX_LABEL_LENGTH = 128  # of a label's value. A choice: more inflates scrapes, less merges names


@lru_cache(maxsize=4096)  # a choice: of what each scrape exports anew; more would take memory
def make_labels(**pairs: str | None) -> Labels:
    """Sorted labels of the pairs whose value is not None or "", cut to `MAX_LABEL_LENGTH`."""
    return tuple(sorted((name, value[:MAX_LABEL_LENGTH]) for name, value in pairs.items() if value))


@dataclass(slots=True)  # to create a frozen one takes four times as long, and there are many
class Point:
    """One exported value; `name` is a key of `names.METRICS`. Nobody changes it."""

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
    """Reads the series of one selector.

    `select(start, end)`: as `Storage.select`. `latest(since, until)`: labels, time and value of
    the last sample in (since, until] of each series, unless the series was marked stale between
    that sample and `until`. `columns`: the values of `latest` for each pair of rising times, as a
    column for each series.
    """

    select: Callable[[float, float], Iterable[Series]]
    latest: Callable[[float, float], Iterable[tuple[Labels, float, float]]]
    columns: Callable[[Sequence[float], Sequence[float]], Iterable[tuple[Labels, Column]]]


class Storage(Protocol):
    """Where an evaluator finds samples."""

    def select(self, matchers: Sequence[Matcher], start: float, end: float) -> Iterable[Series]:
        """The series that all matchers select, with samples in [start, end] (Unix seconds)."""

    def reader(self, matchers: Sequence[Matcher]) -> Reader:
        """A reader for a selector that is evaluated again and again."""
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


DERIVED_STEP_SECONDS = "derived_step_seconds"
"""Quantity: seconds per step computed from the steps' times, for runs that report no pace."""
BUSY_SECONDS = "busy_seconds"
"""Quantity: seconds of a step that a rank worked before it waited for others; ranks report it."""
MEASURED = frozenset(
    {
        "loss", "grad_norm", "memory_allocated_bytes", "loss_scale", "step_seconds", BUSY_SECONDS,
        "samples_per_second", "tokens_per_second", "steps_per_second",
    }
)  # fmt: skip
"""The logged quantities that detectors read; they read `DERIVED_STEP_SECONDS`, too."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A run's new values since its detectors read it last.

    `values`: by quantity and rank (None if the line has none), one value per logged step, in
    order, with NaN and infinities. `step`: the run's last step. `rank_steps`: each rank's last
    logged step. `skipped`: the last skipped steps. `checkpoints`: the steps at which the last
    checkpoints were saved, rising. `resumed`: the run went back to an earlier step. `begins_anew`:
    all values are of another training than those before.
    """

    values: Mapping[tuple[str, int | None], array[float]]
    step: int | None
    rank_steps: Mapping[int, int]
    skipped: Sequence[int]
    checkpoints: Sequence[int]
    resumed: bool
    begins_anew: bool = False


NATIVE_SCHEMA = 3
"""Of native buckets, each 2 to the power of 1/8 (9 %) as wide as the one before. A choice: a step
that is a tenth slower is in another bucket, and a run has some twenty of them.
https://prometheus.io/docs/specs/native_histograms/"""
ZERO_THRESHOLD = 2.0**-128  # at most this is zero; client libraries' own


@dataclass(slots=True)
class CountPoint(Point):
    """A histogram's `NAME_count`, with its native buckets: `native` has the counts of those that
    are filled by index (bucket i holds what is above 2**((i-1)/8), and up to 2**(i/8)), `zeros`
    the number of values about 0."""

    native: Mapping[int, int]
    zeros: int


class Histogram:
    """Counts of observed values by the bucket whose upper bound they do not exceed."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._native: dict[int, int] = {}
        self._zeros = 0
        self._labels: dict[Labels, list[Labels]] = {}  # of the buckets; sorting costs most

    def observe(self, values: Iterable[float]) -> None:
        """Add finite values that are not negative."""
        ranked = sorted(values)
        ends = [bisect_right(ranked, bound) for bound in self._bounds]
        for index, (begin, end) in enumerate(pairwise([0, *ends, len(ranked)])):
            self._counts[index] += end - begin
        self._sum += math.fsum(ranked)
        zeros = bisect_right(ranked, ZERO_THRESHOLD)
        self._zeros += zeros
        for each in [math.ceil(math.log2(value) * 2**NATIVE_SCHEMA) for value in ranked[zeros:]]:
            self._native[each] = self._native.get(each, 0) + 1

    def points(self, name: str, labels: Labels = ()) -> Iterator[Point]:
        """The series `NAME_bucket{le}`, `NAME_sum` and `NAME_count`; a bucket holds those below."""
        if labels not in self._labels:
            bounds = (*map(str, self._bounds), "+Inf")
            self._labels[labels] = [tuple(sorted((*labels, ("le", bound)))) for bound in bounds]
        total, bucket = 0, f"{name}_bucket"
        for of_bucket, count in zip(self._labels[labels], self._counts, strict=True):
            total += count
            yield Point(bucket, of_bucket, total)
        yield Point(f"{name}_sum", labels, self._sum)
        yield CountPoint(f"{name}_count", labels, total, dict(self._native), self._zeros)
