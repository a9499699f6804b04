"""TensorBoard's event files: scalars with step and wall time, in one frame each.

A frame is a TFRecord: `length` (u64, little-endian), the masked CRC-32C of these eight bytes (u32),
`length` bytes, and their masked CRC-32C (u32): tensorflow/core/lib/io/record_writer.h. If the
checksum of a length is wrong, the next frame is searched for byte by byte.

A frame contains an `Event` (tensorflow/core/util/event.proto) with the fields 1 wall_time
(double), 2 step (varint) and 5 summary. Field 1 of a summary is a value (summary.proto) with
1 tag, 2 simple_value (float), 8 tensor, 9 metadata. torch writes `simple_value`; TensorFlow 2
and JAX write a tensor without dimensions (tensor.proto).
"""

import struct
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Self

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.framing import Fragment, Frame, Framing
from ldlm_monitor.base.records import MAX_COUNT, Record
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.frame_reader import FrameReader, fields_of
from ldlm_monitor.logs.parse.jsonl import unix_time
from ldlm_monitor.logs.parse.numbers import Numbers
from ldlm_monitor.logs.parse.vocabulary import MAX_KEY

_HEAD_BYTES = 12  # of a frame before its content (u64 and u32)
_FOOTER_BYTES = 4  # the checksum of the content (u32)
_UPPER_LENGTH = b"\0\0\0\0"  # of a TFRecord below 4 GiB; as text has no NULs, they show a frame
_LENGTH = struct.Struct("<QI")  # the length and its checksum (u64, u32)
_MASK_DELTA = 0xA282EAD8  # kMaskDelta of tensorflow's core/lib/hash/crc32c.h


class TfRecords(Framing):
    """TFRecord: a length and a content, each with its checksum."""

    name = "tfrecord"

    def begins(self, head: bytes) -> bool | None:
        """Whether a length with its checksum stands first; None for too few bytes, or all NUL."""
        if head[4:8] != _UPPER_LENGTH[: max(len(head) - 4, 0)]:
            return False
        unwritten = not head[:_HEAD_BYTES].strip(b"\0")
        return None if unwritten or len(head) < _HEAD_BYTES else _size(head, 0) is not None

    def frames(self, data: bytes, offset: int = 0, *, ended: bool = True) -> Iterator[Frame]:
        """The complete frames; only the end of a file that has `ended` can hold no other."""
        del offset
        start = 0
        while len(data) - start >= _HEAD_BYTES:
            size = _size(data, start)
            if size is None:
                found = _next_header(data, start + 1)
                end = found if found is not None else len(data) - (0 if ended else _HEAD_BYTES - 1)
                yield Frame(start, end)
            elif size > len(data) - start:
                return
            else:
                end = start + size
                begin, stop = start + _HEAD_BYTES, end - _FOOTER_BYTES
                yield Frame(start, end, masked_crc, (Fragment(begin, stop, begin, stop),))
            start = end

    def size_at(self, data: bytes, start: int) -> int | None:
        """Size in bytes of the frame at `start`; None if its length is cut or damaged."""
        return _size(data, start) if len(data) - start >= _HEAD_BYTES else None


def _next_header(data: bytes, start: int) -> int | None:
    at = data.find(_UPPER_LENGTH, start + 4)
    while at >= 0:
        begin = at - 4
        if len(data) - begin < _HEAD_BYTES:
            return None
        if _size(data, begin) is not None:
            return begin
        at = data.find(_UPPER_LENGTH, at + 1)
    return None


def _size(data: bytes, start: int) -> int | None:
    """Size in bytes of the TFRecord frame at `start`; None if its length's checksum is wrong."""
    length, checksum = _LENGTH.unpack_from(data, start)
    if masked_crc(data[start : start + 8]) != checksum:
        return None
    return int(length) + _HEAD_BYTES + _FOOTER_BYTES


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


_CONTENT = {1: "<f", 2: "<d"}
"""The `struct` format of `tensor_content` by `dtype`: DT_FLOAT and DT_DOUBLE of types.proto."""
_LISTS = {5: "<f", 6: "<d"}
"""The `struct` format of a tensor's fields 5 `float_val` and 6 `double_val` (tensor.proto)."""
_TIME_KEY = b"\x09"
"""The encoded key of field 1 (wall_time) with wire type 1 (8 bytes)."""
# Folders to which Keras ("validation") and other trainers write the scalars of an evaluation.
_EVALUATIONS = frozenset(("validation", "val", "eval", "test"))


class EventFileReader(FrameReader):
    """Reads TensorBoard's scalars.

    Tags can count different things: a loss can count iterations, an accuracy epochs. The run's
    step is that of the tag with the highest step. In a folder of `_EVALUATIONS`, tags get the
    prefix `val_`, as Keras writes `epoch_loss` there too.
    """

    name = "TensorBoard"
    about = "event files of torch, TensorFlow 2 and JAX: scalars, CRC checked"
    framing = TfRecords()

    def __init__(self, path: str) -> None:
        self._step = -1
        self._leader = b""
        folder = PurePosixPath(path).parent.name
        self._prefix = b"val_" if folder in _EVALUATIONS else b""

    @classmethod
    def of(cls, chunk: Chunk) -> Self | None:
        """A reader of any file with such frames; its folder says whether of an evaluation."""
        return cls(chunk.path)

    @classmethod
    def is_tracker(cls, name: str) -> bool:
        """Whether a file has the mark that TensorBoard itself looks for."""
        return ".tfevents." in name

    def records(self, content: bytes, place: RecordPlace) -> Iterator[Record]:
        """The scalars of an event as one sample."""
        step = 0
        numbers = Numbers()
        leads = False
        for number, part in fields_of(content):
            if number == 1:
                numbers.time = unix_time(_real(part, "<d"))
            elif number == 2 and isinstance(part, int):
                step = part
            elif number == 5 and isinstance(part, bytes):
                for tag, value in _values(part):
                    leads |= self._leads(tag, step)
                    numbers.add((self._prefix + tag).decode("utf-8", "replace"), value)
        if numbers.values:
            numbers.step = step if leads else None
            numbers.rank = None  # a tag `rank` is a setting, such as LoRA's
            yield numbers.at(place)

    @staticmethod
    def time_of(content: bytes) -> float | None:
        """When an event was written (Unix seconds); None if the time is not the first field."""
        return unix_time(_real(content[1:9], "<d")) if content[:1] == _TIME_KEY else None

    def _leads(self, tag: bytes, step: int) -> bool:
        """Whether `step`, at which this tag was written, is the run's step."""
        if step >= MAX_COUNT:
            return False
        if step > self._step:
            self._leader = tag
        if step >= self._step or tag == self._leader:
            self._step = step
            return True
        return False


def _values(summary: bytes) -> Iterator[tuple[bytes, float]]:
    for number, part in fields_of(summary):
        if number == 1 and isinstance(part, bytes):
            tag, value = _value(part)
            if tag and value is not None:
                yield tag[:MAX_KEY], value


def _value(content: bytes) -> tuple[bytes, float | None]:
    """A value's tag and number; None instead of the number if it is no scalar."""
    tag, value, plugin = b"", None, b""
    for number, part in fields_of(content):
        if number == 1 and isinstance(part, bytes):
            tag = part
        elif number == 2:
            value = _real(part, "<f")
        elif number == 8 and isinstance(part, bytes):
            value = _tensor(part)
        elif number == 9 and isinstance(part, bytes):
            plugin = _plugin(part)
    # Tensors of other plugins, such as hparams, can be without dimensions but are no scalars.
    return tag, value if plugin in (b"", b"scalars") else None


def _plugin(metadata: bytes) -> bytes:
    """`plugin_data.plugin_name`: the view of TensorBoard that a value is for."""
    data = dict(fields_of(metadata)).get(1)
    name = dict(fields_of(data)).get(1) if isinstance(data, bytes) else None
    return name if isinstance(name, bytes) else b""


def _tensor(content: bytes) -> float | None:
    """The number of a tensor without dimensions; None for any other tensor."""
    kind, values = 0, []
    for number, part in fields_of(content):
        if number == 1 and isinstance(part, int):
            kind = part
        elif number == 2 and part:
            return None
        elif number == 4 and kind in _CONTENT:
            values.append(_real(part, _CONTENT[kind]))
        elif number in _LISTS:
            values.append(_real(part, _LISTS[number]))
    return values[0] if len(values) == 1 else None


def _real(part: int | bytes, form: str) -> float | None:
    """The number in `part` by the `struct` format `form`; None for a varint or another length."""
    if not isinstance(part, bytes) or len(part) != struct.calcsize(form):
        return None
    value = float(struct.unpack(form, part)[0])
    # A float of four bytes has seven digits: 0.1 is meant, not 0.10000000149011612.
    return value if form != "<f" or value.is_integer() else float(f"{value:.7g}")
