"""Where the time of a run went, from what its log tells."""

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.analysis.column import Column
from ldlm_monitor.analysis.readings import RunReadings
from ldlm_monitor.cli import main
from ldlm_monitor.config import Stall
from ldlm_monitor.model.records import Position
from ldlm_monitor.report.goodput import goodput
from ldlm_monitor.run.training_run import TrainingRun

START = 1769681700.0
HANG = Path(__file__).resolve().parents[1] / "corpus/runs/upstream/H_hang_sigstop_rank1_90s"


def spent(folder: Path, rows: list[tuple[int, float]]) -> dict[str, float]:
    """The seconds of each loss, by the report of a run with these steps and times."""
    log = folder / "training_log.jsonl"
    reported = [
        json.dumps({"step": step, "time": START + at, "loss": 2.0 + step % 7 / 10})
        for step, at in rows
    ]
    log.write_text("\n".join(reported) + "\n", encoding="utf-8")
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
    run = TrainingRun("r", 0.0, Stall(), Position("r.log", 1, 0))
    found = goodput(readings, run.view("HEALTHY"), now=139.0)
    assert found is not None
    losses = {spent.what: spent.seconds for spent in found.losses}
    assert losses == {"evaluation": pytest.approx(30), "checkpoint": pytest.approx(10)}


def test_an_evaluation_that_is_announced_counts_though_it_is_short() -> None:
    """A second and a half, where a step takes one: without a word it might be a slow step."""
    readings = RunReadings("r", events=[("eval_started", 50.2)])
    steps = Column()
    for step in range(100):
        steps.add(step, step + (1.5 if step > 50 else 0), 0.0)
    readings.put("steps", steps, exact=True)
    run = TrainingRun("r", 0.0, Stall(), Position("r.log", 1, 0))
    found = goodput(readings, run.view("HEALTHY"), now=100.5)
    assert found is not None
    assert [(spent.what, spent.seconds) for spent in found.losses] == [("evaluation", 1.5)]


def test_a_restart_of_a_restart_is_counted_once(tmp_path: Path) -> None:
    """0 to 79, then from 60 to 69, then from 40 on, past 60 again; 50 s down each time."""
    first = [(step, 1.0 * step) for step in range(80)]
    second = [(60 + n, 129.0 + n) for n in range(10)]
    third = [(40 + n, 188.0 + n) for n in range(60)]
    found = spent(tmp_path, first + second + third)
    assert found["total"] == pytest.approx(247)
    assert found["restart"] == pytest.approx(49)
    assert found["productive"] == pytest.approx(99)
    assert found["steps taken again"] == pytest.approx(247 - 99 - 49)


@given(st.lists(st.tuples(st.integers(-30, 5), st.floats(0.01, 50)), min_size=3, max_size=60))
def test_every_second_is_counted_once(moves: list[tuple[int, float]]) -> None:
    """Whatever steps come when: productive time and losses are the time from start to end."""
    steps, step, at = Column(), 100, 0.0
    steps.add(step, at, 0.0)
    for move, seconds in moves:
        step, at = max(step + (move or 1), 0), at + seconds
        steps.add(step, at, 0.0)
    readings = RunReadings("r", events=[("checkpoint_saved", at / 2)])
    readings.put("steps", steps, exact=True)
    run = TrainingRun("r", 0.0, Stall(), Position("r.log", 1, 0))
    found = goodput(readings, run.view("HEALTHY"), now=steps.times[-1])
    if found is not None:
        lost = sum(loss.seconds for loss in found.losses)
        assert found.total_seconds == pytest.approx(found.productive_seconds + lost)
        parts = [found.productive_seconds, *(loss.seconds for loss in found.losses)]
        assert found.total_seconds == math.fsum(parts)
        assert found.total_seconds == pytest.approx(steps.times[-1])


def test_the_text_tells_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "training_log.jsonl"
    reported = [
        {"step": step, "time": START + 0.5 * step + (60 if step >= 50 else 0), "loss": 2.0}
        for step in range(100)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in reported), encoding="utf-8")
    main(["report", str(log)])
    assert (
        "Where the time went\n"
        "  45.2 % of 1m 50s brought the training forward, at 0.5s a step.\n"
        "  lost to                      time      share      times\n"
        "  unexplained pause              1m     54.8 %          1\n"
    ) in capsys.readouterr().out


def test_a_log_of_whole_seconds_says_what_it_cannot_see(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bars of an MM-LDLM run: a pause of two seconds may be a slow step."""
    log = Path(__file__).resolve().parents[2] / "examples/train_logs"
    main(["report", "--no-companions", str(log / "train_20261121_083409_node0.log")])
    assert "a step; pauses below\n  5s are not seen.\n" in capsys.readouterr().out


def test_a_rank_that_was_stopped_for_90_seconds_cost_so_much(tmp_path: Path) -> None:
    """MM-LDLM's own trainer, whose bars tell whole seconds."""
    main(["report", "-o", str(tmp_path / "r.json"), str(HANG / "train_logs")])
    (run,) = json.loads((tmp_path / "r.json").read_text("utf-8"))["runs"]
    (pause,) = run["goodput"]["losses"]
    assert (pause["what"], pause["times"]) == ("unexplained pause", 1)
    assert pause["seconds"] == pytest.approx(90, abs=2)
    assert run["goodput"]["productive_seconds"] == pytest.approx(133 - 90, abs=3)


@pytest.mark.parametrize("seed", range(30))
def test_a_scripted_run_is_accounted_for_as_it_was_made(seed: int) -> None:
    """Kills, resumes, evaluations, pauses and stalls of 300 steps, within 1 % of the time.

    A pause among steps that a resume took again is lost with these steps.
    """
    rng = random.Random(seed)
    steps, events, at = Column(), [], 0.0
    truth = dict.fromkeys(("evaluation", "stall", "unexplained pause", "restart"), 0.0)
    redone, failures, step, again_until = 0.0, 0, 0, -1
    paused_at: list[tuple[int, str, float]] = []
    steps.add(step, at, 0.0)
    while step < 300:
        step += 1
        what = rng.choices(("step", "kill", *list(truth)[:3]), (90, 1, 2, 1, 2))[0]
        if what == "kill" and step > again_until + 25:
            back, down = rng.randint(5, 20), rng.uniform(30, 200)
            again_until, step = step - 1, step - back
            redone += back
            for _, cause, seconds in (each for each in paused_at if each[0] >= step):
                truth[cause] -= seconds
                redone += seconds
            failures += 1
            truth["restart"] += down
            at += down
        elif what in truth and step > again_until + 1:
            paused = rng.uniform(100, 200) if what == "stall" else rng.uniform(10, 40)
            truth[what] += paused
            paused_at.append((step, what, paused))
            if what == "evaluation":
                events.append(("eval_started", at + 0.1))
            at += paused
        at += 1.0
        steps.add(step, at, 0.0)
    readings = RunReadings("r", events=events)
    readings.put("steps", steps, exact=True)
    view = TrainingRun("r", 0.0, Stall(), Position("r.log", 1, 0)).view("HEALTHY")
    view = view.model_copy(update={"stall_limit_seconds": 60.0, "world_size": 8})
    found = goodput(readings, view, now=at)
    assert found is not None
    truth["steps taken again"] = redone
    losses = {spent.what: spent.seconds for spent in found.losses}
    for what, seconds in truth.items():
        assert losses.get(what, 0.0) == pytest.approx(seconds, abs=0.01 * at), what
    assert found.productive_seconds == pytest.approx(300, abs=0.01 * at)
    lost = truth["stall"] + truth["restart"] + redone
    assert found.ettr == pytest.approx(1 - lost / at, abs=0.01)
    assert found.failures == failures
    if failures:
        up = pytest.approx((at - truth["restart"]) / failures, rel=0.01)
        assert found.mttf_seconds == up
    assert found.gpu_hours == pytest.approx(8 * at / 3600)
