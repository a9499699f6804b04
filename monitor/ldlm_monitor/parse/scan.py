"""One look at a whole chunk: which records can matter at all.

A scan for every trigger of every definition (`triggers`) names the rules that may
apply and the byte where each trigger ended; only the records around those bytes are
cut out and matched with re2.

Triggers: what a record must hold for a rule to look at it, found in a whole chunk at once.

Triggers are Hyperscan expressions. It looks for a literal part of each and asks the rest where
that stands. With hundreds of them its speed on text that holds none hangs by the shortest
literal: four bytes let it step by two at a time, and each one shorter slows all others. So
triggers that hold a byte which few lines do (`MARKS`) stand in databases of their own, each
asked only about chunks that hold its byte.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import hyperscan
import re2

from ldlm_monitor.model.errors import FormatError
from ldlm_monitor.parse import formats
from ldlm_monitor.parse.bars import BarRule
from ldlm_monitor.parse.events import EventRule
from ldlm_monitor.parse.other_bars import TRIGGERS, OtherBars
from ldlm_monitor.parse.patterns import Pattern, compile_pattern
from ldlm_monitor.parse.samples import LineRule


class JsonRule:
    """Stands for `a record that begins like a JSON object`."""


class IgnoredRule:
    """Stands for `the traceback that follows is of an exception that Python ignored`."""


Rule: TypeAlias = BarRule | OtherBars | LineRule | EventRule | JsonRule | IgnoredRule
_JSON_TRIGGER = r"^\{\""
_FIRST = 1_000_000
_IGNORED_TRIGGER = r"Exception ignored in"


@dataclass(frozen=True, slots=True)
class Claims:
    """The rules whose triggers a record holds, `lines` in the order to ask them.

    `json`: it begins like an object. `ignored`: it says that a traceback is ignored.
    `alone`: the one bar, where nothing but numbers can stand beside it.
    """

    bars: Sequence[BarRule | OtherBars] = ()
    lines: Sequence[LineRule] = ()
    events: Sequence[EventRule] = ()
    json: bool = False
    ignored: bool = False
    alone: BarRule | None = None


@dataclass(slots=True)
class Rules:
    """All definitions, compiled. `named[i]` are the rules of expression i of `databases`.

    `homes`: the format that a rule is part of.
    """

    targets: list[Rule]
    named: list[list[Rule]]
    homes: dict[Rule, str]
    benign: tuple[Pattern, ...]
    exceptions: tuple[EventRule, ...]
    definitions: tuple[formats.Definitions, ...]
    databases: tuple[Part, ...]

    def of(self, expressions: tuple[int, ...]) -> Claims:
        """The rules that these expressions name. A bar that has its own rule is no other bar."""
        rules = list(dict.fromkeys(rule for index in expressions for rule in self.named[index]))
        own = [rule for rule in rules if isinstance(rule, BarRule)]
        others = [rule for rule in rules if isinstance(rule, OtherBars)]
        lines = [rule for rule in rules if isinstance(rule, LineRule)]
        events = [rule for rule in rules if isinstance(rule, EventRule)]
        json = any(isinstance(rule, JsonRule) for rule in rules)
        ignored = any(isinstance(rule, IgnoredRule) for rule in rules)
        return Claims(
            bars=own or others,
            lines=sorted(lines, key=lambda rule: rule.rank),
            events=events,
            json=json,
            ignored=ignored,
            alone=own[0] if len(own) == 1 and not (events or json or ignored) else None,
        )

    def scanner(self) -> Scanner:
        """A scanner of one's own: a database is shared, a scratch is not."""
        return Scanner(self.databases)


def compiled(files: tuple[Path, ...] = ()) -> Rules:
    """The packaged definitions and those of `files`, once while none of these is edited.

    Raises `FormatError`.
    """
    return _compiled(files, tuple(map(_edition, files)))


def _edition(path: Path) -> tuple[str, int, int]:
    """What tells the content of a file from another under the same name."""
    try:
        status = path.stat()
    except OSError:  # loading it says so
        return str(path), 0, 0
    return str(path.absolute()), status.st_mtime_ns, status.st_size


@lru_cache(maxsize=8)
def _compiled(files: tuple[Path, ...], _editions: tuple[tuple[str, int, int], ...]) -> Rules:
    targets: list[Rule] = [JsonRule(), IgnoredRule()]
    homes: dict[Rule, str] = {}
    triggers = [(_JSON_TRIGGER, "the parser"), (_IGNORED_TRIGGER, "the parser")]
    definitions: list[formats.Definitions] = []
    benign: list[Pattern] = []
    order = 0
    for path in (*formats.packaged_files(), *files):
        loaded = formats.load(path)
        definitions.append(loaded)
        for entry, rule, trigger, key in _entries(path, loaded):
            order += 1
            # A user's own lines are asked before the packaged ones.
            own = isinstance(rule, LineRule) and path in files
            rule.order = order - _FIRST if own else order
            targets.append(rule)
            homes[rule] = loaded.format
            triggers.append((trigger, f"{path}: {key} ({entry})"))
        for index, bar in enumerate(loaded.other_bars):
            with _Named(path, f"other_bars.{index}"):
                compile_pattern(bar.pattern)
        benign.extend(_pattern(text, f"{path}: benign") for text in loaded.benign)
    others = _other_bars(definitions)
    for trigger in TRIGGERS:
        targets.append(others)
        triggers.append((trigger, "the parser"))
    exceptions = tuple(
        rule for rule in targets if isinstance(rule, EventRule) and rule.spec.exception
    )
    named: dict[str, list[Rule]] = {}
    places: dict[str, str] = {}
    for target, (trigger, where) in zip(targets, triggers, strict=True):
        named.setdefault(trigger, []).append(target)
        places.setdefault(trigger, where)
    databases = compile_triggers(list(places.items()))
    found = (tuple(benign), exceptions, tuple(definitions))
    return Rules(targets, list(named.values()), homes, *found, databases)


def _other_bars(definitions: list[formats.Definitions]) -> OtherBars:
    """The one rule for all bars that have none of their own; the first that fits counts."""
    return OtherBars([(bar, loaded.format) for loaded in definitions for bar in loaded.other_bars])


def _entries(
    path: Path, loaded: formats.Definitions
) -> list[tuple[str, BarRule | LineRule | EventRule, str, str]]:
    found: list[tuple[str, BarRule | LineRule | EventRule, str, str]] = []
    for index, bar in enumerate(loaded.bars):
        found.append((bar.description, BarRule(bar), BarRule.trigger(bar), f"bars.{index}"))
    for index, line in enumerate(loaded.lines):
        key = f"lines.{index}"
        with _Named(path, key):
            rule = LineRule(line)
        found.append((line.name, rule, line.trigger, key))
    for index, event in enumerate(loaded.events):
        for number, shape in enumerate(event.shapes):
            key = f"events.{index}.shapes.{number}"
            with _Named(path, key):
                compiled_rule = EventRule(event, shape, event.family or loaded.family)
            found.append((event.kind, compiled_rule, shape.trigger, key))
    return found


class _Named:
    """Turns a pattern that does not compile into a `FormatError` that says where it stands."""

    def __init__(self, path: Path, key: str) -> None:
        self._where = f"{path}: {key}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, re2.error):
            raise _bad_pattern(error, self._where) from error


def _pattern(text: str, where: str) -> Pattern:
    try:
        return compile_pattern(text)
    except re2.error as error:
        raise _bad_pattern(error, where) from error


def _bad_pattern(error: BaseException, where: str) -> FormatError:
    reason = error.args[0] if error.args else error
    text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return FormatError(
        f"a pattern does not compile: {text}",
        where=where,
        remedy="write it in RE2 syntax (no look-around, no back-references)",
    )


Part: TypeAlias = tuple[int | None, Any]
"""A byte of `MARKS`, and the database of the triggers that need it; None: of those without."""

MARKS = b"{%+*"
_LOSS = r"[Ll][Oo][Ss][Ss]['\"\]\): =\t]{1,12}[-+.\dNnIiTt]"
"""A loss and the beginning of its number, in whatever form; the `T` of `tensor(`."""
_CLOCK = "|".join(f" {hour:02}:{ten}" for hour in range(24) for ten in range(6))
_GLOG = rf"[EFW]\d{{3,4}}(?:{_CLOCK})\d:\d\d"
"""Level, date and time of a glog header; the hours are spelled out to be literals."""
_PHRASES = {"{{loss}}": _LOSS, "{{glog}}": _GLOG}
_FEW = 64
"""So many triggers, and Hyperscan compares them all at once, the short ones too."""
_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]")
_GROUP = re.compile(r"(?<!\\)\((?:\\.|[^()\\])*\)")
_NEEDED = re.compile(r"(?:\\([{%+*])|(%))(?![?*{])")


class Scanner:
    """Scans chunks with shared databases and private scratch spaces."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = [(mark, database, hyperscan.Scratch(database)) for mark, database in parts]

    def scan(self, data: bytes) -> list[tuple[int, int]]:
        """(index after the trigger's last byte, expression), in order of the index."""
        hits: list[tuple[int, int]] = []

        def note(expression: int, _start: int, end: int, _flags: int, _context: object) -> None:
            hits.append((end, expression))

        for mark, database, scratch in self._parts:
            if mark is None or mark in data:
                database.scan(data, match_event_handler=note, scratch=scratch)
        hits.sort()
        return hits


def compile_triggers(triggers: Sequence[tuple[str, str]]) -> tuple[Part, ...]:
    """The databases of triggers, each of which stands beside where it is defined.

    An expression has the index of its trigger. Raises `FormatError`.
    """
    found: dict[int | None, list[int]] = {}
    for index, (trigger, _) in enumerate(triggers):
        mark = mark_of(trigger) if len(triggers) > _FEW else None
        found.setdefault(mark, []).append(index)
    return tuple((mark, _database(triggers, indexes)) for mark, indexes in found.items())


def mark_of(trigger: str) -> int | None:
    """A byte of `MARKS` that whatever matches must hold; None where there is none for sure."""
    bare, groups = _CLASS.sub("", trigger.replace(r"\\", "")), 1
    while groups:
        bare, groups = _GROUP.subn("", bare)
    needed = None if "|" in bare.replace(r"\|", "") else _NEEDED.search(bare)
    return None if needed is None else ord(needed[1] or needed[2])


def _database(triggers: Sequence[tuple[str, str]], indexes: list[int]) -> Any:
    database = hyperscan.Database()
    expressions = [_expression(triggers[index][0]) for index in indexes]
    try:
        _compile(database, expressions, indexes)
    except hyperscan.error:
        for expression, index in zip(expressions, indexes, strict=True):
            _compile_alone(expression, triggers[index][1])
        raise
    return database


def _expression(trigger: str) -> bytes:
    """A leading `^` means the start of a record, which a bare `\\r` begins as well."""
    for name, phrase in _PHRASES.items():
        trigger = trigger.replace(name, phrase)
    return (f"(?:^|\\r){trigger[1:]}" if trigger.startswith("^") else trigger).encode()


def _compile(database: Any, expressions: list[bytes], indexes: list[int]) -> None:
    database.compile(
        expressions=expressions,
        ids=indexes,
        elements=len(expressions),
        flags=[hyperscan.HS_FLAG_MULTILINE] * len(expressions),
    )


def _compile_alone(expression: bytes, where: str) -> None:
    try:
        _compile(hyperscan.Database(), [expression], [0])
    except hyperscan.error as error:
        raise FormatError(
            f"the trigger {expression.decode()!r} does not compile: {error}",
            where=where,
            remedy="use a literal part of the line, with \\ before ()[]{}.*+?|^$",
        ) from error
