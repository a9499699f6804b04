"""Series as a Prometheus that scrapes every `interval` seconds would store them.

Only changes of a value are stored. A scrape with unchanged values takes no memory, and a grid
slot may be skipped if nothing can have changed: a read returns a sample for every slot anyway.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from operator import attrgetter, eq
from typing import TypeAlias

from ldlm_promrules.samples import Column, Labels, Matcher, Point, Reader, Series
from ldlm_promrules.series.segment import Segment, held
from ldlm_promrules.series.series_matching import MatchedSeries


@dataclass(slots=True)
class _Kept:
    labels: Labels
    segments: list[Segment]
    groups: int = 0


_SERIES = attrgetter("name", "labels")


def _has_same_series(points: Sequence[Point], before: Sequence[Point]) -> bool:
    same = map(eq, map(_SERIES, points), map(_SERIES, before))
    return len(points) == len(before) and all(same)


Change: TypeAlias = tuple[Labels, float | None, float | None]
"""A series' labels, the metric first; its value before and now; None where there is no sample."""


_Group: TypeAlias = tuple[Sequence[Point], list[_Kept]]
_Matched: TypeAlias = MatchedSeries[_Kept]
_FORGET_EVERY = 256
"""Scrapes between two passes that drop old samples. A choice: fewer cost time, more memory."""


class SeriesStore:
    """The embedded store: `append` adds a scrape; queries read it as a `samples.Storage`.

    `interval`: seconds between two times of the grid; a scrape between two of these times, for an
    urgent evaluation, is stored too. `retention`: seconds for which samples are kept.
    `last_scrape`: Unix seconds, -inf before the first.
    """

    def __init__(self, interval: float, retention: float) -> None:
        self._interval = interval
        self.retention = retention
        self._series: dict[Labels, _Kept] = {}
        self._by_name: dict[str | None, list[_Kept]] = {None: []}
        self._extra: list[float] = []
        self._changes: list[Change] = []
        self._groups: dict[int, _Group] = {}
        self._scrape = 0
        self.last_scrape = -math.inf
        self._read_last: tuple[tuple[float, float], Sequence[float]] = ((math.inf, -math.inf), ())

    def append(self, groups: Iterable[Sequence[Point]], at: float) -> None:
        """Store one scrape at `at` (Unix seconds), not before the last one.

        A series that is in no group has ended. A group that is the same object (`is`) as in the
        last scrape counts as unchanged, so that a scrape costs only what has changed.
        """
        self._scrape += 1
        self._changes = []
        self._read_last = ((math.inf, -math.inf), ())
        if at % self._interval and (not self._extra or self._extra[-1] < at):
            self._extra.append(at)
        before, self._groups = self._groups, {}
        fresh: dict[int, Sequence[Point]] = {}
        for group in groups:
            known = before.pop(id(group), None) or self._groups.get(id(group))
            if known is None:
                fresh[id(group)] = group
            else:
                self._groups[id(group)] = known
        for (key, group), old in zip_longest(fresh.items(), [*before][: len(fresh)]):
            self._groups[key] = group, self._join(group, before, old, at)
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

    def _join(
        self, group: Sequence[Point], before: dict[int, _Group], old: int | None, at: float
    ) -> list[_Kept]:
        """Store a group; nearly always it has the series of `old` before, which it replaces."""
        if old is not None and _has_same_series(group, before[old][0]):
            kept = before.pop(old)[1]
            for series, point in zip(kept, group, strict=True):
                segment, value = series.segments[-1], point.value
                last = segment.values[-1]
                if segment.ended is not None:
                    self._hold(series, value, at)
                elif last != value and segment.put(value, at):
                    self._changes.append((series.labels, last, value))
            return kept
        kept = [self._put(point, at) for point in group]
        for series in kept:
            series.groups += 1
        return kept

    def _end(self, series: _Kept, at: float) -> None:
        segment = series.segments[-1]
        if segment.ended is None:
            segment.ended = at
            self._changes.append((series.labels, segment.values[-1], None))

    def record(self, name: str, points: Iterable[Point]) -> None:
        """Store a recording rule's result, which holds from the last scrape until the next call.

        Series of `name` that are not among `points` end.
        """
        current = {self._put(point, self.last_scrape).labels for point in points}
        for series in self._by_name.get(name, ()):
            if series.labels not in current:
                self._end(series, self.last_scrape)

    def reader(self, matchers: Sequence[Matcher]) -> Reader:
        """A reader of the series that satisfy every matcher, which finds those to come, too."""
        matched = _Matched(self._by_name, tuple(matchers))
        return Reader(
            partial(self._select, matched),
            partial(self._latest, matched),
            partial(self._columns, matched),
        )

    def take_changes(self) -> list[Change]:
        """The changes, begins and ends of series in the last scrape, since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def _select(self, matched: _Matched, start: float, end: float) -> Iterator[Series]:
        for kept in matched():
            series = self._read(kept, start, min(end, self.last_scrape))
            if series is not None:
                yield series

    def _latest(
        self, matched: _Matched, since: float, until: float
    ) -> list[tuple[Labels, float, float]]:
        if not (series := matched()):
            return []
        last = self.last_scrape
        at = last if until == last else self._last_slot(min(until, last))
        found = []
        for kept in series if since < at else ():
            segment = kept.segments[-1]
            if segment.born > at:
                segment = next((s for s in reversed(kept.segments) if s.born <= at), segment)
            ended = segment.ended
            if segment.born <= at and (ended is None or ended > until):
                last_change = len(segment.times) - 1
                is_last = segment.times[last_change] <= at
                index = last_change if is_last else bisect_right(segment.times, at) - 1
                found.append((kept.labels, at, segment.values[index]))
        return found

    def _columns(
        self, matched: _Matched, since: Sequence[float], until: Sequence[float]
    ) -> Iterator[tuple[Labels, Column]]:
        if not (series := matched()):
            return
        slots = [self._last_slot(min(each, self.last_scrape)) for each in until]
        pairs = enumerate(zip(since, slots, strict=True))
        too_old = [index for index, (start, slot) in pairs if slot <= start]
        for kept in series:
            column = held(kept.segments, slots, until)
            for index in too_old:
                column[index] = None
            if any(value is not None for value in column):
                yield kept.labels, column

    def _last_slot(self, at: float) -> float:
        slot = math.floor(at / self._interval) * self._interval
        index = bisect_right(self._extra, at)
        return max(slot, self._extra[index - 1]) if index else slot

    def _put(self, point: Point, at: float) -> _Kept:
        labels = (("__name__", point.name), *point.labels)
        kept = self._series.get(labels)
        if kept is None:
            kept = self._series[labels] = _Kept(labels, [])
            for name in (point.name, None):
                self._by_name.setdefault(name, []).append(kept)
        self._hold(kept, point.value, at)
        return kept

    def _hold(self, kept: _Kept, value: float, at: float) -> None:
        if not kept.segments or kept.segments[-1].ended is not None:
            kept.segments.append(Segment(at))
        segment = kept.segments[-1]
        before = segment.values[-1] if segment.values else None
        if before != value and segment.put(value, at):
            self._changes.append((kept.labels, before, value))

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
            found = segment.at(grid)
            times = [*times, *grid] if times else grid
            values = [*values, *found] if values else found
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
        for kept in self._series.values():
            kept.segments = [
                segment.since(before)
                for segment in kept.segments
                if segment.ended is None or segment.ended > before
            ]
        gone = [labels for labels, kept in self._series.items() if not kept.segments]
        for labels in gone:
            del self._series[labels]
        for name in {None, *(labels[0][1] for labels in gone)} if gone else ():
            self._by_name[name] = [kept for kept in self._by_name[name] if kept.segments]
