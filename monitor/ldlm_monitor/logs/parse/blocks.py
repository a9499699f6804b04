"""Records of several lines: one mechanism that opens, continues and closes them.

A kind of block is a subclass of `Block`. It declares the forms of its lines (`LineForm`: a
pattern, and a handler of matching lines), and `records`, which builds the result. A block is
opened by an event's definition with `assemble`, or by a sample's with `continued`. A block is
closed by a handler that sets `done`, by its `patience` without a line, or by too many lines of
other writers.

Blocks are kept per file and per stream (the chain of rank prefixes), so that interleaved
output of several ranks is separated. If two ranks write without a prefix, a row goes to the
oldest block that lacks this row.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from ldlm_monitor.base.records import Record
from ldlm_monitor.logs.parse.event_rules import EventRule, RecordPlace, text_of
from ldlm_monitor.logs.parse.line_rules import LineRule
from ldlm_monitor.logs.parse.patterns import Pattern, PatternMatch, certain, compile_pattern
from ldlm_monitor.logs.parse.text_lines import OnFault

RuleT = TypeVar("RuleT", EventRule, LineRule, None)

BLOCK_SECONDS = 2.0
"""Seconds without a line after which a block is complete, a choice: a process writes a traceback
or a table at once, and a longer wait would delay its alert."""
MAX_OPEN = 64
"""Most open blocks of a file, a choice: 64 ranks fail at once; each block costs time per line."""
MAX_FOREIGN_LINES = 200
"""Other writers' lines in a row that end a block. A choice: 3 tracebacks fit, more delay alerts."""
MAX_ROWS = 512
"""Most lines of one sample: `numbers.MAX_VALUES`, since each line has at least one value."""

BLANK = compile_pattern(r"[\s\x0b]*$")  # RE2's `\s` lacks the vertical tab


@dataclass(frozen=True, slots=True)
class BlockOpening(Generic[RuleT]):
    """The line that opens a block.

    `now` is when the line was read (Unix seconds). For an event, `named` are the groups that
    `rule` found. For a traceback, `exceptions` are the rules that its exception is matched
    with, and `ignored` is whether Python printed the exception but ignored it. `logged`: whether a
    logger's error stands directly above.
    """

    place: RecordPlace
    text: bytes
    stream: bytes
    now: float
    rule: RuleT
    named: dict[str, bytes] = field(default_factory=dict)
    exceptions: Sequence[EventRule] = ()
    ignored: bool = False
    logged: bool = False


@dataclass(frozen=True, slots=True)
class BlockLine:
    """A line that matches a form. `closed`: the line has its terminator."""

    text: bytes
    found: PatternMatch
    pattern: Pattern
    closed: bool

    def named(self) -> dict[str, bytes]:
        """The named groups of the match."""
        return self.pattern.named(self.found)

    def certain(self) -> dict[str, bytes]:
        """The named groups of the match, without any that may be cut, as in a line not `closed`."""
        return self.pattern.named(self.found, certain(self.text, closed=self.closed))


class LineForm(NamedTuple):
    """A form of lines that can belong to a block.

    `read` handles a line that matches `pattern` and returns whether the line belongs to the
    block. If `whole` is false, the text after the match is another writer's.
    """

    pattern: Pattern
    read: Callable[[Any, BlockLine], bool]
    whole: bool = True


class Block(Generic[RuleT]):
    """An open block. `done`: the block is complete. `forms` are tried in their order.

    `claims_indented`: this kind of block takes any indented line, so a line is offered to the
    other kinds first. `shared`: its lines may have events, too. `patience`: seconds without a line
    that complete it. `touched` is when the block got its last line (Unix seconds), `line` the place
    of the line that it gets. `foreign` counts the other lines since; after more than `max_foreign`
    the block is complete.
    """

    forms: Sequence[LineForm] = ()
    claims_indented: ClassVar[bool] = False
    shared: ClassVar[bool] = False
    patience: ClassVar[float] = BLOCK_SECONDS

    def __init__(self, opening: BlockOpening[RuleT]) -> None:
        self.opening: BlockOpening[RuleT] = opening
        self.rule: RuleT = opening.rule
        self.place = opening.place
        self.line = opening.place
        self.stream = opening.stream
        self.touched = opening.now
        self.foreign = 0
        self.max_foreign = MAX_FOREIGN_LINES
        self.done = False

    def take(self, text: bytes, *, logged: bool, closed: bool) -> int | None:
        """How many bytes of a line belong to the block; None if the line does not.

        `logged`: a logger's header precedes the text. `closed`: the line has its end.
        """
        if logged:
            return None
        for form in self.forms:
            found = form.pattern.match(text)
            if found is not None and form.read(self, BlockLine(text, found, form.pattern, closed)):
                return len(text) if form.whole else found.span()[1]
        self.refuse(text)
        return None

    def refuse(self, text: bytes) -> None:
        """Handle a line that no form accepts; by default, ignore it."""

    def ready(self) -> list[Record]:
        """The records that an open block has given since the last call; most give none."""
        return []

    def records(self) -> list[Record]:
        """The records of the complete block."""
        raise NotImplementedError


class Blocks:
    """The open blocks of one file, oldest first."""

    def __init__(self, on_fault: OnFault) -> None:
        self._open: list[Block[Any]] = []
        self._on_fault = on_fault

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def shared(self) -> bool:
        """Whether lines that blocks took may have events, too."""
        return any(block.shared for block in self._open)

    def open(self, block: Block[Any]) -> list[Record]:
        """Add a block; returns the records of the oldest if there are more than `MAX_OPEN`."""
        self._open.append(block)
        return self._close(self._open[:1]) if len(self._open) > MAX_OPEN else []

    def offer(
        self,
        text: bytes,
        place: RecordPlace,
        stream: bytes,
        now: float,
        *,
        logged: bool,
        closed: bool,
    ) -> tuple[int | None, list[Record]]:
        """Pass a line, which stands at `place`, to the block that it belongs to.

        Returns how many bytes of the line belong to that block (None if no block takes the
        line), and the records that its block has ready, and of the blocks that are complete now.
        Bytes of the line that do not belong to the block are another writer's.
        """
        taken: int | None = None
        ready: list[Record] = []
        for block in self._by_priority(text):
            if taken is None and _may_take(block, stream):
                block.line = place
                taken = block.take(text, logged=logged, closed=closed)
                if taken is not None:
                    ready = block.ready()
                    block.touched = now
                    block.foreign = 0
                    continue
            block.foreign += 1
            block.done = block.done or block.foreign > block.max_foreign
        done = [block for block in self._open if block.done]
        return taken, [*ready, *self._close(done)]

    def expire(self, now: float) -> list[Record]:
        """Complete the blocks that expire by `now` (Unix seconds); returns their records."""
        return self._close([each for each in self._open if each.touched + each.patience <= now])

    def finish(self) -> list[Record]:
        """Complete every block; returns their records."""
        return self._close(list(self._open))

    def expiry(self) -> float:
        """When the next block expires (Unix seconds); infinite if no block is open."""
        return min((block.touched + block.patience for block in self._open), default=math.inf)

    def _by_priority(self, text: bytes) -> list[Block[Any]]:
        """The open blocks; last those that claim indented lines, for such a line newest first."""
        greedy = [block for block in self._open if block.claims_indented]
        if text[:1] in (b" ", b"\t"):
            greedy.reverse()
        return [*(block for block in self._open if not block.claims_indented), *greedy]

    def _close(self, blocks: Sequence[Block[Any]]) -> list[Record]:
        records: list[Record] = []
        for block in blocks:
            self._open.remove(block)
            try:
                records.extend(block.records())
            except Exception as fault:  # noqa: BLE001 # a bug of ours costs this block alone
                self._on_fault(block.place.position, fault)
        return records


def _may_take(block: Block[Any], stream: bytes) -> bool:
    """Whether a line of `stream` can belong to the block.

    A line may have fewer prefixes than the block's first: torch's C++ logger puts `[rankN]:`
    before the first line only.
    """
    return block.stream == stream or (not block.claims_indented and block.stream.startswith(stream))


class EventRows(Block[EventRule]):
    """An event of several lines: a first line, and one line for each of the definition's `rows`."""

    def __init__(self, opening: BlockOpening[EventRule]) -> None:
        super().__init__(opening)
        self._previous = opening.text
        self._named = dict(opening.named)
        self._missing = set(range(len(self.rule.rows)))
        self.forms = [
            LineForm(pattern, partial(EventRows._row, index=index), whole=False)
            for index, (pattern, _) in enumerate(self.rule.rows)
        ]
        if self.rule.until is not None:
            self.forms.append(LineForm(self.rule.until, EventRows._end, whole=False))

    def _row(self, line: BlockLine, *, index: int) -> bool:
        after = self.rule.rows[index][1]
        if index not in self._missing or (after and not after.match(self._previous)):
            return False
        self._missing.remove(index)
        self._named.update(line.certain())
        self._previous = line.text
        self.done = self.rule.until is None and not self._missing
        return True

    def _end(self, _: BlockLine) -> bool:
        self.done = True
        return True

    def records(self) -> list[Record]:
        """The event of the first line, with the fields of all rows."""
        fields = self.rule.fields(self._named)
        return self.rule.records(self.place, text_of(self.opening.text), fields)


class SampleRows(Block[LineRule]):
    """Consecutive lines whose numbers make one sample."""

    def __init__(self, opening: BlockOpening[LineRule]) -> None:
        super().__init__(opening)
        self._lines = [opening.text]
        self._closed = True
        assert self.rule.continues is not None  # only a rule with `continued` opens a block
        self.forms = [LineForm(self.rule.continues, SampleRows._row)]
        self.max_foreign = 0  # no line of another writer may be between the rows

    def _row(self, line: BlockLine) -> bool:
        until = self.rule.until
        self._lines.append(line.text)
        self._closed = line.closed
        ended = until is not None and until.match(line.text) is not None
        self.done = ended or not line.closed or len(self._lines) > MAX_ROWS
        return True

    def records(self) -> list[Record]:
        """The sample of all lines; none if the rule does not match them."""
        end = b"\n" if self._closed else b""
        numbers = self.rule.read(b"\n".join(self._lines) + end, closed=self._closed)
        return [numbers.at(self.place)] if numbers else []
