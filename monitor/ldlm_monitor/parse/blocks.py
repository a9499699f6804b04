"""Records that take more than one line: the open ones of a file, and blocks of rows.

Blocks are assembled per file and per writer (the chain of rank prefixes), so
that the interleaved output of several ranks comes apart again. Where two ranks
write without a prefix, rows go to the oldest block that still lacks them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ldlm_monitor.parse.events import EventRule, Place, text_of
from ldlm_monitor.parse.patterns import certain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ldlm_monitor.model.records import Record
    from ldlm_monitor.parse.samples import LineRule

SILENCE_SECONDS = 2.0
"""A block that got no line for so long is complete."""
MAX_OPEN = 64
MAX_FOREIGN_LINES = 200
MAX_ROWS = 512


class Block(Protocol):
    """An open block. `done` says that it takes no more lines."""

    stream: bytes
    touched: float
    foreign: int
    done: bool
    greedy: bool
    """It takes any indented line, where others know their rows."""

    @property
    def patience(self) -> int:
        """So many lines of others in between, and the block is complete as it stands."""
        ...

    def take(self, text: bytes, *, logged: bool, closed: bool) -> int | None:
        """How many bytes of the text are part of the block; None: not even its end of line.

        `logged`: a logger's header was in front. `closed`: the line has its end.
        """
        ...

    def records(self) -> list[Record]:
        """What the block says."""
        ...


class Blocks:
    """The open blocks of one file, oldest first."""

    def __init__(self) -> None:
        self._open: list[Block] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def open(self, block: Block) -> list[Record]:
        """Start a block; the oldest is completed where there are too many."""
        self._open.append(block)
        return self._open.pop(0).records() if len(self._open) > MAX_OPEN else []

    def offer(
        self, text: bytes, stream: bytes, now: float, *, logged: bool, closed: bool
    ) -> tuple[int | None, list[Record]]:
        """Give a line to the block it belongs to: how much of it one took, and what is complete.

        None: nobody's. Less than its length: another writer's text is glued to it.
        """
        taken: int | None = None
        for block in self._in_order_of_claim(text):
            if taken is None and _may_take(block, stream):
                taken = block.take(text, logged=logged, closed=closed)
                if taken is not None:
                    block.touched = now
                    block.foreign = 0
                    continue
            block.foreign += 1
            block.done = block.done or block.foreign > block.patience
        done = [block for block in self._open if block.done]
        return taken, self._close(done) if done else []

    def silent(self, now: float) -> list[Record]:
        """Complete the blocks that got no line for `SILENCE_SECONDS`."""
        due = [block for block in self._open if block.touched + SILENCE_SECONDS <= now]
        return self._close(due)

    def finish(self) -> list[Record]:
        """Complete every block as it stands."""
        return self._close(list(self._open))

    def next_silence(self) -> float | None:
        """When `silent` could complete the next block."""
        return min((block.touched for block in self._open), default=None)

    def _in_order_of_claim(self, text: bytes) -> list[Block]:
        """Blocks that know their rows come first; source lines go to the newest traceback."""
        greedy = [block for block in self._open if block.greedy]
        if text[:1] in (b" ", b"\t"):
            greedy.reverse()
        return [*(block for block in self._open if not block.greedy), *greedy]

    def _close(self, blocks: Sequence[Block]) -> list[Record]:
        records: list[Record] = []
        for block in blocks:
            self._open.remove(block)
            records.extend(block.records())
        return records


def _may_take(block: Block, stream: bytes) -> bool:
    """Whether a line of `stream` can be the block's.

    torch's C++ logger puts `[rankN]:` before the first line of a message only.
    """
    return block.stream == stream or (not block.greedy and block.stream.startswith(stream))


class Rows:
    """A head line and rows that add fields to it, each once."""

    greedy = False
    patience = MAX_FOREIGN_LINES

    def __init__(
        self,
        rule: EventRule,
        place: Place,
        head: bytes,
        named: dict[str, bytes],
        *,
        now: float,
        stream: bytes,
    ) -> None:
        self.stream = stream
        self.touched = now
        self.foreign = 0
        self.done = False
        self._rule = rule
        self._place = place
        self._head = head
        self._named = dict(named)
        self._seen: set[int] = set()
        self._previous = head

    def take(self, text: bytes, *, logged: bool, closed: bool) -> int | None:
        """Take a row that is still missing, or the line that ends the block."""
        if logged:
            return None
        for index, (pattern, after) in enumerate(self._rule.rows):
            if index in self._seen or (after and not after.match(self._previous)):
                continue
            match = pattern.match(text)
            if match:
                self._seen.add(index)
                self._named.update(pattern.named(match, certain(text, closed=closed)))
                self._previous = text
                self.done = self._rule.until is None and len(self._seen) == len(self._rule.rows)
                return match.span()[1]
        ending = self._rule.until.match(text) if self._rule.until is not None else None
        if ending is None:
            return None
        self.done = True
        return ending.span()[1]

    def records(self) -> list[Record]:
        """The event of the head line, with the fields of all rows."""
        fields = self._rule.fields(self._named)
        return self._rule.records(self._place, text_of(self._head), fields)


class SampleRows:
    """A record of numbers over several lines: its rows follow one another directly."""

    greedy = False
    patience = 0

    def __init__(
        self, rule: LineRule, place: Place, head: bytes, *, now: float, stream: bytes
    ) -> None:
        self.stream = stream
        self.touched = now
        self.foreign = 0
        self.done = False
        self._rule = rule
        self._place = place
        self._lines = [head]
        self._closed = True

    def take(self, text: bytes, *, logged: bool, closed: bool) -> int | None:
        """Take the next row."""
        rule = self._rule
        if logged or rule.continues is None or rule.continues.match(text) is None:
            return None
        self._lines.append(text)
        ended = rule.until is not None and rule.until.match(text) is not None
        self._closed = closed
        self.done = ended or not closed or len(self._lines) > MAX_ROWS
        return len(text)

    def records(self) -> list[Record]:
        """The sample of all lines together."""
        end = b"\n" if self._closed else b""
        numbers = self._rule.read(b"\n".join(self._lines) + end, closed=self._closed)
        return [numbers.at(self._place)] if numbers else []
