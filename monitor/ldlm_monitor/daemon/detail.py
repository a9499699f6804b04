"""A part of a curve in full detail: its rows are read again from the log where they stand."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise

from ldlm_monitor.model.chunk import Chunk, Origin
from ldlm_monitor.model.records import Sample
from ldlm_monitor.model.view import CurveView
from ldlm_monitor.parse import Parser
from ldlm_monitor.run.curve import CAPACITY, RunCurve
from ldlm_monitor.source.log_parts import LogReader

DETAIL_BYTES = 8 * 1024 * 1024
"""Most bytes that one answer reads again. A choice: more take seconds; fewer leave windows coarse
in which each column of a screen has a bucket anyway."""


def detailed(
    curve: CurveView, quantity: str, span: tuple[int, int], opened: Callable[[str], LogReader]
) -> CurveView | None:
    """The samples of a quantity between the steps of `span`, read from the curve's own file.

    None if the curve has all of them, if they are in several files or too many, if steps fall (a
    resume), or if the file does not have them any more. `opened` returns the reader of a file.
    """
    steps = curve.steps
    if len(steps) < CAPACITY // 2:  # no two buckets were ever merged
        return None
    first, stop = max(bisect_right(steps, span[0]) - 1, 0), bisect_left(steps, span[1] + 1)
    is_whole = len(set(curve.origins[first : stop + 1])) == 1
    if not is_whole or any(later < earlier for earlier, later in pairwise(steps)):
        return None
    end = curve.offsets[stop] if stop < len(steps) else None
    chunk = _read(curve, first, end, opened)
    if chunk is None:
        return None
    fine = RunCurve()
    for sample in _of_one_rank(chunk, quantity, curve.times[first]):
        if span[0] <= (step := sample.step or 0) <= span[1]:
            near = max(bisect_right(steps, step) - 1, 0)
            at = curve.times[near] if sample.time is None else sample.time
            fine.add(sample, at, sample.values[quantity])
    return fine.view() if len(fine.steps) > stop - first else None


def _read(
    curve: CurveView, first: int, end: int | None, opened: Callable[[str], LogReader]
) -> Chunk | None:
    """The bytes from bucket `first` to byte `end` (None: the file's end); None if unreadable."""
    place = curve.position(first)
    try:
        with closing(opened(place.path)) as log:
            end = log.size if end is None else min(end, log.size)
            if not 0 < end - place.offset <= DETAIL_BYTES:
                return None
            data = log.read(place.offset, end)
    except OSError:
        return None
    return Chunk(place.path, (0, 0, 0), place.offset, place.line, data, final=True)


def _of_one_rank(chunk: Chunk, quantity: str, now: float) -> Iterator[Sample]:
    """The samples with the quantity; of several ranks in one file, those of the first."""
    ranks: set[int | None] = set()
    for record in Parser().feed(chunk, Origin(""), now):
        if isinstance(record, Sample) and record.step is not None and quantity in record.values:
            ranks = ranks or {record.rank}
            if record.rank in ranks:
                yield record
