"""It learns, every mode of it; latents are of use; and a resumed run is the same run."""

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

import torch

from ldlm_trainer.config import Config
from ldlm_trainer.held_out import evaluate
from ldlm_trainer.prepare import LATENT_DIM
from ldlm_trainer.rank_process import Process
from ldlm_trainer.train import GaveUpError, Trainer

pytestmark = pytest.mark.trainer
Make = Callable[..., Config]
ALONE = Process(rank=0, world=1, local_rank=0, device=torch.device("cpu"))


def run(settings: Config) -> Trainer:
    with Trainer(settings, ALONE) as trainer:
        trainer.train()
    return trainer


def rows(settings: Config) -> list[dict[str, float]]:
    lines = (settings.folder / "training_log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


LEARNING = {"model__width": 64, "data__batch_size": 32, "schedule__warmup": 10,
            "optim__lr": 5e-3, "run__eval_batches": 20}  # fmt: skip


@pytest.mark.long  # as the next; every mode learns in each run
def test_latents_are_learned_from_their_text(settings: Make) -> None:
    """With the latent of another sentence the loss is higher by 0.1 nats a token and more."""
    trained = run(settings(objective__mode="l2t", schedule__steps=150, **LEARNING))
    own, other = (
        evaluate(trained.model, trained.held_out, trained.settings, ALONE, shuffled=shuffled)
        for shuffled in (False, True)
    )
    assert own["eval_text_loss"] < 6.0
    assert other["eval_text_loss"] - own["eval_text_loss"] >= 0.1


@pytest.mark.long
def test_texts_are_learned_from_their_latent(settings: Make) -> None:
    """The velocity is missed by 0.7 times as much, at most, as with another's text."""
    # At a higher rate it depends on the order of additions whether it leaves the plateau.
    calm = {**LEARNING, "schedule__warmup": 30, "optim__lr": 2e-3}
    trained = run(settings(objective__mode="t2l", schedule__steps=300, **calm))
    own, other = (
        evaluate(trained.model, trained.held_out, trained.settings, ALONE, shuffled=shuffled)
        for shuffled in (False, True)
    )
    assert own["eval_latent_loss"] <= 0.7 * other["eval_latent_loss"]


@pytest.mark.parametrize(
    "mode",
    [
        "mixed",
        pytest.param("unconditional", marks=pytest.mark.long),
        pytest.param("sequential", marks=pytest.mark.long),
    ],
)
def test_every_mode_learns(settings: Make, mode: str) -> None:
    chosen = settings(
        objective__mode=mode, objective__phase_steps=20, schedule__steps=60,
        data__batch_size=16, optim__lr=3e-3,
    )  # fmt: skip
    with Trainer(chosen, ALONE) as new:
        start = evaluate(new.model, new.held_out, chosen, ALONE)
    trained = run(chosen)
    end = evaluate(trained.model, trained.held_out, chosen, ALONE)
    assert end["eval_loss"] < start["eval_loss"] - 0.5


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [p.detach().clone() for p in trainer.model.parameters()]


def test_a_resumed_run_is_the_same_run_to_the_last_bit(settings: Make) -> None:
    """With dropout, which draws from the process's random numbers."""
    parts = {"model__dropout": 0.1, "schedule__effective_batch": 8, "objective__mode": "mixed",
             "run__eval_every": 5, "schedule__plateau_patience": 5}  # fmt: skip
    whole = run(settings(run__name="whole", run__save_every=10, **parts))
    interrupted = settings(run__name="cut", run__save_every=10, **parts)
    cut = run(settings(run__name="cut", run__save_every=10, run__faults="sigterm@8", **parts))
    assert cut.step == 10
    resumed = run(interrupted)
    assert resumed.step == 20
    for one, two in zip(weights(whole), weights(resumed), strict=True):
        assert torch.equal(one, two)
    compared = ("step", "loss", "lr", "grad_norm", "text_accuracy", "samples_total")
    whole_rows, cut_rows = rows(whole.settings), rows(interrupted)
    assert [[row[key] for key in compared] for row in cut_rows] == [
        [row[key] for key in compared] for row in whole_rows
    ]


# torch says that a norm of half precision with float32 weights takes no fused kernel.
HALF = pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")


@HALF
@pytest.mark.parametrize(
    "given",
    [
        {"optim__precision": "fp16"},
        {"objective__weighting": "balanced", "objective__mode": "mixed", "run__async_save": True},
        {"schedule__micro_growth": "[[5, 8]]"},
    ],
    ids=str,
)
def test_what_weighs_a_step_is_kept_in_a_checkpoint(settings: Make, given: dict[str, Any]) -> None:
    whole = run(settings(run__name="whole", run__save_every=10, **given))
    cut = {"run__name": "cut", "run__save_every": 10, **given}
    run(settings(run__faults="sigterm@8", **cut))
    resumed = run(settings(**cut))
    assert resumed.step == 20
    for one, two in zip(weights(whole), weights(resumed), strict=True):
        assert torch.equal(one, two)
    assert rows(resumed.settings)[-1]["samples_total"] == rows(whole.settings)[-1]["samples_total"]


@HALF
def test_a_loss_scale_that_is_too_high_falls_and_its_steps_are_skipped(settings: Make) -> None:
    """The dynamic scale of fp16, as Megatron or DeepSpeed log theirs."""
    trained = run(settings(optim__precision="fp16", schedule__steps=12, run__faults="nan_loss@3"))
    scales = [row["loss_scale"] for row in rows(trained.settings)]
    assert scales[4] == scales[2] / 2
    assert trained.skipped >= 1
    assert all(parameter.isfinite().all() for parameter in trained.model.parameters())


def test_a_checkpoint_beside_the_training_is_of_its_own_step(settings: Make) -> None:
    plain = run(settings(run__name="plain", run__save_every=5))
    beside = run(settings(run__name="beside", run__save_every=5, run__async_save=True))
    kept = [[each.step for each in trained.keeper.all()] for trained in (plain, beside)]
    assert kept[0] == kept[1]
    for step in kept[0]:
        one, two = (
            torch.load(each.settings.folder / f"step_{step:08d}/model.pt", weights_only=True)
            for each in (plain, beside)
        )
        assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_log_is_not_shortened_by_a_resume(settings: Make) -> None:
    chosen = settings(run__save_every=10)
    run(chosen)
    path = chosen.folder / "training_log.jsonl"
    with path.open("a") as file:
        file.write('{"step": 20, "lo')  # a kill in mid-write
    before = path.read_text()
    run(settings(run__save_every=10, schedule__steps=22))
    after = path.read_text()
    assert after.startswith(before + "\n")
    assert [json.loads(line)["step"] for line in after.splitlines()[-2:]] == [20, 21]


def test_what_signals_did_before_a_run_they_do_after_it(settings: Make) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run(settings(schedule__steps=3))
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_step_that_is_not_finite_is_not_taken(settings: Make) -> None:
    chosen = settings(run__faults="nan_loss@5", schedule__steps=6, run__save_every=5)
    trained = run(chosen)
    kept = torch.load(chosen.folder / "step_00000005/model.pt", weights_only=True)
    assert all(torch.equal(kept[name], value) for name, value in trained.model.state_dict().items())
    last = rows(chosen)[-1]
    assert (last["loss"], last["grad_norm"], last["skipped"]) == ("NaN", "NaN", 1)


def test_a_run_that_stays_non_finite_gives_up(settings: Make) -> None:
    chosen = settings(run__faults="nan_loss@5:for=100", run__max_skips=4)
    with pytest.raises(GaveUpError, match="4 steps in a row, the last one 8"):
        run(chosen)


def test_it_is_evaluated_after_each_so_many_steps(
    settings: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    run(settings(schedule__steps=6, run__eval_every=2, run__eval_batches=1, run__log_every=1))
    said = capsys.readouterr().out
    steps = re.findall(r"Eval: 100%|(?<=step: )\d+(?=/6 loss)", said)
    assert steps == ["0", "1", "Eval: 100%", "2", "3", "Eval: 100%", "4", "5", "Eval: 100%"]


def test_a_row_counts_what_its_step_took(settings: Make) -> None:
    chosen = settings(schedule__steps=6, data__batch_size=3, schedule__effective_batch=6)
    run(chosen)
    written = rows(chosen)
    assert [row["step"] for row in written] == [0, 1, 2, 3, 4, 5]
    assert [row["samples_total"] for row in written] == [6, 12, 18, 24, 30, 36]
    for row in written:
        assert (row["batch_size"], row["accum"], row["skipped"]) == (6, 2, 0)
        assert row["samples_per_sec"] == pytest.approx(6 / row["step_seconds"])
        assert 0 <= row["text_accuracy"] <= 1
        assert -1 <= row["latent_cosine"] <= 1
        assert row["tokens_per_sec"] > row["samples_per_sec"]
        assert row["latent_norm"] == pytest.approx(LATENT_DIM**0.5, rel=1e-3)
    assert written[0]["lr"] < written[1]["lr"]


class Behind:
    """An event of a device that is this many seconds behind the host."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def synchronize(self) -> None:
        time.sleep(self.seconds)


def test_the_wait_for_a_device_that_is_behind_is_part_of_a_step(settings: Make) -> None:
    """On a GPU a step is handed over in no time, and its results are waited for in the next."""
    chosen = settings(schedule__steps=4)
    with Trainer(chosen, ALONE) as trainer:
        waiting = trainer.stepper._waiting
        trainer.stepper._late = 1
        trainer.stepper._push = lambda vector, facts: waiting.append((vector, Behind(0.2), facts))
        trainer.train()
    assert all(row["step_seconds"] > 0.2 for row in rows(chosen)[1:3])


def test_upstreams_dialect_is_what_upstream_writes(
    settings: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = settings(run__dialect="upstream", run__faults="nan_loss@3", schedule__steps=5)
    run(chosen)
    written = (chosen.folder / "training_log.jsonl").read_text().splitlines()
    assert '"loss": NaN' in written[3]
    assert list(json.loads(written[0])) == [
        "epoch", "step", "batch_in_epoch", "loss", "lr", "text_loss", "latent_loss",
        "text_accuracy", "latent_norm",
    ]  # fmt: skip
    bars = [part for part in capsys.readouterr().out.split("\r") if part.startswith("Training:")]
    assert len(bars) == 5
    assert all(len(bar) <= 100 for bar in bars[:3])  # a message is glued to the others


def test_the_best_checkpoint_stays(settings: Make, tmp_path: Path) -> None:
    chosen = settings(
        run__save_every=5, run__eval_every=5, run__keep=1, schedule__steps=30, optim__lr=3e-3
    )
    trained = run(chosen)
    kept = [checkpoint.step for checkpoint in trained.keeper.all()]
    assert kept == sorted({trained.keeper.best, 30})
