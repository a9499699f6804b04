"""Event rules: find an event in a text, and build its records."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.names import Severity
from ldlm_monitor.base.records import (
    Event,
    FieldValue,
    Position,
    Record,
    Sample,
    SampleSource,
)
from ldlm_monitor.base.text.format import signal_name
from ldlm_monitor.logs.parse import definitions
from ldlm_monitor.logs.parse.made_events import Seen, made_event
from ldlm_monitor.logs.parse.meanings import CarriedMeaning
from ldlm_monitor.logs.parse.patterns import Pattern, PatternMatch, number, quantity

MAX_MESSAGE_BYTES = 4096
"""Bytes kept of a message. A choice: a Slack block shows 3000 characters, more swells the event."""
MAX_FIELD_BYTES = 1024
"""Bytes kept of a field's text. A choice: names and paths fit, more only swells the event."""


@dataclass(slots=True)
class RecordPlace:
    """Position, origin, rank and time (Unix seconds; None: unknown) of records at one place."""

    path: str
    line: int
    offset: int
    origin: Origin
    rank: int | None
    time: float | None

    @classmethod
    def of(cls, chunk: Chunk, line: int, offset: int, origin: Origin) -> RecordPlace:
        """The place of a record without prefixes: the rank is that of `origin`, no time."""
        return cls(chunk.path, line, offset, origin, origin.rank, None)

    @property
    def position(self) -> Position:
        """The position as records have it."""
        return Position(self.path, self.line, self.offset)

    def known(self, rank: int | None, time: float | None) -> RecordPlace:
        """The place with the rank and time that the record itself has; None keeps the place's."""
        if rank is None and time is None:
            return self
        rank = self.rank if rank is None else rank
        return replace(self, rank=rank, time=self.time if time is None else time)

    def event(
        self,
        kind: str,
        severity: Severity,
        message: str,
        role: str,
        fields: dict[str, FieldValue] | None = None,
        *,
        family: str = "process",
    ) -> Event:
        """An event at this place; `family` and `role` become fields."""
        return Event(
            kind=kind,
            severity=severity,
            run=self.origin.run,
            rank=self.rank,
            node=self.origin.node,
            time=self.time,
            message=message,
            fields={**(fields or {}), "family": family, "role": role},
            position=self.position,
        )

    def made(self, seen: Seen, message: str, fields: dict[str, FieldValue] | None = None) -> Event:
        """The event of something seen at this place."""
        known = made_event(seen)
        return self.event(
            known.kind, known.severity, message, known.role, fields, family=known.family
        )

    def sample(
        self, values: dict[str, float], step: int | None, epoch: float | None, source: SampleSource
    ) -> Sample:
        """A sample at this place."""
        return Sample(
            run=self.origin.run,
            rank=self.rank,
            step=step,
            epoch=epoch,
            time=self.time,
            values=values,
            source=source,
            position=self.position,
        )


class EventRule:
    """One wording of an event kind, compiled by `made`; rules of lower `order` are tried first."""

    def __init__(
        self,
        spec: definitions.EventDefinition,
        shape: definitions.EventShape,
        family: str,
        made: Callable[[str], Pattern],
        meaning: CarriedMeaning | None = None,
    ) -> None:
        """`meaning`: what a user's file says of the kind, which its events carry."""
        self.spec = spec
        self.family = family
        self._meaning = meaning
        self.order = 0
        self._pattern = made(shape.pattern) if shape.pattern is not None else None
        self.rows = tuple(
            (made(row.pattern), made(row.after) if row.after else None) for row in spec.rows
        )
        self.until = made(spec.until) if spec.until else None
        self.exceptions: tuple[tuple[Pattern, definitions.ExceptionEvent], ...] = tuple(
            (made(special.pattern), special) for special in spec.exceptions
        )

    def find(self, text: bytes, start: int, *, glued: bool) -> PatternMatch | None:
        """The first match in `text` from `start` on; None without a match.

        A definition with `at: start` must match exactly at `start`, except in `glued` text,
        where output of another writer may precede the event.
        """
        if self._pattern is None:
            return None
        if self.spec.at == "start" and not glued:
            return self._pattern.match(text, start)
        return self._pattern.search(text, start)

    def named(self, match: PatternMatch, until: int | None = None) -> dict[str, bytes]:
        """The named groups of a match of `find`; with `until`, those that end there or before."""
        return self._pattern.named(match, until) if self._pattern else {}

    def fields(self, named: dict[str, bytes]) -> dict[str, FieldValue]:
        """The event's fields: constants, and groups as the definition renames and converts them."""
        spec = self.spec
        fields: dict[str, FieldValue] = dict(spec.set)
        assign = spec.assign
        if assign:
            key = text_of(named.get(assign.name, b""))
            name = assign.names.get(key) or _snake(key)
            value = named.get(assign.value)
            return {name: _scalar(text_of(value))} if name and value is not None else {}
        for name, raw in named.items():
            if name.startswith("_"):
                continue
            text = spec.rename.get(name, {}).get(text_of(raw), text_of(raw))
            conversion = spec.fields.get(name, "str")
            fields[name] = read = _CONVERSIONS[conversion](text)
            if conversion == "exit_code" and isinstance(read, int) and signal_name(-read):
                fields.setdefault("signal", signal_name(-read))
        return fields

    def records(
        self, place: RecordPlace, message: str, fields: dict[str, FieldValue]
    ) -> list[Record]:
        """The event, its `also` events and its sample; empty if `assign` gave no field."""
        spec = self.spec
        if spec.assign and not fields:
            return []
        kind, severity, role = spec.kind, spec.severity, spec.role
        read = _number_in(fields.get(spec.finite.field)) if spec.finite else None
        if spec.finite and read is not None and math.isfinite(read):
            kind, severity, role = spec.finite.kind, spec.finite.severity, spec.finite.role
        event = place.event(kind, severity, message, role, fields, family=self.family)
        if self._meaning is not None:
            event.fields["meaning"] = self._meaning.of(event)
        found: list[Record] = [event]
        for also in spec.also:
            kept = {name: fields[name] for name in also.fields if name in fields}
            found.append(
                place.event(also.kind, also.severity, message, also.role, kept, family=self.family)
            )
        if spec.sample:
            found.extend(self._sample(spec.sample, place, fields))
        return found

    def _sample(
        self, wanted: definitions.FieldSample, place: RecordPlace, fields: dict[str, FieldValue]
    ) -> list[Record]:
        values: dict[str, float] = {}
        for name, source in wanted.values.items():
            value = _number_in(fields.get(source))
            if value is not None:
                values[name] = value
        step = fields.get(wanted.step)
        whole = step if isinstance(step, int) else None
        return [place.sample(values, whole, None, "text")] if values else []


def earliest(
    rules: Sequence[EventRule], text: bytes, start: int = 0, *, glued: bool = True
) -> tuple[EventRule, PatternMatch] | None:
    """The rule whose match in `text` begins first, and that match; None if no rule matches."""
    best: tuple[EventRule, PatternMatch] | None = None
    for rule in rules:
        match = rule.find(text, start, glued=glued)
        if match is not None and (best is None or match.span()[0] < best[1].span()[0]):
            best = rule, match
    return best


def text_of(raw: bytes, limit: int = MAX_FIELD_BYTES) -> str:
    """The first `limit` bytes of log text, stripped; invalid UTF-8 is replaced."""
    return raw[:limit].decode("utf-8", errors="replace").strip()


def _bytes(text: str) -> int | None:
    amount, _, unit = text.partition(" ")
    value = quantity(amount, None if unit in ("B", "bytes") else unit)
    return None if value is None or not math.isfinite(value) else round(value)


def _integer(text: str) -> int | None:
    return int(text) if len(text) < 19 and text.removeprefix("-").isdecimal() else None  # 64 bits


# The functions of the conversions that a definition can name; None means an unreadable text.
_CONVERSIONS: dict[definitions.Conversion, Callable[[str], FieldValue]] = {
    "str": str,
    "bytes": _bytes,
    "float": number,
    "int": _integer,
    "exit_code": _integer,
}


def _scalar(text: str) -> str | int | float:
    whole = _integer(text)
    if whole is not None:
        return whole
    value = number(text)
    return text if value is None or not math.isfinite(value) else value


def _snake(text: str) -> str:
    return "".join(char if char.isalnum() and char.isascii() else "_" for char in text.lower())


def _number_in(value: FieldValue) -> float | None:
    read = number(value) if isinstance(value, str) else value
    return float(read) if isinstance(read, int | float) else None
