"""Where the time of a run went, from what its log tells."""

import json
from pathlib import Path

import pytest

from ldlm_monitor.cli import main
from ldlm_monitor.readings import Column, RunReadings
from ldlm_monitor.records import Position
from ldlm_monitor.report.goodput import goodput
from ldlm_monitor.run.pace import StallSettings
from ldlm_monitor.run.training_run import TrainingRun

START = 1769681700.0


def spent(folder: Path, rows: list[tuple[int, float]]) -> dict[str, float]:
    """The seconds of each loss, by the report of a run with these steps and times."""
    log = folder / "training_log.jsonl"
    told = [
        json.dumps({"step": step, "time": START + at, "loss": 2.0 + step % 7 / 10})
        for step, at in rows
    ]
    log.write_text("\n".join(told) + "\n", encoding="utf-8")
    main(["report", "-o", str(folder / "r.json"), str(log)])
    (run,) = json.loads((folder / "r.json").read_text("utf-8"))["runs"]
    found = run["goodput"]
    return {
        "total": found["total_seconds"],
        "productive": found["productive_seconds"],
        "share": found["share"],
        **{loss["what"]: loss["seconds"] for loss in found["losses"]},
    }


def test_a_run_without_a_pause_loses_nothing(tmp_path: Path) -> None:
    found = spent(tmp_path, [(step, 0.5 * step) for step in range(100)])
    assert found == {"total": 49.5, "productive": 49.5, "share": 1.0}


def test_a_pause_that_nothing_explains_is_told(tmp_path: Path) -> None:
    found = spent(tmp_path, [(s, 0.5 * s + (60 if s >= 50 else 0)) for s in range(100)])
    assert found["unexplained pause"] == pytest.approx(60)
    assert found["productive"] == pytest.approx(49.5)
    assert found["share"] == pytest.approx(49.5 / 109.5)


def test_steps_that_a_restart_took_again_are_lost_work(tmp_path: Path) -> None:
    """Steps 0 to 79, a crash, 100 s until step 60 comes again, then on to 119."""
    first = [(step, 1.0 * step) for step in range(80)]
    second = [(60 + n, 179.0 + n) for n in range(60)]
    found = spent(tmp_path, first + second)
    assert found["steps taken again"] == pytest.approx(20)
    assert found["restart"] == pytest.approx(99)
    assert found["productive"] == pytest.approx(119)
    assert found["total"] == pytest.approx(238)


def test_a_run_that_tells_no_times_has_no_account(tmp_path: Path) -> None:
    log = tmp_path / "training_log.jsonl"
    log.write_text("".join(f'{{"step": {n}, "loss": 2.0}}\n' for n in range(50)), "utf-8")
    main(["report", "-o", str(tmp_path / "r.json"), str(log)])
    (run,) = json.loads((tmp_path / "r.json").read_text("utf-8"))["runs"]
    assert run["goodput"] is None


def test_an_evaluation_that_the_log_announces_is_no_unexplained_pause(tmp_path: Path) -> None:

    readings = RunReadings("r", events=[("eval_started", 50.0), ("checkpoint_saved", 130.0)])
    steps = Column()
    for step in range(100):
        steps.add(step, step + (30 if step > 50 else 0) + (10 if step > 95 else 0), 0.0)
    readings.put("steps", steps, exact=True)
    run = TrainingRun("r", 0.0, StallSettings(), Position("r.log", 1, 0))
    found = goodput(readings, run.view("HEALTHY"), now=139.0)
    assert found is not None
    losses = {spent.what: spent.seconds for spent in found.losses}
    assert losses == {"evaluation": pytest.approx(30), "checkpoint": pytest.approx(10)}
