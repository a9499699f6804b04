"""Series as a Prometheus that scrapes every `interval` seconds would store them.

Only changes of a value are stored. A scrape with unchanged values takes no memory, and a grid
slot may be skipped if nothing can have changed: a read returns a sample for every slot anyway.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import re2

from ldlm_monitor.model.points import Labels, Matcher, Point, Series


@dataclass(slots=True)
class Segment:
    """A period in which a series existed; each of `values` holds from its time in `times` on.

    `born`, `ended` and `times` are Unix seconds; `ended` is None while the series exists.
    """

    born: float
    ended: float | None = None
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def since(self, start: float) -> Segment:
        """The part after `start`, preceded by the change to the value that held at `start`."""
        old = max(bisect_right(self.times, start) - 1, 0)
        times = self.times[old:]
        return Segment(times[0], self.ended, times, self.values[old:])

    def at(self, grid: Sequence[float]) -> Sequence[float]:
        """The value at each time of `grid`, in which no time of a change may be missing."""
        first = bisect_right(self.times, grid[0]) - 1
        last = bisect_right(self.times, grid[-1])
        if last - first == len(grid):
            return self.values[first:last]
        values: list[float] = []
        for index in range(first, last):
            until = bisect_left(grid, self.times[index + 1]) if index + 1 < last else len(grid)
            values += [self.values[index]] * (until - len(values))
        return values

    def put(self, value: float, at: float) -> bool:
        """Store the value that holds from `at` on; return False if it is unchanged."""
        if self.times:
            old = self.values[-1]
            if old == value or (math.isnan(old) and math.isnan(value)):
                return False
        if self.times and self.times[-1] == at:
            self.values[-1] = value
        else:
            self.values.append(value)  # first: a `StoreView` reads by `times` in another thread
            self.times.append(at)
        return True


def is_matched(labels: Labels, matchers: Sequence[Matcher]) -> bool:
    """Whether a series of these labels satisfies all matchers."""
    return all(satisfies(matcher, labels) for matcher in matchers)


def satisfies(matcher: Matcher, labels: Labels) -> bool:
    """Whether one matcher accepts a series of these labels (with `__name__`)."""
    value = next((v for name, v in labels if name == matcher.name), "")
    if matcher.op == "=":
        return value == matcher.value
    if matcher.op == "!=":
        return value != matcher.value
    found = _compiled(matcher.value).fullmatch(value) is not None
    return found == (matcher.op == "=~")


_SELECTORS = 1024
"""Selectors, and patterns in them, that are cached: far more than the packaged rules and boards
have. More would cost memory, since queries over HTTP may have ever new ones."""


@lru_cache(maxsize=_SELECTORS)
def _compiled(pattern: str) -> Any:
    return re2.compile(f"(?s:{pattern})")  # `.` matches a line feed, as in Prometheus 3


@dataclass(slots=True)
class _Kept:
    labels: Labels
    segments: list[Segment]
    groups: int = 0


_FORGET_EVERY = 256
"""Scrapes between two passes that drop old samples. A choice: fewer cost time, more memory."""


class SeriesStore:
    """The embedded store: `append` adds a scrape; queries read it as a `points.Storage`.

    `interval`: seconds between two times of the grid; a scrape between two of these times, for an
    urgent evaluation, is stored too. `retention`: seconds for which samples are kept.
    `last_scrape`: Unix seconds, -inf before the first.
    """

    def __init__(self, interval: float, retention: float) -> None:
        self._interval = interval
        self.retention = retention
        self._series: dict[Labels, _Kept] = {}
        self._by_name: dict[str, list[_Kept]] = {}
        self._extra: list[float] = []
        self._changed: dict[str, list[float]] = {}
        self._groups: dict[int, tuple[Sequence[Point], list[_Kept]]] = {}
        self._scrape = 0
        self.last_scrape = -math.inf
        self._matched: dict[str | None, dict[tuple[Matcher, ...], list[_Kept]]] = {}
        self._read_last: tuple[tuple[float, float], Sequence[float]] = ((math.inf, -math.inf), ())

    def append(self, groups: Iterable[Sequence[Point]], at: float) -> None:
        """Store one scrape at `at` (Unix seconds), not before the last one.

        A series that is in no group has ended. A group that is the same object (`is`) as in the
        last scrape counts as unchanged, so that a scrape costs only what has changed.
        """
        self._scrape += 1
        self._read_last = ((math.inf, -math.inf), ())
        if at % self._interval and (not self._extra or self._extra[-1] < at):
            self._extra.append(at)
        before, self._groups = self._groups, {}
        for group in groups:
            known = before.pop(id(group), None) or self._groups.get(id(group))
            self._groups[id(group)] = known or (group, self._join(group, at))
        for _, kept in before.values():
            for series in kept:
                series.groups -= 1
        for _, kept in before.values():
            for series in kept:
                if not series.groups:
                    self._end(series, at)
        self.last_scrape = at
        if self._scrape % _FORGET_EVERY == 0:
            self._forget(at - self.retention)

    def _join(self, group: Sequence[Point], at: float) -> list[_Kept]:
        kept = [self._put(point, at) for point in group]
        for series in kept:
            series.groups += 1
        return kept

    def _end(self, series: _Kept, at: float) -> None:
        segment = series.segments[-1]
        if segment.ended is None:
            segment.ended = at
            self._note_change(series.labels[0][1], at)

    def record(self, name: str, points: Iterable[Point]) -> None:
        """Store a recording rule's result, which holds from the last scrape until the next call.

        Series of `name` that are not among `points` end.
        """
        current = {self._put(point, self.last_scrape).labels for point in points}
        for series in self._by_name.get(name, ()):
            if series.labels not in current:
                self._end(series, self.last_scrape)

    def select(self, matchers: Sequence[Matcher], start: float, end: float) -> Iterable[Series]:
        """The series that satisfy every matcher, with samples in [start, end] (Unix s)."""
        for kept in self._matching(matchers):
            series = self._read(kept, start, min(end, self.last_scrape))
            if series is not None:
                yield series

    def latest(
        self, matchers: Sequence[Matcher], since: float, until: float
    ) -> Iterable[tuple[Labels, float, float]]:
        """Labels, time, value of the last sample in (since, until] of each series that goes on."""
        matched = self._matching(matchers)
        at = self._last_slot(min(until, self.last_scrape)) if matched else until
        for kept in matched:
            segment = kept.segments[-1]
            if segment.born > at:
                segment = next((s for s in reversed(kept.segments) if s.born <= at), segment)
            ended = segment.ended
            if since < at and segment.born <= at and (ended is None or ended > until):
                last = len(segment.times) - 1
                index = last if segment.times[last] <= at else bisect_right(segment.times, at) - 1
                yield kept.labels, at, segment.values[index]

    def changed_at(self, names: Iterable[str]) -> float:
        """Unix seconds when a series of these names last changed, began or ended; -inf if never."""
        latest = -math.inf
        for name in names:  # asked thousands of times a second: no generator
            changed = self._changed.get(name)
            if changed:
                latest = max(latest, changed[-1])
        return latest

    def has_changed(self, names: Iterable[str], start: float, end: float) -> bool:
        """Whether a series of these names changed, began or ended in [start, end], Unix seconds."""
        for name in names:
            times = self._changed.get(name, ())
            first = bisect_left(times, start)
            if first < len(times) and times[first] <= end:
                return True
        return False

    def _note_change(self, name: str, at: float) -> None:
        times = self._changed.setdefault(name, [])
        if not times or times[-1] < at:
            times.append(at)

    def _last_slot(self, at: float) -> float:
        slot = math.floor(at / self._interval) * self._interval
        index = bisect_right(self._extra, at)
        return max(slot, self._extra[index - 1]) if index else slot

    def _find(self, point: Point) -> _Kept:
        labels = (("__name__", point.name), *point.labels)
        kept = self._series.get(labels)
        if kept is None:
            kept = self._series[labels] = _Kept(labels, [])
            self._by_name.setdefault(point.name, []).append(kept)
            for name in (point.name, None):
                for matchers, matched in self._matched.get(name, {}).items():
                    if is_matched(labels, matchers):
                        matched.append(kept)
        return kept

    def _put(self, point: Point, at: float) -> _Kept:
        kept = self._find(point)
        if not kept.segments or kept.segments[-1].ended is not None:
            kept.segments.append(Segment(at))
        if kept.segments[-1].put(point.value, at):
            self._note_change(kept.labels[0][1], at)
        return kept

    def _matching(self, matchers: Sequence[Matcher]) -> list[_Kept]:
        """Series that satisfy all matchers, oldest first; cached until one of the name is gone."""
        key = tuple(matchers)
        name = next((m.value for m in key if m.name == "__name__" and m.op == "="), None)
        matched = self._matched.get(name, {}).get(key)
        if matched is None:
            candidates = self._series.values() if name is None else self._by_name.get(name, ())
            matched = [kept for kept in candidates if is_matched(kept.labels, key)]
            if sum(map(len, self._matched.values())) >= _SELECTORS:
                self._matched.clear()
            self._matched.setdefault(name, {})[key] = matched
        return matched

    def _read(self, kept: _Kept, start: float, end: float) -> Series | None:
        times: Sequence[float] = ()
        values: Sequence[float] = ()
        for segment in kept.segments:
            stop = end if segment.ended is None else min(end, segment.ended)
            grid = self._grid(max(start, segment.born), stop)
            if grid and grid[-1] == segment.ended:
                grid = grid[:-1]
            if not grid:
                continue
            held = segment.at(grid)
            times = [*times, *grid] if times else grid
            values = [*values, *held] if values else held
        ended = kept.segments[-1].ended
        return Series(kept.labels, times, values, ended) if times else None

    def _grid(self, start: float, end: float) -> Sequence[float]:
        """The times of all scrapes in [start, end], kept for the query's next series."""
        if start > end:
            return ()
        if (start, end) != self._read_last[0]:
            interval = self._interval
            slots = range(math.ceil(start / interval), math.floor(end / interval) + 1)
            times = [slot * interval for slot in slots]
            low, high = bisect_left(self._extra, start), bisect_right(self._extra, end)
            extra = self._extra[low:high]
            self._read_last = (start, end), sorted({*times, *extra}) if extra else times
        return self._read_last[1]

    def _forget(self, before: float) -> None:
        """Drop the samples from before `before`, except the value that held at that time."""
        del self._extra[: bisect_left(self._extra, before)]
        for times in self._changed.values():  # the last one stays
            del times[: bisect_left(times, before, hi=len(times) - 1)]
        for labels, kept in list(self._series.items()):
            kept.segments = [
                segment.since(before)
                for segment in kept.segments
                if segment.ended is None or segment.ended > before
            ]
            if not kept.segments:
                name = labels[0][1]
                del self._series[labels]
                self._by_name[name].remove(kept)
                for selectors in (name, None):
                    self._matched.pop(selectors, None)
