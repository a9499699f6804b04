"""The parser: chunks of bytes in, typed records out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ldlm_monitor.chunk import Chunk, Origin
from ldlm_monitor.parse import jsonl
from ldlm_monitor.parse.blocks import SILENCE_SECONDS
from ldlm_monitor.parse.events import Place
from ldlm_monitor.parse.framing import MAX_RECORD_BYTES
from ldlm_monitor.parse.scan import compiled
from ldlm_monitor.parse.text import FileState, TextReader
from ldlm_monitor.records import Record

_JSONL_SUFFIXES = (".jsonl", ".ndjson")


@dataclass(slots=True)
class ParseCounters:
    """What a parser has seen since it was made.

    `lines` counts `\\n`, `bytes` all bytes but those of a peek, `parse_errors`
    the lines of JSONL files that are not JSON objects, `truncated` the records
    that were longer than 1 MiB and were cut, `records` the records by type.
    """

    lines: int = 0
    bytes: int = 0
    parse_errors: int = 0
    truncated: int = 0
    records: dict[str, int] = field(
        default_factory=lambda: {"sample": 0, "event": 0, "heartbeat": 0}
    )


class Parser:
    """Turns the bytes of many files into records.

    `format_files` are definition files beside the packaged ones. Raises
    `FormatError` where one cannot be used. The same chunks and times give the
    same records; memory is bounded by the number of files.
    """

    def __init__(self, format_files: Sequence[Path] = ()) -> None:
        self._text = TextReader(compiled(tuple(format_files)))
        self._files: dict[str, FileState] = {}
        self.counters = ParseCounters()

    def feed(self, chunk: Chunk, origin: Origin, now: float) -> list[Record]:
        """The records of the next bytes of one file, in order of position."""
        found: list[Record] = []
        file = self._files.get(chunk.path)
        if file is None or file.id != chunk.file:
            found.extend(file.blocks.finish() if file else ())
            suffix = PurePosixPath(chunk.path).suffix
            file = self._files[chunk.path] = FileState(chunk.file, suffix in _JSONL_SUFFIXES)
        if chunk.peek:
            if not file.jsonl and not file.blocks:
                found.extend(self._text.peek(file, chunk, origin, now))
            return self._counted(found)
        self.counters.bytes += len(chunk.data)
        self.counters.lines += chunk.data.count(b"\n")
        fresh = (
            self._feed_rows(file, chunk, origin)
            if file.jsonl
            else self._text.feed(file, chunk, origin, now)
        )
        self.counters.truncated += self._text.truncated
        self._text.truncated = 0
        if chunk.final:
            fresh.extend(file.blocks.finish())
        found.extend(sorted(fresh, key=lambda record: record.position.offset))
        return self._counted(found)

    def tick(self, now: float) -> list[Record]:
        """The records of blocks that got no line for two seconds."""
        found: list[Record] = []
        for file in self._files.values():
            if file.blocks:
                found.extend(file.blocks.silent(now))
        return self._counted(found)

    def open_until(self) -> float | None:
        """The earliest time at which `tick` could give something; None: no block is open."""
        touched = [
            since
            for file in self._files.values()
            if (since := file.blocks.next_silence()) is not None
        ]
        return min(touched) + SILENCE_SECONDS if touched else None

    def finish(self, path: str) -> list[Record]:
        """The file ended: complete its blocks, and forget it."""
        file = self._files.pop(path, None)
        return self._counted(file.blocks.finish()) if file else []

    def _counted(self, records: list[Record]) -> list[Record]:
        for record in records:
            self.counters.records[record.type] += 1
        return records

    def _feed_rows(self, file: FileState, chunk: Chunk, origin: Origin) -> list[Record]:
        found: list[Record] = []
        offset, number = chunk.offset, chunk.line
        for raw in chunk.data.split(b"\n"):
            if raw and not raw.isspace():
                place = Place(chunk.path, number, offset, origin, self._rank(file, origin), None)
                found.extend(self._row(file, raw, place))
            offset += len(raw) + 1
            number += 1
        return found

    def _rank(self, file: FileState, origin: Origin) -> int | None:
        return origin.rank if file.rank is None else file.rank

    def _row(self, file: FileState, raw: bytes, place: Place) -> list[Record]:
        if len(raw) > MAX_RECORD_BYTES:
            self.counters.truncated += 1
            return []
        try:
            row = jsonl.decode(raw)
            found = jsonl.records(row, place)
        except jsonl.BadRowError:
            self.counters.parse_errors += 1
            return []
        if row.get("type") == "run" and found:
            file.rank = found[0].rank
        return found
