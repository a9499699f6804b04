"""Where the time of a run went, as its log shows."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ldlm_monitor.finished.report.document import report
from ldlm_monitor.judge.run.time_account import TimeAccount
from ldlm_monitor.service.cli import main
from ldlm_monitor.service.cli.flags import replay_of, settings_for_inputs

START = 1769681700.0
HANG = (
    Path(__file__).resolve().parents[2] / "together/corpus/runs/upstream/H_hang_sigstop_rank1_90s"
)


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


def test_a_pause_beyond_the_limit_is_a_stall(tmp_path: Path) -> None:
    found = spent(tmp_path, [(s, 0.5 * s + (60 if s >= 50 else 0)) for s in range(100)])
    assert found["stall"] == pytest.approx(60)
    assert found["productive"] == pytest.approx(49.5)
    assert found["share"] == pytest.approx(49.5 / 109.5)


def test_a_wait_for_data_that_the_log_names_is_no_progress(tmp_path: Path) -> None:
    """A quarter of each step, and a first step that compiles for 30 s; together all of the time."""
    rows = [
        {"step": step, "time": START + at, "loss": 2.0, "data_seconds": 0.125, "step_seconds": took}
        for step, at, took in [(0, 0.0, 0.01), *((s, 40 + 0.5 * s, 0.5) for s in range(2, 200))]
    ]
    rows[0] |= {"step": 1, "time": START + 40.5, "step_seconds": 30.5}
    log = tmp_path / "training_log.jsonl"
    started = {"event": "train_begin", "time": START}
    log.write_text("\n".join(map(json.dumps, [started, *rows])) + "\n", encoding="utf-8")
    account_of = TimeAccount()
    for row in rows:
        took, waited = float(row["step_seconds"]), float(row["data_seconds"])
        account_of.advance(
            (int(row["step"]),), (row["time"],), exact=True, took=took, waits=(waited,)
        )
    by_hand = account_of.read(START, START + 139.5, "running")
    assert by_hand is not None
    lost = {each.what: each.seconds for each in by_hand.losses}
    assert lost["first step"] == pytest.approx(30)
    assert lost["start"] == pytest.approx(10)
    assert lost["data wait"] == pytest.approx(0.125 * 198)
    assert by_hand.productive_seconds + sum(lost.values()) == pytest.approx(by_hand.total_seconds)
    main(["report", "-o", str(tmp_path / "r.json"), str(log)])
    (run,) = json.loads((tmp_path / "r.json").read_text("utf-8"))["runs"]
    reported = {each["what"]: each["seconds"] for each in run["goodput"]["losses"]}
    assert reported["data wait"] == pytest.approx(0.125 * 198)


def test_steps_that_a_restart_took_again_are_lost_work(tmp_path: Path) -> None:
    """Steps 0 to 79, a crash, 100 s until step 60 comes again, then on to 119."""
    first = [(step, 1.0 * step) for step in range(80)]
    second = [(60 + n, 179.0 + n) for n in range(60)]
    found = spent(tmp_path, first + second)
    assert found["steps taken again"] == pytest.approx(20)
    assert found["restart"] == pytest.approx(99)
    assert found["productive"] == pytest.approx(119)
    assert found["total"] == pytest.approx(238)


def test_a_run_ends_with_its_own_log_and_not_with_a_later_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, began in (("may", START), ("june", START + 30 * 86400)):
        lines = (f"{utc_stamp(began + s)} step {s} loss {3 - s / 100}" for s in range(1, 60))
        (tmp_path / f"{name}.log").write_text("\n".join(lines) + "\n")
    assert main(["goodput", "--format", "json", *map(str, sorted(tmp_path.iterdir()))]) == 0
    runs = {run["run"]: run for run in map(json.loads, capsys.readouterr().out.splitlines())}
    totals = {name: run["goodput"]["total_seconds"] for name, run in runs.items()}
    assert totals == {"may": 58.0, "june": 58.0}
    assert not [each for each in runs["may"]["incidents"] if (each["lost_seconds"] or 0) > 60]


def utc_stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_run_that_tells_no_times_has_no_account(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "training_log.jsonl"
    log.write_text("".join(f'{{"step": {n}, "loss": 2.0}}\n' for n in range(50)), "utf-8")
    main(["report", "-o", str(tmp_path / "r.json"), str(log)])
    (run,) = json.loads((tmp_path / "r.json").read_text("utf-8"))["runs"]
    assert run["goodput"] is None
    (tmp_path / "none.log").write_text("Loading the model\n", "utf-8")
    capsys.readouterr()
    main(["goodput", str(log), str(tmp_path / "none.log")])
    shown = capsys.readouterr().out
    assert "not known: fewer than three steps have times" in shown
    assert "only while their log is followed" in shown


def test_what_a_crash_cost_is_not_known_where_no_step_has_a_time(tmp_path: Path) -> None:
    """As in a log of `ldlm-monitor run`, where only the start and the end have one."""
    steps = "".join(f"step {step} loss {3 - step / 200}\n" for step in range(1, 200))
    began, ended = (f"2026-01-29T10:1{minute}:00.000Z ldlm-monitor run: " for minute in (0, 9))
    log = tmp_path / "train.log"
    log.write_text(
        f'{began}attempt 1 starts: ["python"]\n{steps}{ended}the command ended with exit code 1\n'
    )
    (run,) = report(replay_of(settings_for_inputs(None, (str(log),), once=True)).end()).runs
    assert [each.lost_seconds for each in run.incidents] == [None]


def test_an_evaluation_counts_by_the_times_of_its_own_lines(tmp_path: Path) -> None:
    """Rows of the same seconds are judged together; 12 s of evaluation lie between two of them."""
    stamp = lambda at: datetime.fromtimestamp(START + at, UTC).isoformat()  # noqa: E731
    lines, at = [f"{stamp(0)} ldlm-monitor run: attempt 1 starts"], 10.0
    for step in range(1, 201):
        at += 0.7
        lines.append(f"{stamp(at)} step: {step}, loss: 2.5")
        if step % 20 == 0 and step < 200:
            lines.append(f"{stamp(at)} ***** Running Evaluation *****")
            at += 12
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n", "utf-8")
    main(["report", "-o", str(tmp_path / "r.json"), str(tmp_path / "train.log")])
    (run,) = json.loads((tmp_path / "r.json").read_text("utf-8"))["runs"]
    lost = {loss["what"]: loss["seconds"] for loss in run["goodput"]["losses"]}
    assert lost == {"evaluation": pytest.approx(108, abs=0.1), "start": pytest.approx(10, abs=0.1)}
    assert run["goodput"]["productive_seconds"] == pytest.approx(140, abs=0.1)


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
        "  stall                          1m     54.8 %          1\n"
    ) in capsys.readouterr().out


def test_a_log_of_whole_seconds_says_what_it_cannot_see(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bars of an MM-LDLM run: a pause of two seconds may be a slow step."""
    log = Path(__file__).resolve().parents[3] / "examples/train_logs"
    main(["report", "--no-companions", str(log / "train_20261121_083409_node0.log")])
    assert "a step; pauses below\n  5s are not seen.\n" in capsys.readouterr().out


def test_a_rank_that_was_stopped_for_90_seconds_cost_so_much(tmp_path: Path) -> None:
    """MM-LDLM's own trainer, whose bars have whole seconds."""
    main(["report", "-o", str(tmp_path / "r.json"), str(HANG / "train_logs")])
    (run,) = json.loads((tmp_path / "r.json").read_text("utf-8"))["runs"]
    (pause,) = run["goodput"]["losses"]
    assert (pause["what"], pause["times"]) == ("stall", 1)
    assert pause["seconds"] == pytest.approx(90, abs=2)
    assert run["goodput"]["productive_seconds"] == pytest.approx(133 - 90, abs=3)


def test_the_live_metrics_are_the_account_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps 0 to 79, a crash, 100 s until step 60 comes again, then on to 119."""
    log = tmp_path / "train.log"
    stamp = "[2026-01-29 10:{:02}:{:02}] "
    rows = [*((s, 1 + s) for s in range(80)), *((60 + n, 180 + n) for n in range(60))]
    lines = [f"{stamp.format(*divmod(at, 60))}step: {step}, loss: 2.5" for step, at in rows]
    out = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    lines.insert(80, f"{stamp.format(1, 21)}{out}")
    log.write_text("\n".join(lines) + "\n", "utf-8")
    snapshot = replay_of(settings_for_inputs(None, [str(log)], once=True)).end()
    (run,) = report(snapshot).runs
    assert run.goodput is not None
    exported = {
        dict(point.labels)["part"]: point.value
        for point in snapshot.points
        if point.name == "ldlm_goodput_seconds"
    }
    parts = {each.what.replace(" ", "_"): each.seconds for each in run.goodput.losses}
    parts["productive"] = run.goodput.productive_seconds
    (incident,) = run.incidents
    lost = parts["steps_taken_again"] + parts["restart"]
    assert incident.lost_seconds == pytest.approx(lost) == pytest.approx(119, abs=2)
    assert {name: exported[name] for name in exported} == pytest.approx(parts)
    spent = run.goodput.model_copy(update={"gpu_hours": 2.0, "cost": 5.0})
    assert spent.part(spent.total_seconds / 2) == (1.0, 2.5)
    main(["goodput", str(log)])
    assert "-          -     RuntimeError: CUDA out of memory" in capsys.readouterr().out
    main(["report", str(log)])
    printed = capsys.readouterr().out
    assert "           lost 1m 59s\n" in printed
    assert "Goodput      50.0 % of 3m 58s, ETTR 50.0 %\n" in printed
