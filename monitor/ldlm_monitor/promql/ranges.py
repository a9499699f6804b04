"""Reads the samples of selectors from a storage; computes the functions of range vectors.

The arguments of a function are a `RangeWindow`, of at least one sample, and scalars. It returns
None if the window has too few samples. Semantics: Prometheus 3 `promql/functions.go`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.model.points import Labels, Storage
from ldlm_monitor.promql.floats import REDUCTIONS, divide, quantile_of, sum_of
from ldlm_monitor.promql.nodes import LOOKBACK, Range, RangeWindow, Selector, Shift, Vector


def exact(time: float) -> float:
    """`time` (seconds), rounded to milliseconds if only a rounding error lies between the two.

    Prometheus counts in milliseconds. Sums and products of seconds differ from whole milliseconds
    in the last bits, which would decide whether a sample at the edge of a range is in it.
    """
    whole = round(time, 3)
    return whole if abs(whole - time) < 1e-6 else time  # floats of Unix times are 2.4e-7 s apart


@dataclass(slots=True)
class QueryTimes:
    """The times of one query: `@ start()` and `@ end()` are `start` and `end` (Unix seconds)."""

    start: float
    end: float
    _until: float = math.nan
    _since: float = math.nan

    def shifted(self, shift: Shift, at: float) -> float:
        """The time that a selector or subquery with `shift` reads in an evaluation at `at`."""
        anchor = shift.anchor
        if anchor == "start":
            at = self.start
        elif anchor == "end":
            at = self.end
        elif anchor is not None:
            at = anchor
        return exact(at - shift.offset) if shift.offset else at

    def lookback(self, until: float) -> float:
        """The time after which an instant selector finds samples that it reads up to `until`."""
        if until != self._until:  # most selectors of a query read the same times
            self._until, self._since = until, exact(until - LOOKBACK)
        return self._since


Samples: TypeAlias = Callable[[QueryTimes, float], Iterable[tuple[Labels, float, float]]]
"""Returns labels, time and value of each series' last sample at a time (Unix seconds)."""
Windows: TypeAlias = Callable[[QueryTimes, float], Iterator[RangeWindow]]
"""Returns the samples of each series of a range vector that has any, at a time (Unix seconds)."""


def samples_of(node: Selector, storage: Storage) -> Samples:
    """A function that reads an instant selector."""
    shift, latest = node.shift, storage.reader(node.matchers).latest
    if shift == Shift():
        return lambda query, at: latest(query.lookback(at), at)

    def shifted(query: QueryTimes, at: float) -> Iterable[tuple[Labels, float, float]]:
        until = query.shifted(shift, at)
        return latest(query.lookback(until), until)

    return shifted


def windows_of(node: Range, storage: Storage) -> Windows:
    """A function that reads a range selector."""
    shift, select = node.selector.shift, storage.reader(node.selector.matchers).select

    def windows(query: QueryTimes, at: float) -> Iterator[RangeWindow]:
        end = query.shifted(shift, at)
        start = exact(end - node.seconds)
        for series in select(start, end):
            times, values = series.times, series.values
            if len(times) and times[0] <= start:
                times, values = times[1:], values[1:]
            if len(times):
                yield RangeWindow(series.labels, times, values, start, end)

    return windows


def unique(vector: Vector) -> Vector:
    """Return `vector`. Raises RuleError if two elements have the same labels."""
    if len(vector) > 1 and len({labels for labels, _ in vector}) != len(vector):
        raise RuleError(
            "the result has several series with the same labels once the metric name is dropped",
            remedy="select one metric, or aggregate",
        )
    return vector


_GAP = 1.1
"""In mean distances of samples: if the first (last) is further from the window's start (end), the
series began (ended) in it (`extrapolationThreshold` of Prometheus' `extrapolatedRate`)."""


def _extrapolated(window: RangeWindow, *, counter: bool) -> float | None:
    """The change, extrapolated to the window's ends (`extrapolatedRate`); a `counter` may reset."""
    times, values = window.times, window.values
    if len(values) < 2:
        return None
    change = values[-1] - values[0]
    if counter:
        for before in [a for a, b in pairwise(values) if b < a]:
            change += before
    sampled = times[-1] - times[0]
    spacing = sampled / (len(values) - 1)
    to_start = times[0] - window.start
    if to_start >= spacing * _GAP:
        to_start = spacing / 2
    if counter and change > 0 and values[0] >= 0:
        to_start = min(to_start, sampled * (values[0] / change))  # a counter starts at 0
    to_end = window.end - times[-1]
    if to_end >= spacing * _GAP:
        to_end = spacing / 2
    return change * ((sampled + to_start + to_end) / sampled)


def _rate(window: RangeWindow) -> float | None:
    change = _extrapolated(window, counter=True)
    return None if change is None else change / (window.end - window.start)


def _last_change(window: RangeWindow, *, rate: bool) -> float | None:
    """The change between the last two samples; with `rate` a counter's change per second."""
    if len(window.values) < 2:
        return None
    before, last = window.values[-2], window.values[-1]
    if not rate:
        return last - before
    return (last if last < before else last - before) / (window.times[-1] - window.times[-2])


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
    "last_over_time": lambda window: window.values[-1],
    "mad_over_time": _median_deviation,
    "present_over_time": lambda window: 1.0,
    "quantile_over_time": lambda window, rank: quantile_of(rank, window.values),
    **{f"{name}_over_time": _reduction(reduce) for name, reduce in REDUCTIONS.items()},
}
