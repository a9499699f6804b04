"""The front of a run: what it passes on to the relay, and how it stops, waits and ends."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from ldlm_monitor.host.supervise.streams import Link

FRONT = """
import os, signal, sys
from ldlm_monitor.host.supervise.launch import Front
from ldlm_monitor.host.supervise.streams import Link
front = Front(Link(int(sys.argv[1])))
{more}
front._link.send({{"ready": True}})
code = front.wait("train")
{then}
os._exit(code)
"""
WAITS_FOR_CHILD = """
child = os.fork()
if not child:
    os.read(0, 1)  # the monitor is done once our input ends
    print("reported", flush=True)
    os._exit(0)
front.wait_for_monitor(child, {seconds})
print("waited", flush=True)
"""


class Fronted:
    """A front, whose relay is this test."""

    def __init__(self, more: str = "", then: str = "", **environment: str) -> None:
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-c", FRONT.format(more=more, then=then), str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        theirs.close()
        self.link = Link(ours.detach())
        self._came: list[dict[str, object]] = []
        assert self.next() == {"ready": True}

    def next(self) -> dict[str, object]:
        """The next order to the relay."""
        while not self._came:
            self._came += self.link.receive(20.0)
            assert self._came, "no order came"
        return self._came.pop(0)

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out.decode(), err.decode()


@pytest.fixture
def fronted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Fronted]]:
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    # A shell's job in the background ignores some, and the front would leave these alone.
    before = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGHUP, signal.SIGQUIT)}
    begun: list[Fronted] = []

    def begin(*given: str, **more: str) -> Fronted:
        begun.append(Fronted(*given, **more))
        return begun[-1]

    yield begin
    for number, handler in before.items():
        signal.signal(number, handler)
    for each in begun:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()
        each.link.close()


def test_signals_are_passed_on_and_the_code_is_the_commands(
    fronted: Callable[..., Fronted],
) -> None:
    front = fronted("front.take_signals(lambda: print('closed', flush=True))")
    for name in ("SIGTERM", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGHUP"):
        number = signal.Signals[name].value
        front.process.send_signal(number)
        assert front.next() == {"signal": number}
    front.process.send_signal(signal.SIGWINCH)
    assert front.next() == {"resize": True}
    front.link.send({"over": -signal.SIGTERM})
    assert front.end() == (143, "closed\n", "")


def test_what_cannot_be_started_is_printed(fronted: Callable[..., Fronted]) -> None:
    front = fronted()
    front.link.send({"failed": "Permission denied"})
    front.link.send({"over": 126})
    said = "ldlm-monitor: train: cannot be started (Permission denied)\n"
    assert front.end() == (126, "", said)


def test_without_a_relay_the_command_was_killed_with_it(fronted: Callable[..., Fronted]) -> None:
    front = fronted()
    front.link.close()
    assert front.end()[0] == 137


def test_a_stop_of_the_front_stops_the_command_and_its_stop_the_front(
    fronted: Callable[..., Fronted],
) -> None:
    """As by a shell's job control: on `fg` both go on."""
    front = fronted()
    front.process.send_signal(signal.SIGTSTP)
    assert front.next() == {"signal": signal.SIGSTOP}
    front.link.send({"stopped": signal.SIGSTOP})
    _, status = os.waitpid(front.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    front.process.send_signal(signal.SIGCONT)
    assert front.next() == {"foreground": False, "resize": True, "signal": signal.SIGCONT}
    front.link.send({"over": 0})
    assert front.end()[0] == 0


def test_a_signal_that_was_ignored_before_stays_ignored(fronted: Callable[..., Fronted]) -> None:
    """As nohup has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        front = fronted()
    finally:
        signal.signal(signal.SIGHUP, before)
    front.process.send_signal(signal.SIGHUP)
    front.process.send_signal(signal.SIGUSR1)
    assert front.next() == {"signal": signal.SIGUSR1}


def test_at_a_users_end_of_a_run_nobody_waits_for_its_report(
    fronted: Callable[..., Fronted],
) -> None:
    front = fronted(then=WAITS_FOR_CHILD.format(seconds=600))
    front.link.send({"over": 1})
    assert front.process.wait(20) == 1
    assert front.end()[1] == "waited\nreported\n"


@pytest.mark.parametrize("why", ["a Slurm job", "SIGTERM"])
def test_where_a_scheduler_would_end_the_monitor_with_us_its_report_is_waited_for(
    fronted: Callable[..., Fronted], why: str
) -> None:
    job = {"SLURM_JOB_ID": "12"} if why == "a Slurm job" else {}
    front = fronted(then=WAITS_FOR_CHILD.format(seconds=600), **job)
    if not job:
        front.process.terminate()
        front.next()
    front.link.send({"over": 1})
    with suppress(subprocess.TimeoutExpired):
        front.process.wait(0.2)
    assert front.end()[:2] == (1, "reported\nwaited\n")


@pytest.mark.parametrize("ends", ["another signal", "its time"])
def test_another_signal_or_its_time_ends_the_wait(
    fronted: Callable[..., Fronted], ends: str
) -> None:
    seconds = 600 if ends == "another signal" else 0.1
    front = fronted(then=WAITS_FOR_CHILD.format(seconds=seconds), SLURM_JOB_ID="12")
    front.link.send({"over": 1})
    while front.process.poll() is None:
        if ends == "another signal":
            front.process.send_signal(signal.SIGINT)  # one before the wait is none of it
        with suppress(subprocess.TimeoutExpired):
            front.process.wait(0.1)
    assert front.end()[1] == "waited\nreported\n"
