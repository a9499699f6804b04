"""What a source hands to the parser: bytes of one file with their path, offset and line."""

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ldlm_monitor.model.frames import Form, count_frames

FileId: TypeAlias = tuple[int, int, int]
"""(device, inode, generation); the generation rises when an inode's content begins anew."""


@dataclass(slots=True)
class Chunk:
    """Consecutive bytes of one file.

    `data` holds whole records (each ended by `\\n`, `\\r\\n` or `\\r`) unless
    `final` or `peek`. `offset` (bytes) and `line` (1-based, counting `\\n`) are
    those of the first byte of `data`. `final`: the file has ended, so an unfinished
    last record is parsed as it is. `peek`: `data` is an unfinished record that has not
    grown for `age` seconds; a later chunk holds the same bytes again, completed. `timed`: the
    time that the chunk is fed with is when it was written, not only an order of chunks.
    `framed`: the form if `data` has binary frames; `line` then counts frames.
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
        """The number of `\\n` (or of frames, if `framed`) in `data`; counted once, on demand."""
        if self._newlines < 0:
            self._newlines = self._count(self.data)
        return self._newlines

    def _count(self, data: bytes) -> int:
        if self.framed:
            return count_frames(self.framed, data, self.offset)
        return data.count(b"\n")

    def after(self, offset: int) -> "Chunk | None":
        """The part from byte `offset` of the file on, a record's start; None if nothing is left."""
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
    """A step that a file reports at byte `offset`; `elapsed` is its progress bar's seconds if any.

    `inner`: the bar counts the steps and seconds of a pause of the training (an evaluation).
    """

    offset: int
    step: int
    elapsed: float | None
    inner: bool = False
