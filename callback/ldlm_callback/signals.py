"""Hooks for how a process ends (exit, exception, SIGTERM), for forks, and for its stacks."""

import atexit
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TextIO
from weakref import WeakSet

from ldlm_callback.own_files import open_to_append

GRACE_SECONDS = 1.0
"""Seconds for Python's handler of SIGTERM; then a thread ends the process. A job has only 30."""
SECOND_CHOICE = 12
"""SIGRTMIN + 12 is used if the requested signal has a handler. A choice: few programs use it."""

_stack_files: dict[int, TextIO] = {}
"""By signal, where stacks go: faulthandler keeps the descriptor, so the file stays open."""
_interested: WeakSet[Any] = WeakSet()  # objects whose `in_child` is called in a forked child
_was_blocked: dict[int, bool] = {}  # by thread that forks: whether SIGTERM was blocked before
_registered = False


def register_fork_hooks(owner: Any) -> None:
    """Call an object's `in_child` in each forked child, for as long as the object lives."""
    global _registered  # noqa: PLW0603 hooks cannot be removed, so one serves all
    _interested.add(owner)
    if not _registered and hasattr(os, "register_at_fork"):
        _registered = True
        os.register_at_fork(
            before=_hold_sigterm, after_in_parent=_release_sigterm, after_in_child=_in_child
        )


def _hold_sigterm() -> None:
    """Hold SIGTERM during a fork: in the child it would write to the parent's pipe, or be lost."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _was_blocked[threading.get_ident()] = signal.SIGTERM in held


def _release_sigterm() -> None:
    if not _was_blocked.pop(threading.get_ident(), True):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _in_child() -> None:
    for each in tuple(_interested):
        each.in_child()
    _release_sigterm()


class ProcessEnd:
    """Calls `exited` at the interpreter's exit and `raised` for an exception that nobody caught."""

    def __init__(self, exited: Callable[[], None], raised: Callable[[BaseException], None]) -> None:
        self._exited = exited
        self._raised = raised
        self._previous = sys.excepthook
        sys.excepthook = self._hook
        atexit.register(exited)

    def forget(self) -> None:
        """Remove the exit function, and restore the hook unless somebody replaced ours since."""
        atexit.unregister(self._exited)
        if sys.excepthook == self._hook:
            sys.excepthook = self._previous

    def _hook(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        with suppress(Exception):
            self._raised(error)
        self._previous(kind, error, trace)


class Termination:
    """Calls `on_term` before SIGTERM's usual effect: the process ends, or a handler is called.

    Python calls handlers between two instructions of the main thread. A rank that hangs
    in a collective executes none, so with a Python handler it would survive SIGTERM.
    A thread therefore also reads the signal, from the descriptor that Python writes to
    at once, and ends the process if the main thread does not.
    Raises `ValueError` outside of the main thread.
    """

    def __init__(self, on_term: Callable[[bool], None]) -> None:
        """`on_term` gets whether the process is about to end."""
        self._on_term = on_term
        self._previous = signal.getsignal(signal.SIGTERM)
        self._handled = self._stopped = False
        self._reading, self._writing = -1, -1
        self._thread: threading.Thread | None = None
        if self._previous is None or self._previous is signal.SIG_IGN:
            return
        signal.signal(signal.SIGTERM, self._handle)
        if self._previous is signal.SIG_DFL:
            self._reading, self._writing = os.pipe()
            os.set_blocking(self._writing, False)
            if not self._listen():  # an event loop listens already: undo
                signal.signal(signal.SIGTERM, self._previous)
                self._close_pipe()
                return
            self._thread = threading.Thread(
                target=self._watch, name="ldlm-health-sigterm", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Restore the previous handler, unless a later one was set."""
        self._stopped = True
        if threading.current_thread() is not threading.main_thread():
            return
        self._restore()
        if self._thread is not None:
            os.write(self._writing, b"\0")
            self._thread.join(1.0)
            self._close_pipe()
            self._thread = None

    def _close_pipe(self) -> None:
        os.close(self._writing)
        os.close(self._reading)
        self._reading, self._writing = -1, -1

    def in_child(self) -> None:
        """In a forked child, restore the handler of SIGTERM that was set before ours."""
        self._stopped = True
        self._restore()

    def _restore(self) -> None:
        self._listen(to=-1)
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, self._previous)

    def _listen(self, to: int | None = None) -> bool:
        """Have Python write signals to our pipe (-1: nowhere); False if it writes elsewhere."""
        if self._writing < 0 or threading.current_thread() is not threading.main_thread():
            return False
        before = signal.set_wakeup_fd(
            self._writing if to is None else to, warn_on_full_buffer=False
        )
        if before in (-1, self._writing):
            return True
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        return False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._handled = True
        ends = not callable(self._previous)
        with suppress(Exception):
            self._on_term(ends)
        if callable(self._previous):
            self._previous(number, frame)
        else:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def _watch(self) -> None:
        while not self._stopped:
            if signal.SIGTERM not in os.read(self._reading, 64):  # a byte for each signal
                continue
            until = time.monotonic() + GRACE_SECONDS
            while not self._handled and time.monotonic() < until:
                time.sleep(0.02)  # seconds. A choice: 50 checks in GRACE_SECONDS
            if not self._handled and not self._stopped:
                with suppress(Exception):
                    self._on_term(True)
                # Python lets the main thread alone set a handler; the C library any.
                ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
                os.kill(os.getpid(), signal.SIGTERM)


def register_stacks(path: Path, wanted: int) -> int:
    """Append all threads' stacks to the file at each signal; returns the signal, 0 if none is free.

    faulthandler's handler is written in C and walks the interpreter's frames from within the
    signal: it needs neither the GIL nor the main thread. A Python thread could not do this, since
    it does not run while a call holds the GIL. Accepted: the frames of a thread that runs at that
    instant change while they are read, which can crash CPython; so only a run that stands still is
    asked, where no thread runs but ours, for microseconds twice a second. A signal that has a
    handler is left alone, and `SECOND_CHOICE` is used instead. Raises `OSError`.
    """
    mask = caught()
    spare = getattr(signal, "SIGRTMIN", None)
    for number in (wanted,) if spare is None else (wanted, int(spare) + SECOND_CHOICE):
        is_free = signal.getsignal(number) is signal.SIG_DFL and not mask >> (number - 1) & 1
        if is_free or number in _stack_files:
            break
    else:
        return 0
    file = open(open_to_append(path), "a", encoding="ascii")  # noqa: SIM115 kept in `_stack_files`
    # With `chain` the default action would follow, and end the process.
    faulthandler.register(number, file=file, all_threads=True, chain=False)
    before, _stack_files[number] = _stack_files.get(number), file
    if before is not None:
        before.close()
    return number


def caught(pid: int | str = "self") -> int:
    """The mask of signals that have a handler, also in C (proc(5), SigCgt); 0 if unreadable."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("SigCgt:"):
                return int(line.split()[1], 16)
    except (OSError, ValueError):
        pass
    return 0
