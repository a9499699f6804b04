"""What a source hands to the parser: bytes of one file, and where they stand."""

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ldlm_monitor.model.frames import Form, count_frames

FileId: TypeAlias = tuple[int, int, int]
"""(device, inode, generation): a new file under an old name is another file."""

COMPRESSED_SUFFIXES = (".gz", ".xz", ".zst", ".bz2")
"""What gzip, xz, zstd and bzip2 append to a file's name."""


def uncompressed(path: str) -> str:
    """The name that a file had before it was compressed, by its name alone."""
    suffix = next((each for each in COMPRESSED_SUFFIXES if path.endswith(each)), "")
    return path.removesuffix(suffix)


@dataclass(slots=True)
class Chunk:
    """Consecutive bytes of one file.

    `data` holds whole records (each ended by `\\n`, `\\r\\n` or `\\r`) unless
    `final` or `peek`. `offset` (bytes) and `line` (1-based, counting `\\n`) are
    those of its first byte. `final`: nothing more of this file will follow, so
    an unfinished last record is all there is. `peek`: an unfinished last record
    as it stands after a silence of `age` seconds; the same bytes come again, whole, later.
    `timed`: it is fed with the time of its writing; else that time only gives an order.
    `framed`: the form of its binary frames, which are its records, and which `line` counts.
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
    framed: Form = ""
    _newlines: int = field(default=-1, init=False, repr=False, compare=False)

    @property
    def newlines(self) -> int:
        """How many `\\n` are in `data`, or frames; counted once, on demand."""
        if self._newlines < 0:
            self._newlines = self._count(self.data)
        return self._newlines

    def _count(self, data: bytes) -> int:
        if self.framed:
            return count_frames(self.framed, data, self.offset)
        return data.count(b"\n")

    def after(self, offset: int) -> "Chunk | None":
        """The part from `offset` on, which is a record's first byte; None if nothing is left."""
        passed = self.data[: max(offset - self.offset, 0)]
        if not passed:
            return self
        if len(passed) == len(self.data):
            return None
        rest, line = self.data[len(passed) :], self.line + self._count(passed)
        return replace(self, offset=offset, line=line, data=rest)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of bytes: the run, and node and rank where the file's name has them."""

    run: str
    node: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class ClockMark:
    """Where a step stands in a file: byte `offset`, and the bar's elapsed seconds if it has them.

    `inner`: a bar of a pause within the training, such as an evaluation; it has a clock and
    steps of its own.
    """

    offset: int
    step: int
    elapsed: float | None
    inner: bool = False
