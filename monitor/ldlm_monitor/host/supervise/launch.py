"""Starts the relay of a run, and waits for its command in place of it: the front of a run.

The front is the process that the user started. It passes signals on, takes part in job control
and exits with the command's code; watching is another process's work, so neither delays the other.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.text.sanitize import redacted_arguments
from ldlm_monitor.host.probe import process
from ldlm_monitor.host.supervise import slurm
from ldlm_monitor.host.supervise.run_folder import RunRecord, keep, new_folder, new_log
from ldlm_monitor.host.supervise.streams import READ_BYTES, Link

ROTATE_BYTES = 1 << 30
"""Bytes after which a log is renamed: a choice; editors open a GiB, and few runs write one."""
WAIT_SECONDS = 0.05  # between two looks whether the monitor has ended: a choice, not noticed
_SOURCE = str(Path(__file__).parents[3])
# With -I -S, without site-packages, the relay starts in a few hundredths of a second.
_RELAY = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    "from ldlm_monitor.host.supervise.relay import main; main()"
)
_PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


class Front:
    """Passes this process's signals on, stops with the command, and ends as it does."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._got = list[int]()
        self._woken, self._waker = os.pipe()
        for descriptor in (self._woken, self._waker):
            os.set_blocking(descriptor, False)
        self.take_signals()

    def take_signals(self, hung_up: Callable[[], object] = lambda: None) -> None:
        """Handle this process's signals, those too that others have taken since.

        `hung_up` is called at a SIGHUP.
        """
        send = self._link.send

        def pass_on(number: int, _: FrameType | None) -> None:
            self._got.append(number)
            if number == signal.SIGHUP:
                hung_up()
            send({"signal": number})

        # A signal just before a wait would be handled after it, which may last for days.
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for name in _PASSED_ON:
            _take(getattr(signal, name), pass_on)
        _take(signal.SIGWINCH, lambda *_: send({"resize": True}))
        # The command has a session of its own, where SIGTSTP has no effect.
        _take(signal.SIGTSTP, lambda *_: send({"signal": signal.SIGSTOP}))
        _take(signal.SIGCONT, self._go_on)

    def close(self) -> None:
        """Leave it to another process."""
        signal.set_wakeup_fd(-1)
        self._link.close()

    def wait(self, program: str) -> int:
        """The command's exit code as shells give it; prints it if `program` cannot be started."""
        code = -signal.SIGKILL.value  # if the relay was killed, and the command with it
        while self._link.is_open:
            waits = (self._link.fileno(), self._woken)
            ready = select.select(waits, [], [])[0]
            if self._woken in ready:
                os.read(self._woken, READ_BYTES)
            for said in self._link.receive() if waits[0] in ready else ():
                if "failed" in said:
                    problem = f"{program}: cannot be started ({said['failed']})"
                    print(f"ldlm-monitor: {problem}", file=sys.stderr)
                if "stopped" in said:
                    # The shell takes the terminal back, until `fg` continues us.
                    os.kill(os.getpid(), signal.SIGSTOP)
                if "over" in said:
                    code = said["over"]
                    self._link.close()
        return shells(code)

    def wait_for_monitor(self, pid: int, seconds: float) -> None:
        """Wait until the monitor `pid`, our child, has reported, where our end would end it.

        A scheduler that sent SIGTERM ends what is left of a job once we have ended; so does Slurm
        at the end of any job's script, and the kernel at that of a container's first process.
        Another signal ends the wait.
        """
        if not (signal.SIGTERM in self._got or slurm.job_of(os.environ) or os.getpid() == 1):
            return
        before, until = len(self._got), time.monotonic() + seconds
        with contextlib.suppress(ChildProcessError):
            while len(self._got) == before and time.monotonic() < until:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    return
                time.sleep(WAIT_SECONDS)

    def _go_on(self, number: int, _: FrameType | None) -> None:
        self._link.send({"foreground": is_foreground(), "resize": True, "signal": signal.SIGCONT})


def start(
    command: tuple[str, ...],
    name: str,
    log_dir: Path,
    *,
    echo: bool,
    reports: bool = False,
) -> tuple[RunRecord, Front, Link]:
    """Start the relay and, by it, the command of a run `name`.

    The relay gets the command by a pipe, as a file would show its secrets. Returns the kept record,
    this process as its front, and the monitor's link. `echo`: the command has our streams.
    `reports`: the monitor's link gets `{"wrote": bytes}` for each piece of output.
    Raises `UsageError` where its folder or its log cannot be made.
    """
    if not command:
        raise UsageError("is missing", where="COMMAND", remedy="write it after --")
    if command[0].startswith("-"):
        raise UsageError("is no flag", where=command[0], remedy="--help lists those there are")
    now = time.time()
    folder = new_folder(name, now)
    record = RunRecord(
        name=folder.name,
        command=redacted_arguments(command),
        directory=os.getcwd(),
        log=str(new_log(log_dir, folder.name)),
        started_at=now,
    )
    keep(record)
    (front, fronts), (monitor, monitors) = socket.socketpair(), socket.socketpair()
    receiving, sending = os.pipe()
    for end in (fronts.fileno(), monitors.fileno(), receiving):
        os.set_inheritable(end, True)
    link = Link(front.detach())
    waiting = Front(link)  # first, so that no signal can miss the command
    numbers = (ROTATE_BYTES, echo, reports, fronts.fileno(), monitors.fileno(), receiving)
    words = [_RELAY, _SOURCE, str(folder), *(str(int(each)) for each in numbers)]
    relay = os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", *words],
        # Python's output into a pipe would come late, and a NaN with it.
        {"PYTHONUNBUFFERED": "1"}
        | dict(os.environ)
        | {"LDLM_RUN": folder.name, "LDLM_ATTEMPT": "1"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0)
            for stream in (() if echo else (0, 1, 2))
        ],
        setsid=True,  # our terminal's signals reach the command through us, once
    )
    fronts.close()
    monitors.close()
    os.close(receiving)
    with contextlib.suppress(BrokenPipeError), open(sending, "w", encoding="utf-8") as pipe:
        json.dump(command, pipe)
    link.send({"foreground": is_foreground()})
    found = process.look(relay)
    record = keep(record, relay=relay, relay_started=0 if found is None else found.started)
    return record, waiting, Link(monitor.detach())


def _take(number: int, handler: Callable[[int, FrameType | None], Any]) -> None:
    if signal.getsignal(number) is not signal.SIG_IGN:  # as with nohup
        signal.signal(number, handler)


def is_foreground() -> bool:
    """Whether we may read the terminal: a job in the background would take the shell's input."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def shells(code: int) -> int:
    """The exit code that a shell gives for a process's `code` (below 0: a signal)."""
    return code if code >= 0 else 128 - code
