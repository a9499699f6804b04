"""Chunks of files, with lines or binary frames, and what the names of logs say."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ldlm_monitor.base.framing import Framing

FileId: TypeAlias = tuple[int, int, int]
"""(device, inode, generation); the generation rises when the file is truncated or replaced."""

COMPRESSED_SUFFIXES = (".gz", ".xz", ".zst", ".bz2")
"""What the compressors that `source/` can undo append to a name: gzip, xz, zstd, bzip2."""


def uncompressed(path: str) -> str:
    """The path without the suffix of a compressor; the same path if it has none."""
    return path.removesuffix(next(filter(path.endswith, COMPRESSED_SUFFIXES), ""))


_ROTATED = re.compile(  # a number of up to 6 digits, or a date with more behind it
    r"(?P<log>.*\.(?:log|jsonl|ndjson|out|err|txt))"
    r"(?P<added>\.\d{1,6}|[.-]\d{4}-?\d\d-?\d\d(?:[-_T.]?[\d:._-]*\d)?)"
)


def rotated_from(path: str) -> tuple[str, str]:
    """The log that a path is a full file of by its name, and what a rotation added to that.

    `a.log.3.gz` gives `a.log` and `3`, `a.log-20260129` gives `a.log` and `20260129`; another path
    gives itself, without a compressor's suffix, and "".
    """
    name = uncompressed(path)
    found = _ROTATED.fullmatch(name)
    return (name, "") if found is None else (found["log"], found["added"][1:])


@dataclass(slots=True)
class Chunk:
    """Consecutive bytes of one file.

    `data` holds whole records (each ended by `\\n`, `\\r\\n` or `\\r`) unless
    `final` or `peek`. `offset` (bytes) and `line` (1-based, counting `\\n`) are
    those of the first byte of `data`. `final`: the file has ended, so an unfinished
    last record is parsed as it is. `peek`: `data` is an unfinished record that has not
    grown for `age` seconds; a later chunk holds the same bytes again, completed. `timed`: the
    chunk is fed with the time of its writing; if false, with a number that only orders chunks.
    `framed`: how `data` is divided into binary frames, None for lines; `line` then counts frames.
    `continues`: the path of the older file of a rotated log that these bytes follow on; else "".
    `parts`: chunks that these bytes are put together of, each with the time of its writing (Unix
    seconds); they are repaints of a bar, and fed with the time of the last part.
    """

    path: str
    file: FileId
    offset: int
    line: int
    data: bytes
    final: bool = False
    peek: bool = False
    age: float = 0.0
    timed: bool = True
    framed: Framing | None = None
    continues: str = ""
    parts: Sequence[tuple[float, "Chunk"]] = ()
    _newlines: int = field(default=-1, init=False, repr=False, compare=False)

    @property
    def newlines(self) -> int:
        """The number of `\\n` (or of frames, if `framed`) in `data`; counted once, on demand."""
        if self._newlines < 0:
            self._newlines = self._count(self.data)
        return self._newlines

    def _count(self, data: bytes) -> int:
        if self.framed:
            return self.framed.count(data, self.offset)
        return data.count(b"\n")

    def after(self, offset: int) -> "Chunk | None":
        """The rest from byte `offset` of the file, where a record begins; None if it is empty."""
        passed = self.data[: max(offset - self.offset, 0)]
        if not passed:
            return self
        if len(passed) == len(self.data):
            return None
        rest, line = self.data[len(passed) :], self.line + self._count(passed)
        return replace(self, offset=offset, line=line, data=rest)


@dataclass(frozen=True, slots=True)
class Origin:
    """The run that wrote a file, with node and rank if the file's name contains them."""

    run: str
    node: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class ClockMark:
    """A step that a file reports at byte `offset`.

    `elapsed`: seconds that its progress bar shows; None if the step is of no bar. `inner`: the
    bar is of an evaluation, in a pause of the training.
    """

    offset: int
    step: int
    elapsed: float | None
    inner: bool = False
