"""Faults on purpose strike where they are set, and nowhere else."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

import torch

from ldlm_trainer.errors import TrainerError
from ldlm_trainer.faults import Faults, parse

CPU = torch.device("cpu")
SUMS = torch.arange(8.0)


def of(text: str, rank: int = 1, attempt: int = 0) -> Faults:
    return Faults(parse(text), rank=rank, attempt=attempt)


def bent(faults: Faults, step: int) -> tuple[float, list[float], float]:
    """The loss, its two sums and its gradient, of a loss of 2 whose gradient is 1."""
    weight = torch.tensor(2.0, requires_grad=True)
    loss, sums = faults.bend(step, weight * 1, SUMS)
    loss.backward()
    assert weight.grad is not None
    return loss.item(), sums[:2].tolist(), weight.grad.item()


def test_a_fault_strikes_its_rank_at_its_steps_in_its_attempt() -> None:
    text = "loss_spike@5:rank=1:for=2:x=3"
    plain = (2.0, [0.0, 1.0], 1.0)
    assert [bent(of(text), step)[0] for step in (4, 5, 6, 7)] == [2.0, 6.0, 6.0, 2.0]
    assert bent(of(text), 5) == (6.0, [0.0, 3.0], 3.0)
    assert bent(of(text, rank=0), 5) == plain
    assert bent(of(text, attempt=1), 5) == plain
    assert bent(of(text + ":attempt=1", attempt=1), 5)[0] == 6.0


def test_nan_is_in_the_loss_and_in_the_gradient() -> None:
    loss, sums, gradient = bent(of("nan_loss@5"), 5)
    assert math.isnan(loss)
    assert math.isnan(sums[1])
    assert math.isnan(gradient)


def test_an_exploding_gradient_leaves_the_loss() -> None:
    assert bent(of("grad_explosion@5:x=100"), 5) == (2.0, [0.0, 1.0], 100.0)


def test_memory_runs_out_for_real() -> None:
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        of("oom@5").before_forward(5, CPU)


def test_a_full_device_is_a_real_one(tmp_path: Path) -> None:
    path = tmp_path / ".writing-00000020" / "model.pt"
    with (
        pytest.raises(OSError, match="No space left on device"),
        of("disk_full@20").opened(path) as file,
    ):
        file.write(b"x" * 100_000)


@pytest.fixture
def heard() -> Iterator[list[int]]:
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


def test_a_signal_is_a_real_one(heard: list[int]) -> None:
    of("sigterm@3").before_forward(3, CPU)
    assert heard == [signal.SIGTERM]


def test_an_error_and_an_end_are_those_of_a_training() -> None:
    with pytest.raises(RuntimeError, match="a fault that was asked for, at step 3"):
        of("raise@3").before_forward(3, CPU)
    with pytest.raises(SystemExit) as ended:
        of("exit@3").before_forward(3, CPU)
    assert ended.value.code == 1
    of("exit@3").before_forward(2, CPU)


@pytest.mark.parametrize(("kind", "number"), [("kill", signal.SIGKILL), ("segv", signal.SIGSEGV)])
def test_a_death_is_a_real_one(kind: str, number: int) -> None:
    code = (
        "import torch; from ldlm_trainer.faults import Faults, parse;"
        f"Faults(parse('{kind}@3'), rank=0, attempt=0).before_forward(3, torch.device('cpu'))"
    )
    trainer = str(Path(__file__).resolve().parents[2] / "trainer")
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), trainer]))
    given = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", code], env=given, check=False)
    assert done.returncode == -number


@pytest.mark.parametrize(
    "text",
    ["nan_loss", "nan_loss@x", "frog@4", "hang@4:kind=sideways", "slow@4:seconds=long", "kill@4:1"],
)
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(TrainerError, match="LDLM_FAULTS"):
        parse(f"sigterm@9,{text}")
