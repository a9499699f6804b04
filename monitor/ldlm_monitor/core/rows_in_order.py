"""Rows of files in the order of their times; those that come before any other go together."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, TypeAlias

from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.model.records import Record, SampleBlock, TimedRows

if TYPE_CHECKING:
    from ldlm_monitor.core.monitor import Monitor

_Item: TypeAlias = SampleBlock | Record


class _Track:
    """What is left of a file's rows: items, each with the times of its rows; `at`: the next row."""

    def __init__(self) -> None:
        self.items: deque[tuple[_Item, Sequence[float], Chunk | None]] = deque()
        self.at = 0

    def times(self) -> Iterator[float]:
        """When the rows come."""
        return islice(chain(*(times for _, times, _ in [*self.items])), self.at, None)

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
        self._next: dict[str, tuple[object, ...]] = {}  # what follows the last record of a file

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
        path = item.path if isinstance(item, SampleBlock) else item.position.path
        self._tracks.setdefault(path, _Track()).items.append((item, times, chunk))

    def forget(self, path: str) -> None:
        """Note that a record of a file was judged that is not among these rows."""
        self._next.pop(path, None)

    def first(self) -> float:
        """When the next row comes; infinite without any."""
        return min(
            (track.items[0][1][track.at] for track in self._tracks.values()), default=math.inf
        )

    def together(self, until: float) -> Mapping[str, Sequence[TimedRows]]:
        """By run, the rows of blocks before `until` and before any other record, by their ends.

        Empty if a file's last record was no row with the same keys.
        """
        stop = min(until, *(track.ends() for track in self._tracks.values()))
        found: list[TimedRows] = []
        for path, track in self._tracks.items():
            item, times, chunk = track.items[0]
            end = bisect_left(times, stop, track.at)
            if end > track.at and isinstance(item, SampleBlock):
                if self._next.get(path) != _next_of(item, track.at):
                    return {}
                found.append(TimedRows(item.part(track.at, end), times[track.at : end], chunk))
        by_run: dict[str, list[TimedRows]] = {}
        for rows in sorted(found, key=lambda rows: rows.times[-1]):
            by_run.setdefault(rows.block.run, []).append(rows)
        return by_run

    def play_ahead(self, monitor: Monitor, until: float) -> list[Transition]:
        """Let a monitor judge the rows before `until`, with its open blocks."""
        transitions: list[Transition] = []
        while self.first() < until:
            stop = min(monitor.parser.open_until(), until)
            transitions += self.play(monitor, stop)
            transitions += monitor.complete_blocks(stop) if stop < until else []
        return transitions

    def play(self, monitor: Monitor, until: float) -> list[Transition]:
        """Let a monitor judge the rows before `until`; those between two timers go together."""
        transitions: list[Transition] = []
        try:
            while (first := self.first()) < until:
                transitions += monitor.advance(first)
                stop = min(until, monitor.timer())
                found = self.together(stop) if first >= monitor.clock else {}
                taken = self._play_together(monitor, found)
                transitions += self._play_singly(monitor, until) if taken is None else taken
        except Exception:  # a bug of ours: what is left would raise at each later call
            self._tracks.clear()
            raise
        return transitions

    def _play_together(
        self, monitor: Monitor, found: Mapping[str, Sequence[TimedRows]]
    ) -> list[Transition] | None:
        """The transitions of all these rows; None if a run has to take them one by one."""
        runs = [monitor.runs.get(name) for name in found]
        if not runs or not all(run and run.life.only_advances(found[run.name]) for run in runs):
            return None
        transitions: list[Transition] = []
        for run in filter(None, runs):
            rows = found[run.name]
            for each in rows:
                self._take(each.block.path, len(each.times))
            try:
                run.observe_steps(rows)
            except Exception as fault:  # noqa: BLE001 # a bug of ours: singly; some count twice
                monitor.parser.note_fault(rows[0].block.sample(0).position, fault)
                samples = chain(*(each.block.samples() for each in rows))
                transitions += monitor.observe(samples, rows[-1].times[-1])
                continue
            monitor.clock = max(monitor.clock, rows[-1].times[-1])
            chunks = {each.block.path: each.chunk for each in rows}
            with monitor.evidence.looking_at(chunks.get(run.life.progress_position.path), run.name):
                transitions += monitor.judge_at_once(run, None)
        return transitions

    def _play_singly(self, monitor: Monitor, until: float) -> list[Transition]:
        """The transitions of the next rows before `until`, as many as there are files."""
        transitions: list[Transition] = []
        tracks = [*self._tracks.items()]
        moments = [zip(track.times(), repeat(index)) for index, (_, track) in enumerate(tracks)]
        for when, index in islice(merge(*moments), len(tracks)):
            if when >= until:
                break
            path, track = tracks[index]
            item, _, chunk = track.items[0]
            record = item.sample(track.at) if isinstance(item, SampleBlock) else item
            with monitor.evidence.looking_at(chunk, record.run):
                transitions += monitor.observe((record,), when)
            self._take(path, 1)
        return transitions

    def _take(self, path: str, count: int) -> None:
        track = self._tracks[path]
        item, times, _ = track.items[0]
        track.at += count
        if isinstance(item, SampleBlock):
            self._next[path] = _next_of(item, track.at)
        if track.at == len(times):
            track.items.popleft()
            track.at = 0
        if not track.items:
            del self._tracks[path]


def _next_of(block: SampleBlock, index: int) -> tuple[object, ...]:
    return (block.rank, block.first_line + index, *block.values)
