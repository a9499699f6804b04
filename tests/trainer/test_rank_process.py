"""Who a process is among the others, what they must agree on, and what they share."""

import multiprocessing
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

from ldlm_trainer.config import load
from ldlm_trainer.errors import TrainerError
from ldlm_trainer.rank_process import (
    Process,
    expect_prompt_steps,
    forget_gradients,
    freeze_unused,
    in_parallel,
    joined,
    whole,
)

CPU = torch.device("cpu")
ALONE = Process(rank=0, world=1, local_rank=0, device=CPU)


def test_a_process_that_torchrun_did_not_start_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    with joined(load(None, ["run.device=cpu"]).run) as process:
        assert process == ALONE
    assert process.from_all("x") == ["x"]
    assert process.total(torch.ones(2)).tolist() == [1.0, 1.0]


def test_torchrun_says_which_attempt_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "3")
    with joined(load(None, ["run.device=cpu"]).run) as process:
        assert (process.rank, process.attempt) == (0, 3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_rank_without_a_gpu_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "2")
    with (
        pytest.raises(TrainerError, match="local rank 2 has no GPU, there are 0"),
        joined(load(None, ["run.device=cuda"]).run),
    ):
        pass


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(2, 1), nn.Linear(2, 1)


class Other(Process):
    """A rank whose peer trains everything."""

    def from_all(self, value: object) -> list[object]:
        return [value, []]


def test_what_a_mode_does_not_train_is_frozen() -> None:
    model = TwoHeads()
    frozen = freeze_unused(model, model.used(torch.ones(1, 2)).sum(), ALONE)
    assert frozen == ["unused.weight", "unused.bias"]
    trained = [name for name, each in model.named_parameters() if each.requires_grad]
    assert trained == ["used.weight", "used.bias"]
    assert model.used.weight.grad is None
    assert freeze_unused(model, model.used(torch.ones(1, 2)).sum(), ALONE) == []


def test_ranks_that_train_different_parameters_would_wait_for_ever() -> None:
    model = TwoHeads()
    other = Other(rank=0, world=2, local_rank=0, device=CPU)
    with pytest.raises(RuntimeError, match="ranks disagree which parameters"):
        freeze_unused(model, model.used(torch.ones(1, 2)).sum(), other)


def test_one_rank_has_the_model_as_it_is() -> None:
    model = TwoHeads()
    assert in_parallel(model, load(None, []).ddp, ALONE) is model
    assert whole(model.used.weight) is model.used.weight


def of_two_ranks(work: Callable[[Process], Any]) -> list[Any]:
    """What `work` returns in each of two processes that have joined over gloo."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    fork = multiprocessing.get_context("fork")
    ranks = []
    for rank in range(2):
        ours, theirs = fork.Pipe()
        child = fork.Process(target=as_rank, args=(rank, port, work, theirs))
        child.start()
        theirs.close()
        ranks.append((child, ours))
    found = []
    for child, ours in ranks:
        with suppress(EOFError):
            found.append(ours.recv() if ours.poll(60) else "nothing came")
        child.join(10)
    return found


def as_rank(rank: int, port: str, work: Callable[[Process], Any], theirs: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    run = load(None, ["run.device=cpu"]).run
    with joined(run) as process:
        expect_prompt_steps(run, process)
        theirs.send(work(process))


@pytest.mark.trainer
def test_two_ranks_share_sums_values_and_gradients() -> None:
    def work(process: Process) -> Any:
        model = nn.Linear(1, 1, bias=False)
        parallel = in_parallel(model, load(None, ["ddp.compression=fp16"]).ddp, process)
        (parallel(torch.ones(1, 1)) * (process.rank + 1)).sum().backward()
        assert model.weight.grad is not None
        total = process.total(torch.tensor([1.0, process.rank]))
        return total.tolist(), process.from_all(process.rank), model.weight.grad.item()

    assert of_two_ranks(work) == [([2.0, 1.0], [0, 1], 1.5)] * 2


def test_what_was_kept_of_a_gradient_that_was_not_finite_is_forgotten() -> None:
    model: Any = nn.Linear(1, 1)
    forget_gradients(model)
    model.kept = PowerSGDState(None, matrix_approximation_rank=1)
    kept = (model.kept.error_dict, model.kept.p_memory_dict, model.kept.q_memory_dict)
    for each in kept:
        each[0] = torch.full((1,), torch.nan)
    forget_gradients(model)
    assert kept == ({}, {}, {})
