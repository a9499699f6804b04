"""The repaints of a progress bar as blocks: samples joined, and read many at a time.

A bar is read by Python; those that follow and differ from it in numbers alone, by the compiled
part (`native/bars.h`), where that is. The blocks are the same without it.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self, TypeGuard

from ldlm_monitor.base.native import library
from ldlm_monitor.base.records import Record, Sample, SampleBlock
from ldlm_monitor.logs.parse.bars import BarItem, BarReading, Bars
from ldlm_monitor.logs.parse.event_rules import RecordPlace

_MOST = 1024  # bars of one call. A choice: more take memory, fewer cost time for each call
_FEW = 4
"""Bars that are worth a `BarsLike`. A choice: making one costs as much as reading two bars."""
_MOST_PASSED = 63
"""Most bars after which a `BarsLike` is made again where each was refused at once. A choice: fewer
cost time where each bar has other keys, more where bars are alike again."""


class Repaints:
    """Adds records to `found`: consecutive samples of one bar's repaints as blocks.

    The repaints of a bar stand in one line; those of a block have the same values, and steps that
    rise. `close` must follow the last record.
    """

    def __init__(self, found: list[Record | SampleBlock]) -> None:
        self._found = found
        self._first: Sample | None = None  # of the block
        self._is_finite = True
        self._steps: list[int] = []
        self._offsets: list[int] = []
        self._epochs: list[float] = []
        self._columns: dict[str, list[float]] = {}

    def add(self, record: Record) -> None:
        """Add a record; a bar's sample begins or continues a block."""
        if not _is_repaint(record):
            self.close()
            self._found.append(record)
            return
        self._begin(record)
        self._steps.append(record.step or 0)
        self._offsets.append(record.position.offset)
        self._epochs.append(record.epoch or 0.0)
        for name, column in self._columns.items():
            column.append(record.values[name])

    def extend(self, block: SampleBlock) -> None:
        """Add repaints that were read together."""
        self._begin(block.sample(0))
        self._steps.extend(block.steps)
        self._offsets.extend(block.offsets)
        self._epochs.extend(block.epochs or ())
        for name, column in self._columns.items():
            column.extend(block.values[name])

    def close(self) -> None:
        """Add the block, or the only sample of one."""
        first = self._first
        if first is None:
            return
        if len(self._steps) == 1:
            self._found.append(first)
        else:
            self._found.append(
                SampleBlock(
                    run=first.run,
                    rank=first.rank,
                    path=first.position.path,
                    first_line=first.position.line,
                    offsets=self._offsets,
                    steps=self._steps,
                    epochs=None if first.epoch is None else self._epochs,
                    times=None,
                    values={**self._columns},
                    repaints=True,
                )
            )
        self._first = None

    def _begin(self, sample: Sample) -> None:
        """Begin a block with a sample, unless the sample continues the one that is open."""
        is_finite = all(map(math.isfinite, sample.values.values()))
        first = self._first
        if (
            first is not None
            and self._is_finite
            and is_finite
            and sample.position.line == first.position.line
            and sample.values.keys() == first.values.keys()
            and (sample.epoch is None) == (first.epoch is None)
            and self._steps[-1] < (sample.step or 0)
        ):
            return
        self.close()
        self._first, self._is_finite = sample, is_finite
        self._steps, self._offsets, self._epochs = [], [], []
        self._columns = {name: [] for name in sample.values}


def _is_repaint(record: Record) -> TypeGuard[Sample]:
    return isinstance(record, Sample) and record.step is not None and record.time is None


class AlikeBars(NamedTuple):
    """Repaints that were read together, the index behind them, and the bar's phase (`Bar`)."""

    block: SampleBlock
    stop: int
    phase: str


class BarColumns:
    """Memory for what the compiled part reads of up to `_MOST` bars, kept from call to call."""

    def __init__(self) -> None:
        self.steps, self.offsets = (array("q", bytes(8 * _MOST)) for _ in range(2))
        self._numbers = array("d", bytes(8 * _MOST))

    def numbers(self, columns: int) -> array[float]:
        """So many columns of `_MOST` numbers each, one behind the other."""
        lacking = columns * _MOST - len(self._numbers)
        if lacking > 0:
            self._numbers.frombytes(bytes(8 * lacking))
        return self._numbers


class BarsAhead:
    """Reads the repaints that are like a file's last bar, if that has been read.

    Where they are refused again and again, more and more bars are passed before the next try.
    """

    def __init__(self) -> None:
        self._like: BarsLike | None = None
        self._patience = self._passed = 0

    def __bool__(self) -> bool:
        return self._like is not None

    def forget(self) -> None:
        """What follows is not like the last bar."""
        self._like = None

    def follow(self, raw: bytes, bar: BarReading, bars: Bars, sample: Sample) -> None:
        """Note the last bar; arguments: `BarsLike.of`."""
        self._like = None
        if self._passed < self._patience:
            self._passed += 1
            return
        self._like = BarsLike.of(raw, bar, bars, sample)
        if self._like is None:
            self._give_up()

    def read(
        self, data: bytes, start: int, stop: int, place: RecordPlace, columns: BarColumns
    ) -> AlikeBars | None:
        """See `BarsLike.read`."""
        like = self._like
        found = None if like is None else like.read(data, start, stop, place, columns)
        if found is None:
            self._give_up()
        elif len(found.block) >= _FEW:
            self._patience = 0
        return found

    def _give_up(self) -> None:
        self._like, self._passed = None, 0
        self._patience = min(2 * self._patience + 1, _MOST_PASSED)


class BarsLike:
    """Reads the repaints that follow a bar and differ from it in numbers alone.

    `raw`: the bar's record; `bar` and `items` what it shows, `sample` what it gave.
    """

    @classmethod
    def of(cls, raw: bytes, bar: BarReading, bars: Bars, sample: Sample) -> Self | None:
        """Make it of a bar that `bars` have read; None if it reads none."""
        if library() is None or sample.step is None:
            return None
        made = cls(raw, bar, bars.items(raw), sample)
        return made if made._is_certain else None

    def __init__(
        self, raw: bytes, bar: BarReading, items: Sequence[BarItem], sample: Sample
    ) -> None:
        self._phase = bar.phase
        self._raw, self._sample = raw, sample
        self._kinds = "".join(item.kind for item in items).encode()
        shares = bar.step / (bar.total or 1), bar.values.get("steps_per_second")
        self._numbers = [*shares, *(item.value for item in items)]
        places = {"progress": 0, "epoch_progress": 0, "steps_per_second": 1}
        places |= {item.name: at for at, item in enumerate(items, 2) if item.value is not None}
        if bar.phase == "train" and "progress" not in sample.values:
            places["epoch_progress"] = 0  # of a bar that is one epoch's
        self._epoch = None if sample.epoch is None else places["epoch"]
        self._places = {name: places[name] for name in sample.values if name in places}
        known = {name: self._numbers[place] for name, place in self._places.items()}
        known["total_steps"] = float(bar.total or 0)
        self._is_certain = sample.values == {name: known.get(name) for name in sample.values}

    def read(
        self, data: bytes, start: int, stop: int, place: RecordPlace, columns: BarColumns
    ) -> AlikeBars | None:
        """The repaints from index `start` of data up to `stop`, in the line of `place`, which is
        that of the first; None if that differs in more. `columns` are written to.
        """
        native = library()
        if native is None:
            return None
        steps, offsets, end = columns.steps, columns.offsets, ctypes.c_int64()
        numbers = columns.numbers(2 + len(self._kinds))
        count = native.ldlm_bars_read(
            data, stop, start, self._raw, len(self._raw), self._kinds, len(self._kinds),
            place.offset - start, _MOST, _MOST, steps.buffer_info()[0],
            numbers.buffer_info()[0], offsets.buffer_info()[0], ctypes.byref(end),
        )  # fmt: skip
        if not count:
            return None

        def column(place: int) -> list[float]:
            if place >= 2 and self._kinds[place - 2 : place - 1] == b"=":
                return [self._numbers[place] or 0.0] * count
            return numbers[place * _MOST : place * _MOST + count].tolist()

        total = self._sample.values.get("total_steps", 0.0)
        block = SampleBlock(
            run=place.origin.run,
            rank=place.rank,
            path=place.path,
            first_line=place.line,
            offsets=offsets[:count].tolist(),
            steps=steps[:count].tolist(),
            epochs=None if self._epoch is None else column(self._epoch),
            times=None,
            values={
                name: column(self._places[name]) if name in self._places else [total] * count
                for name in self._sample.values
            },
            repaints=True,
        )
        return AlikeBars(block, end.value, self._phase)


def marks_alike(
    data: bytes, start: int, like: bytes, columns: BarColumns
) -> tuple[Iterable[tuple[int, int, float]], int] | None:
    """Of the repaints from index `start` on that have the description of the record `like`: where
    each begins, its step and elapsed seconds; and the index behind the last. None without any.
    `columns` are written to.
    """
    native = library()
    if native is None:
        return None
    offsets, steps, seconds = columns.offsets, columns.steps, columns.numbers(1)
    end = ctypes.c_int64()
    count = native.ldlm_bar_marks(
        data, len(data), start, like, len(like), _MOST, offsets.buffer_info()[0],
        steps.buffer_info()[0], seconds.buffer_info()[0], ctypes.byref(end),
    )  # fmt: skip
    found = zip(offsets[:count], steps[:count], seconds[:count], strict=True)
    return (found, end.value) if count else None
