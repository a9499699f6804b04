"""`ldlm-monitor parse FILE...`: typed records, or statistics about them for each file."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter

from ldlm_monitor.base.errors import InputError, UsageError
from ldlm_monitor.service.cli.flags import InputFlags, settings_for_inputs

if TYPE_CHECKING:
    from ldlm_monitor.base.chunk import Chunk, Origin
    from ldlm_monitor.base.records import Record
    from ldlm_monitor.logs.parse import Parser
    from ldlm_monitor.logs.parse.coverage import Coverage
    from ldlm_monitor.service.config import Settings


SHOWN_FORMS = 10
"""Most shown forms of lines that look like metrics without a record: more would fill a screen."""
_TEXT_WIDTH = 120
"""Characters shown of an unparsed line. A choice: less hides it, more wraps in terminals."""


def parse(
    *files: str,
    stats: bool = False,
    form: Annotated[Literal["text", "json"] | None, Parameter(name="--format")] = None,
    flags: InputFlags | None = None,
) -> int:
    """Prints typed records, one JSON object a line.

    Args:
        files: Files, folders or globs; - is standard input.
        stats: Print statistics of each file instead: formats, the share of lines that gave records,
            and lines that look like metrics but gave none.
        form: With --stats: text (default), or json, an object a file.
    """
    from ldlm_monitor.base.records import to_json
    from ldlm_monitor.base.text.sanitize import escaped_json
    from ldlm_monitor.logs.parse import Parser

    if form == "text" and not stats:
        raise UsageError(
            "records are always JSON", where="--format text", remedy="leave it out, or add --stats"
        )
    wanted = settings_for_inputs(flags, files)
    parser = Parser(wanted.formats)
    files_found = inputs(wanted)
    continued = {each.continues for each in files_found}
    for each in files_found:
        if stats:
            found = understood(parser, each)
            print(_as_json(found) if form == "json" else "\n".join(statistics(found)))
            continue
        for record in _records(parser, each, ends=each.place not in continued):
            sys.stdout.buffer.write(escaped_json(to_json(record)) + b"\n")
    return 0


class ListedFile(NamedTuple):
    """A file (`-`: stdin) and its run; `continues`: the older file of the same rotated log."""

    place: str
    origin: Origin
    continues: str = ""


def understood(parser: Parser, given: ListedFile) -> Coverage:
    """Parse a whole file (`-`: stdin) and count what was recognised. Raises InputError."""
    from ldlm_monitor.logs.parse.coverage import CoverageReader

    reader = CoverageReader(parser, _shown(given.place))
    now = time.time()
    for chunk in chunks(given.place):
        reader.feed(chunk, given.origin, now)
    return reader.finish()


def inputs(found: Settings) -> list[ListedFile]:
    """The files that exist, those of a rotated log in the order of writing. Raises InputError."""
    from ldlm_monitor.base.chunk import rotated_from
    from ldlm_monitor.logs.parse.run_names import RunNames
    from ldlm_monitor.logs.source.input_patterns import resolve

    patterns = resolve(found.files, base=Path())
    places = [str(path) for path in (*patterns.present(), *patterns.pipes())]
    if patterns.standard_input:
        places.append("-")
    names = RunNames(found.run)
    listed = [ListedFile(place, names.origin(_shown(place))) for place in places]
    return _in_order(listed) if any(rotated_from(place)[1] for place in places) else listed


def _in_order(listed: list[ListedFile]) -> list[ListedFile]:
    """The inputs, with the files of each log together, the oldest first, as replay reads them."""
    from ldlm_monitor.logs.history.history_file import HistoryFile
    from ldlm_monitor.logs.history.rotated_logs import logs_of
    from ldlm_monitor.logs.source.backlog import Backlog
    from ldlm_monitor.logs.source.file_system import DIRECT
    from ldlm_monitor.logs.source.notices import Journal

    found, files = {each.place: each for each in listed}, []
    for each in listed:
        with suppress(OSError):  # reading it reports the error
            if not Path(each.place).is_file():  # a pipe can be opened once
                continue
            backlog = Backlog.new(Path(each.place), Journal())
            files.append(HistoryFile(backlog, each.origin.run, now=0.0, disk=DIRECT))
    logs = [file for log in logs_of(files) for file in log]
    ordered = [found.pop(file.path)._replace(continues=file.continues) for file in logs]
    return [*ordered, *found.values()]


def _shown(place: str) -> str:
    """The input's name for JSON: bytes that are not UTF-8 are replaced."""
    return os.fsencode(place).decode("utf-8", "replace")


def _records(parser: Parser, given: ListedFile, *, ends: bool) -> Iterator[Record]:
    """The records of a file; unless it `ends` its log, an open one goes on in the next file."""
    now, continues = time.time(), _shown(given.continues)
    for chunk in chunks(given.place):
        chunk.continues, continues = continues, ""
        if ends or chunk.data:
            yield from parser.feed(chunk, given.origin, now)
    if ends:
        yield from parser.finish(_shown(given.place))


def chunks(place: str) -> Iterator[Chunk]:
    """The chunks of a whole file (`-`: stdin). Raises InputError."""
    from ldlm_monitor.logs.source.backlog import Backlog
    from ldlm_monitor.logs.source.decoders import remedy
    from ldlm_monitor.logs.source.notices import Journal
    from ldlm_monitor.logs.source.split import Splitter, split

    try:
        if place != "-" and Path(place).is_file():
            backlog = Backlog.new(Path(place), Journal())
            if backlog.trouble:
                print(f"ldlm-monitor: {place}: {backlog.trouble}", file=sys.stderr)
            with closing(backlog.tail):
                for chunk in backlog.all(0.0):
                    chunk.path = _shown(place)
                    yield chunk
            return
        with nullcontext(sys.stdin.buffer) if place == "-" else Path(place).open("rb") as stream:
            # A stream is read once, so that it needs no identity (`FileId`).
            yield from split(stream, Splitter(_shown(place), (0, 0, 0)))
    except OSError as error:
        raise InputError(
            f"cannot be read ({error.strerror})", where=place, remedy=remedy(error)
        ) from error


def _as_json(found: Coverage) -> str:
    from ldlm_monitor.base.text.sanitize import plain

    shown: dict[str, Any] = {
        "path": found.path,
        "formats": dict(found.formats.most_common()),
        "lines": found.lines,
        "lines_with_records": found.with_records,
        "share": found.share,
        "parse_errors": found.errors,
        **{f"{name}s": found.types[name] for name in ("sample", "event", "heartbeat")},
        "steps": found.steps,
        "event_kinds": dict(found.kinds.most_common()),
        "unknown": {
            "lines": found.unknown.lines,
            "forms": [
                {"count": form.count, "line": form.line, "text": plain(form.text)}
                for form in found.unknown.forms()
            ],
        },
    }
    return json.dumps(shown)


def statistics(found: Coverage) -> Iterator[str]:
    """Lines of text: a file's counts, and forms of lines that look like unparsed metrics."""
    from ldlm_monitor.base.text.sanitize import plain

    share = "-" if found.share is None else f"{100 * found.share:.1f} %"
    formats = ", ".join(f"{plain(name)} ({count})" for name, count in found.formats.most_common())
    facts = [
        ("formats", formats or "-"),
        ("lines", f"{found.lines}"),
        ("with records", f"{found.with_records} ({share})"),
        ("parse errors", f"{found.errors}"),
        *((f"{name}s", f"{found.types[name]}") for name in ("sample", "event", "heartbeat")),
        ("steps", "{} to {}".format(*found.steps) if found.steps else "-"),
    ]
    yield plain(found.path)
    yield from (f"  {name:<13}{value}" for name, value in facts)
    yield from (f"    {kind:<34}{count:>8}" for kind, count in found.kinds.most_common())
    if not found.unknown.lines:
        return
    forms, count = found.unknown.forms(), found.unknown.lines
    looks = "1 line looks" if count == 1 else f"{count} lines look"
    yield f"  {'unknown':<13}{looks} like metrics but gave none:"
    for form in forms[:SHOWN_FORMS]:
        yield f"    {form.count:>8} x  line {form.line}: {plain(form.text, _TEXT_WIDTH)}"
    if len(forms) > SHOWN_FORMS:
        yield f"    and {len(forms) - SHOWN_FORMS} other forms, which --format json lists"
    yield f"  {'':<13}`ldlm-monitor formats learn FILE` prints a definition to begin with"
