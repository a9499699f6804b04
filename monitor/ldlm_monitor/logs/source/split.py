"""Cuts the bytes of a file, in pieces of any length, into chunks of whole records."""

import errno
import logging
from collections.abc import Iterator
from typing import Any, BinaryIO

from ldlm_monitor.base.chunk import Chunk, FileId
from ldlm_monitor.base.framing import Frame, Framing
from ldlm_monitor.logs.parse.readers import HEAD_BYTES, framing_of, may_be_framed
from ldlm_monitor.logs.source.decoded_files import pieces

BOM = b"\xef\xbb\xbf"
"""UTF-8's byte order mark (RFC 3629, section 6), which PowerShell writes first: not text."""
CHUNK_BYTES = 256 * 1024
"""The most bytes that are read of a file at once. A choice: fewer are parsed slower, more delay
the other files."""
RECORD_BYTES = 1024 * 1024
"""A longer record is cut: its first MiB and its terminator are kept. This bounds the memory
per file; a printed configuration, the longest useful line, is far shorter."""
PEEK_SECONDS = 0.5
"""An unfinished record that has not grown for so long is emitted as a peek: now, and again when
it is whole. tqdm leaves its last bar without a terminator until the next one. A choice: longer
shows each bar of slow steps later; shorter shows parts of lines that a busy writer has begun."""

log = logging.getLogger(__name__)


class Splitter:
    """Cuts the consecutive bytes of one file at the ends of records.

    A record ends with `\\n`, `\\r\\n` or `\\r`. A `\\r` at the end of the data ends a record too; a
    `\\n` that follows later makes an empty record, so that lines are still counted by `\\n`.
    `position` is the file offset of the next byte to feed; `offset` and `line` are those of
    the first byte that is in no chunk yet. `grown`: the time of the last `feed` (Unix seconds). At
    most `RECORD_BYTES` of an unfinished record are kept; `cut_records` counts the longer ones.
    `shown` is the `position` of the last peek, 0 before the first. `continues`: as in `Chunk`.
    `counts_lines`: if false, every chunk has the same `line`, and nothing is counted.

    A file of frames is recognised by its first bytes and cut at the ends of frames; a frame longer
    than `RECORD_BYTES` is skipped. `framed`: how it is divided; None for lines, and until the
    first bytes decide.
    """

    def __init__(
        self,
        path: str,
        file: FileId,
        *,
        offset: int = 0,
        line: int = 1,
        framed: Framing | None = None,
    ) -> None:
        self.path = path
        self.file = file
        self.offset = self.position = offset
        self.line = line
        self.grown = 0.0
        self.shown = 0
        self.continues = ""
        self.counts_lines = True
        self.cut_records = 0
        self._rest = bytearray()
        self._cut = False
        self._skipping = 0
        self.framed = framed
        self._is_decided = offset > 0 or framed is not None

    @property
    def unfinished(self) -> int:
        """Bytes held of a record whose end was not read."""
        return len(self._rest)

    def feed(self, data: bytes, now: float) -> list[Chunk]:
        """Chunks of records that end in `data`: the next `CHUNK_BYTES` or fewer, read at `now`."""
        held = self.position - self.offset
        self.position += len(data)
        self.grown = now
        if (framing := self._framing(data)) is not None:
            return self._feed_frames(framing, data)
        end = after_last_end(data)
        if not end:
            self._hold(data)
            return []
        chunks = []
        start = 0
        if len(self._rest) >= CHUNK_BYTES:
            start = after_first_end(data)
            chunks.append(self._long_record(data[:start], held + start))
        if start < end:
            chunks.append(self._chunk(b"".join((self._rest, memoryview(data)[start:end]))))
        self._rest = bytearray(memoryview(data)[end:])
        return chunks

    def skip(self, count: int) -> None:
        """Skip `count` bytes that belong to no record; allowed only between records."""
        self.position += count
        self.offset = self.position

    def peek_at(self) -> float | None:
        """When (Unix seconds) the next peek of the unfinished record is due; None if none is."""
        was_shown = self.shown >= self.position
        shows = self._rest and not was_shown and self._is_decided and self.framed is None
        return self.grown + PEEK_SECONDS if shows else None

    def peek(self) -> Chunk:
        """The unfinished record; its bytes come again in a later chunk, when it is whole."""
        self.shown = self.position
        return self.rest()

    def rest(self) -> Chunk:
        """The unfinished record, as `peek` returns it, without counting as a peek."""
        return self._of(bytes(self._rest), peek=True, age=PEEK_SECONDS)

    def finish(self) -> Chunk:
        """The last chunk of the file: the unfinished record, or no bytes."""
        self.cut_records += self._cut
        chunk = self._of(bytes(self._rest), final=True, framed=self.framed)
        self.offset = self.position
        self._rest, self._cut = bytearray(), False
        return chunk

    def ends_record(self, data: bytes) -> bool:
        """Whether a frame would end with `data`, if `data` were fed next."""
        framing = self._framing(data)
        if self._skipping or framing is None:
            return False
        held = bytes(self._rest) + data
        last = max(framing.frames(held, self.offset), key=_end, default=None)
        return last is not None and last.end == len(held) and last.payload(held) is not None

    def _framing(self, data: bytes) -> Framing | None:
        """How the file whose next bytes are `data` is divided into frames; None for lines."""
        if not self._is_decided:
            head = bytes(self._rest[:HEAD_BYTES]) + data[:HEAD_BYTES]
            self.framed = framing_of(head) if self.offset == 0 else None
            self._is_decided = self.offset > 0 or self.framed is not None or not may_be_framed(head)
        return self.framed

    def _feed_frames(self, framing: Framing, data: bytes) -> list[Chunk]:
        if passed := min(self._skipping, len(data)):
            self._skipping -= passed
            self.offset += passed
            self.line += not self._skipping
            data = data[passed:]
        held = bytes(self._rest) + data
        end = max(map(_end, framing.frames(held, self.offset, ended=False)), default=0)
        chunks = [self._chunk(held[:end])] if end else []
        self._rest = bytearray(memoryview(held)[end:])
        size = framing.size_at(held, end)
        if size is not None and size > RECORD_BYTES:
            self.cut_records += 1
            self._skipping = size - len(self._rest)
            self.offset += len(self._rest)
            self._rest.clear()
        return chunks

    def _chunk(self, data: bytes, *, length: int | None = None) -> Chunk:
        chunk = self._of(data, framed=self.framed)
        self.offset += len(data) if length is None else length
        self.line += chunk.newlines if self.counts_lines else 0
        return chunk

    def _of(self, data: bytes, **kind: Any) -> Chunk:
        """A chunk at `offset`; only the first line's says what it `continues`."""
        continues = self.continues if self.line == 1 else ""
        return Chunk(
            self.path, self.file, self.offset, self.line, data, continues=continues, **kind
        )

    def _hold(self, data: bytes) -> None:
        room = RECORD_BYTES - len(self._rest)
        self._rest += data[:room]
        self._cut = self._cut or len(data) > room

    def _long_record(self, ending: bytes, length: int) -> Chunk:
        """A chunk of one long record alone: if it is cut, later offsets in it would be wrong."""
        self._hold(ending[:-1])
        self.cut_records += self._cut
        data = bytes(self._rest) + ending[-1:]
        self._rest, self._cut = bytearray(), False
        return self._chunk(data, length=length)


def split(stream: BinaryIO, splitter: Splitter) -> Iterator[Chunk]:
    """Chunks of a stream, also a compressed one; the last is `final`. Damage is only logged."""
    try:
        for data in pieces(stream.read, CHUNK_BYTES):
            yield from splitter.feed(data, 0.0)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        log.warning("%s: %s; what came before is read", splitter.path, error.strerror)
    yield splitter.finish()


def after_last_end(data: bytes) -> int:
    """The index after the last byte that ends a record; 0 if none does."""
    newline = data.rfind(b"\n") + 1
    return max(newline, data.rfind(b"\r", newline) + 1)


def after_first_end(data: bytes) -> int:
    """The index after the first byte that ends a record; 0 if none does."""
    newline = data.find(b"\n") + 1
    carriage = data.find(b"\r", 0, newline or None) + 1
    return carriage or newline


def _end(frame: Frame) -> int:
    return frame.end
