"""The benchmark of the improvements: every training of it can start, and its table is right."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

from ldlm_trainer.config import load

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks/trainer/improvements.py"
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
        counts = settings.accumulation(cell.processes)
        effective = counts[0][1] * settings.data.batch_size * cell.processes
        assert effective == int(profile.settings["schedule.effective_batch"])


def training(seconds: float, peak: float, loss: float = 5.0) -> dict[str, object]:
    return {
        "seconds": [9.0, *[seconds] * 3], "samples": 8, "peak_bytes": peak * 1e6,
        "saved_bytes": 1e6, "eval_loss": loss, "cpu_seconds": seconds,
    }  # fmt: skip


def test_the_table_compares_with_the_baseline_and_says_what_was_not_measured() -> None:
    cells = (
        improvements.Cell("baseline", {}),
        improvements.Cell("better", {}, "+25 %"),
        improvements.Cell("none", {}, "+99 %"),
    )
    profile = improvements.Profile(cells, {}, 1, 4, 1, 1, 1.0)
    results = {
        "baseline": [training(0.2, 100)],
        "better": [training(0.1, 60, 5.0001), training(0.1, 60)],
    }
    rows = improvements.table(profile, results).splitlines()
    assert rows[3] == (
        "| better | +25 % | 100 | 100-100 | 100 | 80 | +100% | 60 | -40% | 1 | 5.0001 (same) |"
    )
    assert "not measured" in rows[4]
