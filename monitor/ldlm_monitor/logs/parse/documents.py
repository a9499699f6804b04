"""JSON documents and printed dicts of any layout: over lines, in arrays, nested, still growing.

A row is an object that stands for itself, in an array, or below a key that counts (`epoch_3`);
other objects are parts of the one around them. An object of lists of equal length has a row for
each place. A row is given as soon as its object is closed.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from ldlm_monitor.base.records import Record, Sample
from ldlm_monitor.logs.parse import jsonl
from ldlm_monitor.logs.parse.blocks import Block, BlockOpening
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.patterns import compile_pattern, number
from ldlm_monitor.logs.parse.vocabulary import (
    EVALUATIONS,
    MAX_KEY,
    TRAINING,
    counted_key,
    is_count,
    is_measured,
    plain,
)

TRIGGERS = (r"^[\[{]\r?$", r"[ \t][\[{]\r?$", r"^\{'", r"^\[\{[\"']")
"""Lines that may open a document; `^\\{\"` is a claim of its own."""
_OPENS = compile_pattern(r"(?:[^{}\[\]'\"\n]{0,80}[:=] ?|\s*['\"][^'\"\n]{1,80}['\"]: ?|\s*)[{\[]")
_SETTINGS = compile_pattern(
    r"(?i)[^{\n]*(?:conf|cfg|arg|param|setting|option|schema|weights?|coef)\w*['\"]? ?[:=]"
)
_TOKEN = re.compile(
    rb"\s*(?:(?P<mark>[{}\[\],:])|(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    rb"|(?P<word>(?:tensor|np\.\w+)\([^()\n]*\)|[-+.\w]+))"
)
_MAX_DEPTH = 16
"""Objects and arrays within each other. A choice: known documents have four."""
MAX_LINE = 1 << 20
"""Bytes of a document in one line. A choice: 10,000 rows fit, more take seconds."""
MAX_BARREN = 100_000
"""Lines in a row without a record that end a document. A choice: columns of a long run fit, more
take seconds."""
_MAX_ITEMS = 512  # of an object, as of a row of JSON lines
_MAX_LIST = 65536
"""Numbers kept of a list. A choice: a value for each step of a long run fits in half a MiB."""
_MAX_HELD = 64
"""Forms of rows without a counter that wait for a second one. A choice, as they take memory."""

Token: TypeAlias = tuple[bytes, bytes, int]
"""A mark or b"", a text or number or b"", and the index where it begins."""
Row: TypeAlias = dict[str, Any]
_Wanted: TypeAlias = Literal["key", "colon", "value", "comma"]
"""What a document has next; a closing mark may stand in place of the first and the last two."""
_AFTER: dict[tuple[_Wanted, bytes], _Wanted] = {
    ("value", b"{"): "key",
    ("value", b"["): "value",
    ("value", b""): "comma",
    ("colon", b":"): "value",
    ("comma", b","): "value",
}
"""What is wanted behind a token, or text (b""), that is wanted; of a comma, in an array."""


@dataclass(slots=True)
class HeldRows:
    """The first row of each form without a counter: a second that differs makes both certain."""

    rows: dict[tuple[str, ...], Sample | None] = field(default_factory=dict)

    def certain(self, keys: tuple[str, ...], sample: Sample) -> list[Record]:
        """The samples that a row makes certain."""
        if keys not in self.rows:
            if len(self.rows) < _MAX_HELD:
                self.rows[keys] = sample
            return []
        before = self.rows[keys]
        if before is None:
            return [sample]
        if repr(before.values) == repr(sample.values):
            return []
        self.rows[keys] = None
        return [before, sample]


@dataclass(slots=True)
class _Frame:
    """An object or array that is not closed. `key`: its own in the object around it."""

    key: str | None
    at: RecordPlace
    items: Any
    name: str | None = None  # the key whose value comes next

    def put(self, value: Any) -> None:
        if isinstance(self.items, list):
            if len(self.items) < _MAX_LIST:
                self.items.append(value)
        elif self.name is not None and len(self.items) < _MAX_ITEMS:
            self.items[self.name[:MAX_KEY]] = value
        self.name = None


class Document(Block[None]):
    """One document, from its first line on."""

    shared = True
    patience = math.inf  # a writer's buffer may end inside an object, its next part comes later

    def __init__(self, opening: BlockOpening[None], held: HeldRows) -> None:
        super().__init__(opening)
        self._held = held
        self._stack: list[_Frame] = []
        self._found: list[Record] = []
        self._wanted: _Wanted = "value"
        self._barren = 0  # lines since the last row
        match = _OPENS.match(opening.text)
        self._begin = match.span()[1] - 1 if match else 0  # of the first object or array
        before = opening.text[: self._begin].decode("utf-8", "replace").rstrip(" :='\"")
        self._heading = re.split(r"[^\w ]", before)[-1]  # not a logger's `test.py:33`
        self.max_foreign = 0  # no line of another writer may be between the lines

    @staticmethod
    def opens(text: bytes) -> bool:
        """Whether a text may be the first line of a document of metrics, or all of one."""
        whole = text.rstrip(b" ,\r\n").endswith((b"}", b"]"))
        nested = text.count(b"{") + text.count(b"[") > 1
        if whole and (b"oss" not in text or not nested):
            return False
        return _OPENS.match(text) is not None and _SETTINGS.match(text) is None

    def take(self, text: bytes, *, logged: bool, closed: bool) -> int | None:
        """How many bytes of a line belong to the document; None if the line does not."""
        if (logged and self._stack) or (
            not closed and not text.rstrip().endswith((b"}", b"]", b","))
        ):
            return None
        if len(text) > MAX_LINE or self._barren >= MAX_BARREN:
            return None
        tokens = self._fitting(text, 0 if self._stack else self._begin)
        if not tokens:
            return None
        indent = len(text) - len(text.lstrip())
        for mark, word, at in tokens:
            self._add(mark, word, at if at > indent else -1)
        self._barren = 0 if self._found else self._barren + 1
        if self._stack:
            return len(text)
        self.done = True
        end = tokens[-1][2] + 1
        return len(text) if not text[end:].strip(b" ,;\r") else end

    def _fitting(self, text: bytes, start: int) -> list[Token]:
        """The tokens of a line up to the document's end; none if one may not stand where it does.

        So a document that its writer did not complete ends where the next one begins.
        """
        found: list[Token] = []
        open_ = [isinstance(each.items, dict) for each in self._stack]  # or a list
        wanted, end = self._wanted, start
        for mark, word, at in _tokens(text, start):
            follows = _follows(wanted, mark, word, in_object=bool(open_) and open_[-1])
            if follows is None:
                return []
            wanted, end = follows, at + len(mark or word)
            found.append((mark, word, at))
            if mark in (b"{", b"["):
                open_.append(mark == b"{")
            elif mark in (b"}", b"]"):
                open_.pop()
                if not open_:
                    break
        if open_ and text[end:].strip():
            return []
        self._wanted = wanted
        return found

    def _add(self, mark: bytes, text: bytes, at: int) -> None:
        stack = self._stack
        if mark in (b"{", b"["):
            key = stack[-1].name if stack else self._heading
            place = self.line if at < 0 else replace(self.line, offset=self.line.offset + at)
            stack.append(_Frame(key, place, {} if mark == b"{" else []))
            self.done = len(stack) > _MAX_DEPTH
        elif mark in (b"}", b"]"):
            self._close(stack.pop())
        elif text:
            frame = stack[-1]
            value = _value(text)
            if isinstance(frame.items, dict) and frame.name is None:
                frame.name = str(value)
            else:
                frame.put(value)

    def _close(self, frame: _Frame) -> None:
        around = self._stack[-1] if self._stack else None
        if isinstance(frame.items, list):
            numbers = all(isinstance(each, int | float) for each in frame.items)
            if around is not None and numbers and frame.items:
                around.put(frame.items)
            elif around is not None:
                around.name = None
            return
        columns = bool(frame.items) and all(isinstance(e, list) for e in frame.items.values())
        alone = around is None or columns or isinstance(around.items, list)
        if not alone and (counted := counted_key(frame.key or "")):
            frame.items.setdefault(*counted)
            alone = True
        if not alone and around is not None:
            around.put(frame.items)
        elif alone:
            self._rows(frame)
            if around is not None:
                around.name = None

    def _rows(self, frame: _Frame) -> None:
        row = dict(_flat(frame.items))
        if any(_of_evaluation(each.key or "") for each in (*self._stack, frame)):
            row = {key if _is_own(key) else f"eval/{key}": value for key, value in row.items()}
        lists = {key: each for key, each in row.items() if isinstance(each, list)}
        single = {key: each for key, each in row.items() if key not in lists}
        self._found += self._records(single, frame.at)
        if any(is_count(key[:MAX_KEY]) for key in single):
            return  # lists beside a counter are those of one step
        length = max(map(len, lists.values()), default=0)
        columns = {key: each for key, each in lists.items() if len(each) == length > 1}
        for at in range(length if columns else 0):
            values = {key: each[at] for key, each in columns.items()}
            self._found += self._records(values, frame.at, counts=False)

    def _records(self, row: Row, at: RecordPlace, *, counts: bool = True) -> list[Record]:
        sample = jsonl.metrics(row, at)
        known = (key for key, value in row.items() if value is not None)
        if sample is None or not is_measured(sample.values, known) or jsonl.names_loss(row):
            return []
        if sample.step is not None or sample.epoch is not None:
            return [sample]
        if any(isinstance(each.items, list) for each in self._stack):
            return []  # items of an array may be the texts or layers of one step
        return self._held.certain(tuple(row), sample) if counts else [sample]

    def ready(self) -> list[Record]:
        """The samples of the rows that were closed since the last call."""
        found, self._found = self._found, []
        return found

    def records(self) -> list[Record]:
        """The samples that are left, also that of a last row which the file's end cuts."""
        while self._stack:
            self._close(self._stack.pop())
        return self.ready()


def _tokens(text: bytes, start: int) -> Iterator[Token]:
    while match := _TOKEN.match(text, start):
        start = match.end()
        mark, word = match["mark"] or b"", match["text"] or match["word"] or b""
        yield mark, word, match.start(match.lastgroup or 0)


def _follows(wanted: _Wanted, mark: bytes, word: bytes, *, in_object: bool) -> _Wanted | None:
    """What is wanted after a token; None if the token may not stand where `wanted` is."""
    if mark == (b"}" if in_object else b"]"):
        return "comma" if wanted in ("comma", "key" if in_object else "value") else None
    if wanted == "key" and (_is_quoted(word) or word.isdigit()):
        return "colon"
    if wanted == "comma" and mark == b"," and in_object:
        return "key"
    return _AFTER.get((wanted, mark))


def _is_quoted(text: bytes) -> bool:
    return text[:1] in (b'"', b"'")


def _value(text: bytes) -> Any:
    """A number, a text, or None for a word."""
    decoded = text.decode("utf-8", "replace")
    if _is_quoted(text):
        return decoded[1:-1]
    read = number(decoded)
    if read is None:
        return None
    return int(read) if math.isfinite(read) and read.is_integer() and text.isdigit() else read


def _of_evaluation(key: str) -> bool:
    """Whether a key names an evaluation, and no training: `val`, `test_history`."""
    words = plain(key[:MAX_KEY]).split("_")
    return not EVALUATIONS.isdisjoint(words) and TRAINING.isdisjoint(words)


def _is_own(key: str) -> bool:
    """Whether a key below that of an evaluation means the same as elsewhere."""
    words = plain(key[:MAX_KEY]).split("_")
    named = not EVALUATIONS.isdisjoint(words) or not TRAINING.isdisjoint(words)
    return named or is_count(key[:MAX_KEY]) or key in (*jsonl.TIMES, "rank")


def _flat(items: Row, before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in items.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}/")
        else:
            yield before + key, value
