"""Asks a living rank for its stacks by a signal, and for its flight recorder on a socket.

The signal's handler is faulthandler's, so a rank answers even while its GIL is held, unless it
sleeps uninterruptibly in the kernel. A signal without a handler ends a process, and anyone may
have written a heartbeat file. So the signal is sent only to a process of the file's owner with
the start time in the file, which handles that signal and has that stack file open.

A rank opens PyTorch's flight recorder with `flight_recorder=True`. The answer is JSON in the
form of a dump file. The server is PyTorch's own and runs in C++ (`_WorkerServer`, handler
`fr_trace_json`, seen with 2.13), so it answers while the GIL is held.
"""

import http.client
import os
import re
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ldlm_callback.signals import caught
from ldlm_monitor.host.probe.heartbeat import Page, is_process
from ldlm_monitor.host.probe.process import PROC

_MAX_STACKS = 2_000_000
"""Bytes read of a dump: twice faulthandler's 100 threads of 100 frames, at 100 bytes each."""
_MAX_THREADS = 64  # kept: the last ones, as the main thread is at the end of a dump
_MAX_FRAMES = 64  # kept of a thread: the innermost, among which are the user's code and torch's
_MAX_TEXT = 256  # characters of a file or function name, which anyone may have written
_FRAME = re.compile(r'  File "([^"]*)", line (\d{1,9}) in (.*)')  # as faulthandler writes it
_PY_SPY_HEAD = re.compile(r'Thread (?:\d+|0x[0-9A-Fa-f]+) \([a-z+]+\)(?:: "([^"]*)")?')
_PY_SPY_FRAME = re.compile(r"    (\S.*) \(([^()]+?):(\d{1,9})\)")
_FOR_USERS = (signal.SIGUSR1, signal.SIGUSR2, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1))
"""Signals without a meaning of their own (signal(7)); all others are never sent."""
_QUIET_SECONDS = 0.1
"""Seconds without growth after which a dump is complete: a choice; it is written without pauses."""
_POLL_SECONDS = 0.01  # between two looks at the stack file: the dump appears within milliseconds
_LIBRARIES = ("site-packages/", "dist-packages/", "/lib/python3", "<frozen ", "<string>")
"""Parts of file names that are not the user's code: installed packages and Python's own."""
_MAX_RECORDED = 64_000_000
"""Bytes of a recorder's answer, to bound the memory: 2,000 entries with stacks are a few MiB."""
_RECORDER_PATH = "/handler/fr_trace_json"  # of torch's `_WorkerServer`
_PEER = struct.Struct("3i")  # `struct ucred`: pid, uid, gid (unix(7))
_WAITING = (
    "torch/distributed/distributed_c10d.py",
    "torch/distributed/_functional_collectives.py",
    "torch/distributed/c10d_logger.py",
    "torch/nn/parallel/distributed.py",
    "torch/autograd/graph.py",
)
"""Files of torch in which a rank waits for others: collectives, and backward passes that reduce.
Only the innermost call shows it: a backward pass also runs hooks, a DDP model the user's layers."""
_CALLERS = ("torch/_ops.py", "torch/_compile.py", "torch/_dynamo/eval_frame.py")
"""Files of torch through which it calls an operation in C++, without a place of their own."""


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A call in a stack, written as `file:line in function`."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Stacks:
    """The threads of one rank, the main thread first: (name, calls with the innermost first)."""

    threads: tuple[tuple[str, list[StackFrame]], ...]

    @property
    def main(self) -> list[StackFrame]:
        """The calls of the main thread."""
        return self.threads[0][1] if self.threads else []

    @property
    def place(self) -> StackFrame | None:
        """The innermost call of the user's code; without one, of a library; None without calls."""
        own = (each for each in self.main if not any(part in each.file for part in _LIBRARIES))
        return next(own, self.main[0] if self.main else None)

    @property
    def wait(self) -> StackFrame | None:
        """The call in which the main thread waits for other ranks; None if it is elsewhere."""
        calls = (each for each in self.main if not each.file.endswith(_CALLERS))
        innermost = next(calls, None)
        return innermost if innermost and innermost.file.endswith(_WAITING) else None


def may_ask(page: Page) -> bool:
    """Whether the kernel confirms all that the module requires before the signal may be sent."""
    if page.status != "running" or page.stack_signal not in _FOR_USERS:
        return False
    name = page.stack_file
    if not name or os.path.basename(name) != name or not is_process(page):
        return False
    own = PROC / str(page.pid)
    try:
        if own.stat().st_uid != page.owner or not caught(page.pid) >> (page.stack_signal - 1) & 1:
            return False
        wanted = os.lstat(page.path.parent / name)
        for fd in os.listdir(own / "fd"):
            with suppress(OSError):
                found = os.stat(own / "fd" / fd)
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                    return True
    except OSError:
        pass
    return False


def ask(page: Page, seconds: float) -> Stacks | None:
    """A rank's stacks; None if it must not be asked, or did not answer within `seconds`."""
    path = page.path.parent / page.stack_file
    try:
        # The descriptor stays with this process, even if its pid is used again meanwhile.
        process = os.pidfd_open(page.pid)
    except OSError:
        return None
    try:
        if not may_ask(page):
            return None
        start = os.stat(path).st_size
        signal.pidfd_send_signal(process, page.stack_signal)
        text = _written(path, start, time.monotonic() + seconds)
    except OSError:
        return None
    finally:
        os.close(process)
    stacks = stacks_of(text)
    return stacks if stacks.threads else None


def stacks_of(text: str) -> Stacks:
    """The stacks in faulthandler's text (Python/traceback.c), whose last thread is the main one."""
    threads: list[tuple[str, list[StackFrame]]] = []
    for line in text.splitlines():
        head, is_head, _ = line.partition(" (most recent call first):")
        if is_head:
            threads.append((head[:_MAX_TEXT], []))
            del threads[:-_MAX_THREADS]
        elif threads and len(threads[-1][1]) < _MAX_FRAMES and (call := _FRAME.match(line)):
            frame = StackFrame(call[1][:_MAX_TEXT], int(call[2]), call[3][:_MAX_TEXT])
            threads[-1][1].append(frame)
    return Stacks(tuple(reversed(threads)))


def stacks_of_py_spy(text: str) -> Stacks:
    """The stacks in the text of `py-spy dump`; native frames have no line and are left out."""
    threads: list[tuple[str, list[StackFrame]]] = []
    for line in text.splitlines():
        if head := _PY_SPY_HEAD.match(line):
            threads.append(((head[1] or "")[:_MAX_TEXT], []))
        elif threads and len(threads[-1][1]) < _MAX_FRAMES and (call := _PY_SPY_FRAME.match(line)):
            frame = StackFrame(call[2][:_MAX_TEXT], int(call[3]), call[1][:_MAX_TEXT])
            threads[-1][1].append(frame)
    threads.sort(key=lambda each: each[0] != "MainThread")
    return Stacks(tuple(threads[:_MAX_THREADS]))


def _written(path: Path, start: int, until: float) -> str:
    """The text after `start` (bytes), once it stops growing or at `until` (monotonic seconds)."""
    size, grew_at = start, time.monotonic()
    while (now := time.monotonic()) < until:
        found = os.stat(path).st_size
        if found != size:
            size, grew_at = found, now
        elif size > start and now - grew_at >= _QUIET_SECONDS:
            break
        time.sleep(_POLL_SECONDS)
    with path.open("rb") as file:
        file.seek(start)
        return file.read(_MAX_STACKS).decode("utf-8", "replace")


def _connect(sock: socket.socket, page: Page) -> None:
    """Connect. Raises `OSError` if that fails, or if another process made the socket."""
    sock.connect(page.recorder)
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    if _PEER.unpack(peer)[0] != page.pid:
        raise ConnectionRefusedError("the socket is another process's")


def _cut(sock: socket.socket) -> None:
    with suppress(OSError):  # closed already
        sock.shutdown(socket.SHUT_RDWR)


def fetch(page: Page, seconds: float) -> bytes | None:
    """The rank's flight recorder as JSON, within about `seconds`; None if unavailable."""
    if not page.recorder or page.status != "running" or not is_process(page):
        return None
    connection = http.client.HTTPConnection("localhost")
    connection.sock = sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(seconds)
    # The timeout bounds each wait alone; an answer that comes byte by byte is cut by the timer.
    timer = threading.Timer(seconds, _cut, (sock,))
    timer.start()
    try:
        _connect(sock, page)
        connection.request("POST", _RECORDER_PATH)
        answer = connection.getresponse()
        data = answer.read(_MAX_RECORDED)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        timer.cancel()
        connection.close()
    return data if answer.status == 200 and not answer.length else None  # `length`: bytes left
