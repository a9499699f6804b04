"""Selects the records of a chunk that rules may match, and these rules.

One scan of the whole chunk finds the triggers of all definitions. Only records that contain a
trigger are cut out and matched with re2.

Triggers are Hyperscan expressions. Hyperscan finds a literal part of each expression, and
checks the rest there. With hundreds of expressions, its speed on text without matches
depends on the shortest literal: with four bytes it steps by two bytes at a time, and a
shorter literal slows the search for all others. So triggers with a byte that few lines contain
(`MARKS`) are in databases of their own, which scan only the chunks that contain the byte.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import hyperscan
import re2

from ldlm_monitor.base.errors import FormatError
from ldlm_monitor.logs.parse import definitions
from ldlm_monitor.logs.parse.bars import TRIGGERS, BarRule, Bars
from ldlm_monitor.logs.parse.cache import cache_of, digest, packaged_definitions
from ldlm_monitor.logs.parse.documents import TRIGGERS as DOCUMENTS
from ldlm_monitor.logs.parse.event_rules import EventRule
from ldlm_monitor.logs.parse.learner import TRIGGERS as LEARNED
from ldlm_monitor.logs.parse.line_rules import LineRule
from ldlm_monitor.logs.parse.meanings import CarriedMeaning
from ldlm_monitor.logs.parse.patterns import Pattern, checked_pattern, compile_pattern

Sign: TypeAlias = Literal["json", "document", "ignored", "epoch", "learn"]
"""What a trigger of the parser itself is a sign of."""
Rule: TypeAlias = Bars | LineRule | EventRule | Sign  # what a trigger selects
Part: TypeAlias = tuple[int | None, Any]
"""A byte of `MARKS` with the database of triggers that contain it; None with that of the others."""

_OURS: tuple[tuple[str, Sign], ...] = (
    (r"^\{\"", "json"),  # a record that begins like a JSON object
    # Python prints these before the traceback of an exception that ends nothing.
    (r"Exception ignored in", "ignored"),
    (r"--- Logging error ---", "ignored"),
    # A line that has no more than the number of an epoch.
    (r"(?i)^\W{0,8}epoch[ :#=\[]{1,3}\d{1,9}(?: ?(?:/|of) ?\d{1,9})?\W{0,8}$", "epoch"),
    *((trigger, "document") for trigger in DOCUMENTS),
    *((trigger, "learn") for trigger in LEARNED),
)
"""Triggers of the parser itself, and the claims that they give."""
MARKS = b"{%+*"
"""Bytes that few lines of a log, but many short triggers contain: each byte gets a database."""
_USERS_FIRST = 1_000_000
"""Subtracted from the order of users' lines to try them first: more than there can be rules."""
_LOSS = r"[Ll][Oo][Ss][Ss](?:_\w{1,12})?['\"\]\): =\t*]{1,12}[-+.\dNnIiTt]"
"""A loss and the beginning of its number, in any form; `T` is that of `tensor(`."""
_CLOCK = "|".join(f" {hour:02}:{ten}" for hour in range(24) for ten in range(6))
"""The hours and tens of minutes of a day, ` 00:0` to ` 23:5`."""
_GLOG = rf"[EFW]\d{{3,4}}(?:{_CLOCK})\d:\d\d"
"""Level, date and time of a glog header, spelled out as Hyperscan searches for literals."""
_PHRASES = {"{{loss}}": _LOSS, "{{glog}}": _GLOG}  # the abbreviations in triggers
_FEW = 64
"""Most triggers that share one database whatever their bytes: Hyperscan's Teddy matcher compares so
few literals all at once, the short ones too."""
_BRACKETS = r"\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]"
# For `mark_of`: a trigger's character classes, which match other bytes too.
_CLASS = re.compile(rf"(?<!\\){_BRACKETS}")
_ASSERTIONS = re.compile(rf"\\.|{_BRACKETS}|[\^$]")  # and what may hold a `^` or `$` of its own
_ENDS = {"^": r"(?:^|\r| std(?:out|err) F )", "$": r"(?:$|\r)"}
_GROUP = re.compile(r"(?<!\\)\((?:\\.|[^()\\])*\)")  # can be optional or have alternatives
_NEEDED = re.compile(r"(?:\\([{%+*])|(%))(?![?*{])")  # a byte of `MARKS` that is not optional


@dataclass(frozen=True, slots=True)
class Claims:
    """The rules that may match a record, by the triggers it contains; `lines` by priority.

    `learn`: the record may have metrics of unknown form. `bar`: the record may have a progress
    bar. `alone`: the record may have a bar, and its other triggers, if any, are of `lines`.
    `json`: the record begins like a JSON object, `document`: like one over lines or an array.
    `ignored`: the record announces the traceback of
    an exception that Python ignores. `epoch`: the record is the heading of an epoch.
    """

    bar: bool = False
    alone: bool = False
    lines: Sequence[LineRule] = ()
    events: Sequence[EventRule] = ()
    json: bool = False
    document: bool = False
    ignored: bool = False
    epoch: bool = False
    learn: bool = False


NO_CLAIMS = Claims()  # of a record without a trigger


class Rules:
    """All definitions, compiled; lines of the files `users` are tried before the packaged ones.

    `named[i]` are the rules whose trigger is expression i of `databases`, which are taken from
    and added to `kept`. Raises `FormatError`.
    """

    def __init__(
        self,
        loaded: Sequence[tuple[Path, definitions.Definitions]],
        users: Sequence[Path],
        kept: dict[str, bytes],
    ) -> None:
        self.benign: list[Pattern] = []
        self.exceptions: list[EventRule] = []
        bars: list[BarRule] = []
        triggers: list[tuple[str, str, Rule]] = [
            (trigger, "the parser", rule) for trigger, rule in _OURS
        ]
        for path, given in loaded:
            made = checked_pattern if path in users else compile_pattern
            for index, bar in enumerate(given.bars):
                with _located(f"{path}: bars.{index}"):
                    bars.append(BarRule(bar, given.format, made))
            for where, rule, trigger in _rules(path, given, made, carries=path in users):
                rule.order = len(triggers)
                if isinstance(rule, LineRule) and path in users:
                    rule.order -= _USERS_FIRST
                if isinstance(rule, EventRule) and rule.spec.exception:
                    self.exceptions.append(rule)
                triggers.append((trigger, where, rule))
            with _located(f"{path}: benign"):
                self.benign.extend(map(made, given.benign))
        self.bars = Bars(bars)
        triggers += [(trigger, "the parser", self.bars) for trigger in TRIGGERS]
        named: dict[str, list[Rule]] = {}
        places: dict[str, str] = {}
        for trigger, where, target in triggers:
            named.setdefault(trigger, []).append(target)
            places.setdefault(trigger, where)
        self.named = list(named.values())
        self.databases = compile_triggers(list(places.items()), kept)

    def of(self, expressions: tuple[int, ...]) -> Claims:
        """The rules that may match a record with these expressions (indices of `named`)."""
        if not expressions:
            return NO_CLAIMS
        beside = self.beside(expressions)
        every = dict.fromkeys(rule for index in expressions for rule in self.named[index])
        rules = [rule for rule in every if rule not in beside]
        if not rules:
            return NO_CLAIMS
        lines = [rule for rule in rules if isinstance(rule, LineRule)]
        lines.sort(key=lambda rule: rule.order)
        events = [rule for rule in rules if isinstance(rule, EventRule)]
        bar = self.bars in rules
        alone = bar and not (events or "json" in rules or "ignored" in rules)
        signs: dict[str, bool] = {
            sign: sign in rules for sign in ("json", "document", "ignored", "epoch", "learn")
        }
        return Claims(bar, alone, lines, events, **signs)

    def beside(self, expressions: tuple[int, ...]) -> tuple[EventRule, ...]:
        """Of the rules with these expressions, those that leave a record to the others."""
        rules = dict.fromkeys(rule for index in expressions for rule in self.named[index])
        events = (rule for rule in rules if isinstance(rule, EventRule))
        return tuple(rule for rule in events if rule.spec.at == "beside")

    def beside_bars(self) -> frozenset[int]:
        """The expressions that may match in a record that is a bar alone (`Claims.alone`)."""
        return frozenset(
            expression
            for expression, rules in enumerate(self.named)
            if not any(isinstance(rule, EventRule) or rule in ("json", "ignored") for rule in rules)
        )


def compiled(files: tuple[Path, ...] = ()) -> Rules:
    """The rules of packaged definitions and `files`, cached by `_edition`. Raises `FormatError`."""
    return _compiled(files, tuple(map(_edition, files)))


def _edition(path: Path) -> tuple[str, int, int]:
    """Path, mtime (ns) and size, 0 if unreadable: the key of the cache of compiled rules."""
    try:
        status = path.stat()
    except OSError:  # `definitions.load` will raise it as a `FormatError`
        return str(path), 0, 0
    return str(path.absolute()), status.st_mtime_ns, status.st_size


@lru_cache(maxsize=8)  # a choice: more sets of files than one process uses; each takes memory
def _compiled(files: tuple[Path, ...], _editions: tuple[tuple[str, int, int], ...]) -> Rules:
    users = [(path, definitions.load(path)) for path in files]
    cache = cache_of(files)
    packaged = packaged_definitions(cache.entries)
    packaged.sort(key=lambda entry: entry[1].priority)
    rules = Rules([*packaged, *users], files, cache.entries)
    cache.save()
    return rules


def _rules(
    path: Path, loaded: definitions.Definitions, made: Callable[[str], Pattern], *, carries: bool
) -> Iterator[tuple[str, LineRule | EventRule, str]]:
    """The rules of a file, each with its place in the file and its trigger.

    `carries`: events of kinds in the file's `meanings` carry these.
    """
    for index, line in enumerate(loaded.lines):
        where = f"{path}: lines.{index}"
        with _located(where):
            line_rule = LineRule(line, loaded.format, made)
        yield f"{where} ({line.name})", line_rule, line.trigger
    strange = {*loaded.meanings} - {event.kind for event in loaded.events} if carries else ()
    for kind in strange:
        raise FormatError(
            "has no events of this kind",
            where=f"{path}: meanings.{kind}",
            remedy="write the kind as it stands below `events`",
        )
    for index, event in enumerate(loaded.events):
        keys = loaded.meanings.get(event.kind) if carries else None
        with _located(f"{path}: meanings.{event.kind}"):
            meaning = None if keys is None else CarriedMeaning(keys)
        for number, shape in enumerate(event.shapes):
            where = f"{path}: events.{index}.shapes.{number}"
            with _located(where):
                event_rule = EventRule(event, shape, event.family or loaded.family, made, meaning)
            yield f"{where} ({event.kind})", event_rule, shape.trigger


@contextmanager
def _located(where: str) -> Iterator[None]:
    try:
        yield
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise FormatError(
            f"a pattern does not compile: {text}",
            where=where,
            remedy="write it in RE2 syntax (no look-around, no back-references)",
        ) from error


class Scanner:
    """Scans chunks for triggers. Scanners share the databases, but not their scratch spaces."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = [(mark, database, hyperscan.Scratch(database)) for mark, database in parts]

    def scan(self, data: bytes) -> list[tuple[int, int]]:
        """The triggers in `data`, sorted: each as the index after its end, and its expression."""
        hits: list[tuple[int, int]] = []

        def note(expression: int, _start: int, end: int, _flags: int, _context: object) -> None:
            hits.append((end, expression))

        for mark, database, scratch in self._parts:
            if mark is None or mark in data:
                database.scan(data, match_event_handler=note, scratch=scratch)
        hits.sort()
        return hits


def compile_triggers(
    triggers: Sequence[tuple[str, str]], kept: dict[str, bytes]
) -> tuple[Part, ...]:
    """Compile triggers, each with the place of its definition, unless they are `kept`.

    The number of an expression is the index of its trigger. Raises `FormatError`.
    """
    found: dict[int | None, list[int]] = {}
    for index, (trigger, _) in enumerate(triggers):
        mark = mark_of(trigger) if len(triggers) > _FEW else None
        found.setdefault(mark, []).append(index)
    return tuple((mark, _database(triggers, indexes, kept)) for mark, indexes in found.items())


def mark_of(trigger: str) -> int | None:
    """A byte of `MARKS` that every match of the trigger contains; None if none is certain."""
    bare, groups = _CLASS.sub("", trigger.replace(r"\\", "")), 1
    while groups:
        bare, groups = _GROUP.subn("", bare)
    needed = None if "|" in bare.replace(r"\|", "") else _NEEDED.search(bare)
    return None if needed is None else ord(needed[1] or needed[2])


def _database(
    triggers: Sequence[tuple[str, str]], indexes: Sequence[int], kept: dict[str, bytes]
) -> Any:
    expressions = [_expression(triggers[index][0]) for index in indexes]
    key = digest((repr(indexes).encode(), *expressions))
    if key in kept:
        with suppress(hyperscan.error):  # Hyperscan refuses those made for other processors
            return hyperscan.loadb(kept[key], hyperscan.HS_MODE_BLOCK)
    database = hyperscan.Database()
    try:
        database.compile(
            expressions=expressions,
            ids=indexes,
            elements=len(expressions),
            flags=[hyperscan.HS_FLAG_MULTILINE] * len(expressions),
        )
    except hyperscan.error as error:
        if len(indexes) > 1:
            for index in indexes:  # the call for the faulty trigger alone raises `FormatError`
                _database(triggers, [index], {})
            raise
        raise FormatError(
            f"the trigger {expressions[0].decode()!r} does not compile: {error}",
            where=triggers[indexes[0]][1],
            remedy="use a literal part of the line, with \\ before ()[]{}.*+?|^$",
        ) from error
    kept[key] = hyperscan.dumpb(database)
    return database


def _expression(trigger: str) -> bytes:
    """The Hyperscan expression of a trigger; `^` and `$` are the ends of a record.

    A record begins and ends at a bare `\\r`, too, and begins after a container's prefix.
    """
    for name, phrase in _PHRASES.items():
        trigger = trigger.replace(name, phrase)
    return _ASSERTIONS.sub(lambda found: _ENDS.get(found[0], found[0]), trigger).encode()
