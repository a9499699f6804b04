"""Real trainers under the real daemon: what ended well pages nobody, what hangs pages.

`test_probe_live.py` has a slice of it, with lines of such trainers that a process writes.
"""

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = [pytest.mark.live, pytest.mark.trainer, pytest.mark.long]
LOOPS = Path(__file__).with_name("real_trainers.py")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
LIMITS = "[stall]\nfloor_seconds = {}\n"
"""The limits are learned; 30 s at least is more than a test has for several of them."""
PATIENCE = 240.0


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a trainer whose log is named for it; kills what is left of it."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(trainer: str, what: str, *launcher: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{trainer}_{what}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *launcher, LOOPS, trainer, what],
                cwd=tmp_path,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def metric(daemon, name: str, run: str, **more: str) -> float:
    """The value of a metric of a run; NaN before it is there."""
    labels = ",".join(f'{key}="{value}"' for key, value in {"run": run, **more}.items())
    found = re.search(rf"^{name}{{{labels}}} (\S+)$", daemon.get("/metrics"), re.MULTILINE)
    return float(found[1]) if found else math.nan


def silence(daemon, run: str) -> float:
    """Seconds since the last step of a run."""
    return time.time() - metric(daemon, "ldlm_train_last_progress_timestamp_seconds", run)


def limit(daemon, run: str) -> float:
    """The learned stall limit of a run, seconds."""
    return metric(daemon, "ldlm_train_stall_limit_seconds", run)


def until(holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.2)


FINISHED = (
    *(("hugging_face", "end"), ("hugging_face", "stay"), ("lightning", "end")),
    *(("lightning", "stay"), ("nanogpt", "end"), ("mnist", "end")),
)
OVER = ("finished", "ended")
"""`ended`: the processes are gone, and the log has neither a total nor last words."""
HUNG = (("hugging_face", "stop", ()), ("loader", "hang", ()), ("collective", "hang", TORCHRUN))


def test_trainings_that_went_well_page_nobody_over_three_limits(
    start: Callable, slack, train: Callable, tmp_path: Path
) -> None:
    (tmp_path / "ldlm-monitor.toml").write_text(LIMITS.format(20))
    daemon = start("*.log", slack=slack).ready()
    started = [(what, train(trainer, what)) for trainer, what in FINISHED]
    assert all(process.wait(PATIENCE) == 0 for what, process in started if what == "end")
    for run in map("_".join, FINISHED):
        # Without steps, as of the last one, there is neither: it went as long ago as the others.
        until(lambda run=run: not silence(daemon, run) <= 3 * limit(daemon, run), seconds=90)
        (state,) = (each for each in OVER if metric(daemon, "ldlm_run_state", run, state=each) == 1)
        print(
            f"{run}: {state}, silent for {silence(daemon, run):.0f} s of {limit(daemon, run):.0f}"
        )
    assert daemon.stop() == 0
    assert [line for line in daemon.printed() if "FIRING" in line] == []
    assert slack.messages.empty()


def test_trainings_that_hang_page_at_their_learned_limit(
    start: Callable, slack, train: Callable, tmp_path: Path
) -> None:
    """A stopped process, a row that never comes, and a rank that does not join a collective."""
    (tmp_path / "ldlm-monitor.toml").write_text(LIMITS.format(6))
    daemon = start("*.log", slack=slack).ready()
    stopped, *_ = [train(trainer, what, *launcher) for trainer, what, launcher in HUNG]
    until(lambda: metric(daemon, "ldlm_train_step", "hugging_face_stop") > 40)
    os.kill(stopped.pid, signal.SIGSTOP)
    paged = [daemon.until("FIRING") for _ in HUNG]
    for line in paged:
        print(line)
    assert all("TrainingStalled       critical" in line for line in paged)
    assert all(any(f"{trainer}_{what}" in line for line in paged) for trainer, what, _ in HUNG)
    assert daemon.stop() == 0
