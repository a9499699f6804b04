"""A training that hangs, and one that is killed, under the eyes of the real daemon."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

TRAINER = """
import time
for step in range(40):
    sum(range(500_000))
    print(f"step {step} | loss 2.{step:03d}", flush=True)
    time.sleep(0.05)
time.sleep(600)
"""


class Training:
    """A process of its own that writes its log through `tee`, as launch scripts do."""

    def __init__(self, folder: Path) -> None:
        self.tee = subprocess.Popen(
            ["tee", folder / "run7.log"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER], stdin=subprocess.DEVNULL, stdout=self.tee.stdin
        )
        assert self.tee.stdin is not None
        self.tee.stdin.close()
        self.pid = self.process.pid

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.tee.kill()
        self.tee.wait()


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Callable[[], Training]]:
    """Starts a training; it takes two seconds for its steps, and then no more."""
    started: list[Training] = []

    def begin() -> Training:
        started.append(Training(tmp_path))
        return started[-1]

    yield begin
    for training in started:
        training.end()


def config(folder: Path, *more: str) -> None:
    lines = ["[stall]", "limit_seconds = { running = 4, starting = 4 }", *more]
    (folder / "ldlm-monitor.toml").write_text("\n".join(lines) + "\n")


def test_the_alert_of_a_training_that_hangs_says_so(
    start: Callable, slack, tmp_path: Path, train: Callable[[], Training]
) -> None:
    config(tmp_path)
    daemon = start("run7.log", slack=slack).ready()
    training = train()
    line = daemon.until("FIRING", "TrainingStalled")
    assert f"hung: pid {training.pid} sleeps" in line
    message = slack.next()
    assert "TrainingStalled firing" in message
    assert f"hung: pid {training.pid} sleeps" in message
    assert daemon.stop() == 0


def test_the_alert_of_a_training_that_was_killed_says_so(
    start: Callable, tmp_path: Path, train: Callable[[], Training]
) -> None:
    config(tmp_path)
    daemon = start("run7.log").ready()
    training = train()
    daemon.wait_for_metric('ldlm_train_step{run="run7"} 39')
    training.process.send_signal(signal.SIGKILL)
    training.process.wait()
    line = daemon.until("FIRING", "TrainingStalled")
    assert f"killed: pid {training.pid} is gone" in line
    daemon.wait_for_metric('ldlm_run_state{run="run7",state="stalled"} 1')
    assert daemon.stop(signal.SIGINT) == 130
    assert any("Verdict" in each and "killed" in each for each in daemon.printed())


def test_a_host_that_nobody_wants_asked_is_not_asked(
    start: Callable, tmp_path: Path, train: Callable[[], Training]
) -> None:
    config(tmp_path, "[probe]", "enabled = false")
    daemon = start("run7.log").ready()
    train()
    line = daemon.until("FIRING", "TrainingStalled")
    assert "hung" not in line
    assert daemon.stop() == 0
