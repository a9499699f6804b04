"""A monitor's input in a file: bytes of logs with their arrival times, and the host's records.

The file is gzip around JSON lines, so that `zcat` reads it. The first line is `Begun`. Entries
are flushed every second, so that a kill loses one second at most. A file without gzip's end, as
after a kill, is read as far as it goes.
"""

from __future__ import annotations

import logging
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from gzip import BadGzipFile, GzipFile
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import msgspec

from ldlm_monitor.base.chunk import Chunk, FileId
from ldlm_monitor.base.errors import InputError, UsageError
from ldlm_monitor.base.records import Record, from_json, to_json
from ldlm_monitor.base.text.sanitize import encodable, plain
from ldlm_monitor.logs.parse import framing_named

FORMAT = "ldlm-recording/1"
"""The file's mark in its first line; the number rises with an incompatible change."""
MAX_BYTES = 1 << 30
"""Bytes at which a recording ends: a choice; 4 to 18 GiB of logs, and more may fill a disk."""
FLUSH_SECONDS = 1.0  # between flushes, a choice: more loses more at a kill, less compresses worse
PULSE_SECONDS = 5.0
"""Seconds between `Passed` entries, by which a recorded hang goes on: as `evaluation_interval`."""
_ALIKE = ("file", "offset", "line", "final", "peek", "age", "timed")
"""The fields that `Chunk` and `Fed` have in common."""
_LEVEL = 3  # of zlib: the pump waits for it; level 6 saves 10 to 26 % more of four public logs
_HEAD = 4096  # bytes of the first line that may hold `FORMAT`: an input's path stands before it
# Errors of reading a file that is cut off or damaged.
_DAMAGE = (BadGzipFile, EOFError, zlib.error, msgspec.DecodeError, UnicodeDecodeError)
_LONGEST_LINE = 16 << 20
"""Bytes; a longer line counts as damaged: a record has 1 MiB at most, as escaped JSON 6 MiB."""

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
    """A chunk of `run`, judged at `at` (Unix s); UTF-8 bytes are in `text`, others in `data`."""

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
    framed: str = ""
    continues: str = ""

    def chunk(self) -> Chunk:
        """The chunk of this entry."""
        data = self.data if self.text is None else self.text.encode()
        framed = framing_named(self.framed)
        return Chunk(path=self.path, data=data, framed=framed, **_as_they_are(self))

    def __post_init__(self) -> None:
        framing_named(self.framed)  # raises for one that this version cannot read


class Observed(msgspec.Struct, frozen=True, tag="observed", tag_field="is"):
    """Records that are in no log, judged at `at` (Unix seconds); each is JSON of `to_json`."""

    at: float
    records: list[str]

    def observed(self) -> tuple[Record, ...]:
        """The records of this entry."""
        return tuple(map(from_json, self.records))


class Finished(msgspec.Struct, frozen=True, tag="finished", tag_field="is"):
    """The files `paths` ended at `at` (Unix seconds)."""

    at: float
    paths: list[str]


class Passed(msgspec.Struct, frozen=True, tag="passed", tag_field="is", omit_defaults=True):
    """Time passed until `at` (Unix seconds) without other input.

    `read_to`: what `Monitor.hold` got then; `left_out`: what `leave_out` got; `ends`: what
    `Fleet.set_ends` got, with None where no silence counts, as JSON has no infinite numbers.
    """

    at: float
    read_to: dict[str, float] | None = None
    left_out: float = 0.0
    ends: dict[str, float | None] | None = None


Entry: TypeAlias = Begun | Fed | Observed | Finished | Passed
_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(
    Begun | Fed | Observed | Finished | Passed
)


class Recorder:
    """Appends to a new file that only its owner may read: logs may hold secrets.

    A full disk ends the recording, with a log line, and not the monitoring. `shown`: the inputs as
    the screen names them. `now`: Unix seconds. `limit`: bytes. Raises `UsageError` if the file
    exists already, or cannot be made.
    """

    def __init__(self, path: Path, shown: str, now: float, *, limit: int = MAX_BYTES) -> None:
        self._path = path
        self._limit = limit
        self._is_empty = True
        self._is_flushed = False
        self._flushed_at = self._marked_at = now
        try:
            self._file: BinaryIO | None = open(path, "xb", opener=partial(os.open, mode=0o600))  # noqa: SIM115
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
        self._gzip = GzipFile("", "wb", _LEVEL, self._file)
        self._keep(Begun(now, shown))
        self._do(self._gzip.flush)
        self._is_empty = self._is_flushed = True

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
                framed=chunk.framed.name if chunk.framed else "",
                **_as_they_are(chunk),
            )
        )

    def observed(self, records: Iterable[Record], at: float) -> None:
        """Record the host's records, judged at `at` (Unix seconds)."""
        self._keep(Observed(at, [to_json(record).decode() for record in records]))

    def finished(self, paths: Sequence[str], at: float) -> None:
        """Record that these files ended at `at` (Unix seconds)."""
        self._keep(Finished(at, [encodable(path) for path in paths]))

    def passed(
        self,
        at: float,
        *,
        read_to: Mapping[str, float] | None = None,
        left_out: float = 0.0,
        ends: Mapping[str, float] | None = None,
    ) -> None:
        """Record what counts as silence from `at` (Unix seconds) on; arguments as in `Passed`."""
        held = None if read_to is None else {encodable(run): up for run, up in read_to.items()}
        ended = None
        if ends is not None:
            ended = {encodable(run): up if up > -math.inf else None for run, up in ends.items()}
        self._keep(Passed(at, held, left_out, ended))

    def turn(self, now: float) -> None:
        """Write the waiting entries, once in `FLUSH_SECONDS` or if the clock (`now`) went back."""
        if 0 <= now - self._flushed_at < FLUSH_SECONDS:
            return
        if self._is_flushed and not 0 <= now - self._marked_at < PULSE_SECONDS:
            self._keep(Passed(now))
        if not self._is_flushed:
            self._marked_at = now
            self._do(self._gzip.flush)
            self._is_flushed = True
        self._flushed_at = now

    def close(self) -> None:
        """Write the rest and gzip's end; delete the file if nothing was recorded."""
        self._do(self._gzip.close)
        if self._file is not None:
            self._file.close()
            self._file = None
            if self._is_empty:
                self._path.unlink(missing_ok=True)

    def _keep(self, entry: Entry) -> None:
        self._is_empty = self._is_flushed = False
        self._do(self._gzip.write, msgspec.json.encode(entry) + b"\n")

    def _do(self, work: Callable[..., object], *given: bytes) -> None:
        """Call a method that writes; an error or the limit ends the recording."""
        if self._file is None:
            return
        try:
            work(*given)
        except OSError as error:
            self._give_up(self._file, f"cannot be written ({error.strerror})")
        else:
            if (size := self._file.tell()) >= self._limit:
                self._give_up(self._file, f"holds {size >> 20} MiB")

    def _give_up(self, file: BinaryIO, why: str) -> None:
        for each in (self._gzip, file):
            with suppress(OSError):  # closing writes what is held, to the disk that may be full
                each.close()
        self._file = None
        log.warning("%s: %s; the recording ends here", plain(str(self._path)), why)


def is_recording(path: Path) -> bool:
    """Whether a file begins as a recording does; False for a pipe, and if it cannot be read."""
    try:
        if not path.is_file():
            return False
        with GzipFile(path) as file:
            return FORMAT.encode() in file.readline(_HEAD)
    except (OSError, EOFError, zlib.error):
        return False


def entries(path: Path) -> Iterator[Entry]:
    """The entries until a recording is cut off or damaged. Raises `InputError` for other files."""
    if not is_recording(path):
        raise InputError(
            "is no readable recording", where=str(path), remedy="name a file of --record, or logs"
        )
    with GzipFile(path) as file, suppress(*_DAMAGE):
        while line := file.readline(_LONGEST_LINE):
            yield _DECODER.decode(line)
