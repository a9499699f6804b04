import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ldlm_monitor.host.supervise.run_folder import RunRecord, all_runs

RUN = (sys.executable, "-m", "ldlm_monitor", "run", "--log-dir", "logs")


@dataclass
class Ran:
    """What a user sees of a command that is over, and (of a supervised one) its run."""

    stdout: bytes
    stderr: bytes
    code: int
    record: RunRecord | None = None

    @property
    def seen(self) -> tuple[bytes, bytes, int]:
        return self.stdout, self.stderr, self.code


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder and a state folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Iterator[Callable[..., Ran]]:
    """Runs a command under `ldlm-monitor run`; waits for its monitor, too."""

    def supervised(*command: str, flags: Sequence[str] = (), stdin: bytes = b"") -> Ran:
        done = subprocess.run(
            [*RUN, *flags, "--", *command],
            input=stdin,
            capture_output=True,
            check=False,
            timeout=120,
        )
        record = next(all_runs(), None)
        return Ran(done.stdout, done.stderr, done.returncode, record)

    yield supervised
    until(lambda: all((each.exit_code is not None) for each in all_runs()))


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something holds; fail after `seconds`."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def alone(*command: str, stdin: bytes = b"") -> Ran:
    """The same command without us."""
    done = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=60)
    code = done.returncode
    return Ran(done.stdout, done.stderr, code if code >= 0 else 128 - code)


def on_terminal(command: Sequence[str], typed: Sequence[tuple[bytes, bytes]] = ()) -> Ran:
    """Run a command on a terminal of 24 rows and 80 columns, and return all that it showed.

    `typed`: each text is typed when the other one has been shown.
    """
    pid, master = pty.fork()
    if pid == 0:
        os.execvp(command[0], list(command))
    shown, wanted = b"", list(typed)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if wanted and wanted[0][0] in shown:
            os.write(master, wanted.pop(0)[1])
        if not select.select([master], [], [], 0.1)[0]:
            continue
        try:
            data = os.read(master, 65536)
        except OSError:
            data = b""
        if not data:
            break
        shown += data
    os.close(master)  # what still runs is sent SIGHUP
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return Ran(shown, b"", code if code >= 0 else 128 - code)


def family(pid: int) -> list[int]:
    """A front, its relay, its command and its monitor: all that a scheduler signals of a job."""
    found = [pid]
    for each in found:  # it grows while it is read
        with contextlib.suppress(FileNotFoundError):
            children = Path(f"/proc/{each}/task/{each}/children").read_text()
            found.extend(map(int, children.split()))
    return found


def signal_all(pids: Sequence[int], number: int) -> None:
    """As Slurm does it: each process, in the order of their start."""
    for pid in sorted(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
