"""How much of a file the parser recognises, and whether definitions match their examples.

`CoverageReader` serves `parse --stats` and `formats test` with a log; `try_examples` runs
the examples of a definition file, which are its tests.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Event, Record, Sample
from ldlm_monitor.logs.parse.blocks import Blocks
from ldlm_monitor.logs.parse.definitions import (
    Definitions,
    EventDefinition,
    EventExample,
    SampleExample,
)
from ldlm_monitor.logs.parse.metric_like import MetricLike
from ldlm_monitor.logs.parse.parser import Parser
from ldlm_monitor.logs.parse.text_lines import Lines
from ldlm_monitor.logs.parse.text_reader import FileState, TextReader
from ldlm_monitor.logs.parse.triggers import Rules

KEPT_SAMPLES = 3
"""First samples of each format that are displayed. A choice: one can be odd, more fill a screen."""
_RECENT = 1024
"""Recognised lines kept between chunks: twice the `blocks.MAX_ROWS` lines of a sample."""


@dataclass(slots=True)
class Coverage:
    """Counts of one file.

    `formats`, `types` and `kinds`: samples by format, records by type, events by kind.
    `lines`: complete lines, and an unfinished last one. `with_records`: the lines that belong
    to a record. `errors`: lines of a JSON-lines or MLflow file that are no rows, damaged frames
    of a binary file. `steps`: the least and the greatest; None without steps. `unknown`: lines
    that look like metrics but gave no record. `first`: each format's first samples.
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
    """Feeds one file's chunks to a parser and counts the lines that the parser recognises."""

    def __init__(self, parser: Parser, path: str) -> None:
        self.found = Coverage(path)
        self._parser = parser
        self._matches: list[tuple[int, str]] = []
        self._places: set[int] = set()
        self._reader: str | None = None

    def feed(self, chunk: Chunk, origin: Origin, now: float) -> None:
        """Parse the next bytes of the file, read at `now` (Unix seconds)."""
        found, counters = self.found, self._parser.counters
        before = counters.parse_errors
        self._parser.text.on_match = lambda *match: self._matches.append(match)
        records = self._parser.feed(chunk, origin, now)
        found.errors += counters.parse_errors - before
        self._reader = self._parser.reader(chunk.path)
        unfinished = chunk.final and chunk.data[-1:] not in (b"", b"\n", b"\r")
        found.lines += chunk.newlines + unfinished
        self._count(records)
        if self._reader is None:
            self._examine_rest(chunk)
        del self._matches[:-_RECENT]

    def finish(self) -> Coverage:
        """End the file; returns its counts."""
        self._count(self._parser.finish(self.found.path))
        self._parser.text.on_match = None
        self.found.with_records = len(self._places)
        return self.found

    def _count(self, records: Sequence[Record]) -> None:
        found = self.found
        for record in records:
            found.types[record.type] += 1
            self._places.add(record.position.line)
            if record.type == "event":
                found.kinds[record.kind] += 1
                continue
            if record.type == "sample":
                home = self._reader or self._home(record)
                found.formats[home] += 1
                kept = found.first.setdefault(home, [])
                if len(kept) < KEPT_SAMPLES:
                    kept.append(record)
            if record.step is not None:
                least, greatest = found.steps or (record.step, record.step)
                found.steps = min(least, record.step), max(greatest, record.step)

    def _home(self, sample: Sample) -> str:
        """The format of a sample; `event fields` if an event gave it."""
        offset = sample.position.offset
        if sample.source == "inferred":
            return sample.source
        if sample.source == "jsonl":
            return "JSON"
        at = bisect_right(self._matches, offset, key=itemgetter(0)) - 1
        return (self._matches[at][1] if at >= 0 else "") or "event fields"

    def _examine_rest(self, chunk: Chunk) -> None:
        known = dict(self._matches)
        lines = Lines(chunk)
        while (line := lines.following()) is not None:
            if not line.raw:
                continue
            home = known.get(line.offset)
            if home == "":
                self._places.add(line.number)
            elif home is None and line.number not in self._places:
                self.found.unknown.add(line.raw, line.number)


_EVENT_FACTS = ("severity", "rank", "time", "message")  # what examples give beside `fields`


@dataclass(slots=True)
class Trial:
    """Counts of the examples and counter-examples that were run, and a text for each failure."""

    examples: int = 0
    counter_examples: int = 0
    failures: list[str] = field(default_factory=list)


def try_examples(path: Path, definitions: Definitions, parser: Parser) -> Trial:
    """Run the examples of `definitions`, the file `path`, which `parser` must have loaded.

    Each must hold among all definitions, and its own file must match it: another format, or the
    learner, may read the same line.
    """
    trial = Trial()
    alone = TextReader(Rules([(path, definitions)], (path,), {}), parser.note_fault)
    for title, entry in _entries(definitions):
        for index, example in enumerate(entry.examples, start=1):
            trial.examples += 1
            found = _records(parser, example.line)
            wrong = (
                _wrong_sample(example, found)
                if isinstance(example, SampleExample)
                else _wrong_event(entry, example, found)
            )
            if not wrong and not _is_matched(alone, entry, example.line):
                wrong = "its trigger and pattern do not match; another format reads this line"
            if wrong:
                trial.failures.append(f"{title}, example {index}: {wrong}")
        for index, line in enumerate(entry.counter_examples, start=1):
            trial.counter_examples += 1
            if wrong := _unwanted(entry, _records(parser, line)):
                trial.failures.append(f"{title}, counter-example {index}: {wrong}")
    return trial


def _records(parser: Parser, text: str) -> list[Record]:
    """The records of a file that has only this text."""
    return parser.feed(_chunk(text), Origin("example"), 0.0) + parser.finish("example")


def _chunk(text: str) -> Chunk:
    return Chunk("example", (0, 0, 0), 0, 1, text.encode() + b"\n", final=True)


def _is_matched(alone: TextReader, entry: Any, text: str) -> bool:
    """Whether the entry's file alone, `alone`, gives a record of this text."""
    if isinstance(entry, EventDefinition) and entry.exception:
        return True  # a packaged definition finds the traceback whose exception this one names
    file = FileState((0, 0, 0), Blocks(alone.on_fault))
    found = alone.feed(file, _chunk(text), Origin("example"), 0.0) + file.blocks.finish()
    if isinstance(entry, EventDefinition):
        return any(isinstance(each, Event) for each in found)
    return any(isinstance(each, Sample) and each.source in ("text", "bar") for each in found)


def _entries(definitions: Definitions) -> Iterator[tuple[str, Any]]:
    for group in ("bars", "lines", "events"):
        for number, entry in enumerate(getattr(definitions, group)):
            name = entry.kind if isinstance(entry, EventDefinition) else entry.name
            yield f"{group}.{number} ({name})", entry


def _unwanted(entry: Any, found: list[Record]) -> str:
    """What a counter-example gave although it must not; "" if it gave nothing wrong."""
    if not isinstance(entry, EventDefinition):
        samples = [_shown(numbers_of(record)) for record in found if isinstance(record, Sample)]
        return f"expected no numbers, got {samples[0]}" if samples else ""
    events = [record for record in found if isinstance(record, Event)]
    for event in events:
        if event.kind == entry.kind or event.severity in ("error", "critical"):
            return f"expected no {entry.kind} and no error, got {event.kind}"
    return ""


def _wrong_sample(expected: SampleExample, found: list[Record]) -> str:
    wanted = numbers_of(expected)
    samples = [numbers_of(record) for record in found if isinstance(record, Sample)]
    if len(samples) != 1:
        count = f"{len(samples)} samples" if samples else "nothing"
        return f"expected {_shown(wanted)}, got {count}"
    (got,) = samples
    same = wanted.keys() == got.keys() and all(_same(wanted[name], got[name]) for name in got)
    return "" if same else f"expected {_shown(wanted)}, got {_shown(got)}"


def _wrong_event(rule: EventDefinition, expected: EventExample, found: list[Record]) -> str:
    also = {extra.kind for extra in rule.also}
    kind = expected.kind or rule.kind
    events = [each for each in found if isinstance(each, Event) and each.kind not in also]
    if [event.kind for event in events] != [kind]:
        kinds = ", ".join(event.kind for event in events)
        return f"expected {kind}, got {kinds or 'nothing'}"
    (event,) = events
    got = {**event.fields, **{name: getattr(event, name) for name in _EVENT_FACTS}}
    wanted: dict[str, Any] = {name: getattr(expected, name) for name in _EVENT_FACTS}
    wanted["severity"] = expected.severity or rule.severity
    if expected.message is None:
        del wanted["message"]
    role = {"role": expected.role} if expected.role else {}
    for name, value in {**wanted, **expected.fields, **role}.items():
        if name not in got:
            return f"expected {name} {value!r}, which is missing"
        if not _same(value, got[name]):
            return f"expected {name} {value!r}, got {got[name]!r}"
    return ""


def _same(expected: Any, value: Any) -> bool:
    """Whether values are equal: NaN equals NaN, numbers differ by at most 1e-6 (1e-12 near 0)."""
    if isinstance(expected, float | int) and not isinstance(expected, bool):
        if isinstance(value, bool) or not isinstance(value, float | int):
            return False
        both_nan = math.isnan(expected) and math.isnan(value)
        return both_nan or math.isclose(expected, value, rel_tol=1e-6, abs_tol=1e-12)
    return bool(value == expected)


def numbers_of(sample: SampleExample | Sample) -> dict[str, float]:
    """The values of a sample by name, with step, epoch and rank if the sample has them."""
    heads = {"step": sample.step, "epoch": sample.epoch, "rank": sample.rank}
    return {name: value for name, value in heads.items() if value is not None} | sample.values


def _shown(numbers: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in numbers.items())
