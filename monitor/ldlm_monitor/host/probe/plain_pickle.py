"""Reads pickles of plain data, and nothing else.

A pickle is a program for a stack machine (CPython, Lib/pickletools.py). This is the Python
unpickler of the standard library with a shorter table: only the opcodes that make dict, list,
tuple, str, int, float, bool and None. These opcodes import and call nothing, so a file that
anyone may have written can be read safely. The usual way, an overridden `find_class`, would
still allow memory and hash bombs.
"""

import io
import pickle
from typing import Any, ClassVar

MAX_BYTES = 16_000_000
"""Bytes of a pickle: fifty times the usual 2,000 entries with stacks. Forged, it fills 1 GiB."""
_PLAIN = (
    *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.POP),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BINFLOAT),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1),
    *(pickle.SHORT_BINUNICODE, pickle.BINUNICODE, pickle.BINUNICODE8),
    *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS),
    *(pickle.MEMOIZE, pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET),
)
"""The opcodes that protocols 2 to 5 and torch's own writer use for data. LONG4 is left out: it is
for integers of more than 255 bytes, which no field of a dump needs."""
_PYTHON_UNPICKLER: Any = vars(pickle)["_Unpickler"]  # the one in C has no table to shorten


class PlainPickleError(ValueError):
    """The bytes are no pickle of plain data, or end too early."""


def load(data: bytes) -> object:
    """The pickled value, whose containers may contain themselves. Raises `PlainPickleError`."""
    if len(data) > MAX_BYTES:
        raise PlainPickleError(f"larger than {MAX_BYTES} bytes")
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except PlainPickleError:
        raise
    except KeyError as error:
        raise PlainPickleError(f"opcode {error} does not make plain data") from error
    except Exception as error:  # forged opcodes can raise any exception in the unpickler
        raise PlainPickleError(f"malformed ({type(error).__name__})") from error


class _PlainUnpickler(_PYTHON_UNPICKLER):  # type: ignore[misc]
    dispatch: ClassVar[dict[int, Any]] = {
        opcode[0]: _PYTHON_UNPICKLER.dispatch[opcode[0]] for opcode in _PLAIN
    }

    def _set_item(self) -> None:
        _check_keys(self.stack[-2:-1])
        self.load_setitem()

    def _set_items(self) -> None:
        _check_keys(self.stack[::2])
        self.load_setitems()

    dispatch[pickle.SETITEM[0]] = _set_item
    dispatch[pickle.SETITEMS[0]] = _set_items


def _check_keys(keys: list[object]) -> None:
    """Refuse keys that make a dict slow: nested tuples, and large integers, all of one hash."""
    for key in keys:
        is_small = type(key) is int and key.bit_length() < 32  # as BININT: torch's keys are ids
        if not (is_small or type(key) is str):
            raise PlainPickleError("a key that is neither text nor a 32-bit number")
