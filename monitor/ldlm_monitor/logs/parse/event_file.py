"""TensorBoard's event files: scalars with step and wall time, in one frame each.

A frame contains an `Event` (tensorflow/core/util/event.proto) with the fields 1 wall_time
(double), 2 step (varint) and 5 summary. Field 1 of a summary is a value (summary.proto) with
1 tag, 2 simple_value (float), 8 tensor, 9 metadata. torch writes `simple_value`; TensorFlow 2
and JAX write a tensor without dimensions (tensor.proto). The wire format of these few fields
is decoded here, as packages that do it install all of TensorFlow, TensorBoard or W&B.
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import TypeAlias

from ldlm_monitor.base.chunk import Chunk, Origin, frames
from ldlm_monitor.base.records import MAX_COUNT, Record
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.jsonl import unix_time
from ldlm_monitor.logs.parse.numbers import Numbers
from ldlm_monitor.logs.parse.text_lines import WholeFile
from ldlm_monitor.logs.parse.vocabulary import MAX_KEY

Field: TypeAlias = tuple[int, int | bytes]
"""A field's number, and its value: the number of a varint, otherwise the field's bytes."""

_DAMAGE = (struct.error, IndexError, ValueError, OverflowError)
"""The errors that reading a damaged message raises: numbers of a wrong length, an index beyond the
message, an unknown type, a value that no number can have."""


def fields_of(content: bytes) -> Iterator[Field]:
    """A message's fields (protobuf.dev/programming-guides/encoding); raises errors of `_DAMAGE`."""
    at, end = 0, len(content)
    while at < end:
        key, at = varint(content, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(content, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = varint(content, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError("an unknown wire type")
        if size > end - at:
            raise ValueError("a field is longer than its message")
        yield key >> 3, content[at : at + size]
        at += size


def varint(content: bytes, at: int) -> tuple[int, int]:
    """The varint (seven bits per byte) at `at`, and the index after; raises errors of `_DAMAGE`."""
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than 64 bits")


_CONTENT = {1: "<f", 2: "<d"}
"""The `struct` format of `tensor_content` by `dtype`: DT_FLOAT and DT_DOUBLE of types.proto."""
_LISTS = {5: "<f", 6: "<d"}
"""The `struct` format of a tensor's fields 5 `float_val` and 6 `double_val` (tensor.proto)."""
_TIME_KEY = b"\x09"
"""The encoded key of field 1 (wall_time) with wire type 1 (8 bytes)."""
# Folders to which Keras ("validation") and other trainers write the scalars of an evaluation.
_EVALUATIONS = frozenset(("validation", "val", "eval", "test"))


class FrameReader(WholeFile):
    """Reads one file of binary frames. `errors` counts damaged frames."""

    def feed(self, chunk: Chunk, origin: Origin) -> list[Record]:
        """The records of a chunk's frames, in order; a position's `line` is the frame's number."""
        found: list[Record] = []
        line = chunk.line
        for frame in frames(chunk.framed, chunk.data, chunk.offset):
            content = frame.payload(chunk.data)
            place = RecordPlace.of(chunk, line, chunk.offset + frame.start, origin)
            try:
                if content is None:
                    self.errors += 1
                else:
                    found += self.records(content, place)
            except _DAMAGE:
                self.errors += 1
            except Exception as fault:  # noqa: BLE001 # a bug of ours costs this frame alone
                self.on_fault(place.position, fault)
            line += frame.found
        return found

    @classmethod
    def times(cls, chunk: Chunk) -> Iterator[tuple[int, float]]:
        """The offset of each frame that has a time, and its time (Unix seconds)."""
        for frame in frames(chunk.framed, chunk.data, chunk.offset):
            try:
                when = cls.time_of(frame.payload(chunk.data) or b"")
            except _DAMAGE:
                continue
            if when is not None:
                yield chunk.offset + frame.start, when

    def records(self, content: bytes, place: RecordPlace) -> Iterable[Record]:
        """The records of a frame. Raises an error of `_DAMAGE` if it is damaged."""
        raise NotImplementedError

    @staticmethod
    def time_of(content: bytes) -> float | None:
        """When a frame was written (Unix seconds); None if it has no time."""
        raise NotImplementedError


class EventFileReader(FrameReader):
    """Reads TensorBoard's scalars.

    Tags can count different things: a loss can count iterations, an accuracy epochs. The run's
    step is that of the tag with the highest step. In a folder of `_EVALUATIONS`, tags get the
    prefix `val_`, as Keras writes `epoch_loss` there too.
    """

    name = "TensorBoard"

    def __init__(self, path: str) -> None:
        self._step = -1
        self._leader = b""
        folder = PurePosixPath(path).parent.name
        self._prefix = b"val_" if folder in _EVALUATIONS else b""

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
