"""Reads the samples of selectors from a storage; computes the functions of range vectors.

The arguments of a function are a `RangeWindow`, of at least one sample, and scalars. It returns
None if the window has too few samples. Semantics: Prometheus 3 `promql/functions.go`.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from ldlm_promrules.errors import RuleError
from ldlm_promrules.promql.floats import REDUCTIONS, divide, quantile_of, sum_of
from ldlm_promrules.promql.nodes import LOOKBACK, Range, RangeWindow, Selector, Shift, Vector
from ldlm_promrules.samples import Labels, Storage, columns_of

_NOW = Shift()


def exact(time: float) -> float:
    """`time` (seconds), rounded to milliseconds if only a rounding error lies between the two.

    Prometheus counts in milliseconds. Sums and products of seconds differ from whole milliseconds
    in the last bits, which would decide whether a sample at the edge of a range is in it.
    """
    whole = round(time, 3)
    return whole if abs(whole - time) < 1e-6 else time  # floats of Unix times are 2.4e-7 s apart


def subquery_slots(spans: Iterable[tuple[float, float]], step: float) -> Iterator[range]:
    """The times of a subquery, as multiples of `step`: those in (start, end] of some rising spans.

    Each is given once, though spans overlap.
    """
    after = -math.inf
    for start, end in spans:
        first = max(math.floor(round(start / step, 6)) + 1, after)  # `round`: the division's error
        last = math.floor(round(end / step, 6))
        if exact(last * step) > end:
            last -= 1
        if last >= first:
            yield range(int(first), last + 1)
            after = last + 1


@dataclass(slots=True)
class QueryTimes:
    """The times `at` of one query, rising; `@ start()` and `@ end()` are `start` and `end`.

    All are Unix seconds.
    """

    start: float
    end: float
    at: Sequence[float]
    _since: Sequence[float] | None = None

    def shifted(self, shift: Shift) -> Sequence[float]:
        """The times that a selector or subquery with `shift` reads."""
        anchor, times = shift.anchor, self.at
        if anchor is not None:
            fixed = {"start": self.start, "end": self.end}
            times = [fixed[anchor] if isinstance(anchor, str) else anchor] * len(times)
        return [exact(at - shift.offset) for at in times] if shift.offset else times

    def lookback(self, until: Sequence[float]) -> Sequence[float]:
        """The times after which an instant selector finds samples that it reads up to `until`."""
        if until is not self.at:
            return [exact(each - LOOKBACK) for each in until]
        if self._since is None:  # most selectors of a query read the same times
            self._since = [exact(each - LOOKBACK) for each in until]
        return self._since


Windows: TypeAlias = Callable[[QueryTimes], Iterator[tuple[Labels, Iterator[RangeWindow | None]]]]
"""Returns the window of each series of a range vector at each time, None if it has no sample.

A window is valid until the next one is taken.
"""


def columns_of_selector(node: Selector, storage: Storage) -> Callable[[QueryTimes], Vector]:
    """A function that reads an instant selector."""
    shift, reader = node.shift, storage.reader(node.matchers)
    latest, columns = reader.latest, reader.columns

    def read(query: QueryTimes) -> Vector:
        until = query.at if shift == _NOW else query.shifted(shift)
        since = query.lookback(until)
        if len(until) == 1:
            return [(labels, (value,)) for labels, _, value in latest(since[0], until[0])]
        return [*columns(since, until)]

    return read


def sample_times(node: Selector, storage: Storage) -> Callable[[QueryTimes], Vector]:
    """A function that reads the times of an instant selector's samples."""
    shift, latest = node.shift, storage.reader(node.matchers).latest

    def read(query: QueryTimes) -> Vector:
        until = query.shifted(shift)
        pairs = zip(query.lookback(until), until, strict=True)
        return columns_of([[(labels, at) for labels, at, _ in latest(*pair)] for pair in pairs])

    return read


def windows_of(node: Range, storage: Storage) -> Windows:
    """A function that reads a range selector."""
    shift, select = node.selector.shift, storage.reader(node.selector.matchers).select

    def windows(query: QueryTimes) -> Iterator[tuple[Labels, Iterator[RangeWindow | None]]]:
        spans = Spans(query.shifted(shift), node.seconds)
        for series in select(spans.starts[0], spans.ends[-1]):
            yield series.labels, spans.of(series.times, series.values)

    return windows


class Spans:
    """The spans of a range of so many `seconds` that ends at each of some rising times."""

    def __init__(self, ends: Sequence[float], seconds: float) -> None:
        self.ends = ends
        self.starts = [exact(end - seconds) for end in ends]
        self._times: Sequence[float] | None = None
        self._found: list[tuple[int, int, float, float]] = []

    def pairs(self) -> Iterator[tuple[float, float]]:
        """Start and end of each."""
        return zip(self.starts, self.ends, strict=True)

    def of(self, times: Sequence[float], values: Sequence[float]) -> Iterator[RangeWindow | None]:
        """The window of a series in each span."""
        if times is not self._times:  # most series of a query have the same times
            self._found = [
                (bisect_right(times, start), bisect_right(times, end), start, end)
                for start, end in self.pairs()
            ]
            self._times = times
        falls = len(self.ends) == 1 or any(after < before for before, after in pairwise(values))
        window = RangeWindow(times, values, 0, 0, 0.0, 0.0, falls)
        for window.first, window.stop, window.start, window.end in self._found:
            yield window if window.first < window.stop else None


_GAP = 1.1
"""In mean distances of samples: if the first (last) is further from the window's start (end), the
series began (ended) in it (`extrapolationThreshold` of Prometheus' `extrapolatedRate`)."""


def _extrapolated(window: RangeWindow, *, counter: bool) -> float | None:
    """The change, extrapolated to the window's ends (`extrapolatedRate`); a `counter` may reset."""
    first, last = window.first, window.stop - 1
    if first == last:
        return None
    begun, ended = window.all_times[first], window.all_times[last]
    value = window.all_values[first]
    change = window.all_values[last] - value
    if counter and window.falls:
        for before in [a for a, b in pairwise(window.values) if b < a]:
            change += before
    sampled = ended - begun
    spacing = sampled / (last - first)
    to_start = begun - window.start
    if to_start >= spacing * _GAP:
        to_start = spacing / 2
    if counter and change > 0 and value >= 0:
        to_start = min(to_start, sampled * (value / change))  # a counter starts at 0
    to_end = window.end - ended
    if to_end >= spacing * _GAP:
        to_end = spacing / 2
    return change * ((sampled + to_start + to_end) / sampled)


def _rate(window: RangeWindow) -> float | None:
    change = _extrapolated(window, counter=True)
    return None if change is None else change / (window.end - window.start)


def _last_change(window: RangeWindow, *, rate: bool) -> float | None:
    """The change between the last two samples; with `rate` a counter's change per second."""
    values, times = window.values[-2:], window.times[-2:]
    if len(values) < 2:
        return None
    before, last = values
    if not rate:
        return last - before
    return (last if last < before else last - before) / (times[1] - times[0])


def _changes(window: RangeWindow) -> float:
    pairs = pairwise(window.values)
    return float(sum(a != b and not (math.isnan(a) and math.isnan(b)) for a, b in pairs))


def _regression(window: RangeWindow, origin: float) -> tuple[float, float]:
    """Slope per second, and value at `origin` (Unix seconds), of the least-squares line."""
    values = window.values
    if all(value == values[0] for value in values):
        return (math.nan, math.nan) if math.isinf(values[0]) else (0.0, values[0])
    distances = [time - origin for time in window.times]
    sum_x, sum_y = sum_of(distances), sum_of(values)
    sum_xy = sum_of([x * y for x, y in zip(distances, values, strict=True)])
    sum_xx = sum_of([x * x for x in distances])
    count = len(values)
    slope = divide(sum_xy - sum_x * sum_y / count, sum_xx - sum_x * sum_x / count)
    return slope, sum_y / count - slope * sum_x / count


def _derivative(window: RangeWindow) -> float | None:
    return None if len(window.values) < 2 else _regression(window, window.times[0])[0]


def _predict(window: RangeWindow, evaluated_at: float, ahead: float) -> float | None:
    if len(window.values) < 2:
        return None
    slope, intercept = _regression(window, evaluated_at)
    return slope * ahead + intercept


def _smoothed(window: RangeWindow, smoothing: float, trending: float) -> float | None:
    """Holt's double exponential smoothing, with factors between 0 and 1; else raises RuleError."""
    for name, factor in (("smoothing", smoothing), ("trend", trending)):
        if not 0 < factor < 1:
            raise RuleError(
                f"double_exponential_smoothing: {name} factor {factor}",
                remedy="it must lie between 0 and 1",
            )
    values = window.values
    if len(values) < 2:
        return None
    level, trend, before = values[0], values[1] - values[0], 0.0
    for index in range(1, len(values)):
        if index > 1:
            trend = trending * (level - before) + (1 - trending) * trend
        new = smoothing * values[index] + (1 - smoothing) * (level + trend)
        before, level = level, new
    return level


def _median_deviation(window: RangeWindow) -> float:
    if any(map(math.isnan, window.values)):
        return math.nan
    median = quantile_of(0.5, window.values)
    return quantile_of(0.5, [abs(value - median) for value in window.values])


def _reduction(reduce: Callable[[Sequence[float]], float]) -> Callable[[RangeWindow], float]:
    return lambda window: reduce(window.values)


OVER_RANGE: dict[str, Callable[..., float | None]] = {  # functions of a range vector, by name
    "rate": _rate,
    "increase": lambda window: _extrapolated(window, counter=True),
    "delta": lambda window: _extrapolated(window, counter=False),
    "irate": lambda window: _last_change(window, rate=True),
    "idelta": lambda window: _last_change(window, rate=False),
    "changes": _changes,
    "resets": lambda window: float(sum(b < a for a, b in pairwise(window.values))),
    "deriv": _derivative,
    "predict_linear": _predict,
    "double_exponential_smoothing": _smoothed,
    "last_over_time": lambda window: window.all_values[window.stop - 1],
    "mad_over_time": _median_deviation,
    "present_over_time": lambda window: 1.0,
    "quantile_over_time": lambda window, rank: quantile_of(rank, window.values),
    **{f"{name}_over_time": _reduction(reduce) for name, reduce in REDUCTIONS.items()},
}
