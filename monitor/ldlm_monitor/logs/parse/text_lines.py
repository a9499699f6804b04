"""Cuts records out of a chunk, cleans them, and reads their prefixes.

A record ends at `\\n`, `\\r\\n` or a bare `\\r` (with which tqdm repaints a line).
`Lines.around` cuts only the record with a given byte, so a chunk is split into all its
records only while a record of several lines (a block, such as a traceback) is open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.names import RUN_PREFIX
from ldlm_monitor.base.records import Position
from ldlm_monitor.logs.parse.envelope import Envelope, peel
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.patterns import compile_pattern

# Escape sequences of ECMA-48 (control sequences, operating system commands, others), backspaces.
_CONTROL = compile_pattern(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\^_]|\x08+"
)

OnFault: TypeAlias = Callable[[Position, Exception], None]
"""Called in the `except` block with the position of a record that made our own code raise, and the
exception; the record is left out."""


@dataclass(slots=True)
class TextLine:
    """One record of a chunk.

    `start` and `end` are indices into the chunk's data, without the terminator; `offset`
    and `number` are the record's place in the file. `closed` is False for a last record
    without a terminator: a number at its end may be cut.
    """

    start: int
    end: int
    offset: int
    number: int
    raw: bytes
    closed: bool


class Lines:
    """Cuts records out of one chunk, in order."""

    def __init__(self, chunk: Chunk) -> None:
        self._data = chunk.data
        self._offset = chunk.offset
        self._number = chunk.line
        self._counted = 0  # `\n` before this index are in `_number`
        self._next = 0  # where the next record begins
        self._cr = self._find(b"\r", 0)
        self._lf = self._find(b"\n", 0)

    def following(self) -> TextLine | None:
        """The record after the last one cut; None at the end of the chunk."""
        if self._next >= len(self._data):
            return None
        return self._cut(self._next)

    def around(self, index: int) -> TextLine:
        """The record with the byte at `index`, which must be after the last record cut."""
        lf = self._data.rfind(b"\n", self._next, index)
        cr = self._data.rfind(b"\r", self._next if lf < 0 else lf, index)
        before = lf if cr < 0 else cr
        return self._cut(self._next if before < 0 else before + 1)

    def skip_to(self, index: int) -> None:
        """Go on with the record that begins at `index`, in the line of the last one cut."""
        self._next = index

    def _cut(self, start: int) -> TextLine:
        data = self._data
        if self._cr < start:
            self._cr = self._find(b"\r", start)
        if self._lf < start:
            self._lf = self._find(b"\n", start)
        end = self._cr if self._cr < self._lf else self._lf
        self._number += data.count(b"\n", self._counted, start)
        self._counted = start
        closed = end < len(data)
        width = 2 if self._lf == end + 1 and self._cr == end else 1
        self._next = end + width if closed else end
        return TextLine(start, end, self._offset + start, self._number, data[start:end], closed)

    def _find(self, terminator: bytes, start: int) -> int:
        found = self._data.find(terminator, start)
        return len(self._data) if found < 0 else found


_RANK_PREFIX = compile_pattern(r"\[(?:Rank|RANK|rank)[:=]? ?(?P<rank>\d{1,9})\](?:: ?| )")

_QUOTING = b" \t\n\r\f\v\"'`([{<,:=\\"  # before a rank that the text itself names


def apart(line: TextLine) -> list[TextLine]:
    """The prints of several ranks that stand in one record, where each begins with its rank.

    Two processes that print without a lock write their texts and then both line breaks. A rank that
    stands behind a space, or in a quotation, a list or a value, is one that the text itself names.
    """
    match = _RANK_PREFIX.match(line.raw) if line.raw.startswith(b"[") else None
    if match is None:
        return [line]
    end = match.span()[1]
    digits = _RANK_PREFIX.named(match)["rank"]
    opening = line.raw[: line.raw.index(digits)]
    found, begin = [], 0
    while (at := line.raw.find(opening, end)) > 0:
        match, end = _RANK_PREFIX.match(line.raw, at), at + 1
        if match is not None and line.raw[at - 1] not in _QUOTING:
            found.append(_part(line, begin, at))
            begin, end = at, match.span()[1]
    return [*found, replace(_part(line, begin, len(line.raw)), closed=line.closed)]


def _part(line: TextLine, begin: int, end: int) -> TextLine:
    start = line.start + begin
    raw = line.raw[begin:end]
    return TextLine(start, line.start + end, line.offset + begin, line.number, raw, closed=True)


def clean(raw: bytes) -> bytes:
    """Remove terminal control sequences."""
    if b"\x1b" not in raw and b"\x08" not in raw:
        return raw
    return _CONTROL.sub(b"", raw)


def raw_index(raw: bytes, index: int) -> int:
    """The index in a raw record of the byte that `clean` moved to `index`."""
    for match in _CONTROL.finditer(raw):
        start, end = match.span()
        if start > index:
            break
        index += end - start
    return index


_OURS = RUN_PREFIX.encode()
# The header of torch's C++ log. 200 bytes, a choice: thread and path fit, more costs time.
_HEADER = compile_pattern(r"(?:\[rank\d+\]:)?\[?[EWIF]\d{3,4} \d\d:\d\d:\d\d\.\d+ [^\]]{1,200}\] ")
_WRITER = compile_pattern(r"(?:\[[A-Za-z_]+\d+\]: ?)+")  # torchrun's `[default3]:[rank3]: `
_HEADER_REACH = 200
"""Most bytes from a header to its event. A choice: `[PG ID ...]` fits, more joins other headers."""


@dataclass(slots=True)
class LineContext:
    """One record of text as the rules see it, with its prefixes and place.

    `text` has no terminal control sequences; `now` is when the record was read (Unix seconds).
    """

    line: TextLine
    text: bytes
    envelope: Envelope
    place: RecordPlace
    now: float

    @classmethod
    def of(cls, line: TextLine, chunk: Chunk, origin: Origin, now: float) -> LineContext:
        """The context of a line; `origin` is the file's run, node and rank."""
        text = clean(line.raw)
        envelope = peel(text)
        rank = origin.rank if envelope.rank is None else envelope.rank
        if envelope.node is not None:
            origin = replace(origin, node=envelope.node)
        place = RecordPlace(chunk.path, line.number, line.offset, origin, rank, envelope.time)
        return cls(line, text, envelope, place, now)

    @property
    def is_ours(self) -> bool:
        """Whether `ldlm-monitor run` wrote it; what it quotes is not the training's."""
        return self.text.startswith(_OURS, self.envelope.start)

    def place_of(self, index: int) -> RecordPlace:
        """The place of the text that begins at `index` of the record."""
        if not index:
            return self.place
        return replace(self.place, offset=self.place.offset + raw_index(self.line.raw, index))

    def glued(self, begin: int) -> tuple[RecordPlace, bytes, bytes]:
        """Place, text and stream of an event that follows another writer's text in one record.

        The event was found at `begin`. A logger's header or a rank prefix that ends there (a
        header up to `_HEADER_REACH` bytes before) belongs to the event.
        """
        place, stream = self.place_of(begin), self.envelope.stream
        for pattern, reach in ((_HEADER, _HEADER_REACH), (_WRITER, 0)):
            for match in pattern.finditer(self.text):
                start, end = match.span()
                if end <= begin <= end + reach and start:
                    peeled = peel(self.text, start)
                    place = self.place_of(start)
                    if peeled.rank is not None:
                        place = replace(place, rank=peeled.rank)
                    return place, self.text[end:], peeled.stream or stream
        return place, self.text[begin:], stream
