"""Text logs: from the lines that triggers name to bars, samples, events and blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ldlm_monitor.model.chunk import Chunk, FileId, Origin
from ldlm_monitor.model.records import Record
from ldlm_monitor.parse import jsonl
from ldlm_monitor.parse.bars import BarRule
from ldlm_monitor.parse.blocks import Block, Blocks, Rows, SampleRows
from ldlm_monitor.parse.envelope import level_of, peel
from ldlm_monitor.parse.events import MAX_MESSAGE_BYTES, EventRule, Place, text_of
from ldlm_monitor.parse.framing import Line, Lines, Opened
from ldlm_monitor.parse.other_bars import OtherReading, ShownBars, bar_of
from ldlm_monitor.parse.patterns import Found, certain
from ldlm_monitor.parse.scan import Claims, Rules
from ldlm_monitor.parse.stacks import StackDump
from ldlm_monitor.parse.tables import FailureTable
from ldlm_monitor.parse.tracebacks import Traceback
from ldlm_monitor.parse.whole_file import WholeFile

_MAX_EVENTS_A_RECORD = 32
_MAX_KNOWN = 4096
_NOTHING = Claims()

Note: TypeAlias = Callable[[int, str], None]
"""Is told the offset of each record of text that was understood, and the format that knew it;
"" for one that is part of another."""


@dataclass(slots=True)
class FileState:
    """What has to be remembered of one file between chunks.

    `whole` reads it where it is no text, whose lines are asked one by one.
    """

    id: FileId
    whole: WholeFile | None = None
    blocks: Blocks = field(default_factory=Blocks)
    bars: ShownBars = field(default_factory=ShownBars)
    ignored: tuple[bytes, int] = (b"", -1)  # stream, and the line on which it said so


class TextReader:
    """Applies all `rules` to text. `truncated` counts the records that were cut.

    `note`, where there is one, hears which format knew what.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._scanner = rules.scanner()
        self._known: dict[tuple[int, ...], Claims] = {(): _NOTHING}
        self.truncated = 0
        self.note: Note | None = None

    def feed(self, file: FileState, chunk: Chunk, origin: Origin, now: float) -> list[Record]:
        """The records of a chunk: of those lines that a trigger names, and of open blocks."""
        found: list[Record] = []
        lines = Lines(chunk)
        hits = self._scanner.scan(chunk.data)
        at = 0
        while True:
            if file.blocks:
                line = lines.following()
                if line is None:
                    break
            elif at < len(hits):
                line = lines.around(hits[at][0] - 1)
            else:
                break
            named: tuple[int, ...] = ()
            while at < len(hits) and hits[at][0] <= line.end:
                if hits[at][0] > line.start and hits[at][1] not in named:
                    named += (hits[at][1],)
                at += 1
            claims = self._claims_of(named)
            if claims.alone is not None and not file.blocks:
                bar = self._lone_bar(file, claims.alone, line, chunk, origin)
                if bar is not None:
                    found += bar
                    continue
            if line.truncated:
                self.truncated += 1
            found.extend(self._record(file, Opened.of(line, chunk, origin, now), claims))
        return found

    def _claims_of(self, named: tuple[int, ...]) -> Claims:
        """What expressions name, worked out once for each of their combinations."""
        claims = self._known.get(named)
        if claims is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known = {(): _NOTHING}
            claims = self._known[named] = self.rules.of(named)
        return claims

    def _lone_bar(
        self, file: FileState, rule: BarRule, line: Line, chunk: Chunk, origin: Origin
    ) -> list[Record] | None:
        """Most of a training log: a bar with nothing before it, and no trigger but of numbers.

        None where the record has to be looked at like any other.
        """
        if line.truncated or not rule.opens(line.raw):
            return None
        reading = rule.read(line.raw, 0)
        if reading is None:
            return None
        if self.note is not None:
            self.note(line.offset, self.rules.homes[rule])
        place = Place(chunk.path, line.number, line.offset, origin, origin.rank, None)
        return file.bars.take(rule.spec.phase, reading, place, line.raw[: reading.end])

    def _record(self, file: FileState, record: Opened, claims: Claims) -> list[Record]:
        envelope = record.envelope
        found: list[Record] = []
        begin = self._offer(file, record, found, envelope.start, len(record.text))
        if self.note is not None and begin != envelope.start:
            self.note(record.line.offset, "")
        if begin is None or claims is _NOTHING:
            return found
        glued = begin if begin > envelope.start else 0
        events = claims.events
        if claims.ignored:
            file.ignored = (envelope.stream, record.line.number)
        if not envelope.shell:
            closed = record.line.closed
            bar = bar_of(claims.bars, record.text, envelope.start, file.bars.unnamed, closed=closed)
            if bar is not None:
                self._note_bar(bar, record)
                glued = bar.reading.end
                text = record.text[envelope.start : glued]
                found.extend(file.bars.take(bar.phase, bar.reading, record.place, text))
            if not glued or bar is not None:
                start = peel(record.text, glued).start if glued else envelope.start
                numbers = self._numbers(file, claims, record, start)
                if numbers is not None:
                    found += numbers
                    if claims.json:
                        return found
                    events = [rule for rule in events if rule.spec.level is None]
        return [*found, *self._events(file, record, events, glued)] if events else found

    @staticmethod
    def _offer(
        file: FileState, record: Opened, found: list[Record], start: int, stop: int
    ) -> int | None:
        """Give text to the open blocks; where what none of them took begins, None: nowhere."""
        while file.blocks:
            text = record.text[start:stop]
            taken, done = file.blocks.offer(
                text,
                record.envelope.stream,
                record.now,
                logged=record.envelope.level is not None,
                closed=record.line.closed or stop < len(record.text),
            )
            found += done
            if taken is not None and not text[taken:].strip():
                return None
            if not taken:
                break
            start += taken
        return start

    def _numbers(
        self, file: FileState, claims: Claims, record: Opened, start: int
    ) -> list[Record] | None:
        """The sample of the line that begins at `start`; None where no rule knows the line."""
        place = record.place_of(start) if start > record.envelope.start else record.place
        text = record.text[start:]
        if claims.json:
            rows = jsonl.training_row(text, place)
            if rows:
                self._note(record, "JSON lines")
                return rows
        for rule in claims.lines:
            if rule.contains not in text:
                continue
            if rule.continues is not None:
                if rule.begins(text):
                    self._note(record, self.rules.homes[rule])
                    stream = record.envelope.stream
                    block = SampleRows(rule, place, text, now=record.now, stream=stream)
                    return file.blocks.open(block)
                continue
            numbers = rule.read(text, closed=record.line.closed)
            if numbers is not None:
                self._note(record, self.rules.homes[rule])
                return [numbers.at(place), *rule.said(place, text)]
        return None

    def _note(self, record: Opened, known_by: str) -> None:
        if self.note is not None:
            self.note(record.line.offset, known_by)

    def _note_bar(self, bar: OtherReading, record: Opened) -> None:
        if self.note is not None:
            rule = bar.rule
            if isinstance(rule, BarRule):
                self.note(record.line.offset, self.rules.homes[rule])
            else:
                home = rule.format_of(record.text, record.envelope.start)
                self.note(record.line.offset, home)

    def peek(self, file: FileState, chunk: Chunk, origin: Origin, now: float) -> list[Record]:
        """The progress bar of an unfinished last record, unless it was given before."""
        lines = Lines(chunk)
        for end, expression in self._scanner.scan(chunk.data):
            bars = self._claims_of((expression,)).bars
            if not bars:
                continue
            record = Opened.of(lines.around(end - 1), chunk, origin, now)
            start = record.envelope.start
            bar = bar_of(bars, record.text, start, file.bars.unnamed, closed=False)
            return file.bars.peek(bar.phase, bar.reading, record.place) if bar else []
        return []

    def _events(
        self, file: FileState, record: Opened, rules: Sequence[EventRule], glued: int
    ) -> list[Record]:
        shell = record.envelope.shell
        candidates = sorted(
            (rule for rule in rules if rule.spec.shell == shell), key=lambda rule: rule.order
        )
        found: list[Record] = []
        start = glued or record.envelope.start
        first = True
        for _ in range(_MAX_EVENTS_A_RECORD):
            hit = _earliest(candidates, record.text, start, glued=bool(glued) or not first)
            if hit is None:
                break
            rule, match = hit
            begin, end = match.span()
            if not first and begin > start:
                self._offer(file, record, found, start, begin)
            inside = bool(glued) or not first
            inside |= rule.spec.at == "glued" and begin > start
            found.extend(self._event(file, record, rule, match, begin if inside else 0))
            first = False
            start = max(end, start + 1)
        if not first and start < len(record.text):
            self._offer(file, record, found, start, len(record.text))
        if first and not shell:
            found.extend(self._by_level(record, candidates))
        return found

    def _event(
        self, file: FileState, record: Opened, rule: EventRule, match: Found, begin: int
    ) -> list[Record]:
        named = rule.named(match, certain(record.text, closed=record.line.closed))
        place, stream = record.place, record.envelope.stream
        text = record.text[begin or record.envelope.start :]
        if begin:
            place, text, stream = record.glued(begin)
        spec, now = rule.spec, record.now
        block: Block
        known = self.rules.exceptions
        if spec.assemble == "traceback":
            stream_said, line = file.ignored
            ignored = line >= record.line.number - 1 and stream_said == stream
            block = Traceback(rule, place, now, stream, known, ignored=ignored)
        elif spec.assemble == "failure_table":
            block = FailureTable(rule, place, named, now, stream, known=known)
        elif spec.assemble == "rows":
            block = Rows(rule, place, text, named, now=now, stream=stream)
        elif spec.assemble == "stacks":
            block = StackDump(rule, place, text, named, now=now, stream=stream)
        else:
            message = text_of(text, MAX_MESSAGE_BYTES)
            return rule.records(place, message, rule.fields(named))
        return file.blocks.open(block)

    def _by_level(self, record: Opened, rules: list[EventRule]) -> list[Record]:
        level = level_of(record.text, record.envelope)
        for rule in rules:
            if rule.spec.level is None or rule.spec.level != level:
                continue
            text = record.text[record.envelope.start :]
            if not text.strip() or any(p.search(text) for p in self.rules.benign):
                return []
            return rule.records(record.place, text_of(text, MAX_MESSAGE_BYTES), rule.fields({}))
        return []


def _earliest(
    rules: list[EventRule], text: bytes, start: int, *, glued: bool
) -> tuple[EventRule, Found] | None:
    best: tuple[EventRule, Found] | None = None
    for rule in rules:
        match = rule.find(text, start, glued=glued)
        if match is not None and (best is None or match.span()[0] < best[1].span()[0]):
            best = rule, match
    return best
