"""The parser: chunks of bytes in, typed records out.

The records that a monitor takes in, for whoever needs them too: files are parsed once.

A light first pass over a finished file: what its lines tell of time.

tqdm's elapsed field is the only clock of an MM-LDLM log; its JSONL rows have
none, but their steps line up with the bar's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ldlm_monitor.model.chunk import Chunk, ClockMark, Origin
from ldlm_monitor.model.records import Record, SampleBlock
from ldlm_monitor.parse.blocks import SILENCE_SECONDS
from ldlm_monitor.parse.patterns import compile_pattern
from ldlm_monitor.parse.scan import compiled
from ldlm_monitor.parse.text import FileState, Note, TextReader
from ldlm_monitor.parse.whole_file import WholeFile, reader_of, reads_lines

Told = TypeVar("Told", Record, Record | SampleBlock)


@dataclass(slots=True)
class ParseCounters:
    """What a parser has seen since it was made.

    `lines` counts `\\n`, `bytes` all bytes but those of a peek, `parse_errors`
    the lines of JSONL files that are not JSON objects and the damaged records of event
    files, `truncated` the records
    that were longer than 1 MiB and were cut, `records` the records by type.
    """

    lines: int = 0
    bytes: int = 0
    parse_errors: int = 0
    truncated: int = 0
    records: dict[str, int] = field(
        default_factory=lambda: {"sample": 0, "event": 0, "heartbeat": 0}
    )


class Parser:
    """Turns the bytes of many files into records.

    `format_files` are definition files beside the packaged ones. Raises
    `FormatError` where one cannot be used. The same chunks and times give the
    same records; memory is bounded by the number of files.
    """

    def __init__(self, format_files: Sequence[Path] = ()) -> None:
        self._text = TextReader(compiled(tuple(format_files)))
        self._files: dict[str, FileState] = {}
        self._open: dict[str, FileState] = {}  # of these, those that may have open blocks
        self.counters = ParseCounters()

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Count nothing meanwhile: what is read was counted before."""
        counters, self.counters = self.counters, ParseCounters()
        try:
            yield
        finally:
            self.counters = counters

    @contextmanager
    def noting(self, note: Note) -> Iterator[None]:
        """Have `note` told, meanwhile, what of text is understood, and by which format."""
        self._text.note = note
        try:
            yield
        finally:
            self._text.note = None

    def reader(self, path: str) -> str | None:
        """What a file that is read now is, as a whole; None: text, whose lines are asked."""
        file = self._files.get(path)
        return None if file is None or file.whole is None else file.whole.name

    def feed(self, chunk: Chunk, origin: Origin, now: float) -> list[Record]:
        """The records of the next bytes of one file, in order of position."""
        found: list[Record] = []
        for item in self.feed_blocks(chunk, origin, now):
            if isinstance(item, SampleBlock):
                found.extend(item.samples())
            else:
                found.append(item)
        return found

    def feed_blocks(self, chunk: Chunk, origin: Origin, now: float) -> list[Record | SampleBlock]:
        """Like `feed`, with the samples of JSON rows that are alike still together."""
        ended: list[Record] = []
        file = self._files.get(chunk.path)
        if file is None or file.id != chunk.file:
            ended = file.blocks.finish() if file else []
            file = self._files[chunk.path] = FileState(chunk.file)
            self._open.pop(chunk.path, None)
        if file.whole is None and not chunk.peek:
            file.whole = reader_of(chunk)
        if chunk.peek:
            peeks = reads_lines(chunk.path) and file.whole is None and not file.blocks
            shown = self._text.peek(file, chunk, origin, now) if peeks else []
            return self._counted([*ended, *shown])
        self.counters.bytes += len(chunk.data)
        self.counters.lines += chunk.newlines
        if file.whole is not None:
            return self._counted([*ended, *self._feed_whole(file.whole, chunk, origin)])
        fresh = self._text.feed(file, chunk, origin, now)
        self.counters.truncated += self._text.truncated
        self._text.truncated = 0
        if chunk.final:
            fresh.extend(file.blocks.finish())
        if file.blocks:
            self._open[chunk.path] = file
        fresh.sort(key=lambda record: record.position.offset)
        return self._counted([*ended, *fresh])

    def tick(self, now: float) -> list[Record]:
        """The records of blocks that got no line for two seconds."""
        found: list[Record] = []
        for path, file in list(self._open.items()):
            found.extend(file.blocks.silent(now))
            if not file.blocks:
                del self._open[path]
        return self._counted(found)

    def open_until(self) -> float | None:
        """The earliest time at which `tick` could give something; None: no block is open."""
        touched = [
            since
            for file in self._open.values()
            if (since := file.blocks.next_silence()) is not None
        ]
        return min(touched) + SILENCE_SECONDS if touched else None

    def finish(self, path: str) -> list[Record]:
        """The file ended: complete its blocks, and forget it."""
        file = self._files.pop(path, None)
        self._open.pop(path, None)
        return self._counted(file.blocks.finish()) if file else []

    def _feed_whole(
        self, whole: WholeFile, chunk: Chunk, origin: Origin
    ) -> Sequence[Record | SampleBlock]:
        found = whole.feed(chunk, origin)
        self.counters.parse_errors += whole.errors
        self.counters.truncated += whole.truncated
        whole.errors = whole.truncated = 0
        return found

    def _counted(self, found: list[Told]) -> list[Told]:
        for item in found:
            if isinstance(item, SampleBlock):
                self.counters.records["sample"] += len(item)
            else:
                self.counters.records[item.type] += 1
        return found


class RecordingParser(Parser):
    """A parser that remembers what it gave until that is taken."""

    def __init__(self, format_files: Sequence[Path] = ()) -> None:
        super().__init__(format_files)
        self._given: list[Record | SampleBlock] = []

    def taken(self) -> list[Record | SampleBlock]:
        """What was given since the last call."""
        given, self._given = self._given, []
        return given

    def feed_blocks(self, chunk: Chunk, origin: Origin, now: float) -> list[Record | SampleBlock]:
        """As `Parser`."""
        found = super().feed_blocks(chunk, origin, now)
        self._given += found
        return found

    def tick(self, now: float) -> list[Record]:
        """As `Parser`."""
        found = super().tick(now)
        self._given += found
        return found

    def finish(self, path: str) -> list[Record]:
        """As `Parser`."""
        found = super().finish(path)
        self._given += found
        return found


_BAR = compile_pattern(
    r"(?P<bar>Training|Eval|Skipping batches): +\d+%\|[^|\r\n]*\| *(?P<step>\d{1,18})/\d{1,18} "
    r"\[(?P<elapsed>\d[\d:]*)[<,]"
)
_ROW = compile_pattern(
    r'(?m)^ *\{[^\n]*?"(?:step|global_step|iteration|current_steps|iter|num_updates)": ?'
    r"(?P<step>\d{1,18})[,}]"
)


def clock_marks(data: bytes, offset: int = 0, *, rows: bool = False) -> list[ClockMark]:
    """The marks of a file's bytes, in order; `offset` is that of the first byte.

    Text: every training bar with its step and elapsed time, and those of an evaluation or of
    skipped batches, which are `inner`. `rows` (the file is JSON lines): every row with its step.
    """
    if rows:
        return [
            ClockMark(offset + match.span()[0], int(match.groups()[0] or 0), None)
            for match in _ROW.finditer(data)
        ]
    marks: list[ClockMark] = []
    if b"%" not in data:  # one byte is looked for ten times as fast as the pattern
        return marks
    begin = 0
    for match in _BAR.finditer(data):
        start, end = match.span()
        before = max(data.rfind(b"\r", begin, start), data.rfind(b"\n", begin, start))
        bar, step, elapsed = match.groups()
        marks.append(
            ClockMark(
                offset + (begin if before < 0 else before + 1),
                int(step or 0),
                seconds(elapsed or b"0"),
                inner=bar != b"Training",
            )
        )
        begin = end
    return marks


def seconds(elapsed: bytes) -> float:
    """Seconds of tqdm's `MM:SS` or `H:MM:SS`; hours are unbounded."""
    total = 0
    for part in elapsed.split(b":"):
        total = total * 60 + int(part[:18] or b"0")
    return float(total)
