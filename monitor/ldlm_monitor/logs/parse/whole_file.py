"""What each reader of a file of a known structure declares and does."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.framing import Framing
from ldlm_monitor.base.records import Record, SampleBlock
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.numbers import Numbers
from ldlm_monitor.logs.parse.text_lines import OnFault


class WholeFile:
    """Reads one file of a known structure, which is not parsed as text.

    `name` is the format's, `about` what it reads, for `formats list`. `framing`: how such a file
    is divided into binary frames, None for lines. `has_times`: `times` gives those of its records.
    `errors` is the count of damaged records, `singly` that of records that Python read one by one
    although there is a faster way for such a file; the caller resets both.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    framing: ClassVar[Framing | None] = None
    has_times: ClassVar[bool] = False
    on_fault: OnFault
    errors = 0
    singly = 0

    @classmethod
    def of(cls, chunk: Chunk) -> Self | None:
        """A reader of the file whose chunk this is; None if the file is not of this structure.

        It is called only for chunks with this reader's `framing`.
        """
        raise NotImplementedError

    @classmethod
    def is_tracker(cls, name: str) -> bool:
        """Whether a file of this name is an experiment tracker's, as which it is late and repeats
        a log: a folder's are read only where it has no log."""
        del name
        return False

    @classmethod
    def times(cls, chunk: Chunk) -> Iterator[tuple[int, float]]:
        """The offset of each record that has a time, and its time (Unix seconds)."""
        raise NotImplementedError

    def continues(self, chunk: Chunk) -> bool:
        """Whether a chunk, the first of a rotated log's next file, is of this structure, too."""
        del chunk
        return True

    def feed(self, chunk: Chunk, origin: Origin) -> Sequence[Record | SampleBlock]:
        """The records of the next bytes, in order of position."""
        raise NotImplementedError

    def peek(self, chunk: Chunk, origin: Origin) -> list[Record]:
        """The records of an unfinished last record, if it can be read already; by default none."""
        del chunk, origin
        return []


class LineReader(WholeFile):
    """Reads a file in which every line can be a sample."""

    def feed(self, chunk: Chunk, origin: Origin) -> list[Record]:
        """The records of a chunk's rows, in order of position."""
        found: list[Record] = []
        offset, lines = chunk.offset, chunk.data.split(b"\n")
        for index, line in enumerate(lines):
            place = RecordPlace.of(chunk, chunk.line + index, offset, origin)
            try:
                numbers = self.read(line, closed=index < len(lines) - 1)
                if numbers is not None and numbers.values:
                    found.append(numbers.at(place))
            except Exception as fault:  # noqa: BLE001 # a bug of ours costs this row alone
                self.on_fault(place.position, fault)
            offset += len(line) + 1
        return found

    def read(self, line: bytes, *, closed: bool) -> Numbers | None:
        """The numbers of a line; None if it is no row. `closed`: the line has its terminator."""
        raise NotImplementedError
