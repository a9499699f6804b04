"""Logs of trials, made in their form: what is wrong is found, and what is over is so."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings


def rows(count: int, of: Callable[[int], dict[str, float]]) -> list[str]:
    return [json.dumps({"step": i * 5} | of(i)) for i in range(count)]


def noise(i: int) -> float:
    return 0.01 * math.sin(i * 7)


LEARNS_NOTHING = rows(600, lambda i: {"loss": 2.5 + noise(i), "lr": 0.0, "grad_norm": 0.0})
OVERFITS = rows(
    500,
    lambda i: (
        {"loss": 3 * math.exp(-i / 150) + noise(i), "lr": 1e-4, "grad_norm": 0.5 + noise(i)}
        | ({} if i % 10 else {"eval_loss": 1.5 + (i - 180) ** 2 / 60_000})
    ),
)
COLLAPSES = [
    str(
        {
            "loss": noise(i),
            "grad_norm": 0.2 + noise(i),
            "learning_rate": 1e-06,
            "reward": 0.4 + noise(i) if i < 150 else 0.0,
            "reward_std": 0.1 + noise(i) if i < 150 else 0.0,
            "frac_reward_zero_std": 0.1 if i < 150 else 1.0,
            "entropy": max(0.001, 1.2 - i / 100),
            "epoch": round(i / 400, 3),
        }
    )
    for i in range(399)
]


def nano(settings: list[str]) -> list[str]:
    """A run of nanoGPT's form that takes all of its 400 steps."""
    losses = [f"iter {i}: loss {4.5 - i / 300:.4f}, time 77.18ms, mfu 0.00%" for i in range(401)]
    return [*settings, "step 0: train loss 4.5000, val loss 4.5000", *losses]


IN_FILE = ["Overriding config with config/small.py:", "max_iters = 5000", "lr_decay_iters = 5000"]
GIVEN = ["Overriding: max_iters = 400", "Overriding: lr_decay_iters = 400"]
NAN_FIRST = [
    "2026-03-01 10:00:00 start of training",
    "step 0: train loss 4.5589, val loss 4.4999",
    "iter 0: loss 4.6017, time 200.36ms, mfu -100.00%",
    *(f"iter {i}: loss nan, time 48.27ms, mfu 0.00%" for i in (5, 10)),
]
GLUED = [
    "".join(
        f"[RANK{rank}] Epoch 1 | Iter {i} | Train Loss {4.4 - rank * 0.4 - i / 500:.5f}"
        for rank in (1, 0)
    )
    for i in range(10, 210, 10)
]
GLUED[-6] = GLUED[-6].rpartition(" ")[0] + " nan"


@pytest.mark.parametrize(
    ("lines", "state", "fired", "decision"),
    [
        (LEARNS_NOTHING, "running", {"LearningRateZero", "GradientZero"}, ""),
        (OVERFITS, "running", {"Overfitting"}, ""),
        (COLLAPSES, "running", {"RewardCollapsed", "EntropyCollapsed"}, ""),
        (nano([*IN_FILE, *GIVEN]), "finished", {"RunFinished"}, ""),
        (nano(GIVEN), "finished", {"RunFinished"}, ""),
        (nano(IN_FILE), "running", set(), ""),
        (NAN_FIRST, "running", {"NonFiniteLoss"}, "STOP"),
        (GLUED, "running", {"NonFiniteLoss"}, "GO_ON"),
    ],
)
def test_a_trial_has_its_state_its_alerts_and_what_to_do(
    tmp_path: Path, lines: list[str], state: str, fired: set[str], decision: str
) -> None:
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    replay = Replay(Settings(files=(str(path),), companions=False))
    found = [each for each in replay.transitions() if not each.is_heartbeat]
    (run,) = replay.snapshot().runs
    decided = run.decision.decision if run.decision else ""
    assert ({each.alert for each in found}, run.state, decided) == (fired, state, decision)
    ranks = {each.labels.get("rank") for each in found}
    assert ranks == ({"0"} if lines is GLUED else {None} if found else set())
