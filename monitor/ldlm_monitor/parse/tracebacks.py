"""Python tracebacks: one event each, whatever chain of exceptions it shows."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

from ldlm_monitor.parse.blocks import MAX_FOREIGN_LINES
from ldlm_monitor.parse.events import EventRule, Place, text_of
from ldlm_monitor.parse.patterns import certain, compile_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ldlm_monitor.model.records import FieldValue, Record

MAX_TEXT_BYTES = 16 * 1024
_HEAD = b"Traceback (most recent call last):"
_FRAME = compile_pattern(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d{1,9})')
_EXCEPTION = compile_pattern(
    r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::(?: (?P<message>.*))?)?$"
)
_USUAL = compile_pattern(
    r"(?:[A-Za-z_]\w*\.)*(?:Exception|\w+(?:Error|Exception|Interrupt|Exit|Timeout|Warning|Group|Iteration))$"
)
_CHAIN = compile_pattern(
    r"(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):"
)
_CONTINUATION = compile_pattern(
    r"\s+\S|Original Traceback|CUDA kernel errors might|For debugging consider|Compile with `"
    r"|Search for `|nccl[A-Z]\w+: ?|Last error:|Exception raised from|frame #\d|\[/"
    r"|Device-side assertion|C\+\+ CapturedTraceback"
)
_NO_EXCEPTION = frozenset({b"Warning", b"Error", b"Note", b"Info", b"Debug"})
"""First words of messages that would pass for an exception's class."""
_LIBRARY = compile_pattern(r"/(?:site|dist)-packages/|^<")
_MAX_CONTINUATION = 64
_MAX_FOREIGN_AFTER = 3


class Traceback:
    """A Python traceback, with the exceptions that it is chained to."""

    greedy = True

    def __init__(
        self,
        rule: EventRule,
        place: Place,
        now: float,
        stream: bytes,
        known: Sequence[EventRule],
        *,
        ignored: bool,
    ) -> None:
        self.stream = stream
        self.touched = now
        self.foreign = 0
        self.done = False
        self._rule = rule
        self._place = place
        self._known = known
        self._ignored = ignored
        self._text = BoundedText()
        self._text.add(_HEAD)
        self._in_frames = True
        self._empty = self._closed = True
        self._chained = False
        self._blank = False
        self._type = b""
        self._exception: list[bytes] = []
        self._wrapper: list[bytes] = []  # a DataLoader's word on its worker's exception
        self._last = b""
        self._frame: tuple[bytes, bytes] | None = None

    @property
    def patience(self) -> int:
        """Once its exception is known, a traceback need not wait for more of its writer."""
        return MAX_FOREIGN_LINES if self._in_frames else _MAX_FOREIGN_AFTER

    def take(self, text: bytes, *, logged: bool, closed: bool) -> int | None:
        """Take a frame, a source line, the exception, or what belongs to its message."""
        if logged:
            return None
        self._closed = closed
        taken = self._take_frame(text) if self._in_frames else self._take_after(text)
        return len(text) if taken else None

    def _take_frame(self, text: bytes) -> bool:
        if not text.strip():
            self._text.add(text)
            return True
        if text[:1] in (b" ", b"\t"):
            frame = _FRAME.match(text)
            if frame:
                self._empty = False
                named = _FRAME.named(frame, certain(text, closed=self._closed))
                if "line" in named and not _LIBRARY.search(named["file"]):
                    self._frame = named["file"], named["line"]
            self._keep(text)
            return True
        match = _EXCEPTION.match(text)
        name = _EXCEPTION.named(match)["type"] if match else b""
        if not _is_exception(name, text):
            return False
        self._type = name
        self._exception = [text]
        self._in_frames = self._chained = self._blank = False
        self._keep(text)
        return True

    def _take_after(self, text: bytes) -> bool:
        plain = text.startswith(_HEAD)
        original = text.startswith(b"Original " + _HEAD)
        if (plain and self._chained) or original:
            self._in_frames = True
            self._wrapper = self._exception if original else self._wrapper
        elif not text.strip():
            self._blank = True
        elif _CHAIN.match(text):
            self._chained = True
        elif not plain and self._continues(text):
            self._exception.append(text)
        else:
            self.done = True
            return False
        self._keep(text)
        return True

    def _continues(self, text: bytes) -> bool:
        """Whether a line goes on with the exception's message.

        Without a prefix the next line may be anyone's, so that only known ones do.
        """
        if self._blank or self._chained or len(self._exception) >= _MAX_CONTINUATION:
            return False
        follows = self._exception[-1].startswith(b"Last error:")
        return bool(self.stream) or follows or _CONTINUATION.match(text) is not None

    def _keep(self, text: bytes) -> None:
        self._text.add(text)
        self._last = text if text.strip() else self._last

    def records(self) -> list[Record]:
        """One event: python_exception, or the kind that its exception's text is of."""
        fields: dict[str, FieldValue] = {"traceback": self._text.joined()}
        if self._type:
            fields["exc_type"] = text_of(self._type)
        if self._frame:
            fields["file"] = text_of(self._frame[0])
            fields["line"] = int(self._frame[1])
        text = b"\n".join(self._exception)
        message = text_of(self._exception[0] if self._exception else self._last, 4096)
        severity, role = self._rule.spec.severity, self._rule.spec.role
        for pattern, special in self._rule.exceptions:
            if self._exception and pattern.match(self._exception[0]):
                severity, role = special.severity, special.role
                break
        if self._ignored or (self._empty and not self._type):
            severity, role = "info", "context"
        named = None
        if not self._ignored:
            named = self._named(text) or self._named(b"\n".join(self._wrapper))
        if named:
            rule, found = named
            known: dict[str, FieldValue] = {**found, **fields}
            return rule.records(self._place, message, known)
        kind, family = self._rule.spec.kind, self._rule.family
        return [self._place.event(kind, severity, message, family=family, role=role, fields=fields)]

    def _named(self, text: bytes) -> tuple[EventRule, dict[str, FieldValue]] | None:
        """The rule whose pattern begins first in the exception's text."""
        first: tuple[int, int, EventRule, dict[str, bytes]] | None = None
        for rule in self._known:
            match = rule.find(text, 0, glued=True)
            if match and (first is None or (match.span()[0], rule.order) < first[:2]):
                named = rule.named(match, certain(text, closed=self._closed))
                first = (match.span()[0], rule.order, rule, named)
        if first is None:
            return None
        rule, named = first[2], first[3]
        lines = text.split(b"\n")
        for pattern, after in rule.rows:
            for before, line in pairwise(lines):
                match = pattern.match(line)
                if match and (after is None or after.match(before)):
                    named.update(pattern.named(match))
                    break
        return rule, rule.fields(named)


def _is_exception(name: bytes, text: bytes) -> bool:
    """Whether an unindented line ends a traceback, rather than being another rank's output."""
    if _USUAL.match(name) or b"." in name:
        return True
    unusual = name[:1].isupper() and not name.isupper() and name not in _NO_EXCEPTION
    return unusual and b":" in text and b"%|" not in text


class BoundedText:
    """Lines of a text of which head and tail are kept."""

    def __init__(self, limit: int = MAX_TEXT_BYTES) -> None:
        self._half = limit // 2
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque()
        self._head_size = self._tail_size = self._left_out = 0

    def add(self, line: bytes) -> None:
        """Append a line; in the middle, what has no room is counted."""
        kept = line[: self._half // 4]
        if not self._tail and self._head_size + len(kept) <= self._half:
            self._head.append(kept)
            self._head_size += len(kept) + 1
            return
        self._tail.append(kept)
        self._tail_size += len(kept) + 1
        while self._tail_size > self._half:
            self._tail_size -= len(self._tail.popleft()) + 1
            self._left_out += 1

    def joined(self) -> str:
        """The text, without trailing blank lines."""
        gap = [b"... %d lines left out ..." % self._left_out] if self._left_out else []
        text = b"\n".join([*self._head, *gap, *self._tail])
        return text.decode("utf-8", errors="replace").rstrip()
