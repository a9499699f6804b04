"""Estimates when the bytes of a finished (or half-written) log were written.

Most training logs have no times of their own. Their progress bars have an elapsed field, and
the file has the time of its last write; a step log without bars uses the clock of its run's
bars, matched by step.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from ldlm_monitor.base.chunk import Chunk, ClockMark

PIECES_A_SECOND = 4
"""Distinct times for the bars of one second in logs of at most `FINE_SECONDS`. A choice: detectors
of short runs need more than one step a second, and each time costs memory."""
FINE_SECONDS = 3600.0  # longest log with these pieces. A choice: 14,400 times; more cost memory

ONLY_ORDER = "its lines have no times, so that only their order is known"
FROM_LAST_WRITE = "its bars have no date: they count from the log's last write"
FROM_LINE_ABOVE = "its bars have no date: they count from the line above the first"


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Steps, and Unix seconds when each was first shown, from one start to the next; both rise."""

    steps: list[int]
    times: list[float]

    def when(self, step: int) -> float:
        """The time of the first bar that shows `step` or more."""
        index = min(bisect_left(self.steps, step), len(self.times) - 1)
        return self.times[index]


@dataclass(frozen=True, slots=True)
class StepClock:
    """When each step was shown, in each attempt of a run: a resume begins another one."""

    attempts: Sequence[_Attempt]

    @property
    def start(self) -> float:
        """When the first bar began (Unix seconds)."""
        return self.attempts[0].times[0]

    def when(self, step: int) -> float:
        """The time of the first bar that shows `step` or more; of the furthest bar if none does."""
        reaching = (attempt for attempt in self.attempts if attempt.steps[-1] >= step)
        furthest = max(self.attempts, key=lambda attempt: attempt.steps[-1])
        return next(reaching, furthest).when(step)

    def moved(self, by: Callable[[float], float]) -> "StepClock":
        """The same steps, each at the time that `by` returns for its time."""
        return StepClock([_Attempt(each.steps, [*map(by, each.times)]) for each in self.attempts])

    def times(self, steps: Sequence[int]) -> Iterator[float]:
        """When (Unix seconds) each row of a step log was written; `steps` has each row's step.

        A row whose step falls begins another attempt. If rows and bars have the same number of
        attempts, these are matched; otherwise a step has the time when it was first shown.
        """
        falls = {index for index in range(1, len(steps)) if steps[index] < steps[index - 1]}
        if len(falls) + 1 != len(self.attempts):
            yield from map(self.when, steps)
            return
        attempt = 0
        for index, step in enumerate(steps):
            attempt += index in falls
            yield self.attempts[attempt].when(step)


class Timeline:
    """Estimated arrival times of one file's bytes.

    `offsets[i]` is the first byte that arrived at `times[i]`; both rise. `timed`, one value for
    all times or one for each: whether they are Unix seconds; if not, they only order the bytes.
    `dated`: they stand in the file, and do not count from its last write. `guess`: why its times
    are guesses; "" if they are not.
    """

    def __init__(
        self,
        offsets: Sequence[int],
        times: Sequence[float],
        *,
        timed: bool | Sequence[bool] = True,
        dated: bool = False,
        guess: str = "",
    ) -> None:
        self._offsets = offsets
        self._times = times
        self._timed = timed
        self.dated, self.guess = dated, guess

    @classmethod
    def joined(cls, parts: Sequence[tuple[int, float, "Timeline"]]) -> "Timeline":
        """Join parts (first byte, earliest time, timeline); each ends where the next begins."""
        offsets: list[int] = []
        times: list[float] = []
        timed: list[bool] = []
        for index, (start, floor, part) in enumerate(parts):
            stop = parts[index + 1][0] if index + 1 < len(parts) else math.inf
            first = max(bisect_right(part._offsets, start) - 1, 0)
            for place in range(first, len(part._offsets)):
                offset = max(part._offsets[place], start)
                if offset >= stop:
                    break
                offsets.append(offset)
                times.append(max(part._times[place], floor))
                timed.append(part._is_timed(place))
        guess = next((part.guess for _, _, part in parts if part.guess), "")
        dated = any(part.dated for _, _, part in parts)
        return cls(offsets, times, timed=timed, dated=dated, guess=guess)

    @property
    def timed(self) -> bool:
        """Whether any of the times is in Unix seconds, and not only orders the bytes."""
        return self._timed if isinstance(self._timed, bool) else any(self._timed)

    @property
    def places(self) -> list[tuple[int, float]]:
        """Each first byte and its time; both rise."""
        return list(zip(self._offsets, self._times, strict=True))

    @property
    def start(self) -> float:
        """When the first byte arrived: Unix seconds if `timed`, else a number for the order."""
        return self._times[0]

    @property
    def end(self) -> float:
        """When the last byte arrived, in the unit of `start`."""
        return self._times[-1]

    @property
    def is_at_once(self) -> bool:
        """Whether all bytes have the time of the last write."""
        return len(self._times) == 1 and not self.timed

    def part(self, start: int, stop: float) -> "Timeline":
        """The timeline of bytes `start` to `stop`, as that of a file that begins at `start`."""
        first = max(bisect_right(self._offsets, start) - 1, 0)
        last = max(bisect_left(self._offsets, stop), first + 1)
        offsets = [max(offset - start, 0) for offset in self._offsets[first:last]]
        timed = self._timed if isinstance(self._timed, bool) else self._timed[first:last]
        return self._like(offsets, self._times[first:last], timed)

    def moved(self, seconds: float) -> "Timeline":
        """The timeline of bytes that all came so much later."""
        times = [time + seconds for time in self._times] if seconds else self._times
        return self._like(self._offsets, times, self._timed)

    def without_start(self) -> "Timeline":
        """The timeline of a file whose middle was skipped: its start gets the second time."""
        times = [*self._times[1:2], *self._times[1:]] or self._times
        return self._like(self._offsets, times, self._timed)

    def split(self, chunk: Chunk) -> Iterator[tuple[float, Chunk]]:
        """The chunk in pieces of whole records, each with its time and with `timed` set."""
        first = max(bisect_right(self._offsets, chunk.offset) - 1, 0)
        start, line = chunk.offset, chunk.line
        stop = chunk.offset + len(chunk.data)
        if first + 1 == len(self._offsets) or self._offsets[first + 1] >= stop:
            chunk.timed = self._is_timed(first)  # in place: a copy would count the lines again
            yield self._times[first], chunk
            return
        for index in range(first, len(self._offsets)):
            later = self._offsets[index + 1] if index + 1 < len(self._offsets) else stop
            end = min(max(later, start), stop)
            if end > start:
                data = chunk.data[start - chunk.offset : end - chunk.offset]
                last = end == stop
                # Not `replace`, which takes twice as long: of 64 ranks each row is a piece.
                piece = Chunk(
                    chunk.path, chunk.file, start, line, data, chunk.final and last, chunk.peek,
                    chunk.age, self._is_timed(index), chunk.framed, chunk.continues,
                )  # fmt: skip
                yield self._times[index], piece
                if last:
                    return
                line += piece.newlines
                start = end

    def _like(
        self, offsets: Sequence[int], times: Sequence[float], timed: bool | Sequence[bool]
    ) -> "Timeline":
        return Timeline(offsets, times, timed=timed, dated=self.dated, guess=self.guess)

    def _is_timed(self, index: int) -> bool:
        return self._timed if isinstance(self._timed, bool) else self._timed[index]


def joined_repaints(pieces: Iterable[tuple[float, Chunk]]) -> Iterator[tuple[float, Chunk]]:
    """The pieces of a chunk, each with its time; those that are repaints of a bar as one piece."""
    held: list[tuple[float, Chunk]] = []
    for when, piece in pieces:
        if held and (piece.timed != held[0][1].timed or not _is_repaints(piece.data)):
            yield _joined(held)
            held = []
        if held or _is_repaints(piece.data):
            held.append((when, piece))
        else:
            yield when, piece
    if held:
        yield _joined(held)


def _is_repaints(data: bytes) -> bool:
    """Whether each record looks like a bar, behind which the next one is drawn."""
    if data[-1:] != b"\r" or b"\n" in data:
        return False
    return data.count(b"\r") == data.count(b"%|")


def _joined(parts: Sequence[tuple[float, Chunk]]) -> tuple[float, Chunk]:
    when, piece = parts[-1]
    if len(parts) == 1:
        return when, piece
    data = b"".join(part.data for _, part in parts)
    return when, replace(parts[0][1], data=data, parts=parts)


def from_bars(
    marks: Iterable[ClockMark], last_write: float, known: tuple[ClockMark, float] | None = None
) -> tuple[Timeline, StepClock] | None:
    """The timeline of a log whose bars show elapsed seconds; None without bars of the training.

    The last bar was written at `last_write` (Unix seconds). If `known` has an earlier bar of the
    same clock and its time, times are counted from that. Elapsed seconds that fall belong to a
    new bar after a restart, and are added to those of the old bar. Bars show whole seconds; the
    bars of one second are spread over it.
    """
    groups = groupby(_on_one_clock(marks), key=itemgetter(0))
    seconds = [(elapsed, [mark for _, mark in group]) for elapsed, group in groups]
    if all(mark.inner for _, shown_in in seconds for mark in shown_in):
        return None
    last_elapsed, last_marks = seconds[-1]
    start = last_write - last_elapsed
    if known is not None and known[0].elapsed is not None:
        begun = known[1] - known[0].elapsed
        one_clock = known[0].elapsed <= seconds[0][0] and last_elapsed == last_marks[-1].elapsed
        # 1.0: a bar shows whole seconds, so that its start is known to a second.
        start = begun if one_clock and begun < start + 1.0 else start
    pieces = PIECES_A_SECOND if last_elapsed <= FINE_SECONDS else 1
    offsets, times, attempts = [0], [start], [_Attempt([0], [start])]
    shown = ClockMark(0, 0, 0.0)
    for elapsed, shown_in in seconds:
        kept = shown_in[:: max(len(shown_in) // pieces, 1)][:pieces]
        for index, mark in enumerate(kept):
            when = start + elapsed + index / len(kept)
            if mark.offset == 0:
                times[0] = min(when, last_write)
            if when > times[-1] and mark.offset > offsets[-1]:
                offsets.append(mark.offset)
                times.append(min(when, last_write))
            if mark.inner:
                continue
            if mark.step < shown.step and (mark.elapsed or 0.0) < (shown.elapsed or 0.0):
                attempts.append(_Attempt([], []))
            if not attempts[-1].steps or mark.step > attempts[-1].steps[-1]:
                attempts[-1].steps.append(mark.step)
                attempts[-1].times.append(min(when, last_write))
            shown = mark
    return Timeline(offsets, times, guess=FROM_LAST_WRITE), StepClock(attempts)


def _on_one_clock(marks: Iterable[ClockMark]) -> Iterator[tuple[float, ClockMark]]:
    """Each mark with the seconds since the first bar began; they never fall.

    The clock of an inner bar begins at the time of the training bar before it, and is limited
    by that of the next training bar.
    """
    base = previous = 0.0
    inner: list[ClockMark] = []
    for mark in marks:
        if mark.elapsed is None:
            continue
        if mark.inner:
            inner.append(mark)
            continue
        outer = mark.elapsed if mark.elapsed >= previous else math.inf
        yield from _within(inner, base + previous, base + outer)
        inner.clear()
        if mark.elapsed < previous:
            base += previous
        previous = mark.elapsed
        yield base + previous, mark
    yield from _within(inner, base + previous, math.inf)


def _within(
    inner: Iterable[ClockMark], start: float, end: float
) -> Iterator[tuple[float, ClockMark]]:
    """Marks of consecutive inner bars, each with its time from `start` on, limited to `end`."""
    began = reached = start
    previous = 0.0
    for mark in inner:
        elapsed = mark.elapsed or 0.0
        if elapsed < previous:  # another bar
            began = reached
        previous = elapsed
        reached = min(began + elapsed, end)
        yield reached, mark


def from_steps(marks: Iterable[ClockMark], clock: StepClock) -> Timeline:
    """The timeline of a step log: each row has the time when a bar of its run showed its step.

    `marks`: offset and step of each row. `clock`: the times of the bars.
    """
    offsets, times = [0], [clock.start]
    places, steps = array("q"), array("q")
    for mark in marks:
        places.append(mark.offset)
        steps.append(mark.step)
    for place, when in zip(places, clock.times(steps), strict=True):
        if when > times[-1]:
            offsets.append(place)
            times.append(when)
    return Timeline(offsets, times)


def from_rows(offsets: Sequence[int], last_write: float, apart: float = 1.0) -> Timeline:
    """A timeline with an order only: nominal seconds `apart`, up to `last_write`."""
    rows = list(offsets) or [0]
    first = last_write - (len(rows) - 1) * apart
    times = [first + index * apart for index in range(len(rows))]
    return Timeline(rows, times, timed=False, guess=ONLY_ORDER)


def at_once(when: float) -> Timeline:
    """The timeline of a log without a clock: all bytes have the time of the last write, `when`."""
    return Timeline([0], [when], timed=False, guess=ONLY_ORDER)
