"""Reads text logs: parses the lines with triggers as bars, samples, events and blocks."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

from ldlm_monitor.base.chunk import Chunk, FileId, Origin
from ldlm_monitor.base.records import Position, Record, Sample, SampleBlock
from ldlm_monitor.logs.parse import jsonl
from ldlm_monitor.logs.parse.bar_form import is_cut_item
from ldlm_monitor.logs.parse.bars import BarRecords
from ldlm_monitor.logs.parse.blocks import Block, BlockOpening, Blocks, EventRows, SampleRows
from ldlm_monitor.logs.parse.documents import Document, HeldRows
from ldlm_monitor.logs.parse.envelope import level_of, peel
from ldlm_monitor.logs.parse.event_rules import (
    MAX_MESSAGE_BYTES,
    EventRule,
    RecordPlace,
    earliest,
    text_of,
)
from ldlm_monitor.logs.parse.learned_tables import Listing
from ldlm_monitor.logs.parse.learner import Learner
from ldlm_monitor.logs.parse.patterns import PatternMatch, certain
from ldlm_monitor.logs.parse.repaints import AlikeBars, BarColumns, BarsAhead, Repaints
from ldlm_monitor.logs.parse.stack_dumps import FailureTable, StackDump
from ldlm_monitor.logs.parse.text_lines import LineContext, Lines, OnFault, TextLine, apart
from ldlm_monitor.logs.parse.tracebacks import Traceback
from ldlm_monitor.logs.parse.triggers import NO_CLAIMS, Claims, Rules, Scanner
from ldlm_monitor.logs.parse.whole_file import WholeFile

_MAX_EVENTS_A_RECORD = 32
"""Most events of one record. A choice: ranks glue a few, more cost time in a line of 1 MiB."""
_MAX_COMBINATIONS = 4096
"""Cached combinations of triggers. A choice: logs have dozens, random text would fill memory."""
_EVENT_BLOCKS: dict[str, type[Block[EventRule]]] = {
    "rows": EventRows,
    "traceback": Traceback,
    "failure_table": FailureTable,
    "stacks": StackDump,
}
"""The kind of block that an event opens, by the `assemble` of its definition."""


@dataclass(slots=True)
class FileState:
    """The parser's state of one file between chunks.

    `whole`: the file's reader; None for text. `ignored`: stream and line number (-1: none) of what
    Python prints before a traceback that ends nothing. `logged`: number of the last logged error.
    `before`: the older file of the log, if this one continues it; its last records may come late.
    `ahead`: reads bars like the last record, if that was one.
    """

    id: FileId
    blocks: Blocks
    whole: WholeFile | None = None
    bars: BarRecords = field(default_factory=BarRecords)
    learner: Learner = field(default_factory=Learner)
    held: HeldRows = field(default_factory=HeldRows)
    ignored: tuple[bytes, int] = (b"", -1)
    logged: int = -1
    before: FileId | None = None
    ahead: BarsAhead = field(default_factory=BarsAhead)

    def reads(self, file: FileId) -> bool:
        """Whether the state is of `file`, or of the older one, whatever its generation."""
        return file == self.id or (self.before is not None and file[:2] == self.before[:2])


class TextReader:
    """Applies all `rules` to text.

    `on_match`, if set, is called with the offset and format of each recognised record; lines of a
    block have the format "".
    """

    def __init__(self, rules: Rules, on_fault: OnFault) -> None:
        self.rules = rules
        self.on_fault = on_fault
        self._scanner = Scanner(rules.databases)
        self._claims_of = lru_cache(maxsize=_MAX_COMBINATIONS)(rules.of)
        self._beside_of = lru_cache(maxsize=_MAX_COMBINATIONS)(rules.beside)
        self._of_bars = rules.beside_bars()
        self._columns = BarColumns()
        self.singly = 0  # bars that were read one by one; the caller resets it
        self.on_match: Callable[[int, str], None] | None = None

    def feed(
        self, file: FileState, chunk: Chunk, origin: Origin, now: float
    ) -> list[Record | SampleBlock]:
        """The records of a chunk: of lines with triggers, and of blocks that are complete."""
        found: list[Record | SampleBlock] = []
        repaints = Repaints(found)
        lines = Lines(chunk)
        hits = self._scanner.scan(chunk.data)
        foreign = [end for end, expression in hits if expression not in self._of_bars]
        at = 0
        while (line := _next(file, lines, hits, at)) is not None:
            named: tuple[int, ...] = ()
            # A trigger may take the carriage return of `\r\n` as its last byte.
            while at < len(hits) and hits[at][0] <= line.end + 1:
                if hits[at][0] > line.start and hits[at][1] not in named:
                    named += (hits[at][1],)
                at += 1
            if not (named or file.blocks or file.learner.table or file.learner.may_read(line.raw)):
                continue
            try:
                if beside := self._beside_of(named):
                    repaints.close()
                    found += self._beside(LineContext.of(line, chunk, origin, now), beside)
                claims = self._claims_of(named)
                if claims.alone and not file.blocks:
                    alike = self._alike_bars(file, line, chunk, origin, foreign)
                    if alike is not None:
                        repaints.extend(alike.block)
                        lines.skip_to(alike.stop)
                        at = bisect_right(hits, (alike.stop, len(self.rules.named)))
                        continue
                    bar = self._lone_bar(file, line, chunk, origin, claims.learn)
                    if bar is not None:
                        for each in bar:
                            repaints.add(each)
                        file.learner.interrupt()
                        continue
                repaints.close()
                file.ahead.forget()
                for part in apart(line):
                    records = self._record(file, LineContext.of(part, chunk, origin, now), claims)
                    if records:
                        found += records
                        file.learner.interrupt()
            except Exception as fault:  # noqa: BLE001 # a bug of ours costs this line alone
                # An open block that raises would do so with every line that follows.
                found += file.blocks.finish()
                self.on_fault(Position(chunk.path, line.number, line.offset), fault)
        repaints.close()
        return found

    @staticmethod
    def _beside(record: LineContext, rules: Sequence[EventRule]) -> Iterator[Record]:
        """The events that a record shows beside what else it is."""
        text = record.text[record.envelope.start :]
        for rule in rules:
            if (match := rule.find(record.text, record.envelope.start, glued=False)) is not None:
                named = rule.named(match, certain(record.text, closed=record.line.closed))
                message = text_of(text, MAX_MESSAGE_BYTES)
                yield from rule.records(record.place, message, rule.fields(named))

    def _lone_bar(
        self, file: FileState, line: TextLine, chunk: Chunk, origin: Origin, learn: bool
    ) -> list[Record] | None:
        """The records of a line that is only a bar, as most are; None for any other line."""
        bar = self.rules.bars.alone(line.raw)
        if bar is None:
            return None
        rest = line.raw[bar.end :]
        if learn and rest.strip() and not is_cut_item(rest):
            return None
        self._matched(line, bar.home)
        file.learner.known(bar.values)
        place = RecordPlace.of(chunk, line.number, line.offset, origin)
        records = file.bars.records(bar, place, line.raw)
        self.singly += 1
        file.ahead.forget()
        if self.on_match is None and len(records) == 1 and isinstance(records[0], Sample):
            file.ahead.follow(line.raw, bar, self.rules.bars, records[0])
        return records

    def _alike_bars(
        self,
        file: FileState,
        line: TextLine,
        chunk: Chunk,
        origin: Origin,
        foreign: Sequence[int],
    ) -> AlikeBars | None:
        """The bars from a line on that are like the file's last one; None if the first is not.

        `foreign`: where triggers end that are not of bars: a line with one is none of these.
        """
        data = chunk.data
        if not file.ahead or data[line.end : line.end + 1] != b"\r":
            return None
        place = RecordPlace.of(chunk, line.number, line.offset, origin)
        index, stop = bisect_right(foreign, line.start), len(data)
        if index < len(foreign):
            before = foreign[index] - 1
            cr = data.rfind(b"\r", line.start, before)
            lf = data.rfind(b"\n", max(cr, line.start), before)
            stop = max(line.start, cr + 1, lf + 1)
        found = file.ahead.read(data, line.start, stop, place, self._columns)
        if found is not None:
            file.bars.advance_to(found.block.steps[-1], found.phase)
        return found

    def _record(self, file: FileState, record: LineContext, claims: Claims) -> list[Record]:
        envelope = record.envelope
        found: list[Record] = []
        begin = self._offer(file, record, found, envelope.start, len(record.text))
        if begin != envelope.start:
            self._matched(record.line, "")
        if begin is None:
            shared = claims.events if file.blocks.shared else ()
            return [*found, *self._events(file, record, shared, 0)] if shared else found
        if claims is NO_CLAIMS:
            return found + (self._row(file, record, begin) or self._search(file, record, begin))
        glued = begin if begin > envelope.start else 0
        events = claims.events
        if claims.ignored:
            file.ignored = (envelope.stream, record.line.number)
        if claims.epoch:
            file.bars.note_epoch()
        if not envelope.shell and not record.is_ours:
            closed = record.line.closed
            bar = None
            if claims.bar:
                bar = self.rules.bars.read(record.text, envelope.start, file.bars, closed=closed)
            if bar is not None:
                self._matched(record.line, bar.home)
                file.learner.known(bar.values)
                glued = bar.end
                found += file.bars.records(bar, record.place, record.text[envelope.start : glued])
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
        file: FileState, record: LineContext, found: list[Record], start: int, stop: int
    ) -> int | None:
        """Pass `record.text[start:stop]` to the open blocks.

        Adds the records of complete blocks to `found`. Returns the index of the text that no
        block took; None if blocks took all of it.
        """
        while file.blocks:
            text = record.text[start:stop]
            taken, done = file.blocks.offer(
                text,
                record.place_of(start) if start > record.envelope.start else record.place,
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
        self, file: FileState, claims: Claims, record: LineContext, start: int
    ) -> list[Record] | None:
        """The sample of the text from `start` on (empty if a block opens); None without a match."""
        place = record.place_of(start) if start > record.envelope.start else record.place
        text = record.text[start:]
        if claims.json and (rows := jsonl.training_row(text, place)):
            self._matched(record.line, "JSON")
            return rows
        for rule in claims.lines:
            if rule.contains not in text:
                continue
            if rule.continues is not None:
                if rule.begins(text):
                    self._matched(record.line, rule.home)
                    rows_of = BlockOpening(place, text, record.envelope.stream, record.now, rule)
                    return file.blocks.open(SampleRows(rows_of))
                continue
            numbers = rule.read(text, closed=record.line.closed)
            if numbers is not None:
                self._matched(record.line, rule.home)
                file.learner.known(numbers.values)
                return [numbers.at(place)]
        if (claims.document or claims.json) and Document.opens(text):
            found = self._document(file, record, place, text)
            if found is not None:
                return found
        return self._inferred(file, claims, record, start)

    def _document(
        self, file: FileState, record: LineContext, place: RecordPlace, text: bytes
    ) -> list[Record] | None:
        """The rows of a document's first line, which stays open; None for other text."""
        document = Document(self._opening(record, place, text), file.held)
        if document.take(text, logged=False, closed=record.line.closed) is None:
            return None
        found = document.ready()
        if document.done and not found:
            return None
        self._matched(record.line, "JSON" if found else "")
        return found if document.done else [*found, *file.blocks.open(document)]

    def _inferred(
        self, file: FileState, claims: Claims, record: LineContext, start: int
    ) -> list[Record] | None:
        """What is read of a text whose form no definition has."""
        row = self._row(file, record, start)
        cut_bar = claims.bar and start == record.envelope.start
        if row or cut_bar or not claims.learn or not record.line.closed:
            return row or None
        place = record.place_of(start) if start > record.envelope.start else record.place
        text = record.text[start:]
        if Listing.opens(text):
            opening = self._opening(record, place, text)
            file.blocks.open(Listing(opening, partial(self._learn, file)))
            return None
        return self._learn(file, text, place) or None

    @staticmethod
    def _opening(record: LineContext, place: RecordPlace, text: bytes) -> BlockOpening[None]:
        return BlockOpening(place, text, record.envelope.stream, record.now, None)

    def _learn(self, file: FileState, text: bytes, place: RecordPlace) -> list[Record]:
        """The samples that the learner infers from a text."""
        inferred = file.learner.read(text, place)
        file.bars.trained |= any("loss" in sample.values for sample in inferred)
        return list(inferred)

    def _search(self, file: FileState, record: LineContext, start: int) -> list[Record]:
        """The samples of a line that has no trigger."""
        if not file.learner.wants_all or record.envelope.shell or not record.line.closed:
            return []
        return list(file.learner.search(record.text[start:], record.place))

    def _row(self, file: FileState, record: LineContext, start: int) -> list[Record]:
        """The sample of a row of a table that the learner found."""
        if file.learner.table is None or not record.line.closed:
            return []
        return list(file.learner.row(record.text[start:], record.place))

    def _matched(self, line: TextLine, home: str) -> None:
        if self.on_match is not None:
            self.on_match(line.offset, home)

    def peek(self, file: FileState, chunk: Chunk, origin: Origin, now: float) -> list[Record]:
        """The sample of a bar in an unfinished last record; none if the last peek gave the same."""
        file.ahead.forget()
        lines = Lines(chunk)
        for end, expression in self._scanner.scan(chunk.data):
            if not self._claims_of((expression,)).bar:
                continue
            record = LineContext.of(lines.around(end - 1), chunk, origin, now)
            start = record.envelope.start
            bar = self.rules.bars.read(record.text, start, file.bars, closed=False)
            return file.bars.peek(bar, record.place) if bar else []
        return []

    def _events(
        self, file: FileState, record: LineContext, rules: Sequence[EventRule], glued: int
    ) -> list[Record]:
        shell, ours = record.envelope.shell, record.is_ours
        candidates = sorted((r for r in rules if r.spec.shell == shell), key=lambda r: r.order)
        if level_of(record.text, record.envelope) == "error":  # what it says is no progress
            candidates = [rule for rule in candidates if rule.spec.role != "progress"]
        found: list[Record] = []
        start, first = glued or record.envelope.start, True
        for _ in range(_MAX_EVENTS_A_RECORD):
            hit = earliest(candidates, record.text, start, glued=bool(glued) or not first)
            if hit is None or (ours and hit[1].span()[0] > record.envelope.start):
                break
            rule, match = hit
            begin, end = match.span()
            if not first and begin > start:
                self._offer(file, record, found, start, begin)
            inside = bool(glued) or not first or (rule.spec.at == "glued" and begin > start)
            found.extend(self._event(file, record, rule, match, begin if inside else 0))
            first = False
            start = max(end, start + 1)
        if not first and start < len(record.text):
            self._offer(file, record, found, start, len(record.text))
        if first and not shell:
            if any(rule.spec.level == "error" for rule in candidates):
                file.logged = record.line.number
            found.extend(self._by_level(record, candidates))
        return found

    def _event(
        self, file: FileState, record: LineContext, rule: EventRule, match: PatternMatch, begin: int
    ) -> list[Record]:
        named = rule.named(match, certain(record.text, closed=record.line.closed))
        place, stream = record.place, record.envelope.stream
        text = record.text[begin or record.envelope.start :]
        if begin:
            place, text, stream = record.glued(begin)
        block = _EVENT_BLOCKS.get(rule.spec.assemble)
        if block is None:
            return rule.records(place, text_of(text, MAX_MESSAGE_BYTES), rule.fields(named))
        ignored = file.ignored in ((stream, number := record.line.number), (stream, number - 1))
        before = (self.rules.exceptions, ignored, file.logged == number - 1)
        opening = BlockOpening(place, text, stream, record.now, rule, named, *before)
        return file.blocks.open(block(opening))

    def _by_level(self, record: LineContext, rules: list[EventRule]) -> list[Record]:
        level = level_of(record.text, record.envelope)
        rule = next((each for each in rules if each.spec.level and each.spec.level == level), None)
        text = record.text[record.envelope.start :]
        if rule is None or not text.strip() or any(p.search(text) for p in self.rules.benign):
            return []
        return rule.records(record.place, text_of(text, MAX_MESSAGE_BYTES), rule.fields({}))


def _next(
    file: FileState, lines: Lines, hits: Sequence[tuple[int, int]], at: int
) -> TextLine | None:
    """The next line: any where one without a trigger may matter, else that of `hits[at]`."""
    if file.blocks or file.learner.table or file.learner.wants_all:
        return lines.following()
    return lines.around(hits[at][0] - 1) if at < len(hits) else None
