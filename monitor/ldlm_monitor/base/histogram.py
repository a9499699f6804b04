"""Durations counted into the buckets of a classic and of a native histogram of Prometheus."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from ldlm_monitor.base.points import Labels, Point

SCHEMA = 3
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
        for each in [math.ceil(math.log2(value) * 2**SCHEMA) for value in ranked[zeros:]]:
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
