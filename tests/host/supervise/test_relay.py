"""The relay of a run: what it reports to its front and its monitor, and what it obeys."""

import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.host.supervise.launch import _RELAY, _SOURCE
from ldlm_monitor.host.supervise.relay import _ending
from ldlm_monitor.host.supervise.streams import STOP, Link

WAITS = "trap 'echo got $1' USR1; trap 'echo ended; exit 5' TERM INT; echo ready"
WAITS += "; while :; do sleep 0.02; done"
SECONDS = 20.0  # for each message: far more than any takes


class Relayed:
    """A command behind a relay, whose front and monitor are this test."""

    def __init__(self, folder: Path, command: tuple[str, ...], terminal: int | None) -> None:
        self.log = folder / "run.log"
        self.log.touch()
        record = {"log": str(self.log), "command": ["shown"]}
        (folder / "run.json").write_text(json.dumps(record))
        (front, fronts), (monitor, monitors) = socket.socketpair(), socket.socketpair()
        receiving, sending = os.pipe()
        ends = (fronts.fileno(), monitors.fileno(), receiving)
        numbers = (1 << 20, 1, 1, *ends)
        stream = subprocess.PIPE if terminal is None else terminal
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _RELAY, _SOURCE, folder, *map(str, numbers)],
            stdin=stream,
            stdout=stream,
            stderr=stream,
            pass_fds=ends,
            start_new_session=True,
        )
        fronts.close()
        monitors.close()
        os.close(receiving)
        with open(sending, "w", encoding="utf-8") as pipe:
            json.dump(command, pipe)
        self.front, self.monitor = Link(front.detach()), Link(monitor.detach())
        self.came: dict[Link, list[dict[str, Any]]] = {self.front: [], self.monitor: []}

    def until(self, link: Link, key: str) -> Any:
        """The next message with this key, and what it says; those before it are dropped."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            while self.came[link]:
                message = self.came[link].pop(0)
                if key in message:
                    return message[key]
            self.came[link] += link.receive(0.1) if link.is_open else []
        raise AssertionError(f"{key} never came")

    def rest(self, link: Link) -> list[dict[str, Any]]:
        """All further messages, up to the relay's end."""
        while link.is_open:
            self.came[link] += link.receive(SECONDS)
        return self.came[link]

    def logged(self, text: str) -> None:
        deadline = time.monotonic() + SECONDS
        while text not in self.log.read_text():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)

    def lines(self) -> list[str]:
        """The log's lines, the relay's own without their times."""
        lines = self.log.read_text().splitlines()
        return [line.partition(" ldlm-monitor run: ")[2] or line for line in lines]

    def end(self) -> int:
        for link in (self.front, self.monitor):
            if link.is_open:
                link.close()
        try:
            self.process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        return self.process.returncode


@pytest.fixture
def relayed(tmp_path: Path) -> Iterator[Callable[..., Relayed]]:
    begun: list[Relayed] = []

    def begin(*command: str, terminal: int | None = None) -> Relayed:
        begun.append(Relayed(tmp_path, command, terminal))
        return begun[-1]

    yield begin
    for each in begun:
        if each.process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(each.process.pid, signal.SIGTERM)
        each.end()


def test_both_get_the_start_the_end_and_that_it_is_over(relayed: Callable[..., Relayed]) -> None:
    run = relayed("sh", "-c", "printf 12345; exit 3")
    assert run.until(run.monitor, "wrote") == 5
    assert run.until(run.monitor, "ended") == 3
    run.monitor.send({"release": True})
    pid = run.until(run.front, "started")
    assert pid != run.process.pid
    assert run.rest(run.front) == [{"ended": 3}, {"over": 3}]
    assert run.rest(run.monitor) == [{"over": 3}]
    assert run.end() == 0
    assert run.lines() == [
        'attempt 1 starts: ["shown"]', "12345", "the command ended with exit code 3",
    ]  # fmt: skip


def test_without_a_monitor_the_first_end_is_the_last(relayed: Callable[..., Relayed]) -> None:
    run = relayed("sh", "-c", "sleep 0.2; exit 4")
    run.monitor.close()
    run.until(run.front, "started")
    assert run.rest(run.front) == [{"ended": 4}, {"over": 4}]


def test_what_cannot_be_started_is_an_end(relayed: Callable[..., Relayed]) -> None:
    run = relayed("./none")
    assert run.until(run.front, "failed") == "No such file or directory"
    assert run.until(run.front, "ended") == 127


def test_the_monitor_starts_another_attempt_after_an_end_and_not_before(
    relayed: Callable[..., Relayed],
) -> None:
    run = relayed("sh", "-c", WAITS)
    run.logged("ready")
    start = {"command": ["sh", "-c", "echo $EXTRA"], "shown": ["again"]}
    run.monitor.send({"start": {**start, "environment": {"EXTRA": "early"}}, "release": True})
    run.monitor.send({"signal": signal.SIGTERM})
    assert run.until(run.monitor, "ended") == 5
    run.monitor.send({"start": {**start, "environment": {"EXTRA": "late"}}})
    assert run.until(run.monitor, "ended") == 0
    run.monitor.send({"release": True})
    assert run.rest(run.front)[-1] == {"over": 0}
    # A shell may say that its `sleep` was ended.
    assert [line for line in run.lines()[1:] if line != "Terminated"] == [
        "ready", "ended", "the command ended with exit code 5", 'attempt 2 starts: ["again"]',
        "late", "the command ended with exit code 0",
    ]  # fmt: skip


def test_a_signal_of_the_monitor_is_an_order_and_one_of_the_front_a_persons_wish(
    relayed: Callable[..., Relayed],
) -> None:
    run = relayed("sh", "-c", WAITS)
    run.logged("ready")
    for link in (run.front, run.monitor):
        link.send({"signal": signal.SIGUSR1})
        run.logged("got")
    run.front.send({"signal": signal.SIGINT})
    assert run.until(run.monitor, "interrupted") == "SIGINT"
    assert run.until(run.monitor, "ended") == 5
    assert [line for line in run.lines() if "asked" in line] == ["asked to end by SIGINT"]


@pytest.mark.parametrize(("number", "by"), [(STOP, "ldlm-monitor stop"), (signal.SIGHUP, "SIGHUP")])
def test_a_signal_to_the_relay_itself_ends_the_command(
    relayed: Callable[..., Relayed], number: int, by: str
) -> None:
    run = relayed("sh", "-c", f"trap 'exit 6' HUP; {WAITS}")
    run.logged("ready")
    os.kill(run.process.pid, signal.SIGUSR1)  # of a scheduler, for the command: not for us
    os.kill(run.process.pid, number)
    assert run.until(run.front, "interrupted") == by
    assert run.until(run.front, "ended") == (5 if number == STOP else 6)
    assert "got" not in run.log.read_text()


def test_one_signal_that_comes_by_the_front_and_directly_is_passed_on_once(
    relayed: Callable[..., Relayed],
) -> None:
    run = relayed(
        "sh", "-c", "trap 'echo got' TERM; echo ready; for i in 1 2 3 4; do sleep 0.1; done"
    )
    run.logged("ready")
    run.front.send({"signal": signal.SIGTERM})
    run.logged("asked to end by SIGTERM")
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.until(run.front, "ended") == 0
    assert run.lines().count("asked to end by SIGTERM") == 1
    assert run.lines().count("got") == 1


def test_a_second_wish_by_the_same_way_is_passed_on(relayed: Callable[..., Relayed]) -> None:
    run = relayed(
        "sh", "-c", "trap 'echo got' TERM; echo ready; for i in 1 2 3 4; do sleep 0.1; done"
    )
    run.logged("ready")
    for count in (1, 2):
        run.front.send({"signal": signal.SIGTERM})
        run.until(run.front, "interrupted")
        assert run.log.read_text().count("asked to end") == count
    run.front.send({"signal": signal.SIGINT})
    assert run.until(run.front, "interrupted") == "SIGINT"


def test_a_command_that_job_control_stops_is_reported_and_goes_on(
    relayed: Callable[..., Relayed],
) -> None:
    run = relayed("sh", "-c", "kill -STOP $$; echo on; exit 2")
    assert run.until(run.front, "stopped") == signal.SIGSTOP
    run.front.send({"signal": signal.SIGCONT, "foreground": False, "resize": True})
    assert run.until(run.front, "ended") == 2
    assert "on" in run.lines()


def test_lines_of_the_monitor_stand_in_the_log_as_they_are_and_notes_with_a_time(
    relayed: Callable[..., Relayed],
) -> None:
    run = relayed("sh", "-c", "printf half; read x; echo more")
    run.logged("half")
    run.monitor.send({"line": '{"type": "event"}'})
    run.monitor.send({"note": "restart 1"})
    run.logged("restart 1")
    assert run.process.stdin is not None
    run.process.stdin.write(b"\n")
    run.process.stdin.flush()
    assert run.until(run.front, "ended") == 0
    text = run.log.read_text()
    assert '\n{"type": "event"}\n' in text
    assert "Z ldlm-monitor run: restart 1\n" in text
    assert run.lines()[1] == "half"


def test_output_of_a_process_that_is_left_behind_is_passed_on_after_the_end(
    relayed: Callable[..., Relayed],
) -> None:
    run = relayed("sh", "-c", "(sleep 0.5; echo late) & exit 0")
    assert run.until(run.monitor, "ended") == 0
    run.monitor.send({"release": True})
    assert run.until(run.front, "over") == 0
    assert "late" not in run.log.read_text()
    assert run.process.stdout is not None
    assert run.process.stdout.read() == b"late\n"
    assert run.lines()[-1] == "late"


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """A person's side of a terminal of 30 rows and 90 columns, and the programs' side."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 30, 90, 0, 0))
    yield master, slave
    os.close(slave)
    os.close(master)


def to_foreground(run: Relayed, ours: int) -> None:
    """Have the relay pass each key on, as our terminal then does to it."""
    run.front.send({"foreground": True})
    deadline = time.monotonic() + SECONDS
    while termios.tcgetattr(ours)[3] & termios.ECHO:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_command_on_a_terminal_reads_what_is_typed_in_the_foreground(
    relayed: Callable[..., Relayed], terminal: tuple[int, int]
) -> None:
    person, ours = terminal
    run = relayed("sh", "-c", "stty size; read a; echo read $a; stty size", terminal=ours)
    run.logged("30 90")
    before = termios.tcgetattr(ours)
    to_foreground(run, ours)
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 20, 70, 0, 0))
    run.front.send({"resize": True})
    os.write(person, b"word\r")
    assert run.until(run.front, "ended") == 0
    assert "read word\n" in run.log.read_text().replace("\r", "")
    assert "20 70" in run.log.read_text()
    assert termios.tcgetattr(ours) == before


@pytest.mark.parametrize(
    ("key", "reported", "said"),
    [(b"\x03", "interrupted", "SIGINT"), (b"\x1a", "stopped", signal.SIGSTOP)],
)
def test_ctrl_c_is_a_persons_wish_and_ctrl_z_stops_the_command(
    relayed: Callable[..., Relayed], terminal: tuple[int, int], key: bytes, reported: str, said: Any
) -> None:
    person, ours = terminal
    run = relayed(
        "sh", "-c", "echo ready; exec sleep 30", terminal=ours
    )  # a fork before its exec does not stop
    run.logged("ready")
    to_foreground(run, ours)
    os.write(person, key)
    assert run.until(run.front, reported) == said
    run.front.send({"signal": signal.SIGCONT})
    if reported == "stopped":
        run.monitor.send({"signal": signal.SIGINT})
    assert run.until(run.front, "ended") == -signal.SIGINT


@pytest.mark.parametrize(
    ("code", "lost", "said"),
    [
        (0, 0, "the command ended with exit code 0"),
        (3, 12, "the command ended with exit code 3; 12 bytes of its output are not in this file"),
        (-9, 0, "the command was ended by signal 9 (SIGKILL)"),
        (-40, 1, "the command was ended by signal 40 (of real time); 1 bytes of its output are"),
    ],
)
def test_the_end_line_has_code_or_signal_and_what_the_log_lacks(
    code: int, lost: int, said: str
) -> None:
    assert _ending(code, lost).startswith(said)
