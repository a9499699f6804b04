"""The benchmark of the improvements: every training of it can start, and its table is right."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

from ldlm_callback import HealthCallback
from ldlm_trainer.config import load

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks/trainer/improvements.py"
sys.path.insert(0, str(SCRIPT.parent))  # as it is where the script is run
_spec = importlib.util.spec_from_file_location("improvements", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
improvements = importlib.util.module_from_spec(_spec)
sys.modules["improvements"] = improvements
_spec.loader.exec_module(improvements)


@pytest.mark.parametrize("name", improvements.PROFILES)
def test_the_settings_of_every_training_are_valid(name: str) -> None:
    profile = improvements.PROFILES[name]
    for cell in profile.cells:
        given = {**improvements.BASELINE, **profile.settings, **cell.change}
        settings = load(None, [f"{key}={value}" for key, value in given.items()])
        first = settings.stages(cell.processes)[0]
        effective = first.times * first.size * cell.processes
        assert effective == int(profile.settings["schedule.effective_batch"])


def training(
    seconds: float, peak: float, loss: float = 5.0, *, seed: int = 0, count: int = 40
) -> dict[str, object]:
    noise = random.Random(seed)
    steps = [
        {"cpu_seconds": seconds * noise.uniform(0.95, 1.05), "loss": loss + 0.01 * number}
        for number in range(count)
    ]
    return {
        "seconds": [9.0, *[seconds] * 3], "samples": 8, "peak_bytes": peak * 1e6,
        "saved_bytes": 1e6, "eval_loss": loss, "cpu_seconds": seconds, "steps": steps,
    }  # fmt: skip


def cells_of(line: str) -> dict[str, str]:
    names = [
        "change", "claimed", "ms", "cpu", "rate", "speed", "peak", "memory", "kept", "loss",
        "equal step",
    ]  # fmt: skip
    return dict(zip(names, line.strip("| ").split(" | "), strict=True))


def test_the_table_compares_with_the_baseline_and_says_what_was_not_measured() -> None:
    cells = (
        improvements.Cell("baseline", {}),
        improvements.Cell("better", {}, "+25 %"),
        improvements.Cell("none", {}, "+99 %"),
    )
    profile = improvements.Profile(cells, {}, 1, 4, 1, 1, 1.0, by_cpu=True)
    results = {
        "baseline": [training(0.2, 100, seed=seed) for seed in (1, 2)],
        "better": [training(0.1, 60, seed=seed) for seed in (3, 4)],
    }
    rows = improvements.table(profile, results).splitlines()
    reported = cells_of(rows[3])
    assert (reported["ms"], reported["cpu"], reported["rate"]) == ("100", "100", "80")
    assert (reported["peak"], reported["memory"], reported["loss"]) == (
        "60",
        "-40%",
        "5.0000 (same)",
    )
    assert "% faster [" in reported["speed"]
    assert reported["equal step"] == "no difference found [0.0, 0.0] %"
    assert "not measured" in rows[4]


def test_utilization_counts_the_models_own_operations_and_no_recomputed_ones() -> None:
    cells = (improvements.Cell("baseline", {}), improvements.Cell("slower", {}))
    profile = improvements.Profile(cells, {}, 1, 4, 1, 1, 1.0)
    results = {
        "baseline": [training(0.2, 1) | {"flops": 1e9, "matmul_flops": 1e11}],
        "slower": [training(0.4, 1) | {"flops": 4e9, "matmul_flops": 1e11}],
    }
    line = improvements.utilization(profile, results)
    assert "of 0.1 TFLOP/s of a bf16 product: baseline 40%, slower 20%; 1 GFLOP" in line


def test_compare_does_not_call_noise_a_speed_up_and_says_where_steps_are_too_few() -> None:
    many, few = ([training(0.2, 1, seed=s, count=n)["steps"] for s in (1, 2)] for n in (60, 8))
    others, fewer = ([training(0.2, 1, seed=s, count=n)["steps"] for s in (3, 4)] for n in (60, 8))
    reported = improvements.judge.said(many, others, seconds="cpu_seconds", warm_up=3)
    assert reported["step_seconds"].startswith("no difference found")
    reported = improvements.judge.said(few, fewer, seconds="cpu_seconds", warm_up=3)
    assert reported["step_seconds"].startswith("unclear")


def test_steps_are_read_from_what_the_callback_wrote(tmp_path) -> None:
    path = tmp_path / "health_rank0.jsonl"
    callback = HealthCallback(out=tmp_path, rank=0, gpu=False, sigterm=False, stack_signal=None)
    for step in (1, 2):
        callback.on_step(step, loss=2.5, cpu_seconds=0.25, accuracy=0.5)
    callback.close()
    first, second = improvements.judge.steps_of(path)
    assert first == {"loss": 2.5, "cpu_seconds": 0.25}
    assert second.keys() == {"loss", "cpu_seconds", "step_seconds"}
