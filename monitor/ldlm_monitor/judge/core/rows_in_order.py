"""Rows of files in the order of their times; those that come before any other go together."""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice, repeat
from typing import TypeAlias

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.records import Record, SampleBlock, TimedRows

_Item: TypeAlias = SampleBlock | Record

_MOST_ALONE = 64
"""Most rows of each file that go alone before it is asked again whether those that follow may go
together. A choice: asking copies them, and fewer are judged together where more go alone."""


class _Track:
    """What is left of a file's rows: items, each with the times of its rows; `at`: the next row."""

    def __init__(self) -> None:
        self.items: deque[tuple[_Item, Sequence[float], Chunk | None]] = deque()
        self.at = 0

    def times(self, count: int) -> Iterator[float]:
        """When the next rows come, `count` of them or all; items may be taken meanwhile."""
        first, *more = (times for _, times, _ in islice(self.items, count))
        return islice(chain(first[self.at : self.at + count], *more), count)

    def ends(self) -> float:
        """When the first row comes that is not of the block in front; infinite without one."""
        is_block = isinstance(self.items[0][0], SampleBlock)
        return next((times[0] for _, times, _ in islice(self.items, is_block, None)), math.inf)


class RowsInOrder:
    """Rows that were read ahead of their times (Unix seconds), added file by file in their order.

    Of equal times, the row of the file that was added first comes first.
    """

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}
        self._latest: dict[str, float] = {}
        self._alone = 1  # rows of each file that go alone, twice as many after each refusal

    def add(self, chunk: Chunk, items: Iterable[_Item], now: float) -> None:
        """Add a chunk's rows, each at its own time or the latest one above it in its file.

        Rows of a file without times come at `now`, and none later.
        """
        for item in items:
            latest = self._latest.get(chunk.path, -math.inf)
            times: Sequence[float] | None
            if isinstance(item, SampleBlock):
                times = item.times
                if times is None or times[0] < latest or times[-1] > now:
                    self.add(chunk, item.samples(), now)
                    continue
            elif item.time is None:
                times = (latest if latest > -math.inf else now,)
            else:
                times = (min(max(latest, item.time), now),)
            if item.times if isinstance(item, SampleBlock) else item.time:
                self._latest[chunk.path] = times[-1]
            self.put(item, times, chunk)

    def put(self, item: _Item, times: Sequence[float], chunk: Chunk | None) -> None:
        """Add a block, or a record, whose rows come at `times`."""
        self._tracks.setdefault(_path_of(item), _Track()).items.append((item, times, chunk))

    def first(self) -> float:
        """When the next row comes; infinite without any."""
        return min(
            (track.items[0][1][track.at] for track in self._tracks.values()), default=math.inf
        )

    def next(
        self, until: float, calm_until: float, only_advance: Callable[[Sequence[TimedRows]], bool]
    ) -> Iterator[Sequence[TimedRows]]:
        """What is to be judged next, each item of one run.

        The rows of blocks before `calm_until`, and before any other record, go together if
        `only_advance` is true of those of each run, which come by their ends. Otherwise it is the
        next rows before `until`, each alone: as many as there are files, and up to `_MOST_ALONE`
        times as many where rows were refused again and again. Rows that go together count as
        judged once they are yielded, a row alone when the next is asked for.
        """
        together = self._together(calm_until)
        if together and all(map(only_advance, together)):
            self._alone = 1
            for found in together:
                for rows in found:
                    self._take(_path_of(rows.item), len(rows.times))
                yield found
            return
        tracks = [*self._tracks.items()]
        count = len(tracks) * self._alone
        if together:
            self._alone = min(2 * self._alone, _MOST_ALONE)
        moments = [zip(each.times(count), repeat(index)) for index, (_, each) in enumerate(tracks)]
        for when, index in islice(merge(*moments), count):
            if when >= until:
                break
            path, track = tracks[index]
            item, _, chunk = track.items[0]
            record = item.sample(track.at) if isinstance(item, SampleBlock) else item
            yield (TimedRows(record, (when,), chunk),)
            self._take(path, 1)

    def _together(self, until: float) -> Sequence[Sequence[TimedRows]]:
        """The rows of blocks before `until` and before any other record, by run."""
        stop = min(until, *(track.ends() for track in self._tracks.values()))
        found: list[TimedRows] = []
        for track in self._tracks.values():
            item, times, chunk = track.items[0]
            end = bisect_left(times, stop, track.at)
            if end > track.at and isinstance(item, SampleBlock):
                found.append(TimedRows(item.part(track.at, end), times[track.at : end], chunk))
        by_run: dict[str, list[TimedRows]] = {}
        for rows in sorted(found, key=lambda rows: rows.times[-1]):
            by_run.setdefault(rows.item.run, []).append(rows)
        return [*by_run.values()]

    def clear(self) -> None:
        """Drop all rows."""
        self._tracks.clear()

    def _take(self, path: str, count: int) -> None:
        """Note that the next `count` rows of a file, all of one block or record, were judged."""
        track = self._tracks[path]
        track.at += count
        if track.at == len(track.items[0][1]):
            track.items.popleft()
            track.at = 0
        if not track.items:
            del self._tracks[path]


def _path_of(item: SampleBlock | Record) -> str:
    return item.path if isinstance(item, SampleBlock) else item.position.path
