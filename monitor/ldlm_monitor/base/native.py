"""The compiled part: whether it is in use, and its functions.

It computes what Python computes, faster; `native/README.md` says what. Without it, or with
LDLM_NATIVE=0, Python does all.
"""

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

from ldlm_monitor import __version__

_LIBRARY = Path(__file__).with_name("libldlm.native")
_MONITOR, _CHECKOUT = Path(__file__).parents[2:4]  # unless the package is installed

_P, _N, _T = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "ldlm_row_shape_new": (_P, [_T, _P, _T, _N, _N]),
    "ldlm_row_shape_free": (None, [_P]),
    "ldlm_rows_read": (_N, [_P, _T, _N, _N, _N, _N, _N, _P, _P, _P]),
    "ldlm_rows_present": (_N, [_P, _N, _P]),
    "ldlm_rows_steps": (_N, [_P, _N, ctypes.c_double, _P]),
    "ldlm_rows_rise": (_N, [_P, _N, _N]),
    "ldlm_bars_read": (
        _N,
        [_T, _N, _N, _T, _N, _T, _N, _N, _N, _N, _P, _P, _P, _P],
    ),
    "ldlm_bar_marks": (_N, [_T, _N, _N, _T, _N, _N, _P, _P, _P, _P]),
}
"""The result and the arguments of each function, as the headers in `native/` declare them."""


@cache
def library() -> ctypes.PyDLL | None:
    """The compiled part; None where Python does all.

    A checkout's that is older than its sources is not used: `sh setup.sh` compiles it anew. Its
    functions keep the interpreter's lock, so that no two threads are in one of them.
    """
    if os.environ.get("LDLM_NATIVE") == "0" or not _LIBRARY.exists() or _is_old():
        return None
    try:
        found = ctypes.PyDLL(str(_LIBRARY))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):  # made for another machine
        return None
    return found


def _is_old() -> bool:
    if _MONITOR.name != "monitor" or not (_CHECKOUT / "hatch_build.py").is_file():
        return False
    made = _LIBRARY.stat().st_mtime_ns
    return any(each.stat().st_mtime_ns > made for each in (_CHECKOUT / "native").glob("*.[ch]*"))


def version_line() -> str:
    """What `--version` prints."""
    part = "with" if library() is not None else "without"
    return f"ldlm-monitor {__version__}, {part} the compiled part"
