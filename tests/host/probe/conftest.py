"""Real trainings in small: processes that write a log, and what can befall them."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.records import Position
from ldlm_monitor.judge.run.verdict import ProbeCandidate

TRAINER = """
import os, sys, time
sum(range(3_000_000))
what = sys.argv[1]
is_parent = not what.startswith("fork") or os.fork()
if is_parent:
    print("started", flush=True)
if what in ("sleep", "fork") or (what == "fork and compute" and is_parent):
    time.sleep(600)
elif what in ("compute", "fork and compute"):
    while True:
        sum(range(10_000))
elif what == "hold the GIL":
    import ctypes
    ctypes.PyDLL(None).sleep(600)
elif what == "exit":
    sys.exit(int(sys.argv[2]))
"""


class Training:
    """A process that writes `log`, as a rank if one is given, maybe through `tee`."""

    def __init__(self, log: Path, *arguments: str, rank: int | None, tee: bool, **env: str) -> None:
        reported = {} if rank is None else {"RANK": str(rank)}
        command = [sys.executable, "-c", TRAINER, *arguments]
        self.tee: subprocess.Popen[bytes] | None = None
        environment = {**os.environ, **reported, **env}
        with log.open("ab") as file:
            if tee:
                self.tee = subprocess.Popen(
                    ["tee", "-a", log], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
                )
            output = file if self.tee is None else self.tee.stdin
            self.process = subprocess.Popen(
                command, stdout=output, env=environment, start_new_session=True
            )
        if self.tee is not None and self.tee.stdin is not None:
            self.tee.stdin.close()
        self.pid = self.process.pid

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        if self.tee is not None:
            self.tee.kill()
            self.tee.wait()


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """Starts a training on `train.log` and returns once it has written."""
    started: list[Training] = []

    def begin(*arguments: str, rank: int | None = None, tee: bool = False, **env: str) -> Training:
        log = tmp_path / "train.log"
        before = log.stat().st_size if log.exists() else 0
        training = Training(log, *arguments, rank=rank, tee=tee, **env)
        started.append(training)
        wait_until(lambda: log.stat().st_size > before)
        return training

    yield begin
    for training in started:
        training.end()


def wait_until(holds: Callable[[], object], patience: float = 30.0) -> None:
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


@pytest.fixture
def case(tmp_path: Path) -> Callable[..., ProbeCandidate]:
    """The run of `train.log`."""

    def of(**reported: object) -> ProbeCandidate:
        facts: dict[str, object] = {
            "run": "r",
            "state": "stalled",
            "last_progress_at": 0.0,
            "stalls_at": None,
            "ended_at": None,
            "files": (str(tmp_path / "train.log"),),
            "pids": {},
            "dumps": (),
            "world_size": None,
            "position": Position(str(tmp_path / "train.log"), 1, 0),
        }
        return ProbeCandidate(**(facts | reported))  # type: ignore[arg-type]

    return of
