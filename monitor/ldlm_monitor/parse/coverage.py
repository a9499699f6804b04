"""How much of a file the parser recognises, and whether definitions match their examples.

`CoverageReader` serves `parse --stats` and `formats test` with a log; `try_examples` runs
the examples of a definition file, which are its tests.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ldlm_monitor.model.chunk import Chunk, Origin
from ldlm_monitor.model.records import Event as EventRecord
from ldlm_monitor.model.records import Sample
from ldlm_monitor.parse.framing import Lines
from ldlm_monitor.parse.free_fields import MetricLike

if TYPE_CHECKING:
    from ldlm_monitor.model.chunk import Chunk, Origin
    from ldlm_monitor.model.records import Record, Sample
    from ldlm_monitor.parse.formats import Definitions, EventDefinition, EventExample
    from ldlm_monitor.parse.number_formats import SampleExample
    from ldlm_monitor.parse.parser import Parser

KEPT_SAMPLES = 3
"""Samples of each format that are kept to be shown: the form repeats after a few."""
_RECENT = 1024
"""Recognised lines that are kept: the record of a block comes after its last line, which is
at most 512 lines (`blocks.MAX_ROWS`) after its first."""


@dataclass(slots=True)
class Coverage:
    """Counts of one file.

    `formats`: samples by format. `lines`: those with a `\\n`, and an unfinished last one.
    `with_records`: the lines that belong to a record. `errors`: lines of a JSON-lines file
    that are not objects, and damaged records of a binary file. `steps`: the least and the
    greatest. `unknown`: lines that look like metrics and gave no record. `first`: each
    format's first samples.
    """

    path: str
    formats: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    with_records: int = 0
    errors: int = 0
    steps: tuple[int, int] | None = None
    unknown: MetricLike = field(default_factory=MetricLike)
    first: dict[str, list[Sample]] = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """The fraction of lines with records; None for an empty file."""
        return self.with_records / self.lines if self.lines else None


class CoverageReader:
    """Feeds one file's chunks to a parser and counts what it recognises."""

    def __init__(self, parser: Parser, path: str) -> None:
        self.found = Coverage(path)
        self._parser = parser
        self._offsets: list[int] = []
        self._homes: list[str] = []
        self._places: set[int] = set()
        self._reader: str | None = None

    def feed(self, chunk: Chunk, origin: Origin, now: float) -> None:
        """Parse the next bytes of the file."""
        found, counters = self.found, self._parser.counters
        before = counters.parse_errors
        with self._parser.reporting(self._on_match):
            records = self._parser.feed(chunk, origin, now)
        found.errors += counters.parse_errors - before
        self._reader = self._parser.reader(chunk.path)
        unfinished = chunk.final and chunk.data[-1:] not in (b"", b"\n", b"\r")
        found.lines += chunk.newlines + unfinished
        self._count(records)
        if self._reader is None:
            self._examine_rest(chunk)
        del self._offsets[:-_RECENT], self._homes[:-_RECENT]

    def finish(self) -> Coverage:
        """The file ended; returns its counts."""
        self._count(self._parser.finish(self.found.path))
        self.found.with_records = len(self._places)
        return self.found

    def _on_match(self, offset: int, home: str) -> None:
        self._offsets.append(offset)
        self._homes.append(home)

    def _count(self, records: Sequence[Record]) -> None:
        found = self.found
        for record in records:
            found.types[record.type] += 1
            self._places.add(record.position.line)
            if record.type == "event":
                found.kinds[record.kind] += 1
                continue
            if record.type == "sample":
                home = self._reader or self._home(record.position.offset)
                found.formats[home] += 1
                kept = found.first.setdefault(home, [])
                if len(kept) < KEPT_SAMPLES:
                    kept.append(record)
            if record.step is not None:
                least, greatest = found.steps or (record.step, record.step)
                found.steps = min(least, record.step), max(greatest, record.step)

    def _home(self, offset: int) -> str:
        """The format of the sample at `offset`; samples of an event's fields have none."""
        at = bisect_right(self._offsets, offset) - 1
        return (self._homes[at] if at >= 0 else "") or "event fields"

    def _examine_rest(self, chunk: Chunk) -> None:
        known = dict(zip(self._offsets, self._homes, strict=True))
        for offset, line, raw in _lines(chunk):
            home = known.get(offset)
            if home == "":
                self._places.add(line)
            elif home is None and line not in self._places:
                self.found.unknown.add(raw, line)


def _lines(chunk: Chunk) -> Iterator[tuple[int, int, bytes]]:
    lines = Lines(chunk)
    while (line := lines.following()) is not None:
        if line.raw:
            yield line.offset, line.number, line.raw


_ALERTING = ("error", "critical")


@dataclass(slots=True)
class Trial:
    """How many examples and counter-examples were run; `failures` describes those not met."""

    examples: int = 0
    counter_examples: int = 0
    failures: list[str] = field(default_factory=list)


def try_examples(definitions: Definitions, parser: Parser) -> Trial:
    """Run every example with a parser that has the definitions."""
    trial = Trial()
    reader = _ExampleReader(parser)
    for title, entry in _numbers(definitions):
        for index, sample in enumerate(entry.examples, start=1):
            trial.examples += 1
            found = _samples(reader.records(sample.line))
            if wrong := _sample_failure(sample, found):
                trial.failures.append(f"{title}, example {index}: {wrong}")
        for index, line in enumerate(entry.counter_examples, start=1):
            trial.counter_examples += 1
            if found := _samples(reader.records(line)):
                trial.failures.append(
                    f"{title}, counter-example {index}: expected no numbers, got {_shown(found[0])}"
                )
    for number, event in enumerate(definitions.events):
        title = f"events.{number} ({event.kind})"
        for index, example in enumerate(event.examples, start=1):
            trial.examples += 1
            if wrong := _event_failure(event, example, _events(reader.records(example.line))):
                trial.failures.append(f"{title}, example {index}: {wrong}")
        for index, line in enumerate(event.counter_examples, start=1):
            trial.counter_examples += 1
            for each in _events(reader.records(line)):
                if each.kind == event.kind or each.severity in _ALERTING:
                    trial.failures.append(
                        f"{title}, counter-example {index}: expected no alert, got {each.kind}"
                    )
    return trial


def _numbers(definitions: Definitions) -> Iterator[tuple[str, Any]]:
    for group in ("bars", "lines"):
        for number, entry in enumerate(getattr(definitions, group)):
            yield f"{group}.{number} ({entry.name})", entry


class _ExampleReader:
    """Parses each text as a file of its own."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._number = 0

    def records(self, text: str) -> list[Record]:
        self._number += 1
        file = (0, 0, self._number)
        chunk = Chunk("example", file, 0, 1, text.encode() + b"\n", final=True)
        return self._parser.feed(chunk, Origin("example"), 0.0) + self._parser.finish("example")


def _samples(records: list[Record]) -> list[Sample]:
    return [record for record in records if isinstance(record, Sample)]


def _events(records: list[Record]) -> list[EventRecord]:
    return [record for record in records if isinstance(record, EventRecord)]


def _sample_failure(expected: SampleExample, found: list[Sample]) -> str:
    if len(found) != 1:
        got = "nothing" if not found else f"{len(found)} records"
        return f"expected {_expected(expected)}, got {got}"
    (sample,) = found
    same = (
        (sample.step, sample.epoch, sample.rank) == (expected.step, expected.epoch, expected.rank)
        and sample.values.keys() == expected.values.keys()
        and all(_same(value, sample.values[name]) for name, value in expected.values.items())
    )
    return "" if same else f"expected {_expected(expected)}, got {_shown(sample)}"


def _event_failure(rule: EventDefinition, expected: EventExample, found: list[EventRecord]) -> str:
    also = {extra.kind for extra in rule.also}
    kind, severity = expected.kind or rule.kind, expected.severity or rule.severity
    events = [event for event in found if event.kind not in also]
    kinds = [event.kind for event in events]
    if kinds != [kind]:
        return f"expected {kind}, got {', '.join(kinds) or 'nothing'}"
    (event,) = events
    wanted: dict[str, Any] = {"severity": severity, "rank": expected.rank, "time": expected.time}
    if expected.message is not None:
        wanted["message"] = expected.message
    fields = {**expected.fields, **({"role": expected.role} if expected.role else {})}
    got = {name: getattr(event, name) for name in wanted} | event.fields
    for name, value in (wanted | fields).items():
        if name not in got:
            return f"expected {name} {value!r}, which is missing"
        if not _same(value, got[name]):
            return f"expected {name} {value!r}, got {got[name]!r}"
    return ""


def _same(expected: Any, value: Any) -> bool:
    """Whether two values are equal; numbers up to their last digits, NaN equals NaN."""
    if isinstance(expected, float | int) and not isinstance(expected, bool):
        if isinstance(value, bool) or not isinstance(value, float | int):
            return False
        if math.isnan(expected):
            return math.isnan(value)
        return math.isclose(expected, value, rel_tol=1e-6, abs_tol=1e-12)
    return bool(value == expected)


def _expected(expected: SampleExample) -> str:
    return _numbers_of(expected.step, expected.epoch, expected.rank, expected.values)


def _shown(sample: Sample) -> str:
    return _numbers_of(sample.step, sample.epoch, sample.rank, sample.values)


def _numbers_of(
    step: int | None, epoch: float | None, rank: int | None, values: dict[str, float]
) -> str:
    heads = {"step": step, "epoch": epoch, "rank": rank}
    shown = {name: value for name, value in heads.items() if value is not None} | values
    return ", ".join(f"{name} {value:.6g}" for name, value in shown.items())
