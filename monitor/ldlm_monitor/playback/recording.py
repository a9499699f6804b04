"""A monitor's input in a file: bytes of logs with their arrival times, and the host's records.

The file is gzip around JSON lines, so that `zcat` reads it. The first line is `Begun`. Entries
are flushed every second, so that a kill loses one second at most. A file without gzip's end, as
after a kill, is read as far as it goes.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import msgspec

from ldlm_monitor.model.chunk import Chunk, FileId
from ldlm_monitor.model.errors import InputError, UsageError
from ldlm_monitor.model.frames import Form
from ldlm_monitor.model.records import Record, from_json, to_json
from ldlm_monitor.text.sanitize import encodable, plain

FORMAT = "ldlm-recording/1"
"""The file's mark in its first line; the number rises with an incompatible change."""
MAX_BYTES = 1 << 30
"""A recording ends at this size (4 to 18 GiB of logs): it must not fill the training's disk."""
FLUSH_SECONDS = 1.0  # a kill loses so much; each flush costs a write and some compression
PULSE_SECONDS = 5.0
"""Seconds between `Passed` entries without other input: a recorded hang needs the time to pass."""
_ALIKE = ("file", "offset", "line", "final", "peek", "age", "timed", "framed")
"""The fields that `Chunk` and `Fed` have in common."""
_LEVEL = 3  # zlib: the pump waits for it; on four public logs level 6 saves 10 to 26 % more space
_GZIP = zlib.MAX_WBITS | 16  # zlib's flag for gzip's header and trailer
_BLOCK = 256 * 1024  # bytes held before a write, and unzipped at once: bounds the memory
_READ = 4096
"""Bytes that are read at once; at most so many of them are lost in front of a damaged place."""
_LONGEST_LINE = 16 << 20
"""Bytes; a longer line is damaged: the longest record, 1 MiB, is at most 6 MiB of escaped JSON."""

log = logging.getLogger(__name__)


class Begun(msgspec.Struct, frozen=True, tag="begun", tag_field="is"):
    """The first entry: the inputs as the screen names them, and the start (`at`, Unix seconds).

    Later entries with earlier times are bytes that the logs held already.
    """

    at: float
    shown: str
    format: str = FORMAT


def _as_they_are(fields: Chunk | Fed) -> dict[str, Any]:
    return {name: getattr(fields, name) for name in _ALIKE}


class Fed(msgspec.Struct, frozen=True, tag="fed", tag_field="is", omit_defaults=True):
    """A chunk (fields as in `Chunk`); its bytes are in `text` if they are UTF-8, else in `data`."""

    at: float
    path: str
    run: str
    file: FileId
    offset: int
    line: int
    text: str | None = None
    data: bytes = b""
    final: bool = False
    peek: bool = False
    age: float = 0.0
    timed: bool = True
    framed: Form = ""

    def chunk(self) -> Chunk:
        """The chunk of this entry."""
        data = self.data if self.text is None else self.text.encode()
        return Chunk(path=self.path, data=data, **_as_they_are(self))


class Observed(msgspec.Struct, frozen=True, tag="observed", tag_field="is"):
    """Records that are in no log, each as JSON of `records.to_json`."""

    at: float
    records: list[str]

    def observed(self) -> tuple[Record, ...]:
        """The records of this entry."""
        return tuple(map(from_json, self.records))


class Finished(msgspec.Struct, frozen=True, tag="finished", tag_field="is"):
    """The files `paths` ended."""

    at: float
    paths: list[str]


class Passed(msgspec.Struct, frozen=True, tag="passed", tag_field="is"):
    """Time passed, without other input."""

    at: float


Entry: TypeAlias = Begun | Fed | Observed | Finished | Passed
_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(
    Begun | Fed | Observed | Finished | Passed
)


class Recorder:
    """Appends to a new file that only its owner may read: logs may hold secrets.

    A full disk ends the recording, with a log line, and not the monitoring. `limit`: bytes.
    Raises `UsageError` if the file exists already, or cannot be made.
    """

    def __init__(self, path: Path, shown: str, now: float, *, limit: int = MAX_BYTES) -> None:
        self._path = path
        self._limit = limit
        self._gzip = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._waiting: list[bytes] = []
        self._held = 0
        self._is_empty = True
        self._size = 0
        self._flushed_at = self._marked_at = now
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._file: int | None = os.open(path, flags, 0o600)
        except FileExistsError:
            raise UsageError(
                "is there already", where=str(path), remedy="name a new file with --record"
            ) from None
        except OSError as error:
            raise UsageError(
                f"cannot be written ({error.strerror})",
                where=str(path),
                remedy="name another file with --record",
            ) from error
        self._keep(Begun(now, shown))
        self._flush()
        self._is_empty = True

    def fed(self, chunk: Chunk, run: str, at: float) -> None:
        """Record a chunk of a run's file, judged at `at` (Unix seconds)."""
        try:
            text, data = chunk.data.decode(), b""
        except UnicodeDecodeError:
            text, data = None, chunk.data
        self._keep(
            Fed(
                at=at,
                path=encodable(chunk.path),
                run=encodable(run),
                text=text,
                data=data,
                **_as_they_are(chunk),
            )
        )

    def observed(self, records: Iterable[Record], at: float) -> None:
        """Record the host's records, judged at `at`."""
        self._keep(Observed(at, [to_json(record).decode() for record in records]))

    def finished(self, paths: Sequence[str], at: float) -> None:
        """Record that these files have ended."""
        self._keep(Finished(at, [encodable(path) for path in paths]))

    def turn(self, now: float) -> None:
        """Write the waiting entries, at most once in `FLUSH_SECONDS`."""
        if now - self._flushed_at < FLUSH_SECONDS:
            return
        if not self._waiting and now - self._marked_at >= PULSE_SECONDS:
            self._keep(Passed(now))
        if self._waiting:
            self._marked_at = now
            self._flush()
        self._flushed_at = now

    def close(self) -> None:
        """Write the rest and gzip's end; delete the file if nothing was recorded."""
        if self._file is not None:
            self._flush(zlib.Z_FINISH)
            if self._is_empty:
                self._path.unlink(missing_ok=True)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _keep(self, entry: Entry) -> None:
        if self._file is None:
            return
        self._is_empty = False
        squeezed = self._gzip.compress(msgspec.json.encode(entry) + b"\n")
        self._waiting.append(squeezed)
        self._held += len(squeezed)
        if self._held > _BLOCK:
            self._flush()

    def _flush(self, mode: int = zlib.Z_SYNC_FLUSH) -> None:
        data = b"".join((*self._waiting, self._gzip.flush(mode)))
        self._waiting.clear()
        self._held = 0
        if self._file is None:
            return
        try:
            while data:
                written = os.write(self._file, data)
                data, self._size = data[written:], self._size + written
        except OSError as error:
            self._give_up(f"cannot be written ({error.strerror})")
        else:
            if self._size >= self._limit:
                self._give_up(f"holds {self._size >> 20} MiB")

    def _give_up(self, why: str) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        log.warning("%s: %s; the recording ends here", plain(str(self._path)), why)


def is_recording(path: Path) -> bool:
    """Whether a regular file begins as a recording does; False for a pipe, which is not read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = zlib.decompressobj(_GZIP).decompress(file.read(_READ), _READ)
    except (OSError, zlib.error):
        return False
    return FORMAT.encode() in head.partition(b"\n")[0]


def entries(path: Path) -> Iterator[Entry]:
    """The entries up to where a recording is cut off or damaged. Raises `InputError` for others."""
    if not is_recording(path):
        raise InputError(
            "is no recording", where=str(path), remedy="name a file that --record wrote, or logs"
        )
    with path.open("rb") as file:
        for line in _lines(file):
            try:
                yield _DECODER.decode(line)
            except msgspec.DecodeError:
                return


def _lines(file: BinaryIO) -> Iterator[bytes]:
    unzip, rest = zlib.decompressobj(_GZIP), b""
    while block := file.read(_READ):
        while block:
            try:
                text = unzip.decompress(block, _BLOCK)
            except zlib.error:
                return
            block = unzip.unconsumed_tail
            *lines, rest = (rest + text).split(b"\n")
            yield from lines
            if len(rest) > _LONGEST_LINE:
                return
