"""`ldlm-monitor parse FILE...`: typed records, or what was understood of each file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

from cyclopts import Parameter

from ldlm_monitor.cli.flags import InputFlags, settings_for_inputs
from ldlm_monitor.cli.understood import as_json, as_text
from ldlm_monitor.model.errors import InputError, UsageError

if TYPE_CHECKING:
    from ldlm_monitor.config import Settings
    from ldlm_monitor.model.chunk import Chunk, Origin
    from ldlm_monitor.model.records import Record
    from ldlm_monitor.parse import Parser
    from ldlm_monitor.parse.coverage import Coverage


def parse(
    *files: str,
    stats: bool = False,
    form: Annotated[Literal["text", "json"] | None, Parameter(name="--format")] = None,
    flags: InputFlags | None = None,
) -> int:
    """Prints typed records, one JSON object a line.

    Parameters
    ----------
    files
        Files, folders or globs; - is standard input.
    stats
        What was understood of each file, instead: formats, the share of lines that gave
        records, and lines that look like metrics and gave none.
    form
        With --stats: text (default), or json, an object a file.
    """
    from ldlm_monitor.model.records import to_json
    from ldlm_monitor.parse import Parser

    if form == "text" and not stats:
        raise UsageError(
            "records are always JSON",
            where="--format text",
            remedy="leave it out, or add --stats",
        )
    found = settings_for_inputs(flags, files)
    parser = Parser(found.formats)
    for place, origin in inputs(found):
        if stats:
            shown = as_json if form == "json" else as_text
            sys.stdout.write(shown(understood(parser, place, origin)))
            continue
        with closing(_records(parser, place, origin)) as records:
            for record in records:
                sys.stdout.buffer.write(to_json(record) + b"\n")
    return 0


def understood(parser: Parser, place: str, origin: Origin) -> Coverage:
    """What the parser makes of a file. Raises InputError."""
    from ldlm_monitor.parse.coverage import CoverageReader

    reader = CoverageReader(parser, _shown(place))
    now = time.time()
    with closing(_chunks(place)) as chunks:
        for chunk in chunks:
            reader.feed(chunk, origin, now)
    return reader.finish()


def inputs(found: Settings) -> list[tuple[str, Origin]]:
    """The files that are there, in order, and whose they are. Raises InputError."""
    from ldlm_monitor.run.identity import RunNames
    from ldlm_monitor.source import resolve

    patterns = resolve(found.files, base=Path())
    places = [str(path) for path in (*patterns.present(), *patterns.pipes())]
    if patterns.standard_input:
        places.append("-")
    names = RunNames(found.run)
    return [(place, names.origin(_shown(place))) for place in places]


def _shown(place: str) -> str:
    """The file's name as JSON can hold it: what is no UTF-8 in it is replaced."""
    return os.fsencode(place).decode("utf-8", "replace")


def _records(parser: Parser, place: str, origin: Origin) -> Generator[Record, None, None]:
    now = time.time()
    with closing(_chunks(place)) as chunks:
        for chunk in chunks:
            yield from parser.feed(chunk, origin, now)
    yield from parser.finish(_shown(place))


def _chunks(place: str) -> Generator[Chunk, None, None]:
    try:
        if place == "-":
            yield from _split(place, sys.stdin.buffer)
        else:
            with Path(place).open("rb") as file:
                yield from _split(place, file)
    except OSError as error:
        raise InputError(
            f"cannot be read ({error.strerror})", where=place, remedy="check its permissions"
        ) from error


def _split(place: str, file: BinaryIO) -> Iterator[Chunk]:
    from ldlm_monitor.source.split import CHUNK_BYTES, Splitter

    splitter = Splitter(_shown(place), (0, 0, 0))
    while data := file.read(CHUNK_BYTES):
        yield from splitter.feed(data, 0.0)
    yield splitter.finish()
