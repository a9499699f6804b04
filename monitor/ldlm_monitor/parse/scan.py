"""One look at a whole chunk: which records can matter at all.

A scan for every trigger of every definition (`triggers`) names the rules that may
apply and the byte where each trigger ended; only the records around those bytes are
cut out and matched with re2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import re2

from ldlm_monitor.model.errors import FormatError
from ldlm_monitor.parse import formats
from ldlm_monitor.parse.bars import BarRule
from ldlm_monitor.parse.events import EventRule
from ldlm_monitor.parse.other_bars import TRIGGERS, OtherBars
from ldlm_monitor.parse.patterns import Pattern, compile_pattern
from ldlm_monitor.parse.samples import LineRule
from ldlm_monitor.parse.triggers import Part, Scanner, compile_triggers


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
