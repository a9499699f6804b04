"""Who a process is among the others, and what they must agree on."""

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

import torch
from torch import nn

from ldlm_trainer.config import load
from ldlm_trainer.errors import TrainerError
from ldlm_trainer.rank_process import Process, freeze_unused, in_parallel, joined, whole

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
