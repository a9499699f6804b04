"""A monitor's input in a file: which bytes of logs came when, and the host's records.

The file is gzip around JSON lines, so `zcat` reads it. The first line is `Begun`; every
second what came is flushed, so that a process that is killed loses a second at most: the
file's end is missing then, and it is read up to there.
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
MAX_BYTES = 1 << 30
"""A recording that has grown so large takes no more; what is watched goes on."""
FLUSH_SECONDS = 1.0
PULSE_SECONDS = 5.0
"""Seconds between marks of passing time where nothing else is written."""
_ALIKE = ("file", "offset", "line", "final", "peek", "age", "timed", "framed")
_LEVEL = 3
_GZIP = zlib.MAX_WBITS | 16
_BLOCK = 256 * 1024
_READ = 4096
"""Bytes read at once: of what is damaged, no more than these are lost before it."""
_LONGEST_LINE = 16 << 20
"""Bytes: what is longer is damaged, no chunk is."""

log = logging.getLogger(__name__)


class Begun(msgspec.Struct, frozen=True, tag="begun", tag_field="is"):
    """The first entry: what was recorded, and from when on (`at`, Unix seconds).

    What stands behind it with earlier times is what the logs held already.
    """

    at: float
    shown: str
    format: str = FORMAT


def _as_they_are(fields: Chunk | Fed) -> dict[str, Any]:
    """What a chunk and its entry have alike."""
    return {name: getattr(fields, name) for name in _ALIKE}


class Fed(msgspec.Struct, frozen=True, tag="fed", tag_field="is", omit_defaults=True):
    """A chunk, as `Chunk` describes it; `text` where its bytes are UTF-8, else `data`."""

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
        """The chunk that was fed."""
        data = self.data if self.text is None else self.text.encode()
        return Chunk(path=self.path, data=data, **_as_they_are(self))


class Observed(msgspec.Struct, frozen=True, tag="observed", tag_field="is"):
    """Records that no log carried, each as `records.to_json` writes it."""

    at: float
    records: list[str]

    def observed(self) -> tuple[Record, ...]:
        """The records."""
        return tuple(map(from_json, self.records))


class Finished(msgspec.Struct, frozen=True, tag="finished", tag_field="is"):
    """Nothing more of these files was to come."""

    at: float
    paths: list[str]


class Passed(msgspec.Struct, frozen=True, tag="passed", tag_field="is"):
    """Time went by."""

    at: float


Entry: TypeAlias = Begun | Fed | Observed | Finished | Passed
_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(
    Begun | Fed | Observed | Finished | Passed
)


class Recorder:
    """Appends to a new file that only its owner may read: logs may hold secrets.

    A disk that is full ends the recording, not the monitoring, and is logged.
    Raises `UsageError` where the file is there already, or cannot be made.
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
        """Keep a chunk of a run's file, judged at `at`."""
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
        """Keep records of the host."""
        self._keep(Observed(at, [to_json(record).decode() for record in records]))

    def finished(self, paths: Sequence[str], at: float) -> None:
        """Keep that these files have ended."""
        self._keep(Finished(at, [encodable(path) for path in paths]))

    def turn(self, now: float) -> None:
        """Write what waits, a second after the last time at the earliest."""
        if now - self._flushed_at < FLUSH_SECONDS:
            return
        if not self._waiting and now - self._marked_at >= PULSE_SECONDS:
            self._keep(Passed(now))
        if self._waiting:
            self._marked_at = now
            self._flush()
        self._flushed_at = now

    def close(self) -> None:
        """Write the rest and the file's end; a file to which nothing came is taken away."""
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
    """Whether the file begins as a recording does; a pipe is left unread, and is none."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = zlib.decompressobj(_GZIP).decompress(file.read(4096), 4096)
    except (OSError, zlib.error):
        return False
    return FORMAT.encode() in head.partition(b"\n")[0]


def entries(path: Path) -> Iterator[Entry]:
    """What a recording holds, in its order, up to where it was cut off or is damaged.

    Raises `InputError` where it is none, or cannot be read.
    """
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
