"""Holds a command, its streams and its log, so that the command outlives its monitor.

A program of its own, `main FOLDER ROTATE_BYTES ECHO REPORTS FRONT MONITOR COMMAND`: it imports the
standard library alone and starts in a few hundredths of a second. FOLDER has the run's `run.json`;
the command has our streams if ECHO is 1. COMMAND is a pipe that holds it as JSON. FRONT is a socket
to the process that the user started, MONITOR one to the process that watches; each carries JSON
objects, one a line. The relay sends to both `{"started": pid}`, `{"ended": code}` (negative: a
signal), `{"stopped": number}` (of job control), `{"interrupted": by}` (a signal that did not come
from MONITOR, or Ctrl-C was typed) and `{"over": code}`: no start is to come; to MONITOR also
`{"wrote": bytes}` if REPORTS is 1, so that it need not poll. It takes `{"signal": number}`,
`{"resize": true}`, `{"foreground": bool}`, `{"note": text}`, `{"line": text}` (without our
prefix), and after an end `{"start":
{"command", "shown", "environment"}}` (`shown`: without secrets, for the log) or `{"release":
true}`. If MONITOR is closed, an end is the last.

Where a stream of ours is a terminal, the command gets a pseudo-terminal in its place, and what is
typed goes there unchanged, so that bars, colours, Ctrl-C and Ctrl-Z are as without the relay.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ldlm_monitor.base.text.format import signal_name
from ldlm_monitor.host.supervise.streams import (
    READ_BYTES,
    STOP,
    Link,
    OutputStream,
    RunLog,
    Terminal,
)

KEY_BYTES = 256  # of typed text passed on at once: a terminal's line holds 4,096 (termios(3))
DRAIN_SECONDS = 0.2
"""Seconds after the command's end until it is reported although its streams are still open, as by
processes that it left behind. A choice: what it wrote itself is in the streams before it ends."""
_INTERRUPT, _SUSPEND = b"\x03", b"\x1a"
"""Ctrl-C and Ctrl-Z, unless the user has bound other keys with stty."""
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
SAME_SECONDS = 1.0
"""Seconds within which a signal to us and one to the front are one, sent to all processes. A
choice: a starting front passes it on half a second late; nobody asks in two ways so fast."""
_OF_THE_FRONT = (signal.SIGUSR1, signal.SIGUSR2)


class Relay:
    """The command's process, its streams, and the links to the front and the monitor."""

    def __init__(
        self, log: RunLog, front: Link, monitor: Link, *, echo: bool, reports: bool
    ) -> None:
        self._log = log
        self._front, self._monitor = front, monitor
        self._shows, self._reports = echo, reports
        self._typed = b""
        self._reads_keys = False
        self._streams: list[OutputStream] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._report_at: float | None = None  # monotonic: when the command's end is reported
        self._ended: int | None = None  # the code of an end after which nothing was ordered yet
        self._over = False
        self._attempt = 0
        self._terminal = Terminal(number for number in (0, 1, 2) if echo and os.isatty(number))
        self._woken, waker = os.pipe()
        for descriptor in (self._woken, waker):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._asked: list[int] = []
        self._passed: tuple[int, Link | None, float] = (0, None, 0.0)  # the last by `_end_by`
        signal.signal(STOP, lambda number, _: self._asked.append(number))
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as with nohup
                signal.signal(number, lambda number, _: self._asked.append(number))
        # Slurm signals all processes of a step: by default these would end us, and the command.
        for number in _OF_THE_FRONT:
            signal.signal(number, lambda *_: None)

    def run(self, command: Sequence[str], shown: Sequence[str]) -> None:
        """Relay until the command has ended, its output too, and no other start is to come.

        `shown`: the command without secrets, for the log.
        """
        self._start(command, shown, {})
        try:
            while not self._over or self._open_streams():
                self._turn()
        finally:
            self._set_foreground(here=False)

    def _open_streams(self) -> list[OutputStream]:
        return [each for each in self._streams if each.source is not None or each.pending]

    def _start(
        self, command: Sequence[str], shown: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self._attempt += 1
        self._log.note(f"attempt {self._attempt} starts: {json.dumps(shown)[:2000]}")
        terminal, on = self._terminal, self._terminal.streams
        slave = terminal.open() if on else None
        ends = {number: slave if number in on else self._pipe(number) for number in (1, 2)}
        if terminal.master is not None:
            seen_on = min(on & {1, 2}, default=0)  # without output on it, it echoes what is typed
            self._streams.append(OutputStream(seen_on, terminal.master, seen_on))
        stdin = slave if 0 in on else None if self._shows else subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                command,
                env=os.environ | environment,
                stdin=stdin,
                stdout=ends[1],
                stderr=ends[2],
                start_new_session=True,
                # Safe: the relay has one thread.
                preexec_fn=None if slave is None else partial(_control, slave),  # noqa: PLW1509
            )
        except OSError as problem:
            code = 126 if isinstance(problem, PermissionError) else 127  # as shells exit
            self._log.note(f"the command ended with exit code {code}: {problem.strerror}")
            self._send({"failed": problem.strerror or str(problem)})
            self._end(code)
            return
        finally:
            for end in {*ends.values(), slave}:
                if end is not None:
                    os.close(end)
        self._report_at = self._ended = None
        self._send({"started": self._process.pid})

    def _pipe(self, number: int) -> int:
        """The command's end of a pipe for its stream `number`; ours is read from now on."""
        ours, end = os.pipe()
        self._streams.append(OutputStream(number, ours, number if self._shows else None))
        return end

    def _turn(self) -> None:
        """Wait until there is something to do, and do it."""
        self._streams = self._open_streams()
        ready = self._wait()
        for each in self._streams:
            if each.pending and ready.get(each.target):
                each.write()
            elif not each.pending and ready.get(each.source, 0) & ~select.POLLOUT:
                data = each.read()
                if data and each.number:
                    self._log.write(each.number, data)
                    if self._reports:
                        self._monitor.send({"wrote": len(data)})
        self._pass_keys(ready)
        while self._asked:
            self._end_by(self._asked.pop(0), None)
        for link in self._links():
            if ready.get(link.fileno()):
                for order in link.receive():
                    self._obey(order, link)
        self._reap()
        if not self._front.is_open:
            self._set_foreground(here=False)
        if self._ended is not None and not self._monitor.is_open:
            self._finish()

    def _wait(self) -> dict[int | None, int]:
        """Events by descriptor; also returns when a signal came, or at `_report_at`."""
        waits = {link.fileno(): select.POLLIN for link in self._links()}
        waits[self._woken] = select.POLLIN
        for each in self._streams:
            if each.pending and each.target is not None:
                waits[each.target] = select.POLLOUT
            elif each.source is not None:
                waits[each.source] = select.POLLIN
        keys = self._keys()
        if self._typed and keys is not None:
            waits[keys] = waits.get(keys, 0) | select.POLLOUT
        elif self._reads_keys:
            waits[0] = waits.get(0, 0) | select.POLLIN
        poll = select.poll()
        for descriptor, mask in waits.items():
            poll.register(descriptor, mask)
        left = None
        if self._report_at is not None:
            left = max(0.0, self._report_at - time.monotonic()) * 1000
        ready: dict[int | None, int] = dict(poll.poll(left))
        if ready.get(self._woken):
            os.read(self._woken, READ_BYTES)
        return ready

    def _keys(self) -> int | None:
        """Where the command reads what is typed; None once it has closed its terminal."""
        master = self._terminal.master
        return master if any(each.source == master for each in self._streams) else None

    def _pass_keys(self, ready: Mapping[int | None, int]) -> None:
        """Give the command's terminal what was typed on ours."""
        keys = self._keys()
        if self._typed and keys is not None and ready.get(keys, 0) & select.POLLOUT:
            with contextlib.suppress(OSError):  # EIO: the command has closed it
                os.write(keys, self._typed)
            self._typed = b""
        elif self._reads_keys and ready.get(0, 0) & ~select.POLLOUT:
            with contextlib.suppress(OSError):
                self._typed = os.read(0, KEY_BYTES)
            self._reads_keys = bool(self._typed)
            if _INTERRUPT in self._typed:
                self._note_interrupt("SIGINT")
            if _SUSPEND in self._typed and keys is not None and self._has_terminal(keys):
                self._signal(signal.SIGSTOP)

    def _has_terminal(self, keys: int) -> bool:
        """Whether the command itself would be sent signals by what is typed.

        SIGTSTP would have no effect on the first process of its session.
        """
        process, modes = self._process, termios.tcgetattr(keys)[3]
        return (
            process is not None and bool(modes & termios.ISIG) and os.tcgetpgrp(keys) == process.pid
        )

    def _links(self) -> list[Link]:
        return [link for link in (self._front, self._monitor) if link.is_open]

    def _obey(self, order: Mapping[str, Any], by: Link) -> None:
        if "signal" in order:
            is_asked = by is not self._monitor and order["signal"] in _ENDING
            if is_asked:
                self._end_by(order["signal"], by)
            else:
                self._signal(order["signal"])
        if "resize" in order:
            self._terminal.resize()
        if "foreground" in order:
            self._set_foreground(here=order["foreground"])
        if "line" in order:
            self._log.line(order["line"])
        if "note" in order:
            self._log.note(order["note"])
        if "start" in order and self._process is None:
            self._start(**order["start"])
        if "release" in order:
            self._finish()

    def _end_by(self, number: int, link: Link | None) -> None:
        """Pass on a signal by which somebody ends the command; it came by `link`, None: to us."""
        now = time.monotonic()
        before, other, at = self._passed
        if number == before and link is not other and now - at < SAME_SECONDS:
            return
        self._passed = number, link, now
        passed = signal.SIGTERM if number == STOP else signal.Signals(number)
        self._note_interrupt("ldlm-monitor stop" if number == STOP else passed.name)
        self._signal(passed)

    def _note_interrupt(self, by: str) -> None:
        self._log.note(f"asked to end by {by}")
        self._send({"interrupted": by})

    def _end(self, code: int) -> None:
        self._process = self._report_at = None
        self._ended = code
        self._set_foreground(here=False)
        self._send({"ended": code})

    def _finish(self) -> None:
        if self._ended is not None and not self._over:
            self._over = True
            self._send({"over": self._ended})

    def _set_foreground(self, *, here: bool) -> None:
        self._reads_keys = here and 0 in self._terminal.streams
        (self._terminal.grab if self._reads_keys else self._terminal.release)()

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _reap(self) -> None:
        """Report that the command was stopped, or its end once its output was passed on."""
        process = self._process
        if process is None:
            return
        if self._report_at is None:
            pid, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                self._set_foreground(here=False)
                self._send({"stopped": os.WSTOPSIG(status)})
            elif pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                self._report_at = time.monotonic() + DRAIN_SECONDS
        if self._report_at is None:
            return
        if self._open_streams() and time.monotonic() < self._report_at:
            return
        self._log.note(_ending(process.returncode, self._log.lost))
        self._end(process.returncode)

    def _send(self, what: Mapping[str, Any]) -> None:
        for link in self._links():
            link.send(what)


def _control(slave: int) -> None:
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def _ending(code: int, lost: int) -> str:
    more = f"; {lost} bytes of its output are not in this file" if lost else ""
    if code >= 0:
        return f"the command ended with exit code {code}{more}"
    return f"the command was ended by signal {-code} ({signal_name(-code) or 'of real time'}){more}"


def main() -> None:
    """Run the relay that the arguments describe."""
    rotate_bytes, echo, reports, front, monitor, commands = map(int, sys.argv[2:])
    with open(commands, encoding="utf-8") as pipe:
        command = json.load(pipe)
    record = json.loads(Path(sys.argv[1], "run.json").read_text(encoding="utf-8"))
    log = RunLog(Path(record["log"]), rotate_bytes)
    relay = Relay(log, Link(front), Link(monitor), echo=bool(echo), reports=bool(reports))
    relay.run(command, record["command"])
