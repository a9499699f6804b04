"""The parser of log files: `Parser` (chunks in, records out), and the light `clock_marks`."""

import logging
import math
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

from ldlm_monitor.base.chunk import Chunk, ClockMark, Origin
from ldlm_monitor.base.records import Position, Record, SampleBlock
from ldlm_monitor.logs.parse.blocks import Blocks
from ldlm_monitor.logs.parse.patterns import Pattern, compile_pattern, texts
from ldlm_monitor.logs.parse.readers import reader_of
from ldlm_monitor.logs.parse.repaints import BarColumns, marks_alike
from ldlm_monitor.logs.parse.row_reader import is_rows
from ldlm_monitor.logs.parse.text_reader import FileState, TextReader
from ldlm_monitor.logs.parse.triggers import compiled

log = logging.getLogger(__name__)

RecordT = TypeVar("RecordT", Record, Record | SampleBlock)

# A row of JSON lines and its step, for `clock_marks`; the keys are the usual ones of jsonl.STEPS.
_ROW = compile_pattern(
    r'(?m)^ *\{[^\n]*?"(?:step|global_step|iteration|current_steps|iter|num_updates)": ?'
    r"(?P<step>\d{1,18})[,}]"
)


# A bar of tqdm's of any description, for `bar_clocks`.
_ANY_BAR = compile_pattern(
    r"\d{1,3}%\|[^|\r\n]*\| *(?P<step>\d{1,18})/(?P<total>\d{1,18}) \[(?P<elapsed>\d[\d:]*)[<,]"
)


@dataclass(slots=True)
class ParseCounters:
    """Counts since the parser was made.

    `lines` counts `\\n`; `bytes` all bytes, once even if an unfinished record is read early;
    `parse_errors` the lines of JSON-lines and MLflow files that are no rows and the damaged frames
    of binary files; `faults` the records that made our code raise; `unread` the lines of text that
    look like metrics but gave none; `singly` the rows and bars that were read one by one, and not
    as columns; `records` records by type.
    """

    lines: int = 0
    bytes: int = 0
    parse_errors: int = 0
    faults: int = 0
    unread: int = 0
    singly: int = 0
    records: dict[str, int] = field(
        default_factory=lambda: {"sample": 0, "event": 0, "heartbeat": 0}
    )


class Parser:
    """Parses the bytes of many files into records.

    `format_files` are definition files in addition to the packaged ones; raises `FormatError`
    if one of them cannot be used. The same chunks and times give the same records. Memory
    grows with the number of files, not with their size. `kept`, if set, gets every record.
    """

    def __init__(self, format_files: Sequence[Path] = ()) -> None:
        self.text = TextReader(compiled(tuple(format_files)), self.note_fault)
        self._files: dict[str, FileState] = {}
        self._open: dict[str, FileState] = {}  # those of `_files` that may have open blocks
        self.counters = ParseCounters()
        self.kept: list[Record | SampleBlock] | None = None
        self._fault_places: set[tuple[str, int | None]] = set()

    def note_fault(self, position: Position, fault: Exception) -> None:
        """Count a record that made our own code raise; log it once for each place in the code.

        Changes that the record had made to a run's state stay: undoing them would need a copy
        of the state for each record. At worst, only some values of the record count.
        """
        self.counters.faults += 1
        frame = traceback.extract_tb(fault.__traceback__)[-1]
        place = (frame.filename, frame.lineno)
        if place not in self._fault_places:
            self._fault_places.add(place)
            text = "%s, line %d, byte %d: a bug of ours, please report it; the record is left out"
            log.error(text, position.path, position.line, position.offset, exc_info=fault)

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Leave `counters` unchanged in this context, for bytes that were counted before."""
        counters, self.counters = self.counters, ParseCounters()
        try:
            yield
        finally:
            self.counters = counters

    def reader(self, path: str) -> str | None:
        """The name of the reader of the file `path`; None for text, and before its first chunk."""
        file = self._files.get(path)
        return None if file is None or file.whole is None else file.whole.name

    def feed(self, chunk: Chunk, origin: Origin, now: float) -> list[Record]:
        """The records of bytes of one file, read at `now` (Unix seconds), in order of position."""
        items = self.feed_blocks(chunk, origin, now)
        parts = (each.samples() if isinstance(each, SampleBlock) else (each,) for each in items)
        return [record for part in parts for record in part]

    def feed_blocks(self, chunk: Chunk, origin: Origin, now: float) -> list[Record | SampleBlock]:
        """Like `feed`, but consecutive JSON rows with the same keys are returned as blocks."""
        ended: list[Record | SampleBlock] = []
        if chunk.continues in self._files:
            self._continue(chunk)
        file = self._files.get(chunk.path)
        if file is None or not file.reads(chunk.file):
            ended += file.blocks.finish() if file else []
            file = self._files[chunk.path] = FileState(chunk.file, Blocks(self.note_fault))
            self._open.pop(chunk.path, None)
        if file.whole is None and not chunk.peek:
            self._recognise(file, chunk)
        if chunk.peek:
            return self._counted([*ended, *self._peek(file, chunk, origin, now)])
        self.counters.bytes += len(chunk.data)
        self.counters.lines += chunk.newlines
        if file.whole is not None:
            rows = file.whole.feed(chunk, origin)
            self.counters.parse_errors += file.whole.errors
            self.counters.singly += file.whole.singly
            file.whole.errors = file.whole.singly = 0
            return self._counted([*ended, *rows])
        unread = file.learner.unread
        fresh = self.text.feed(file, chunk, origin, now)
        self.counters.unread += file.learner.unread - unread
        self.counters.singly += self.text.singly
        self.text.singly = 0
        if chunk.final and chunk.file == file.id:
            fresh.extend(file.blocks.finish())
        if file.blocks:
            self._open[chunk.path] = file
        # What a block or a held line gives late may be of the older file of a rotated log.
        fresh.sort(key=lambda each: (each.position.path == chunk.path, each.position.offset))
        return self._counted([*ended, *fresh])

    def tick(self, now: float) -> list[Record]:
        """Complete the blocks that expire by `now` (Unix seconds); returns their records."""
        found: list[Record] = []
        for path, file in list(self._open.items()):
            found.extend(file.blocks.expire(now))
            if not file.blocks:
                del self._open[path]
        return self._counted(found)

    def open_until(self) -> float:
        """When `tick` can return records next (Unix seconds); infinite if no block is open."""
        return min((file.blocks.expiry() for file in self._open.values()), default=math.inf)

    def finish(self, path: str) -> list[Record]:
        """Drop a file's state; returns the records of its open blocks."""
        file = self._files.pop(path, None)
        self._open.pop(path, None)
        return self._counted(file.blocks.finish()) if file else []

    def _continue(self, chunk: Chunk) -> None:
        """Read a file with the state of the older one of its log: headers, open blocks."""
        state = self._files[chunk.continues]
        if state.id == chunk.file or chunk.framed:
            return
        state.before, state.id = state.id, chunk.file
        if state.whole is not None and not (chunk.peek or state.whole.continues(chunk)):
            state.whole = None
        self._files[chunk.path] = self._files.pop(chunk.continues)
        if self._open.pop(chunk.continues, None) is not None:
            self._open[chunk.path] = state

    def _recognise(self, file: FileState, chunk: Chunk) -> None:
        file.whole = reader_of(chunk)
        if file.whole is not None:
            file.whole.on_fault = self.note_fault

    def _peek(self, file: FileState, chunk: Chunk, origin: Origin, now: float) -> list[Record]:
        if file.whole is None and is_rows(chunk.path):
            self._recognise(file, chunk)
        if file.whole is not None:
            return file.whole.peek(chunk, origin)
        return [] if file.blocks else self.text.peek(file, chunk, origin, now)

    def _counted(self, found: list[RecordT]) -> list[RecordT]:
        if self.kept is not None:
            self.kept += found
        for item in found:
            if isinstance(item, SampleBlock):
                self.counters.records["sample"] += len(item)
            else:
                self.counters.records[item.type] += 1
        return found


def clock_marks(data: bytes, offset: int = 0, *, rows: bool = False) -> list[ClockMark]:
    """The steps, with elapsed seconds if known, in a file's bytes, in order.

    A light first pass over a finished file without times, in which tqdm's elapsed field is
    the only clock. `data` begins at byte `offset` of the file. In text, each bar that a
    packaged definition describes gives a mark, which is `inner` for bars of an evaluation or of
    skipped batches. In JSON lines (`rows`), each row with a step gives a mark without seconds:
    the caller uses the seconds of a bar with the same step.
    """
    if rows:
        of_rows = _ROW.finditer(data)
        return [ClockMark(offset + row.span()[0], int(texts(row)[0] or 0), None) for row in of_rows]
    marks: list[ClockMark] = []
    if b"%" not in data:  # the search for one byte is ten times as fast as the pattern
        return marks
    columns, begin, drawn = BarColumns(), 0, -1
    while (match := _clock_bars().search(data, begin)) is not None:
        start, end = match.span()
        before = max(data.rfind(b"\r", begin, start), data.rfind(b"\n", begin, start))
        at = begin if before < 0 else before + 1
        training, count, elapsed = texts(match)
        shown = int(count or 0), _seconds(elapsed or b"0")
        marks.append(ClockMark(offset + at, *shown, inner=training is None))
        begin = end
        if drawn < end:  # where the next bar is drawn again
            drawn = data.find(b"\r", end) % (len(data) + 1)
        if at == start and drawn < len(data) and data.find(b"\n", end, drawn) < 0:
            found = marks_alike(data, drawn + 1, data[at:drawn], columns)
            alike, begin = found or ((), begin)
            marks += [
                ClockMark(offset + at, step, seconds, inner=training is None)
                for at, step, seconds in alike
            ]
    return marks


def bar_clocks(data: bytes, offset: int = 0) -> Iterator[tuple[int, ClockMark]]:
    """Total and mark of each bar of any description in a text, in order.

    `data` begins at byte `offset` of the file; a mark's is that of the record with the bar.
    """
    if b"%|" not in data:
        return
    at = end = 0
    for match in _ANY_BAR.finditer(data):
        start = match.span()[0]
        before = max(data.rfind(b"\r", end, start), data.rfind(b"\n", end, start))
        at, end = at if before < 0 else before + 1, match.span()[1]
        step, total, elapsed = texts(match)
        seconds = _seconds(elapsed or b"0")
        yield int(total or 0), ClockMark(offset + at, int(step or 0), seconds)


@cache
def _clock_bars() -> Pattern:
    """The pattern of packaged bars that list keys; those of a training match `training`."""
    bars = [rule.spec for rule in compiled().bars.rules if rule.names is not None]
    training = "|".join(bar.pattern for bar in bars if bar.phase == "train")
    others = "|".join(bar.pattern for bar in bars if bar.phase != "train")
    return compile_pattern(
        rf"(?:(?P<training>{training})|{others}): +\d+%\|[^|\r\n]*\| *"
        r"(?P<step>\d{1,18})/\d{1,18} \[(?P<elapsed>\d[\d:]*)[<,]"
    )


def _seconds(elapsed: bytes) -> float:
    """Seconds of tqdm's `MM:SS` or `H:MM:SS`; only the first 18 digits of a part are read."""
    total = 0
    for part in elapsed.split(b":")[-3:]:
        total = total * 60 + int(part[:18] or b"0")
    return float(total)
