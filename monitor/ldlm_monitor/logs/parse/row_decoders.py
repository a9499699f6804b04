"""Decodes JSON rows of one shape to columns, with the compiled part or by msgspec alone.

Both give the same. What the compiled part does not take (`native/rows.h`: escapes, huge numbers,
texts beyond ASCII), it leaves to msgspec, row by row, and the columns go on.
"""

from __future__ import annotations

import ctypes
import io
import math
import weakref
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from ldlm_monitor.base.native import library

ValueKind: TypeAlias = Literal["number", "str", "bool", "none", "step row"]
"""The kinds of JSON values in flat rows; `step row` is the `type` of the callback's metric rows."""
Signature: TypeAlias = tuple[tuple[str, ValueKind], ...]
"""A row's keys in their order, each with the kind of its value."""

_FIELD_TYPES: dict[ValueKind, Any] = {  # what msgspec accepts as a value of each kind
    "number": float,
    "str": str,
    "bool": bool,
    "none": None,
    "step row": Literal["step"],
}
_LETTERS: dict[ValueKind, bytes] = {  # as in `native/rows.h`
    "number": b"n",
    "str": b"s",
    "bool": b"b",
    "none": b"0",
    "step row": b"t",
}


@dataclass(slots=True)
class RowColumns:
    """Consecutive rows of one shape, as columns by the index of their key in the shape.

    `offsets`: where each row begins in the file. `stop`: where in the data the first row begins
    that is not among them, or the end. `full`: the numbers of keys that all rows have. `sparse`:
    those of keys that some rows have, by row. `singly`: rows that the compiled part left to Python.
    """

    offsets: Sequence[int]
    stop: int
    full: dict[int, list[float]] = field(default_factory=dict)
    sparse: dict[int, dict[int, float]] = field(default_factory=dict)
    singly: int = 0

    def __len__(self) -> int:
        return len(self.offsets)


class RowDecoder(Protocol):
    """Reads rows of one shape."""

    def read(self, data: bytes, start: int, base: int) -> RowColumns:
        """The rows from index `start` on, up to the first row of another form.

        The data begin at byte `base` of the file.
        """
        ...


def row_decoder(signed: Signature, optional: Signature) -> RowDecoder:
    """Make the decoder of rows that have the keys of `signed`, and any of `optional`."""
    python = PythonRows(signed, optional)
    native = library()
    plain = all(key.isprintable() and not {*'"\\'} & {*key} for key, _ in (*signed, *optional))
    return NativeRows(native, python) if native is not None and plain else python


class PythonRows:
    """Decodes by a msgspec struct made for the keys."""

    def __init__(self, signed: Signature, optional: Signature) -> None:
        self.keys, self.required = (*signed, *optional), len(signed)
        self.numbers = [index for index, (_, kind) in enumerate(self.keys) if kind == "number"]
        self._decode = _msgspec_decoder(signed, optional).decode

    def read(self, data: bytes, start: int, base: int) -> RowColumns:
        """See `RowDecoder`."""
        rows: list[msgspec.Struct] = []
        lines = io.BytesIO(data)
        lines.seek(start)
        # The rows decoded before an exception stay in the list.
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            rows.extend(map(self._decode, lines))
        offsets, at = [], start
        for _ in rows:
            offsets.append(base + at)
            at = data.find(b"\n", at) + 1 or len(data)
        cells = list(chain.from_iterable(map(msgspec.structs.astuple, rows)))
        found = RowColumns(offsets, at)
        for index in self.numbers:
            column = cells[index :: len(self.keys)]
            present = (
                [cell is not msgspec.UNSET for cell in column] if index >= self.required else ()
            )
            _put(found, index, column, present)
        return found

    def cells(self, row: bytes) -> list[float] | None:
        """The numbers of one row, NaN for missing ones; None for a row of another form."""
        try:
            cells = msgspec.structs.astuple(self._decode(row))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        found = (cells[index] for index in self.numbers)
        return [math.nan if cell is msgspec.UNSET else cell for cell in found]


class NativeRows:
    """Decodes with the compiled part, and by `python` what that does not take."""

    def __init__(self, native: ctypes.PyDLL, python: PythonRows) -> None:
        self._python = python
        names = [key.encode() for key, _ in python.keys]
        lengths = array("q", map(len, names))
        kinds = b"".join(_LETTERS[kind] for _, kind in python.keys)
        self._shape = native.ldlm_row_shape_new(
            b"".join(names), lengths.buffer_info()[0], kinds, python.required, len(names)
        )
        if not self._shape:
            raise MemoryError
        weakref.finalize(self, native.ldlm_row_shape_free, self._shape)
        self._read = native.ldlm_rows_read
        # Least bytes of a row: `"key":0,` for each key, and more.
        self._least = sum(len(name) + 4 for name in names[: python.required])

    def read(self, data: bytes, start: int, base: int) -> RowColumns:
        """See `RowDecoder`."""
        python, count, at, singly = self._python, 0, start, 0
        room = (len(data) - start) // self._least + 1
        memory, offsets = bytearray(8 * room * len(python.keys)), array("q", bytes(8 * room))
        first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        cells, stop = memoryview(memory).cast("d"), ctypes.c_int64()
        while True:
            count += self._read(
                self._shape, data, len(data), at, base, room - count, room,
                first + 8 * count, offsets.buffer_info()[0] + 8 * count, ctypes.byref(stop),
            )  # fmt: skip
            at = stop.value
            end = data.find(b"\n", at)
            row = data[at:] if end < 0 else data[at:end]
            by_python = python.cells(row) if row else None
            if by_python is None:
                break
            for index, cell in zip(python.numbers, by_python, strict=True):
                cells[index * room + count] = cell
            offsets[count] = base + at
            at = len(data) if end < 0 else end + 1
            count, singly = count + 1, singly + 1
        found = RowColumns(offsets[:count].tolist(), at, singly=singly)
        for index in python.numbers:
            column = cells[index * room : index * room + count].tolist()
            present = [cell == cell for cell in column] if index >= python.required else ()  # noqa: PLR0124 # NaN
            _put(found, index, column, present)
        return found


def _put(found: RowColumns, index: int, column: list[float], present: Sequence[bool]) -> None:
    """Add a column; `present`: which rows have the key, empty if all do."""
    if all(present):
        found.full[index] = column
    elif any(present):
        found.sparse[index] = dict(compress(enumerate(column), present))


def _msgspec_decoder(
    signed: Signature, optional: Signature
) -> msgspec.json.Decoder[msgspec.Struct]:
    fields: list[tuple[Any, ...]] = [(_FIELD_TYPES[kind],) for _, kind in signed]
    fields += [(_FIELD_TYPES[kind] | msgspec.UnsetType, msgspec.UNSET) for _, kind in optional]
    row = msgspec.defstruct(
        "Row",
        [(f"f{index}", *field) for index, field in enumerate(fields)],
        rename={f"f{index}": key for index, (key, _) in enumerate((*signed, *optional))},
        forbid_unknown_fields=True,
        gc=False,
    )
    return msgspec.json.Decoder(row)
