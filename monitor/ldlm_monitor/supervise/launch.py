"""Starts the relay of a run, and waits for its command in place of it: the front of a run.

The front is the process that the user started. It passes signals on, takes part in job control
and exits with the command's code; watching is another process's work, so neither delays the other.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.probe import process
from ldlm_monitor.supervise.run_folder import RunRecord, keep
from ldlm_monitor.supervise.streams import Link

ROTATE_BYTES = 1 << 30
"""Bytes after which a log is renamed: a choice; editors open a GiB, and few runs write one."""
_SOURCE = str(Path(__file__).parent.parent.parent)
# With -I -S, without site-packages, the relay starts in a few hundredths of a second.
_RELAY = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    "from ldlm_monitor.supervise.relay import main; main()"
)
_PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


@dataclass(frozen=True, slots=True)
class RunLaunch:
    """What is started: `name` and `folder` of the run, and its log.

    `echo`: the command has our streams. `resume_command`: what a restart runs instead. `slurm`:
    whether Slurm's part of a restart is done, or only noted.
    """

    name: str
    folder: Path
    command: tuple[str, ...]
    log: Path
    echo: bool
    resume_command: tuple[str, ...] = ()
    slurm: Literal["print", "requeue"] = "print"


def start(launch: RunLaunch, now: float) -> tuple[RunRecord, Link, Link]:
    """Start the relay and, by it, the command, at `now` (Unix seconds).

    Returns the kept record, and the links of the front and of the monitor.
    """
    plan = {
        "command": launch.command,
        "directory": os.getcwd(),
        "log": str(launch.log),
        "rotate_bytes": ROTATE_BYTES,
        "echo": launch.echo,
        "foreground": is_foreground(),
        "environment": {
            # Python's output into a pipe would come late, and a NaN with it.
            "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1"),
            "LDLM_RUN": launch.name,
            "LDLM_ATTEMPT": "1",
        },
    }
    (launch.folder / "relay.json").write_text(json.dumps(plan), encoding="utf-8")
    (front, fronts), (monitor, monitors) = socket.socketpair(), socket.socketpair()
    passed = [fronts.fileno(), monitors.fileno()]
    relay = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _RELAY, _SOURCE, str(launch.folder), *map(str, passed)],
        pass_fds=passed,
        start_new_session=True,  # our terminal's signals reach the command through us, once
    )
    fronts.close()
    monitors.close()
    found = process.look(relay.pid)
    record = RunRecord(
        name=launch.name,
        command=launch.command,
        directory=os.getcwd(),
        log=str(launch.log),
        started_at=now,
        relay=relay.pid,
        relay_started=found.started if found is not None else 0,
    )
    keep(record)
    return record, Link(front.detach()), Link(monitor.detach())


class Front:
    """Passes this process's signals on, stops with the command, and ends as it does."""

    def __init__(self, link: Link) -> None:
        self._link = link
        for name in _PASSED_ON:
            _take(getattr(signal, name), lambda number, _: link.send({"signal": number}))
        _take(signal.SIGWINCH, lambda *_: link.send({"resize": True}))
        # The command has a session of its own, where SIGTSTP has no effect.
        _take(signal.SIGTSTP, lambda *_: link.send({"signal": signal.SIGSTOP}))
        _take(signal.SIGCONT, self._go_on)

    def wait(self) -> tuple[int, str]:
        """The command's exit code as shells give it, and why it could not be started ("")."""
        problem = ""
        while self._link.is_open:
            for said in self._link.receive():
                problem = said.get("failed", problem)
                if "stopped" in said:
                    # The shell takes the terminal back, until `fg` continues us.
                    os.kill(os.getpid(), signal.SIGSTOP)
                if "over" in said:
                    return shells(said["over"]), problem
        return shells(-signal.SIGKILL), problem  # the relay was killed, and the command with it

    def _go_on(self, number: int, _: FrameType | None) -> None:
        self._link.send({"foreground": is_foreground(), "resize": True, "signal": signal.SIGCONT})


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


def stop(record: RunRecord, name: str) -> None:
    """Send SIGTERM to a run's command, through its relay. Raises `UsageError` if it is over."""
    if not record.is_running:
        raise UsageError("is over", where=name, remedy="`ldlm-monitor report` shows how it ended")
    os.kill(record.relay, signal.SIGTERM)
