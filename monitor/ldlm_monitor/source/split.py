"""From bytes in any pieces to chunks of whole records."""

from ldlm_monitor.chunk import Chunk, FileId

CHUNK_BYTES = 256 * 1024
RECORD_BYTES = 1024 * 1024
"""A longer record is cut: its first MiB and its end are kept."""
PEEK_SECONDS = 2.0
"""After so long a silence an unfinished record is shown as it stands."""


class Splitter:
    """Cuts the consecutive bytes of one file where records end.

    A record ends with `\\n`, `\\r\\n` or `\\r`; a `\\r` at the end of the data ends
    one too, so that a `\\n` which follows later makes an empty record and lines,
    counted by `\\n`, stay right. `position` is where the next byte to be fed
    stands in the file; `offset` and `line` are those of the first byte that is in
    no chunk yet. At most `RECORD_BYTES` of an unfinished record are kept. `shown` is the
    `position` at which an unfinished record was shown last, 0 before the first.
    """

    __slots__ = (
        "_cut",
        "_rest",
        "cut_records",
        "file",
        "grown",
        "line",
        "offset",
        "path",
        "position",
        "shown",
    )

    def __init__(self, path: str, file: FileId, *, offset: int = 0, line: int = 1) -> None:
        self.path = path
        self.file = file
        self.offset = self.position = offset
        self.line = line
        self.grown = 0.0
        self.shown = 0
        self.cut_records = 0
        self._rest = bytearray()
        self._cut = False

    @property
    def unfinished(self) -> int:
        """Bytes held of a record whose end has not been seen."""
        return len(self._rest)

    def feed(self, data: bytes, now: float) -> list[Chunk]:
        """The records that `data` completes: the file's next `CHUNK_BYTES` or fewer."""
        held = self.position - self.offset
        self.position += len(data)
        self.grown = now
        end = after_last_end(data)
        if not end:
            self._hold(data)
            return []
        chunks = []
        start = 0
        if len(self._rest) >= CHUNK_BYTES:
            start = _after_first_end(data)
            chunks.append(self._long_record(data[:start], held + start))
        if start < end:
            chunks.append(self._chunk(b"".join((self._rest, memoryview(data)[start:end]))))
        self._rest = bytearray(memoryview(data)[end:])
        return chunks

    def skip(self, count: int) -> None:
        """Pass over bytes that belong to no record. Only between records."""
        self.position += count
        self.offset = self.position

    def peek_at(self) -> float | None:
        """When the unfinished record is to be shown; None: there is none, or it was."""
        was_shown = self.shown >= self.position
        return self.grown + PEEK_SECONDS if self._rest and not was_shown else None

    def peek(self) -> Chunk:
        """The unfinished record as it stands; its bytes come again when it is whole."""
        self.shown = self.position
        return self.rest()

    def rest(self) -> Chunk:
        """The same, without noting that it was shown."""
        return Chunk(
            self.path,
            self.file,
            self.offset,
            self.line,
            bytes(self._rest),
            peek=True,
            age=PEEK_SECONDS,
        )

    def finish(self) -> Chunk:
        """The last chunk of the file: an unfinished record, or nothing."""
        self.cut_records += self._cut
        chunk = Chunk(self.path, self.file, self.offset, self.line, bytes(self._rest), final=True)
        self.offset = self.position
        self._rest, self._cut = bytearray(), False
        return chunk

    def _chunk(self, data: bytes, *, length: int | None = None) -> Chunk:
        chunk = Chunk(self.path, self.file, self.offset, self.line, data)
        self.offset += len(data) if length is None else length
        self.line += chunk.newlines
        return chunk

    def _hold(self, data: bytes) -> None:
        room = RECORD_BYTES - len(self._rest)
        self._rest += data[:room]
        self._cut = self._cut or len(data) > room

    def _long_record(self, ending: bytes, length: int) -> Chunk:
        """Alone in its chunk: behind a cut, offsets counted from its start would not hold."""
        self._hold(ending[:-1])
        self.cut_records += self._cut
        data = bytes(self._rest) + ending[-1:]
        self._rest, self._cut = bytearray(), False
        return self._chunk(data, length=length)


def after_last_end(data: bytes) -> int:
    """The index behind the last byte that ends a record; 0 where none does."""
    newline = data.rfind(b"\n") + 1
    return max(newline, data.rfind(b"\r", newline) + 1)


def _after_first_end(data: bytes) -> int:
    newline = data.find(b"\n") + 1
    carriage = data.find(b"\r", 0, newline or None) + 1
    return carriage or newline
