"""Answers the queries of views from this process: its snapshot, logs and silences."""

import json
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.errors import InputError, UsageError
from ldlm_monitor.base.queries import (
    MAX_LINES,
    MAX_POINTS,
    Level,
    LogLine,
    LogQuery,
    LogSlice,
    Withholding,
    part_of,
)
from ldlm_monitor.base.records import Sample
from ldlm_monitor.base.snapshot import CurveView, Snapshot
from ldlm_monitor.base.text.sanitize import redact
from ldlm_monitor.judge.run.curve import CAPACITY, RunCurve
from ldlm_monitor.judge.run.file_rows import FileSteps
from ldlm_monitor.logs.history.file_head import moments
from ldlm_monitor.logs.history.row_moments import row_moments
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.envelope import level_of, peel
from ldlm_monitor.logs.source.log_parts import LogReader, RawLine, first_matching
from ldlm_monitor.service.notify.silences import Silences

SHOWN = 4000
"""Bytes of a record that a view gets. A choice: 20 screen rows; more hides others, less cuts."""
_LEVELS: tuple[Level, ...] = ("error", "warning", "info")
"""Worst first: a filter by a level lets through the lines of this level and of those before it."""


@dataclass
class LocalSource:
    """`queries.Source` within the daemon's process.

    `snapshot` returns the last snapshot, `clock` returns Unix seconds, `opened` returns the reader
    of a log. `name`: the inputs, for a screen. `problem`: always empty here.
    """

    snapshot: Callable[[], Snapshot]
    silences: Silences
    name: str
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    opened: Callable[[str], LogReader] = LogReader
    problem: str = ""

    def series(
        self, run: str, quantity: str, start: int | None, end: int | None, points: int
    ) -> CurveView | None:
        """A run's curve from step `start` to `end`, in at most `points` points; None if absent.

        Of a part, the samples are read from the log again if memory has only means of several.
        """
        curve = self.snapshot().curves.get(run, {}).get(quantity)
        if curve is None:
            return None
        if curve.steps and (start is not None or end is not None):
            span = (start or 0, curve.steps[-1] if end is None else end)
            curve = detailed(curve, quantity, span, self.opened) or curve
        return part_of(curve, start, end, min(points, MAX_POINTS))

    def log(self, query: LogQuery) -> LogSlice:
        """Records of a followed file. Raises `InputError` for other or unreadable files."""
        followed = (path for run in self.snapshot().runs for path in run.files)
        # Clients get paths with secrets redacted, and ask for them in that form.
        path = next((path for path in followed if query.path in (path, redact(path))), None)
        if path is None:
            raise InputError(
                "is not followed", where=query.path, remedy="see files in /api/v1/runs"
            )
        try:
            log = self.opened(path)
        except OSError as error:
            raise InputError(
                f"cannot be read ({error.strerror})", where=query.path, remedy="check the file"
            ) from error
        with closing(log):
            return _answer(log, query)

    def held_back(self) -> dict[str, list[dict[str, Any]]]:
        """The silences and acknowledgements in effect, as the API lists them."""
        return self.silences.listing(self.clock())

    def send(self, what: Withholding, document: dict[str, Any]) -> None:
        """Add a silence or an acknowledgement. Raises `UsageError` if invalid, or no such alert."""
        body, now = json.dumps(document).encode(), self.clock()
        if what == "silences":
            self.silences.take_silence(body, now)
            return
        try:
            self.silences.take_ack(body, self.snapshot().alerts, now)
        except LookupError as problem:
            where = str(document["alert"])
            raise UsageError(str(problem), where=where, remedy="it may have ended") from None


def _answer(log: LogReader, query: LogQuery) -> LogSlice:
    at, line, found = query.at, query.at_line, None
    if at is None:
        at = log.size if line is None else log.offset_of(line)
    at = max(min(at, log.size), 0)
    counted = None
    if query.find:
        found, looked = log.find(query.find, at, backwards=query.backwards)
        if found is None:
            return LogSlice(path=query.path, size=log.size, start=looked, end=looked, lines=())
        at, line = found, None
        counted = log.count(query.find, found)
    number = line if line is not None else log.line_number(at)
    wanted = _filter(query, at)
    before, first = first_matching(log.before(at), min(query.before, MAX_LINES), wanted)
    after, last = first_matching(log.after(at), min(query.after, MAX_LINES), wanted)
    start = first.offset if first and query.before else at
    end = last.end if last and query.after else at
    if number is not None:
        number -= sum(raw.newlines for raw in before)
    is_filtered = query.rank is not None or query.level is not None
    lines: list[LogLine] = []
    for raw in [*reversed(before), *after]:
        # A filter leaves lines out: then the number of each line is counted from the file.
        lines.append(_line(raw, log.line_number(raw.offset) if is_filtered else number))
        number = None if number is None else number + raw.newlines
    return LogSlice(
        path=query.path,
        size=log.size,
        start=start,
        end=end,
        lines=tuple(lines),
        found=found,
        matches=None if counted is None else (counted[0] + 1, counted[1]),
    )


def _filter(query: LogQuery, at: int) -> Callable[[RawLine], bool]:
    levels = _LEVELS[: _LEVELS.index(query.level) + 1] if query.level else None
    looked_at = at if query.before and query.after else None

    def wanted(raw: RawLine) -> bool:
        if raw.overwritten and not query.bars and raw.offset != looked_at:
            return False
        envelope = peel(raw.text)
        if query.rank is not None and envelope.rank != query.rank:
            return False
        return levels is None or level_of(raw.text, envelope) in levels

    return wanted


_LOOKED_AT = 400
"""Bytes in which a record's time is searched. A choice: longer costs time, no prefix needs more."""


def _leading_time(text: bytes) -> float | None:
    """The time (Unix seconds) of a JSON row, or of a clock time in this machine's zone, if any."""
    start = text[:_LOOKED_AT]
    if start.startswith(b"{"):
        return next((when for _, when in row_moments(start)), None)
    return next(moments(start), None)


def _line(raw: RawLine, number: int | None) -> LogLine:
    envelope = peel(raw.text)
    text = redact(raw.text[:SHOWN].decode("utf-8", "replace"))
    return LogLine(
        offset=raw.offset,
        end=raw.end,
        line=number,
        text=text.replace("\n", " "),
        rank=envelope.rank,
        time=envelope.time if envelope.time is not None else _leading_time(raw.text),
        level=level_of(raw.text, envelope),
        is_open=raw.is_open,
    )


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
            rows = FileSteps().rows(sample, (at,), timed=True)
            fine.extend((sample.values[quantity],), rows, (0,))
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
