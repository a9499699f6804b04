"""Triggers: what a record must hold for a rule to look at it, found in a whole chunk at once.

Triggers are Hyperscan expressions. It looks for a literal part of each and asks the rest where
that stands. With hundreds of them its speed on text that holds none hangs by the shortest
literal: four bytes let it step by two at a time, and each one shorter slows all others. So
triggers that hold a byte which few lines do (`MARKS`) stand in databases of their own, each
asked only about chunks that hold its byte.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import hyperscan

from ldlm_monitor.model.errors import FormatError

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
