"""Durations counted into the buckets of a classic histogram of Prometheus."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from ldlm_monitor.model.points import Labels, Point


class Histogram:
    """Counts of observed values by the bucket whose upper bound they do not exceed."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._labels: dict[Labels, list[Labels]] = {}  # of the buckets; sorting costs most

    def observe(self, values: Iterable[float]) -> None:
        """Add finite values."""
        for value in values:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._sum += value

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
        yield Point(f"{name}_count", labels, total)
