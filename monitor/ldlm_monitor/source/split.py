"""From bytes in any pieces to chunks of whole records."""

from ldlm_monitor.model.chunk import Chunk, FileId
from ldlm_monitor.model.frames import HEAD_BYTES, Form, Frame, form_of, frames
from ldlm_monitor.model.tfrecord import HEADER_BYTES, frame_bytes

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

    A file of frames, known by its first bytes, is cut where these end (`framed`, their form);
    one that is longer than `RECORD_BYTES` is passed over. None: nothing was read that tells.
    """

    __slots__ = (
        "_cut",
        "_passing",
        "_rest",
        "cut_records",
        "file",
        "framed",
        "grown",
        "line",
        "offset",
        "path",
        "position",
        "shown",
    )

    def __init__(
        self,
        path: str,
        file: FileId,
        *,
        offset: int = 0,
        line: int = 1,
        framed: Form | None = None,
    ) -> None:
        self.path = path
        self.file = file
        self.offset = self.position = offset
        self.line = line
        self.grown = 0.0
        self.shown = 0
        self.cut_records = 0
        self._rest = bytearray()
        self._cut = False
        self._passing = 0
        self.framed: Form | None = "" if offset and framed is None else framed

    @property
    def unfinished(self) -> int:
        """Bytes held of a record whose end has not been seen."""
        return len(self._rest)

    def feed(self, data: bytes, now: float) -> list[Chunk]:
        """The records that `data` completes: the file's next `CHUNK_BYTES` or fewer."""
        held = self.position - self.offset
        self.position += len(data)
        self.grown = now
        form = self._form(data) if self.framed is None else self.framed
        if form:
            return self._feed_frames(form, data)
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
        shows = self._rest and not was_shown and not self.framed
        return self.grown + PEEK_SECONDS if shows else None

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
        rest, framed = bytes(self._rest), self.framed or ""
        chunk = Chunk(self.path, self.file, self.offset, self.line, rest, final=True, framed=framed)
        self.offset = self.position
        self._rest, self._cut = bytearray(), False
        return chunk

    def ends_record(self, data: bytes) -> bool:
        """Whether a frame ends with `data`, if it is what comes next."""
        form = self._form(data)
        if self._passing or not form:
            return False
        held = bytes(self._rest) + data
        last = max(frames(form, held, self.offset), key=_end, default=None)
        return last is not None and last.end == len(held) and last.payload(held) is not None

    def _form(self, data: bytes) -> Form:
        """The form of the file whose next bytes these are; "" as long as nothing tells."""
        if self.framed is None:
            head = bytes(self._rest[:HEAD_BYTES]) + data[:HEAD_BYTES]
            self.framed = form_of(head) if self.offset == 0 else ""
        return self.framed or ""

    def _feed_frames(self, form: Form, data: bytes) -> list[Chunk]:
        if passed := min(self._passing, len(data)):
            self._passing -= passed
            self.offset += passed
            self.line += not self._passing
            data = data[passed:]
        held = bytes(self._rest) + data
        end = max(map(_end, frames(form, held, self.offset, ended=False)), default=0)
        chunks = [self._chunk(held[:end])] if end else []
        self._rest = bytearray(memoryview(held)[end:])
        if form == "tfrecord" and len(self._rest) >= HEADER_BYTES:
            size = frame_bytes(held, end) or 0
            if size > RECORD_BYTES:
                self.cut_records += 1
                self._passing = size - len(self._rest)
                self.offset += len(self._rest)
                self._rest.clear()
        return chunks

    def _chunk(self, data: bytes, *, length: int | None = None) -> Chunk:
        framed = self.framed or ""
        chunk = Chunk(self.path, self.file, self.offset, self.line, data, framed=framed)
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


def _end(frame: Frame) -> int:
    return frame.end
