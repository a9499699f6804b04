"""The records that a monitor takes in, for whoever needs them too: files are parsed once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ldlm_monitor.model.chunk import Chunk, Origin
from ldlm_monitor.model.records import Record, SampleBlock
from ldlm_monitor.parse import Parser


class RecordingParser(Parser):
    """A parser that remembers what it gave until that is taken."""

    def __init__(self, format_files: Sequence[Path] = ()) -> None:
        super().__init__(format_files)
        self._given: list[Record | SampleBlock] = []

    def taken(self) -> list[Record | SampleBlock]:
        """What was given since the last call."""
        given, self._given = self._given, []
        return given

    def feed_blocks(self, chunk: Chunk, origin: Origin, now: float) -> list[Record | SampleBlock]:
        """As `Parser`."""
        found = super().feed_blocks(chunk, origin, now)
        self._given += found
        return found

    def tick(self, now: float) -> list[Record]:
        """As `Parser`."""
        found = super().tick(now)
        self._given += found
        return found

    def finish(self, path: str) -> list[Record]:
        """As `Parser`."""
        found = super().finish(path)
        self._given += found
        return found
