"""Reads pickles of plain data, and nothing else.

A pickle is a program for a stack machine (CPython, Lib/pickletools.py). Of its opcodes only
those are known here that make dict, list, tuple, str, int, float, bool and None; none
imports, none calls. So a file that anyone may have written can be read: the worst it can
do is to be refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

MAX_BYTES = 16 * 1024 * 1024
"""Fifty times a flight recorder's usual 2,000 entries with their stacks."""
_INT = struct.Struct("<i")
_UINT2, _UINT4, _UINT8 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")
_FLOAT = struct.Struct(">d")
_MAX_DIGITS = 32
"""Bytes of an integer; a time in nanoseconds has eight."""


class PlainPickleError(ValueError):
    """The bytes are no pickle of plain data, or end before it does."""


def load(data: bytes) -> object:
    """The value that `data` holds; containers may be shared, even hold themselves.

    Raises `PlainPickleError`.
    """
    if len(data) > MAX_BYTES:
        raise PlainPickleError(f"larger than {MAX_BYTES} bytes")
    try:
        return _Machine(data).run()
    except PlainPickleError:
        raise
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise PlainPickleError(f"malformed ({type(error).__name__})") from error


class _Machine:
    """The stack, the memo, and where in the bytes it stands."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._marked: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> object:
        data, known = self._data, _OPCODES
        while True:
            opcode = data[self._at]
            self._at += 1
            if opcode == _STOP:
                return self._stack.pop()
            work = known.get(opcode)
            if work is None:
                raise PlainPickleError(f"opcode {bytes((opcode,))!r} does not make plain data")
            work(self)

    def push(self, value: object) -> None:
        self._stack.append(value)

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) < count:
            raise PlainPickleError("cut short")
        self._at += count
        return found

    def number(self, form: struct.Struct) -> int:
        return int(form.unpack(self.take(form.size))[0])

    def text(self, size: int) -> None:
        self.push(self.take(size).decode("utf-8", "replace"))

    def long(self, size: int) -> None:
        if size > _MAX_DIGITS:
            raise PlainPickleError("an integer of too many digits")
        self.push(int.from_bytes(self.take(size), "little", signed=True))

    def mark(self) -> None:
        self._marked.append(self._stack)
        self._stack = []

    def to_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._marked.pop()
        return items

    def put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def memoize(self) -> None:
        self.put(len(self._memo))

    def get(self, index: int) -> None:
        self.push(self._memo[index])

    def append(self) -> None:
        item = self._stack.pop()
        self._list().append(item)

    def appends(self) -> None:
        items = self.to_mark()
        self._list().extend(items)

    def set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set([key], [value])

    def set_items(self) -> None:
        items = self.to_mark()
        self._set(items[::2], items[1::2])

    def tuple_of(self, count: int) -> None:
        items = tuple(self._stack[-count:])
        if len(items) < count:
            raise PlainPickleError("cut short")
        self._stack[-count:] = [items]

    def frame(self) -> None:
        self.take(8)

    def protocol(self) -> None:
        self.take(1)

    def pop(self) -> None:
        self._stack.pop()

    def _list(self) -> list[Any]:
        found = self._stack[-1]
        if type(found) is not list:
            raise PlainPickleError("something appended to what is no list")
        return found

    def _set(self, keys: list[Any], values: list[Any]) -> None:
        found = self._stack[-1]
        if type(found) is not dict:
            raise PlainPickleError("an item set in what is no dict")
        # The hash of a tuple goes as deep as the tuple does.
        if not {*map(type, keys)} <= {str, int}:
            raise PlainPickleError("a key that is neither text nor a number")
        found.update(zip(keys, values, strict=True))


_STOP = ord(".")
_OPCODES: dict[int, Callable[[_Machine], None]] = {
    ord("h"): lambda m: m.get(m.take(1)[0]),
    ord("q"): lambda m: m.put(m.take(1)[0]),
    ord("X"): lambda m: m.text(m.number(_UINT4)),
    ord("("): _Machine.mark,
    ord("K"): lambda m: m.push(m.take(1)[0]),
    ord("e"): _Machine.appends,
    ord("]"): lambda m: m.push([]),
    ord("}"): lambda m: m.push({}),
    ord("u"): _Machine.set_items,
    ord("N"): lambda m: m.push(None),
    ord("j"): lambda m: m.get(m.number(_UINT4)),
    ord("r"): lambda m: m.put(m.number(_UINT4)),
    ord("J"): lambda m: m.push(m.number(_INT)),
    ord("M"): lambda m: m.push(m.number(_UINT2)),
    ord("G"): lambda m: m.push(_FLOAT.unpack(m.take(8))[0]),
    ord("a"): _Machine.append,
    ord("s"): _Machine.set_item,
    ord("t"): lambda m: m.push(tuple(m.to_mark())),
    ord(")"): lambda m: m.push(()),
    ord("0"): _Machine.pop,
    0x80: _Machine.protocol,
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    0x8A: lambda m: m.long(m.take(1)[0]),
    0x8B: lambda m: m.long(m.number(_UINT4)),
    0x8C: lambda m: m.text(m.take(1)[0]),
    0x8D: lambda m: m.text(m.number(_UINT8)),
    0x94: _Machine.memoize,
    0x95: _Machine.frame,
}
"""By opcode, what it does; protocols 2 to 5, and torch's own writer, use these for data."""
