"""Series listed in advance with their times, as unit tests of rules do."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ldlm_monitor.model.points import Labels, Matcher, Series, Storage
from ldlm_monitor.series.store import is_matched

ENDED: Final = None
"""In the place of a value: the series ends at this time, as by Prometheus' stale marker."""


class ListedSeries(Storage):
    """A store of listed samples; queries return those up to the time that `pass_time` set."""

    def __init__(self) -> None:
        self._series: dict[Labels, tuple[list[float], list[float | None]]] = {}
        self._now = 0.0

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

    def select(self, matchers: Sequence[Matcher], start: float, end: float) -> Iterator[Series]:
        """The series that satisfy every matcher, with their samples in [start, end]."""
        for labels, (times, values) in self._series.items():
            low, high = bisect_left(times, start), bisect_right(times, min(end, self._now))
            if low >= high or not is_matched(labels, matchers):
                continue
            window = zip(times[low:high], values[low:high], strict=True)
            kept = [(time, value) for time, value in window if value is not None]
            ended = times[high - 1] if values[high - 1] is ENDED else None
            yield Series(labels, [time for time, _ in kept], [value for _, value in kept], ended)
