"""The processes of a command: those of its group, and descendants that left it."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ldlm_monitor.host.probe.command_processes import CommandProcesses

from .conftest import wait_until

FAMILY = """
import os, subprocess, sys, time
own = [sys.executable, "-c", "import time; hoard = bytearray(30_000_000); time.sleep(600)"]
same = subprocess.Popen(own)
other = subprocess.Popen(own, start_new_session=True)
print(same.pid, other.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def command() -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """A command with a child in its group, and one in a session of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    same, other = map(int, process.stdout.readline().split())
    yield process, same, other
    found = CommandProcesses(process.pid)
    found.signal(signal.SIGKILL)
    process.communicate()


def test_its_memory_is_that_of_all_of_them(
    command: tuple[subprocess.Popen[str], int, int],
) -> None:
    process, same, other = command
    found = CommandProcesses(process.pid)
    assert found.pids == {process.pid}
    wait_until(lambda: found.look() > 60_000_000)
    assert found.pids == {process.pid, same, other}


def test_descendants_are_kept_when_their_parent_has_gone_and_end_with_the_rest(
    command: tuple[subprocess.Popen[str], int, int],
) -> None:
    process, same, other = command
    found = CommandProcesses(process.pid)
    found.look()
    process.kill()
    process.wait()
    assert found.is_alive
    assert found.pids == {same, other}
    found.signal(signal.SIGTERM)
    wait_until(lambda: not found.is_alive)
    assert found.pids == frozenset()


def test_a_zombie_is_none_that_runs() -> None:
    process = subprocess.Popen(["true"], start_new_session=True)
    found = CommandProcesses(process.pid)
    wait_until(lambda: found.look() == 0 and not found.pids)
    assert not found.is_alive
    found.signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == 0


def test_a_process_that_got_a_pid_later_is_not_of_the_command() -> None:
    """Nor is what has only its number: it is known by its start, too."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        found = CommandProcesses(process.pid)
        found.look()
        found._known[process.pid] -= 1
        found._pid = 2**22 + 1
        found.look()
        assert found.pids == frozenset()
        process.kill()
