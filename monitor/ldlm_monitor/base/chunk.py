"""Chunks of files, with lines or binary frames, and where each frame begins and ends.

TFRecord, the form of TensorBoard's event files: `length` (u64, little-endian), the masked
CRC-32C of these eight bytes (u32), `length` bytes, and their masked CRC-32C (u32):
tensorflow/core/lib/io/record_writer.h. If the checksum of a length is wrong, the next frame
is searched for byte by byte.

W&B's transaction log (`run-ID.wandb`): `:W&B`, a magic number (u16, little-endian) and a
version; then records in fragments, which fill blocks of 32 KiB. A fragment is the CRC-32 of
its kind and content (u32), the content's length (u16), its kind (whole, or first, middle or
last part of a record) and the content. No fragment crosses the end of a block; a rest too
short for a header is padding (wandb's core/pkg/leveldb; LevelDB's doc/log_format.md, apart
from the checksum). Blocks are counted from the file's start, so reading needs the offset.
"""

import re
import struct
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias
from zlib import crc32

Form: TypeAlias = Literal["", "tfrecord", "wandb"]
"""How a file is divided into records; "" means lines."""

HEAD_BYTES = 12
"""Bytes of a TFRecord frame before its content (u64 and u32); enough to recognise both forms."""
_FOOTER_BYTES = 4  # the checksum of the content (u32)
_UPPER_LENGTH = b"\0\0\0\0"  # of a TFRecord below 4 GiB; as text has no NULs, they show a frame
_LENGTH = struct.Struct("<QI")  # the length and its checksum (u64, u32)
_CHECKSUM = struct.Struct("<I")  # of the content (u32), in both forms
_MASK_DELTA = 0xA282EAD8  # kMaskDelta of tensorflow's core/lib/hash/crc32c.h

_WANDB_HEADER = b":W&B\xe1\xbe\x00"  # the name, the magic number 0xBEE1, version 0
_BLOCK_BYTES = 32 * 1024  # LevelDB's kBlockSize
_MAX_RECORD_BYTES = 1024 * 1024
"""Most bytes of a W&B record (1 MiB). A choice: more cost memory, fewer skip more records than the
huge summaries."""
_FRAGMENT = struct.Struct("<IHB")  # checksum, content's length, kind
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4  # kinds of a fragment (LevelDB's log_format.h)


class Fragment(NamedTuple):
    """A part of a frame, as indices in a buffer: its content is bytes `begin` to `end`.

    The checksum stands at `checksum`, and is that of bytes `checked` to `end`.
    """

    begin: int
    end: int
    checked: int
    checksum: int


class Frame(NamedTuple):
    """Bytes `start` to `end` of a buffer: a frame, or (without fragments) unreadable bytes."""

    start: int
    end: int
    crc: Callable[[bytes], int] = crc32  # computes the checksum of a fragment
    fragments: tuple[Fragment, ...] = ()

    @property
    def found(self) -> bool:
        """Whether the bytes are a frame; false for unreadable bytes between frames."""
        return bool(self.fragments)

    def payload(self, data: bytes) -> bytes | None:
        """The content of the frame; None if a checksum is wrong or the bytes are no frame."""
        for part in self.fragments:
            (checksum,) = _CHECKSUM.unpack_from(data, part.checksum)
            if self.crc(data[part.checked : part.end]) != checksum:
                return None
        parts = [data[part.begin : part.end] for part in self.fragments]
        return b"".join(parts) if parts else None


def form_of(head: bytes) -> Form | None:
    """The form of a file that begins with `head`; None if `head` is too short, or all NUL."""
    if head[4:8] == _UPPER_LENGTH[: max(len(head) - 4, 0)]:
        unwritten = not head[:HEAD_BYTES].strip(b"\0")
        if unwritten or len(head) < HEAD_BYTES:
            return None
        return "tfrecord" if frame_bytes(head, 0) is not None else ""
    if _WANDB_HEADER.startswith(head[: len(_WANDB_HEADER)]):
        return "wandb" if len(head) >= len(_WANDB_HEADER) else None
    return ""


def frames(form: Form, data: bytes, offset: int = 0, *, ended: bool = True) -> Iterator[Frame]:
    """The complete frames of a buffer, and the unreadable bytes between them, in order.

    `offset`: where the buffer begins in the file: at 0, or at the end of a frame. `ended`: the
    file does not grow, so that unreadable bytes at the end of TFRecords are returned too. If
    false, the last bytes are kept back, since a frame may begin in them.
    """
    return _transactions(data, offset) if form == "wandb" else _tfrecords(data, ended=ended)


def count_frames(form: Form, data: bytes, offset: int) -> int:
    """The number of complete frames in a buffer that begins at byte `offset` of its file."""
    return sum(frame.found for frame in frames(form, data, offset))


def frame_bytes(data: bytes, start: int) -> int | None:
    """Size in bytes of the TFRecord frame at `start`; None if its length's checksum is wrong."""
    length, checksum = _LENGTH.unpack_from(data, start)
    if masked_crc(data[start : start + 8]) != checksum:
        return None
    return int(length) + HEAD_BYTES + _FOOTER_BYTES


def masked_crc(data: bytes) -> int:
    """TFRecord's checksum: the CRC-32C of `data`, rotated by 15 bits, plus a constant."""
    crc = _crc32c()(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


@lru_cache(maxsize=1)
def _crc32c() -> Callable[[bytes], int]:
    """google_crc32c's function; imported on first use, as most monitors read no TFRecords.

    Where it has no wheel (musl), it installs as pure Python, and would warn of that on a screen.
    """
    with warnings.catch_warnings(action="ignore"):
        from google_crc32c import value

    crc: Callable[[bytes], int] = value
    return crc


def _tfrecords(data: bytes, *, ended: bool) -> Iterator[Frame]:
    start = 0
    while len(data) - start >= HEAD_BYTES:
        size = frame_bytes(data, start)
        if size is None:
            found = _next_header(data, start + 1)
            end = found if found is not None else len(data) - (0 if ended else HEAD_BYTES - 1)
            yield Frame(start, end)
        elif size > len(data) - start:
            return
        else:
            end = start + size
            begin, stop = start + HEAD_BYTES, end - _FOOTER_BYTES
            yield Frame(start, end, masked_crc, (Fragment(begin, stop, begin, stop),))
        start = end


def _next_header(data: bytes, start: int) -> int | None:
    at = data.find(_UPPER_LENGTH, start + 4)
    while at >= 0:
        begin = at - 4
        if len(data) - begin < HEAD_BYTES:
            return None
        if frame_bytes(data, begin) is not None:
            return begin
        at = data.find(_UPPER_LENGTH, at + 1)
    return None


def _transactions(data: bytes, offset: int) -> Iterator[Frame]:
    start, at = 0, 0 if offset else len(_WANDB_HEADER)
    fragments: list[Fragment] = []
    while True:
        room = _BLOCK_BYTES - (offset + at) % _BLOCK_BYTES
        if room < _FRAGMENT.size:
            at += room
            continue
        if at + _FRAGMENT.size > len(data):
            return
        _, size, kind = _FRAGMENT.unpack_from(data, at)
        begin = at + _FRAGMENT.size
        end = begin + size
        known = _WHOLE <= kind <= _LAST and end <= at + room
        if not known:
            end = at + room
        if end > len(data):
            return
        begins = kind in (_WHOLE, _FIRST)
        if known and begins and fragments:  # the record before has no last fragment
            yield Frame(start, at)
            start, fragments = at, []
        if not known or not (begins or fragments):
            yield Frame(start, end)
            start, fragments = end, []
        else:
            # The checksum covers the kind, the byte before the content.
            fragments.append(Fragment(begin, end, begin - 1, at))
            if kind in (_WHOLE, _LAST):
                yield Frame(start, end, crc32, tuple(fragments))
                start, fragments = end, []
            elif end - start > _MAX_RECORD_BYTES:
                yield Frame(start, end)
                start, fragments = end, []
        at = end


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
    `framed`: the form of binary frames in `data`, "" for lines; `line` then counts frames.
    `continues`: the path of the older file of a rotated log that these bytes follow on; else "".
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
    continues: str = ""
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
