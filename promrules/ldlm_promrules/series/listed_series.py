"""A store of samples as they are listed, for tests, files of samples, and results of rules."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ldlm_promrules.samples import (
    Labels,
    ListedStorage,
    Matcher,
    Series,
    VectorSample,
    sorted_labels,
)
from ldlm_promrules.series.series_matching import is_matched

NAME = "__name__"  # the label of Prometheus' data model that contains the metric's name
ENDED: Final = None
"""In the place of a value: the series ends at this time, as by Prometheus' stale marker."""


class ListedSeries(ListedStorage):
    """Series in memory, as lists of samples; after `pass_time`, only those up to its time."""

    def __init__(self) -> None:
        self._series: dict[Labels, tuple[list[float], list[float | None]]] = {}
        self._recorded: dict[str, set[Labels]] = {}
        self._now = math.inf

    @property
    def first(self) -> float:
        """The time of the first sample (Unix seconds; 0 without samples)."""
        return min((times[0] for times, _ in self._series.values() if times), default=0.0)

    @property
    def last(self) -> float:
        """The time of the last sample (Unix seconds; 0 without samples)."""
        return max((times[-1] for times, _ in self._series.values() if times), default=0.0)

    def names(self) -> frozenset[str]:
        """The metrics of all series."""
        return frozenset(dict(labels).get(NAME, "") for labels in self._series) - {""}

    def pass_time(self, now: float) -> None:
        """Make the samples up to `now` (Unix seconds) visible to queries."""
        self._now = now

    def add(self, labels: Labels, samples: Iterable[tuple[float, float | None]]) -> None:
        """Append pairs of a time (Unix seconds) and a value or ENDED.

        Of two pairs with the same time, the later one counts. Raises `ValueError` if a time lies
        before the last one of the series.
        """
        times, values = self._series.setdefault(labels, ([], []))
        for time, value in samples:
            if times and time < times[-1]:
                raise ValueError("samples go back in time")
            if times and time == times[-1]:
                values[-1] = value
            else:
                times.append(time)
                values.append(value)

    def record(self, name: str, samples: Sequence[VectorSample], at: float) -> None:
        """Add a rule's result at `at` (Unix seconds) as the metric `name`.

        Its series without a sample have ended.
        """
        now: set[Labels] = set()
        for sample in samples:
            labels = sorted_labels({**dict(sample.labels), NAME: name})
            self.add(labels, [(at, sample.value)])
            now.add(labels)
        for gone in self._recorded.get(name, set()) - now:
            self.add(gone, [(at, ENDED)])
        self._recorded[name] = now

    def select(self, matchers: Sequence[Matcher], start: float, end: float) -> Iterator[Series]:
        """Series that satisfy every matcher, with the samples in [start, end] (Unix seconds)."""
        for labels, (times, values) in self._series.items():
            low, high = bisect_left(times, start), bisect_right(times, min(end, self._now))
            if low >= high or not is_matched(labels, matchers):
                continue
            window = zip(times[low:high], values[low:high], strict=True)
            kept = [(time, value) for time, value in window if value is not None]
            ended = times[high - 1] if values[high - 1] is ENDED else None
            yield Series(labels, [time for time, _ in kept], [value for _, value in kept], ended)
