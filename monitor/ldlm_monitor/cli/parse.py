"""`ldlm-monitor parse FILE...`: typed records, or what was understood of each file."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ldlm_monitor.cli.flags import InputFlags, settings_for_inputs
from ldlm_monitor.errors import InputError

if TYPE_CHECKING:
    from ldlm_monitor.chunk import Chunk, Origin
    from ldlm_monitor.config import Settings
    from ldlm_monitor.parse import Parser
    from ldlm_monitor.records import Record


def parse(*files: str, stats: bool = False, flags: InputFlags | None = None) -> int:
    """Prints typed records, one JSON object a line.

    Parameters
    ----------
    files
        Files, folders or globs; - is standard input.
    stats
        What was understood of each file, instead.
    """
    from ldlm_monitor.parse import Parser
    from ldlm_monitor.records import to_json

    found = settings_for_inputs(flags, files)
    parser = Parser(found.formats)
    for place, origin in _inputs(found):
        with closing(_records(parser, place, origin)) as records:
            if stats:
                sys.stdout.write(_understood(parser, place, records))
            else:
                for record in records:
                    sys.stdout.buffer.write(to_json(record) + b"\n")
    return 0


def _inputs(found: Settings) -> list[tuple[str, Origin]]:
    """The files that are there, in order, and whose they are. Raises InputError."""
    from ldlm_monitor.run.identity import RunNames
    from ldlm_monitor.source import resolve

    patterns = resolve(found.files, base=Path())
    places = [str(path) for path in patterns.present()]
    if patterns.standard_input:
        places.append("-")
    names = RunNames(found.run)
    return [(place, names.origin(_shown(place))) for place in places]


def _shown(place: str) -> str:
    """The file's name as JSON can hold it: what is no UTF-8 in it is replaced."""
    return os.fsencode(place).decode("utf-8", "replace")


def _records(parser: Parser, place: str, origin: Origin) -> Generator[Record, None, None]:
    try:
        if place == "-":
            yield from _read(parser, place, sys.stdin.buffer, origin)
        else:
            with Path(place).open("rb") as file:
                yield from _read(parser, place, file, origin)
    except OSError as error:
        raise InputError(
            f"cannot be read ({error.strerror})", where=place, remedy="check its permissions"
        ) from error


def _read(parser: Parser, place: str, file: BinaryIO, origin: Origin) -> Iterator[Record]:
    now, shown = time.time(), _shown(place)
    for chunk in _chunks(shown, file):
        yield from parser.feed(chunk, origin, now)
    yield from parser.finish(shown)


def _chunks(place: str, file: BinaryIO) -> Iterator[Chunk]:
    from ldlm_monitor.source.split import CHUNK_BYTES, Splitter

    splitter = Splitter(place, (0, 0, 0))
    while data := file.read(CHUNK_BYTES):
        yield from splitter.feed(data, 0.0)
    yield splitter.finish()


@dataclass(slots=True)
class _Tally:
    """What the records of one file were; `places` are their lines."""

    types: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    places: set[int] = field(default_factory=set)
    steps: list[int] = field(default_factory=list)

    def count(self, records: Iterable[Record]) -> None:
        for record in records:
            self.types[record.type] += 1
            self.places.add(record.position.line)
            if record.type == "event":
                self.kinds[record.kind] += 1
            elif record.step is not None:
                first, last = self.steps or (record.step, record.step)
                self.steps = [min(first, record.step), max(last, record.step)]


def _understood(parser: Parser, place: str, records: Iterable[Record]) -> str:
    from ldlm_monitor.plain import plain

    counters = parser.counters
    lines, errors = counters.lines, counters.parse_errors
    tally = _Tally()
    tally.count(records)
    lines, errors = counters.lines - lines, counters.parse_errors - errors
    share = f"{100 * min(len(tally.places) / lines, 1):.1f} %" if lines else "-"
    steps = f"{tally.steps[0]} to {tally.steps[1]}" if tally.steps else "-"
    facts = [
        ("lines", f"{lines}"),
        ("with records", f"{len(tally.places)} ({share})"),
        ("parse errors", f"{errors}"),
        *((f"{name}s", f"{tally.types[name]}") for name in ("sample", "event", "heartbeat")),
        ("steps", steps),
    ]
    text = [plain(place), *(f"  {name:<13}{value}" for name, value in facts)]
    text += [f"    {kind:<34}{count:>8}" for kind, count in tally.kinds.most_common()]
    return "\n".join(text) + "\n"
