"""What selectors find in a storage: the sample that stands for each series, or a window of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from ldlm_monitor.model.points import InstantStorage, Labels, Storage
from ldlm_monitor.promql.nodes import Range, Selector, Shift, Window


def exact(time: float) -> float:
    """The time in whole milliseconds, where only arithmetic has moved it from there.

    Prometheus counts in milliseconds; sums and products of seconds miss them by a bit,
    and samples at the very edge of a range would come and go.
    """
    whole = round(time, 3)
    return whole if abs(whole - time) < 1e-6 else time


@dataclass(frozen=True, slots=True)
class Selection:
    """Reads the selectors of one query; `start` and `end` are what `@` may refer to.

    `instant` is the storage itself if it can tell the last samples.
    """

    storage: Storage
    instant: InstantStorage | None
    lookback: float
    start: float
    end: float

    def shifted(self, shift: Shift, at: float) -> float:
        """Where a selector or a subquery stands when the query is evaluated at `at`."""
        anchor = shift.anchor
        if anchor == "start":
            at = self.start
        elif anchor == "end":
            at = self.end
        elif anchor is not None:
            at = anchor
        return exact(at - shift.offset) if shift.offset else at

    def latest(self, node: Selector, at: float) -> Iterator[tuple[Labels, float, float]]:
        """Labels, time and value of the sample that stands for each series at `at`."""
        until = self.shifted(node.shift, at)
        since = exact(until - self.lookback)
        if self.instant is not None:
            yield from self.instant.latest(node.matchers, since, until)
            return
        for series in self.storage.select(node.matchers, since, until):
            if not len(series.times):
                continue
            last = series.times[-1]
            if last <= since:
                continue
            if series.ended is not None and last <= series.ended <= until:
                continue
            yield series.labels, last, series.values[-1]

    def windows(self, node: Range, at: float) -> Iterator[Window]:
        """The samples of each series of a range; series without any are left out."""
        end = self.shifted(node.selector.shift, at)
        start = exact(end - node.seconds)
        for series in self.storage.select(node.selector.matchers, start, end):
            times, values = series.times, series.values
            if len(times) and times[0] <= start:
                times, values = times[1:], values[1:]
            if len(times):
                yield Window(series.labels, times, values, start, end)
