"""Python tracebacks: one event for each, with the whole chain of its exceptions."""

from itertools import pairwise

from ldlm_monitor.base.records import FieldValue, Record
from ldlm_monitor.logs.parse.blocks import (
    BLANK,
    MAX_FOREIGN_LINES,
    Block,
    BlockLine,
    BlockOpening,
    LineForm,
)
from ldlm_monitor.logs.parse.event_rules import MAX_MESSAGE_BYTES, EventRule, earliest, text_of
from ldlm_monitor.logs.parse.patterns import certain, compile_pattern

MAX_TEXT_BYTES = 16 * 1024
"""Bytes kept of a traceback, half from its end. A choice: 100 frames fit, more swell the report."""
# CPython's header of a traceback (Lib/traceback.py).
_TRACEBACK = b"Traceback (most recent call last):"
# This header, or `Original Traceback`, with which torch's DataLoader quotes a worker's.
_HEAD = compile_pattern(r"(?P<original>Original )?Traceback \(most recent call last\):")
_INDENTED = compile_pattern(r"[ \t]")  # the lines of frames
_ANY = compile_pattern(r"")  # any line can continue a message
_FRAME = compile_pattern(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d{1,9})')  # a frame
# A frame's whole line, and the beginning of one that is not whole.
_LOCATION = compile_pattern(r'\s*File "[^"]+", line \d{1,9}, in \S')
_CUT = compile_pattern(r'\s*File "[^"]*(?:"[ ,line]*(?:\d{1,9}[ ,in]*)?)?$')
# The line of Python's `format_exception_only`: a name with or without modules, and a message.
_EXCEPTION = compile_pattern(
    r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::(?: (?P<message>.*))?)?$"
)
# Names of exceptions of Python and of common packages end with one of these words.
_USUAL = compile_pattern(
    r"(?:[A-Za-z_]\w*\.)*(?:Exception|\w+(?:Error|Exception|Interrupt|Exit|Timeout|Warning|Group|Iteration))$"
)
# The two texts between chained tracebacks (CPython's Lib/traceback.py).
_CHAIN = compile_pattern(
    r"(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):"
)
# Beginnings of further lines of a message: CUDA's, NCCL's and torch's errors have several lines.
_CONTINUATION = compile_pattern(
    r"\s+\S|Original Traceback|CUDA kernel errors might|For debugging consider|Compile with `"
    r"|Search for `|nccl[A-Z]\w+: ?|Last error:|Exception raised from|frame #\d|\[/"
    r"|Device-side assertion|C\+\+ CapturedTraceback"
)
_NO_EXCEPTION = frozenset({b"Warning", b"Error", b"Note", b"Info", b"Debug"})
"""First words of messages, such as `Warning: ...`, that look like the name of an exception."""
_LIBRARY = compile_pattern(r"/(?:site|dist)-packages/|^<")  # files that are not the user's own
_MAX_CONTINUATION = 64
"""Lines of an exception's message. A choice: torch's have about 30, more may be foreign output."""
_MAX_FOREIGN_AFTER = 3
"""Lines of other writers after an exception's line that complete the block: a choice. The rest of
the message follows at once, and the event should not wait for `MAX_FOREIGN_LINES`."""


class Traceback(Block[EventRule]):
    """A Python traceback and those chained to it."""

    claims_indented = True

    def __init__(self, opening: BlockOpening[EventRule]) -> None:
        super().__init__(opening)
        self._text = BoundedText()
        self._text.add(_TRACEBACK)
        self._expect(frames=True)
        self._empty = self._closed = True
        self._chained = False
        self._blank = False
        self._type = b""
        self._exception: list[bytes] = []
        self._others: list[list[bytes]] = []  # a DataLoader's message, exceptions before in a chain
        self._last = b""
        self._frame: tuple[bytes, bytes] | None = None
        self._whole = self._added = b""  # the line before, with what it continues; this line
        self._columns = self._width = 0  # of the line before; at which a console cuts, 0: unknown

    def take(self, text: bytes, *, logged: bool, closed: bool) -> int | None:
        """As `Block.take`; a line that a console cut is read together with its rest.

        PowerShell cuts standard error at the width of the console, also within a word.
        """
        cut = len(self._whole) if not logged and self._continues(text) else 0
        self._whole, self._added = self._whole[:cut] + text, text
        self._columns = len(text.decode("utf-8", "replace"))
        if not cut or self._in_frames:
            taken = super().take(self._whole, logged=logged, closed=closed)
            return taken and max(taken - cut, 0)
        self._exception[-1] = self._whole
        named = _EXCEPTION.match(self._exception[0])
        self._type = _EXCEPTION.named(named)["type"] if named else self._type
        self._text.add(text)
        return len(text)

    def _continues(self, text: bytes) -> bool:
        """Whether a line is the rest of the line before, which a console cut.

        The first cut line must be a frame's location that its rest completes: this shows the width.
        """
        if self._width:
            found = _EXCEPTION.match(text) if self._in_frames else None  # the line before was whole
            is_own = found is not None and _USUAL.match(_EXCEPTION.named(found)["type"])
            return self._columns == self._width and not is_own
        if _CUT.match(self._whole) and _LOCATION.match(self._whole + text):
            self._width = self._columns
        return bool(self._width)

    def _keep(self, line: BlockLine) -> bool:
        self._text.add(self._added)
        self._last = line.text if line.text.strip() else self._last
        self._closed = line.closed
        return True

    def _blank_line(self, line: BlockLine) -> bool:
        self._blank = True
        return self._keep(line)

    def _frame_line(self, line: BlockLine) -> bool:
        """A frame's location, its source line, or markers below it."""
        self._blank = False
        frame = _FRAME.match(line.text)
        if frame:
            self._empty = False
            named = _FRAME.named(frame, certain(line.text, closed=line.closed))
            if "line" in named and not _LIBRARY.search(named["file"]):
                self._frame = named["file"], named["line"]
        return self._keep(line)

    def _exception_line(self, line: BlockLine) -> bool:
        name = line.named()["type"]
        if not _is_exception(name, line.text, follows=not (self._blank or self.foreign)):
            return False
        self._type = name
        self._exception = [line.text]
        self._chained = self._blank = False
        self._expect(frames=False)
        return self._keep(line)

    def _head_line(self, line: BlockLine) -> bool:
        """The first line of a chained traceback, or of a worker's that a DataLoader quotes."""
        original = "original" in line.named()
        if not (original or self._chained):
            return False
        self._expect(frames=True)
        self._others.append(self._exception)
        return self._keep(line)

    def _chain_line(self, line: BlockLine) -> bool:
        self._chained = True
        return self._keep(line)

    def _message_line(self, line: BlockLine) -> bool:
        """A further line of the exception's message.

        A line without prefix may be another writer's unless it matches `_CONTINUATION`.
        """
        text = line.text
        if self._blank or self._chained or text.startswith(_TRACEBACK):
            return False
        follows = bool(self.stream) or self._exception[-1].startswith(b"Last error:")
        if len(self._exception) >= _MAX_CONTINUATION or not (follows or _CONTINUATION.match(text)):
            return False
        self._exception.append(text)
        return self._keep(line)

    _IN_FRAMES = (
        LineForm(BLANK, _blank_line),
        LineForm(_INDENTED, _frame_line),
        LineForm(_EXCEPTION, _exception_line),
    )
    _AFTER_EXCEPTION = (
        LineForm(BLANK, _blank_line),
        LineForm(_HEAD, _head_line),
        LineForm(_CHAIN, _chain_line),
        LineForm(_ANY, _message_line),
    )

    def _expect(self, *, frames: bool) -> None:
        """Set the forms of the next lines: frames up to the exception, or lines after it."""
        self._in_frames = frames
        self.forms = self._IN_FRAMES if frames else self._AFTER_EXCEPTION
        self.max_foreign = MAX_FOREIGN_LINES if frames else _MAX_FOREIGN_AFTER

    def refuse(self, text: bytes) -> None:
        """After the exception, the same writer's next line of another form ends the block."""
        self.done = self.done or not self._in_frames

    def records(self) -> list[Record]:
        """One event, of the kind whose rule matches the exception, else a `python_exception`."""
        fields: dict[str, FieldValue] = {"traceback": self._text.joined()}
        if self.opening.logged:
            fields["logged"] = True  # the program caught it: it may go on
        if self._type:
            fields["exc_type"] = text_of(self._type)
        if self._frame:
            fields["file"] = text_of(self._frame[0])
            fields["line"] = int(self._frame[1])
        first = self._exception[0] if self._exception else self._last
        message = text_of(first, MAX_MESSAGE_BYTES)
        severity, role = self.rule.spec.severity, self.rule.spec.role
        for pattern, special in self.rule.exceptions:
            if self._exception and pattern.match(self._exception[0]):
                severity, role = special.severity, special.role
                break
        if self.opening.ignored or (self._empty and not self._type):
            severity, role = "info", "context"
        for lines in () if self.opening.ignored else (self._exception, *self._others):
            if named := self._named(b"\n".join(lines)):
                rule, found = named
                return rule.records(self.place, message, {**found, **fields})
        kind, family = self.rule.spec.kind, self.rule.family
        return [self.place.event(kind, severity, message, role, fields, family=family)]

    def _named(self, text: bytes) -> tuple[EventRule, dict[str, FieldValue]] | None:
        """The rule that matches the exception's text, and the event's fields."""
        first = earliest(self.opening.exceptions, text)
        if first is None:
            return None
        rule, match = first
        named = rule.named(match, certain(text, closed=self._closed))
        lines = text.split(b"\n")
        for pattern, after in rule.rows:
            for before, line in pairwise(lines):
                found = pattern.match(line)
                if found and (after is None or after.match(before)):
                    named.update(pattern.named(found))
                    break
        return rule, rule.fields(named)


def _is_exception(name: bytes, text: bytes, *, follows: bool) -> bool:
    """Whether an unindented line is the exception; a line with `%|` is another rank's bar.

    `follows`: a frame is the line before, so that an unusual name can be an exception's.
    """
    if _USUAL.match(name) or b"." in name:
        return True
    unusual = follows and name[:1].isupper() and not name.isupper() and name not in _NO_EXCEPTION
    return unusual and b":" in text and b"%|" not in text


class BoundedText:
    """Keeps the first and the last lines of a text, each in half of `MAX_TEXT_BYTES`."""

    _half = MAX_TEXT_BYTES // 2

    def __init__(self) -> None:
        self._head = self._tail = b""
        self._left_out = 0

    def add(self, line: bytes) -> None:
        """Append a line; if both halves are full, the oldest line of the second half is dropped."""
        kept = line[: self._half // 4] + b"\n"  # a long line leaves room for three others
        if not self._tail and len(self._head) + len(kept) <= self._half:
            self._head += kept
            return
        self._tail += kept
        while len(self._tail) > self._half:
            self._tail = self._tail.partition(b"\n")[2]
            self._left_out += 1

    def joined(self) -> str:
        """The kept text, without trailing blank lines; a note gives the count of dropped lines."""
        gap = b"... %d lines left out ...\n" % self._left_out if self._left_out else b""
        return (self._head + gap + self._tail).decode("utf-8", errors="replace").rstrip()
