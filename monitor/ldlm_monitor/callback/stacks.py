"""A rank's stacks on demand, also while its GIL is held, and the flight recorder's socket.

faulthandler's handler is written in C and walks the interpreter's frames from within
the signal: it needs neither the GIL nor the main thread's attention. A thread of ours
would: in a call that holds the GIL it does not run.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TextIO

SECOND_CHOICE = 12
"""Beyond SIGRTMIN: taken where the requested signal has a handler already."""

_files: dict[int, TextIO] = {}
"""By signal, where stacks go: faulthandler keeps the descriptor, so the file stays open."""


def register(path: Path, wanted: int) -> int:
    """Append all threads' stacks to the file whenever the signal comes; the signal, 0: none.

    A signal that has a handler is left alone, and `SECOND_CHOICE` is used instead.
    Raises `OSError`.
    """
    number = next((each for each in _choices(wanted) if _is_free(each)), 0)
    if number == 0:
        return 0
    file = path.open("a", encoding="ascii")
    # With `chain` the default action would follow, and end the process.
    faulthandler.register(number, file=file, all_threads=True, chain=False)
    before, _files[number] = _files.get(number), file
    if before is not None:
        before.close()
    return number


class FlightRecorder:
    """PyTorch's flight recorder on a Unix socket, at `path`.

    Its server runs in C++ and answers while the GIL is held. What it serves includes a
    profiler, so the socket lies in a folder that is its owner's alone. Raises `ImportError`
    or `AttributeError` where PyTorch has no such server (the interface is private).
    """

    def __init__(self) -> None:
        server = importlib.import_module("torch._C._distributed_c10d")._WorkerServer
        importlib.import_module("torch.distributed.debug._handlers")
        self._folder = tempfile.mkdtemp(prefix="ldlm-")
        self.path = os.path.join(self._folder, "recorder.sock")
        self._server = server(self.path)

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)


def _choices(wanted: int) -> tuple[int, ...]:
    spare = getattr(signal, "SIGRTMIN", None)
    return (wanted,) if spare is None else (wanted, int(spare) + SECOND_CHOICE)


def _is_free(number: int) -> bool:
    if number in _files:
        return True
    return signal.getsignal(number) is signal.SIG_DFL and not _caught() >> (number - 1) & 1


def _caught() -> int:
    """The mask of signals for which some code, C too, has a handler (proc(5), SigCgt)."""
    try:
        for line in Path("/proc/self/status").read_text(errors="replace").splitlines():
            if line.startswith("SigCgt:"):
                return int(line.split()[1], 16)
    except (OSError, ValueError):
        pass
    return 0
