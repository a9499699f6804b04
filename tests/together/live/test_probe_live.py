"""Trainings that hang, that are killed and that finish, followed by the real daemon."""

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


def config(folder: Path, *more: str, limit: int = 4) -> None:
    lines = ["[stall]", f"limit_seconds = {{ running = {limit}, starting = {limit} }}", *more]
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


def test_a_training_that_was_killed_has_ended_and_is_no_stall(
    start: Callable, tmp_path: Path, train: Callable[[], Training]
) -> None:
    config(tmp_path, limit=10)  # a look comes 6 s before, so after the kill and with time to spare
    daemon = start("run7.log").ready()
    training = train()
    daemon.wait_for_metric('ldlm_train_step{run="run7"} 39')
    training.process.send_signal(signal.SIGKILL)
    training.process.wait()
    line = daemon.until("FIRING")
    assert "TrainingEnded" in line
    assert f"ended: stopped at step 39; pid {training.pid} is gone" in line
    daemon.wait_for_metric('ldlm_run_state{run="run7",state="ended"} 1')
    assert daemon.stop(signal.SIGINT) == 130
    assert any("Verdict" in each and "ended" in each for each in daemon.printed())


FINISHED = {
    "caffe": ["Iteration {0}, loss = 2.5"] * 40 + ["Optimization Done."],
    "nanogpt": ["step:{0}/40 train_loss:2.5{0} train_time:{0}ms step_avg:1.00ms"] * 41,
    "script": ["step {0} | loss 2.5{0}"] * 40 + ["Training of experiment is done"],
    "fairseq": ["step {0} | loss 2.5{0}"] * 40
    + ["2022-01-05 18:40:09 | INFO | fairseq_cli.train | done training in 50.6 seconds"],
}
"""Last lines of four trainers; `{0}` is the step."""
WRITER = """
import sys, time
with open(sys.argv[1], "w") as log:
    for step, line in enumerate(sys.argv[3:]):
        print(line.format(step), file=log, flush=True)
        time.sleep(0.05)
    time.sleep(float(sys.argv[2]))
"""


def test_finished_runs_page_nobody_and_those_that_hang_do(start: Callable, tmp_path: Path) -> None:
    """Three hold their log open and write no more: one below its total, two without any."""
    config(tmp_path)
    daemon = start("*.log").ready()
    hung = {
        "hung1": ["step:{0}/4000 train_loss:2.5{0} train_time:{0}ms step_avg:1.00ms"] * 40,
        "hung2": ["step {0} | loss 2.5{0}"] * 40,
        "hung3": ["Iteration {0}, loss = 2.5"] * 40,
    }
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, tmp_path / f"{name}.log", stays, *lines])
        for stays, logs in (("0", FINISHED), ("600", hung))
        for name, lines in logs.items()
    ]
    try:
        alerts = [daemon.until("FIRING", "TrainingStalled") for _ in hung]
        for name in FINISHED:
            daemon.wait_for_metric(f'ldlm_run_state{{run="{name}",state="finished"}} 1')
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert all("CRITICAL" in line.upper() for line in alerts)
    assert all(any(name in line for line in alerts) for name in hung)
    assert daemon.stop() == 0
    fired = [line for line in daemon.printed() if "FIRING" in line]
    assert all("RunFinished" in line for line in fired), fired


def test_a_host_that_nobody_wants_asked_is_not_asked(
    start: Callable, tmp_path: Path, train: Callable[[], Training]
) -> None:
    config(tmp_path, "[probe]", "enabled = false")
    daemon = start("run7.log").ready()
    train()
    line = daemon.until("FIRING", "TrainingStalled")
    assert "hung" not in line
    assert daemon.stop() == 0
