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
from ldlm_monitor.base.records import MAX_COUNT

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
    those of keys that some rows have, by row. `steps`: the number of the key that is the step; None
    if one is not whole. `rises`: it is known that they rise, and that times do not fall. `singly`:
    rows that the compiled part left to Python.
    """

    offsets: Sequence[int]
    stop: int
    steps: Sequence[int] | None = None
    rises: bool = False
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


def row_decoder(signed: Signature, optional: Signature, step: int, time: int | None) -> RowDecoder:
    """Make the decoder of rows that have the keys of `signed`, and any of `optional`.

    `step` and `time`: the indices of those keys.
    """
    python = PythonRows(signed, optional, step)
    native = library()
    plain = all(key.isprintable() and not {*'"\\'} & {*key} for key, _ in (*signed, *optional))
    return python if native is None or not plain else NativeRows(native, python, time)


class PythonRows:
    """Decodes by a msgspec struct made for the keys."""

    def __init__(self, signed: Signature, optional: Signature, step: int) -> None:
        self.step = step
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
            if index < self.required:
                found.full[index] = column
                continue
            present = [cell is not msgspec.UNSET for cell in column]
            if all(present):
                found.full[index] = column
            elif any(present):
                found.sparse[index] = dict(compress(enumerate(column), present))
        steps = found.full[self.step]
        found.steps = list(map(int, steps)) if all(map(float.is_integer, steps)) else None
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

    def __init__(self, native: ctypes.PyDLL, python: PythonRows, time: int | None) -> None:
        self._native, self._python, self._time = native, python, time
        names = [key.encode() for key, _ in python.keys]
        lengths = array("q", map(len, names))
        kinds = b"".join(_LETTERS[kind] for _, kind in python.keys)
        self._shape = native.ldlm_row_shape_new(
            b"".join(names), lengths.buffer_info()[0], kinds, python.required, len(names)
        )
        if not self._shape:
            raise MemoryError
        weakref.finalize(self, native.ldlm_row_shape_free, self._shape)
        # Least bytes of a row: `"key":0,` for each key, and more.
        self._least = sum(len(name) + 4 for name in names[: python.required])

    def read(self, data: bytes, start: int, base: int) -> RowColumns:
        """See `RowDecoder`."""
        python, count, at, singly = self._python, 0, start, 0
        room = (len(data) - start) // self._least + 1
        cells, offsets = array("d", (0.0,)) * (room * len(python.keys)), array("q", (0,)) * room
        first, stop = cells.buffer_info()[0], ctypes.c_int64()
        while True:
            count += self._native.ldlm_rows_read(
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
        if count:
            self._add_columns(found, cells, room)
        return found

    def _add_columns(self, found: RowColumns, cells: array[float], room: int) -> None:
        """Add what was read into `cells`: columns of `room` numbers each."""
        native, count, step = self._native, len(found), self._python.step
        whole, first = array("q", (0,)) * count, cells.buffer_info()[0]
        where = whole.buffer_info()[0]
        for index in self._python.numbers:
            start = index * room
            if index >= self._python.required:
                present = native.ldlm_rows_present(first + 8 * start, count, where)
                if present < count:
                    rows = whole[:present].tolist()
                    if rows:
                        found.sparse[index] = {row: cells[start + row] for row in rows}
                    continue
            found.full[index] = cells[start : start + count].tolist()
        steps = first + 8 * room * step
        if native.ldlm_rows_steps(steps, count, MAX_COUNT, where):
            found.steps = whole.tolist()
        rises, time = native.ldlm_rows_rise, self._time
        found.rises = bool(rises(steps, count, 0)) and (
            time is None or bool(rises(first + 8 * room * time, count, 1))
        )


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
