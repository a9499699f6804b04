"""Two ranks on gloo fail in six ways: Slack's first line has the rank and what came over it.

`pytest -m long tests/together/live/test_gloo_faults.py -s` prints the lines.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = [pytest.mark.live, pytest.mark.trainer]
PAIR = Path(__file__).with_name("gloo_pair.py")
TORCHRUN = (*(sys.executable, "-m", "torch.distributed.run"), "--standalone", "--nproc-per-node=2")
LIMITS = {"TrainingStalled": 8.0}
"""The stall limit of a run that shall hang, seconds; the learned one is 30 s at least."""


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Starts a pair with a fault, whose log is `train.log`; kills what is left of it."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(fault: str) -> None:
        with (tmp_path / "train.log").open("wb") as log:
            process = subprocess.Popen(
                [*TORCHRUN, str(PAIR), fault],
                cwd=tmp_path,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        started.append(process)

    yield begin
    for process in started:
        for pid in [*_descendants(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def _descendants(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _descendants(int(child))
            yield int(child)


def hung(function: str, text: str) -> str:
    """The cause of a hang of rank 1 in the only line of its program with `text`."""
    lines = PAIR.read_text(encoding="utf-8").splitlines()
    (line,) = (number for number, each in enumerate(lines, 1) if text in each)
    return f"rank 1 is in {function} at gloo_pair.py:{line}, the others wait in backward"


FAULTS = {
    "kill": ("TrainingCrashed", "process killed by SIGKILL"),
    "raise": ("TrainingCrashed", "TypeError: forward() takes 2 positional arguments"),
    "nan": ("NonFiniteLoss", "loss NaN at step "),
    "backward": ("TrainingStalled", hung("backward", "sleep(3600)")),
    "gil": ("TrainingStalled", hung("hold_the_gil", "pthread_mutex_lock")),
    "loader": ("TrainingStalled", hung("main", "in enumerate(DataLoader")),
}
IN_EACH_RUN = "nan"


@pytest.mark.parametrize(
    "fault",
    [pytest.param(each, marks=[pytest.mark.long] * (each != IN_EACH_RUN)) for each in FAULTS],
)
def test_slacks_first_line_has_the_rank_and_what_came_over_it(
    start: Callable, slack, train: Callable[[str], None], tmp_path: Path, fault: str
) -> None:
    alert, words = FAULTS[fault]
    limit = LIMITS.get(alert, 120.0)
    (tmp_path / "ldlm-monitor.toml").write_text(f"[stall.limit_seconds]\nrunning = {limit}\n")
    daemon = start("train.log", slack=slack).ready()
    train(fault)
    daemon.wait_for_message("health_rank1.jsonl", "following too")
    daemon.wait_for_message("heartbeat_rank0 and 1 more: following too")
    (tmp_path / "strike").touch()
    line = str(json.loads(slack.next())["text"])
    print(f"\n{fault}: {line}")
    # The run is `train` by its log, or the callback's `pair` where its rows were judged first.
    assert line.startswith((f"🔴 train: {words}", f"🔴 pair: {words}"))
    assert daemon.stop() == 0
