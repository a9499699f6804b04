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

_LEAST_ROOM, _MOST_ROOM = 256, 1024
"""Rows of the first call of the compiled part, and of the last ones. A choice: more take memory,
which is filled with zeros, for each stretch of few rows; fewer cost time for each call."""
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

    offsets: list[int]
    stop: int
    steps: list[int] | None = None
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

    def read(self, data: bytes, start: int, base: int) -> RowColumns:
        """See `RowDecoder`."""
        found, room = RowColumns([], start, [], rises=True), _LEAST_ROOM
        while self._read_more(found, data, base, room):
            room = min(2 * room, _MOST_ROOM)
        for index, cells in [*found.sparse.items()]:
            if len(cells) in (0, len(found)):
                del found.sparse[index]
            if len(cells) == len(found):
                found.full[index] = [*cells.values()]
        return found

    def _read_more(self, found: RowColumns, data: bytes, base: int, room: int) -> bool:
        """Add up to `room` rows to those found; False if no more of them follow."""
        python, count = self._python, 0
        cells, offsets = array("d", bytes(8 * room * len(python.keys))), array("q", bytes(8 * room))
        first, stop = cells.buffer_info()[0], ctypes.c_int64()
        while count < room:
            count += self._native.ldlm_rows_read(
                self._shape, data, len(data), found.stop, base, room - count, room,
                first + 8 * count, offsets.buffer_info()[0] + 8 * count, ctypes.byref(stop),
            )  # fmt: skip
            found.stop = stop.value
            if count == room:
                break
            end = data.find(b"\n", found.stop)
            row = data[found.stop :] if end < 0 else data[found.stop : end]
            by_python = python.cells(row) if row else None
            if by_python is None:
                break
            for index, cell in zip(python.numbers, by_python, strict=True):
                cells[index * room + count] = cell
            offsets[count] = base + found.stop
            found.stop = len(data) if end < 0 else end + 1
            count, found.singly = count + 1, found.singly + 1
        if count:
            self._add_columns(found, cells, room, count)
            found.offsets += offsets[:count].tolist()
        return count == room

    def _add_columns(self, found: RowColumns, cells: array[float], room: int, count: int) -> None:
        """Add `count` rows that were read into `cells`: columns of `room` numbers each."""
        native, step, time, known = self._native, self._python.step, self._time, len(found)
        whole, first = array("q", bytes(8 * count)), cells.buffer_info()[0]
        where, width = whole.buffer_info()[0], 8 * room
        for index, repeats in ((step, False), (time, True)):
            if index is None:
                continue
            last = found.full[index][-1] if known else -math.inf
            follows = last < cells[index * room] or (repeats and last == cells[index * room])
            rises = native.ldlm_rows_rise(first + width * index, count, repeats)
            found.rises = found.rises and follows and bool(rises)
        for index in self._python.numbers:
            start = index * room
            if index < self._python.required:
                found.full.setdefault(index, []).extend(cells[start : start + count].tolist())
                continue
            present = native.ldlm_rows_present(first + 8 * start, count, where)
            sparse = found.sparse.setdefault(index, {})
            sparse.update((known + row, cells[start + row]) for row in whole[:present])
        is_whole = native.ldlm_rows_steps(first + width * step, count, MAX_COUNT, where)
        if found.steps is not None and is_whole:
            found.steps += whole.tolist()
        else:
            found.steps = None


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
