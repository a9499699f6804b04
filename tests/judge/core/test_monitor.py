"""Bytes and time in, alert transitions out: the core without threads, files or clocks."""

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.names import RUN_FINISHED
from ldlm_monitor.base.records import Event, Position, Sample
from ldlm_monitor.judge.core.evaluation_schedule import AT_ONCE, WINDOW_SECONDS
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.core.packaged_rules import packaged_set
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.logs.parse import Parser
from ldlm_promrules.alerting import load_rules
from ldlm_promrules.promql import Evaluator, parse
from ldlm_promrules.query_answers import steps

NAN = "WARNING: Invalid text_loss detected: nan\n"
LOG = "train_logs/train_20260129_101500_node0.log"
RUN = "train_20260129_101500"
START = 1_769_681_700.0
WATCHDOG = "Watchdog{severity=none}"


class Feeder:
    """Appends text to one file of a monitor, at seconds after START."""

    def __init__(self, monitor: Monitor, path: str = LOG) -> None:
        self.monitor = monitor
        self._path = path
        self._offset, self._line = 0, 1
        self.transitions: list[Transition] = []

    def append(self, text: str, second: float) -> list[Transition]:
        data = text.encode()
        chunk = Chunk(self._path, (1, hash(self._path) % 1000, 0), self._offset, self._line, data)
        found = self.monitor.feed(chunk, START + second)
        self._offset += len(data)
        self._line += data.count(b"\n")
        found = [each for each in found if not each.is_heartbeat]
        self.transitions += found
        return found

    def wait(self, second: float) -> list[Transition]:
        found = self.monitor.tick(START + second)
        found = [each for each in found if not each.is_heartbeat]
        self.transitions += found
        return found


def reported(transitions: Iterable[Transition]) -> list[tuple[str, str]]:
    return [(each.alert, each.state) for each in transitions if not each.is_heartbeat]


def bar(step: int, loss: str | None = None) -> str:
    loss = loss or f"2.{3000 + step * 37 % 991}"
    return (
        f"Training:  {step // 10}%|▏| {step}/950 [00:{step % 60:02d}<09:00,  1.00it/s, "
        f"Epoch=0/1, Progress=1.0%, Loss={loss}, Text=2.\r"
    )


def trained(steps: int = 100) -> Feeder:
    feeder = Feeder(Monitor())
    for step in range(steps):
        feeder.append(bar(step), float(step))
    return feeder


def test_a_nan_fires_at_its_record_and_the_line_travels_with_it() -> None:
    feeder = trained()
    (nan,) = feeder.append(bar(100) + NAN + bar(101), 100.0)
    assert (nan.alert, nan.state, nan.time) == ("NonFiniteLoss", "firing", START + 100)
    assert nan.line == "WARNING: Invalid text_loss detected: nan"
    assert nan.step == 100
    assert nan.position is not None
    assert nan.position.line == 1
    assert nan.labels == {"severity": "critical", "run": RUN}


@pytest.mark.parametrize(
    "done",
    [
        "TrainingStalled, --on hang=kill: SIGTERM",
        "restart 1 of 5 in 1d: exit code 1 at step 9, after 1 s",
        "no restart: the budget of 5 is used up",
    ],
)
def test_what_run_did_fires_at_its_line_as_the_run_may_end_right_after(done: str) -> None:
    (acted,) = trained().append(f"{bar(100)}\nldlm-monitor run: {done}\n", 100.0)
    assert (acted.alert, acted.state, acted.time) == ("RunActed", "firing", START + 100)
    assert acted.line == f"ldlm-monitor run: {done}"


def test_a_nan_in_the_bar_itself_fires_too() -> None:
    assert reported(trained().append(bar(100, loss="nan"), 100.0)) == [("NonFiniteLoss", "firing")]


@pytest.mark.parametrize("name", ["training_log.jsonl", "training_log.ndjson"])
def test_a_nan_among_rows_fires_however_json_lines_are_called(name: str) -> None:
    feeder = Feeder(Monitor(), name)
    rows = [f'{{"step": {step}, "loss": {"NaN" if step == 20 else 2.5}}}\n' for step in range(21)]
    assert reported(feeder.append("".join(rows), 100.0)) == [("NonFiniteLoss", "firing")]


def test_a_nan_that_no_rule_asks_for_does_not_hide_one_in_the_next_line() -> None:
    """All lines of a log without times come at one instant."""
    lines = ["{'loss': 2.5, 'grad_norm': 1.5, 'kl': nan, 'epoch': 0.1}\n"] * 2
    lines.append("{'loss': 2.4, 'grad_norm': nan, 'kl': nan, 'epoch': 0.2}\n")
    lines.append("{'loss': 2.3, 'grad_norm': 1.4, 'kl': 0.2, 'epoch': 0.3}\n")
    (nan,) = Feeder(Monitor(), "train.log").append("".join(lines), 0.0)
    assert nan.alert == "NonFiniteGradient"
    assert nan.position is not None
    assert nan.position.line == 3


def test_a_hundred_nans_are_one_alert() -> None:
    feeder = trained()
    for second in range(100, 200):
        feeder.append(bar(second) + NAN, float(second))
    assert reported(feeder.transitions) == [("NonFiniteLoss", "firing")]


def test_runs_that_fail_at_once_are_judged_together_within_half_a_second() -> None:
    monitor = Monitor()
    names = (f"train_20260129_10{minute:02d}00_node0.log" for minute in range(50))
    failing = [Feeder(monitor, name) for name in names]
    for feeder in failing:
        feeder.append(bar(100), 100.0)
    monitor.tick(START + 101)
    before = monitor.snapshot().monitor.evaluations
    for feeder in failing:
        feeder.append(NAN, 101.0)
    at_once = sum(len(feeder.transitions) for feeder in failing)
    later = monitor.tick(START + 101 + WINDOW_SECONDS)
    assert monitor.snapshot().monitor.evaluations - before <= AT_ONCE + 2
    assert at_once == AT_ONCE
    assert reported(later) == [("NonFiniteLoss", "firing")] * (len(failing) - AT_ONCE)


def test_an_urgent_fact_has_its_run_judged_at_once_and_the_others_at_their_slots() -> None:
    monitor = Monitor()
    one, other = (Feeder(monitor, f"{name}.jsonl") for name in ("one", "other"))
    for feeder in (one, other):
        feeder.append('{"step": 1, "loss": 2.5, "loss_scale": 8}\n', 1)
    one.wait(5)
    assert other.append('{"step": 2, "loss": 2.5, "loss_scale": 0.5}\n', 6) == []
    assert reported(one.append('{"step": 2, "loss": NaN}\n', 7)) == [("NonFiniteLoss", "firing")]
    found = one.wait(10)
    assert reported(found) == [("LossScaleCollapsed", "firing")]
    assert [each.time - START for each in found] == [10]


def test_an_urgent_fact_after_a_reload_ends_no_alert_of_another_run() -> None:
    monitor = Monitor()
    one, other = (Feeder(monitor, f"{name}.jsonl") for name in ("one", "other"))
    for feeder in (one, other):
        feeder.append('{"step": 1, "loss": 2.5}\n', 1)
    other.append('{"step": 2, "loss": NaN}\n', 2)
    one.wait(10)
    monitor.reconfigure(packaged_set(), Stall())
    found = one.append('{"step": 2, "loss": NaN}\n', 11) + one.wait(20)
    assert [(each.labels["run"], each.state) for each in found] == [("one", "firing")]


def test_a_view_of_a_run_is_made_anew_when_the_run_changes() -> None:
    monitor = Monitor()
    one, other = (Feeder(monitor, f"{name}.jsonl") for name in ("one", "other"))
    for step in range(1, 9):
        for feeder in (one, other):
            feeder.append(f'{{"step": {step}, "loss": 2.5}}\n', step)
    one.wait(10)
    before = monitor.snapshot()
    one.append('{"step": 9, "loss": 2.25}\n', 11)
    one.wait(15)
    (changed, kept), old = monitor.snapshot().runs, before.runs[1]
    assert (changed.step, changed.statistics["loss"].current) == (9, 2.25)
    assert kept.statistics is old.statistics, "it is the view of before"
    assert kept.goodput.total_seconds > old.goodput.total_seconds
    assert kept == monitor.runs.get("other")._new_view(
        kept.health, monitor.clock, reasons=(), failed_rank=None, detected=kept.detected, host=None,
        not_checked=kept.not_checked,
    )  # fmt: skip
    curves = monitor.snapshot().curves
    assert curves["other"] is before.curves["other"]
    assert curves["one"] is not before.curves["one"]


def test_it_resolves_five_minutes_after_the_last_one() -> None:
    feeder = trained()
    feeder.append(NAN, 100.0)
    for step in range(100, 500):
        feeder.append(bar(step), float(step))
    assert reported(feeder.transitions) == [
        ("NonFiniteLoss", "firing"),
        ("NonFiniteLoss", "resolved"),
    ]
    assert feeder.transitions[1].time == pytest.approx(START + 400, abs=5)


def test_a_stall_fires_just_after_its_limit_and_resolves_with_the_next_step() -> None:
    feeder = trained(94)
    assert feeder.wait(122.9) == []
    (stall,) = feeder.wait(200.0)
    assert stall.alert == "TrainingStalled"
    assert stall.time is not None
    assert 0 < stall.time - (START + 93 + 30) <= 0.25
    assert stall.line == bar(93).rstrip()
    assert reported(feeder.append(bar(94), 201.0)) == [("TrainingStalled", "resolved")]


@pytest.mark.parametrize(
    "last",
    [
        "Model saved to ckpt_1000.pt\n",
        "Test accuracy: 71.38%\n",
        "Test accuracy: 71.38%\nTest loss: 0.91\n",
        "Model saved to ckpt_1000.pt\nBest model saved to best_1000.pt\n",
    ],
)
def test_a_pause_after_the_first_checkpoint_or_test_of_steps_is_a_warning_at_its_limit(
    last: str,
) -> None:
    feeder = Feeder(Monitor(), "train.log")
    for step in range(100):
        feeder.append(f"step {step * 10 + 10} loss 2.{3000 + step * 37 % 991}\n", float(step))
    feeder.append(last, 99.5)
    (stall,) = feeder.wait(400.0)
    assert (stall.alert, stall.labels["severity"]) == ("TrainingStalled", "warning")
    assert stall.time == pytest.approx(START + 99 + 30, abs=1)
    assert feeder.monitor.snapshot().runs[0].state == "stalled"


@pytest.mark.parametrize("total", ["", "/6"])
def test_a_training_of_epochs_that_ends_with_results_is_finished_and_pages_nobody(
    total: str,
) -> None:
    feeder = Feeder(Monitor(), "train.log")
    for epoch in range(1, 7):
        feeder.append(f"Epoch {epoch}{total} loss: {3 - epoch / 4}\n", 5.0 * epoch)
    feeder.append("Best epoch: 5  F1 = 0.78\nModel saved to out/final.pt\n", 31.0)
    assert {each.alert for each in feeder.wait(2000.0)} == {RUN_FINISHED}
    (run,) = feeder.monitor.snapshot().runs
    assert (run.state, run.health, run.reasons) == ("finished", "HEALTHY", ())


def test_a_bar_that_is_shown_unfinished_counts_from_when_its_bytes_came() -> None:
    feeder = trained(94)
    half = bar(94).rstrip("\r").encode()
    chunk = Chunk(LOG, (1, hash(LOG) % 1000, 0), 10**6, 1, half, peek=True, age=2.0)
    feeder.monitor.feed(chunk, START + 96)
    (stall,) = feeder.wait(200.0)
    assert stall.time is not None
    assert 0 < stall.time - (START + 94 + 30) <= 0.25


def test_due_says_when_to_look_again() -> None:
    feeder = trained()
    feeder.wait(100.0)
    due = feeder.monitor.due()
    assert due is not None
    assert due <= START + 105
    while (due := feeder.monitor.due()) is not None and due <= START + 135:
        feeder.monitor.tick(due)
    assert feeder.monitor.snapshot().runs[0].state == "stalled"


def test_a_record_with_its_own_time_is_judged_at_it() -> None:
    feeder = Feeder(Monitor(), "saved/qwen/health_rank0.jsonl")
    rows = "".join(
        f'{{"type": "step", "step": {step}, "time": {START + step}, "loss": 2.5}}\n'
        for step in range(180)
    )
    found = feeder.append(rows, 10_000.0)
    assert reported(found) == []
    late = '{"type": "step", "step": 400, "time": %f, "loss": 2.5}\n' % (START + 400)
    found = feeder.append(late, 10_000.0)
    assert reported(found) == [
        ("TrainingStalled", "firing"),
        ("TrainingStalled", "resolved"),
    ]
    assert found[0].labels["severity"] == "warning", "without a total it may have ended"
    assert feeder.transitions[1].time == START + 400


@pytest.mark.parametrize("behind", [0.0, 400.0, 7200.0, 3 * 86400.0])
def test_a_failure_counts_from_when_it_comes_however_far_its_lines_clock_is_behind(
    behind: float,
) -> None:
    """A node's clock may be wrong, or its lines in the time of another zone."""
    feeder = Feeder(Monitor(), "train.jsonl")
    for step in range(100):
        row = {"step": step, "loss": 2.0 + step % 3, "time": START + step - behind}
        feeder.append(json.dumps(row) + "\n", float(step))
    row = {"step": 100, "loss": "NaN", "time": START + 100 - behind}
    assert reported(feeder.append(json.dumps(row) + "\n", 100.0)) == [("NonFiniteLoss", "firing")]
    for kind, alert in (("cuda_oom", "OutOfMemory"), ("gpu_xid", "GpuError")):
        event = Event(
            run="train",
            kind=kind,
            severity="critical",
            message=kind,
            time=START + 101 - behind,
            position=Position("train.log", 1, 0),
        )
        feeder.transitions += feeder.monitor.observe((event,), START + 101)
        feeder.wait(103.0)
        assert (alert, "firing") in reported(feeder.transitions)


def test_health_is_the_worst_firing_severity() -> None:
    feeder = trained()
    assert feeder.monitor.snapshot().runs[0].health == "HEALTHY"
    feeder.append(NAN, 100.0)
    assert feeder.monitor.snapshot().runs[0].health == "CRITICAL"
    points = {point.name: point.value for point in feeder.monitor.snapshot().points}
    assert points["ldlm_run_health"] == 3


def test_the_best_source_of_a_value_counts_and_the_others_are_ignored() -> None:
    feeder = trained()
    rows = Feeder(feeder.monitor, "saved/qwen/training_log.jsonl")
    feeder.monitor.names.tie("saved/qwen/training_log.jsonl", RUN)
    rows.append('{"step": 99, "loss": 1.25, "text_loss": 1.0}\n', 99.0)
    feeder.append(bar(100, loss="9.9"), 100.0)
    values = {
        point.name: point.value
        for point in feeder.monitor.snapshot().points
        if point.name in ("ldlm_train_loss", "ldlm_train_step", "ldlm_train_component_loss")
    }
    assert values == {
        "ldlm_train_loss": 1.25,
        "ldlm_train_component_loss": 1.0,
        "ldlm_train_step": 99,
    }


def test_each_ranks_own_step_is_told_beside_the_runs() -> None:
    """So that ranks on several nodes can be compared where all are scraped."""
    monitor = Monitor()
    for rank, step in ((0, 41), (3, 38)):
        row = f'{{"type": "step", "step": {step}, "loss": 1.0}}\n'
        Feeder(monitor, f"saved/a/health_rank{rank}.jsonl").append(row, 1.0)
    steps = {
        dict(point.labels).get("rank"): point.value
        for point in monitor.snapshot().points
        if point.name == "ldlm_train_step"
    }
    assert (steps["0"], steps["3"]) == (41, 38)
    assert None in steps


def loop_of(epochs: int, pause: float) -> Feeder:
    """A script that draws a bar of its own for each epoch, and does something between two."""
    feeder, at = Feeder(Monitor(), "train.log"), 0.0
    for epoch in range(epochs):
        for step in range(1, 101):
            at += 1.0
            drawn = f"{step:3d}%|#  | {step}/100 [00:{step % 60:02d}<00:09,  1.00it/s"
            feeder.append(f"\r{drawn}, loss={3 / (epoch + 1 + step / 100):.3f}]", at)
        feeder.append("\n", at)
        at += pause
    return feeder


@pytest.mark.parametrize("pause", [0.0, 6.0, 25.0])
def test_the_end_of_an_epochs_own_bar_is_no_end_of_the_run(pause: float) -> None:
    feeder = loop_of(3, pause)
    assert reported(feeder.transitions) == []
    (run,) = feeder.monitor.snapshot().runs
    assert (run.state, run.attempt) == ("running", 1)


def test_a_run_that_goes_on_after_its_stall_limit_takes_its_end_back() -> None:
    feeder = loop_of(2, 50.0)
    feeder.wait(2000.0)
    assert [(each.alert, each.state, each.headline) for each in feeder.transitions] == [
        (RUN_FINISHED, "firing", "✔ train finished: 1m 39s, loss 1.5"),
        (RUN_FINISHED, "ended", "🔵 train: goes on after its end (step 1)"),
        (RUN_FINISHED, "firing", "✔ train finished: 4m 9s, loss 1"),
        (RUN_FINISHED, "ended", "⏹️ train: its end is news no more"),
    ]


def test_an_end_that_is_sure_long_after_the_last_step_is_sent_all_the_same() -> None:
    """Its series are exported from when it was sure."""
    feeder = Feeder(Monitor(end_series_after=60.0, stall=Stall(limit_seconds={"running": 600.0})))
    for step in range(851, 951):
        feeder.append(bar(step), step - 850.0)
    feeder.wait(2000.0)
    assert [(each.alert, each.state, each.time) for each in feeder.transitions] == [
        (RUN_FINISHED, "firing", pytest.approx(START + 700, abs=1)),
        (RUN_FINISHED, "ended", pytest.approx(START + 760, abs=6)),
    ]


def test_an_ended_runs_series_end_and_its_alerts_with_it() -> None:
    monitor = Monitor(end_series_after=60.0)
    feeder = Feeder(monitor)
    for step in range(950):
        feeder.append(bar(step), step * 0.1)
    feeder.append(NAN + bar(950), 95.0)
    feeder.wait(200.0)
    assert reported(feeder.transitions) == [
        ("NonFiniteLoss", "firing"), ("RunFinished", "firing"),
        ("NonFiniteLoss", "ended"), ("RunFinished", "ended"),
    ]  # fmt: skip
    assert {each.reason for each in feeder.transitions[2:]} == {"run ended"}
    assert not [point for point in monitor.snapshot().points if ("run", RUN) in point.labels]


def test_an_alert_goes_on_when_its_rules_are_loaded_anew(tmp_path) -> None:
    feeder = trained()
    feeder.append(NAN, 100.0)
    path = tmp_path / "mine.yml"
    path.write_text(
        "groups:\n- name: g\n  rules:\n  - alert: NonFiniteLoss\n"
        '    expr: sum by (run) (ldlm_train_nonfinite_total{quantity=~"loss.*"}) > 0\n'
        "    labels: {severity: critical}\n"
    )
    feeder.monitor.reconfigure(load_rules([path], parse), Stall())
    assert reported(feeder.wait(106.0)) == []
    assert [alert.name for alert in feeder.monitor.snapshot().alerts] == ["NonFiniteLoss"]


def test_start_times_that_were_known_before_a_restart_are_kept() -> None:
    feeder = trained()
    feeder.append(NAN, 100.0)
    (key,) = feeder.monitor.engine.active_keys() - {WATCHDOG}
    feeder.monitor.carry_over((), {key: START + 40, "Other{}": 1.0})
    assert START + 40 in [alert.active_at for alert in feeder.monitor.alerts()]


def test_days_of_silence_are_skipped_not_evaluated() -> None:
    feeder = trained(94)
    feeder.wait(3 * 86400.0)
    before = feeder.monitor.snapshot().monitor.evaluations
    feeder.wait(6 * 86400.0)
    assert feeder.monitor.snapshot().monitor.evaluations == before
    assert reported(feeder.transitions) == [("TrainingStalled", "firing")]


RULES_OF_TIME = """
groups:
  - name: g
    rules:
      - {alert: Late, expr: "time() - ldlm_train_last_progress_timestamp_seconds > 3601"}
      - alert: VeryLate
        expr: "max by (run) (9000.5 < time() - ldlm_train_last_progress_timestamp_seconds)"
        for: 100s
      - alert: LateThisDay
        expr: |
          time() - ldlm_train_last_progress_timestamp_seconds > 7200
          unless time() - ldlm_train_last_progress_timestamp_seconds > 7230
"""
WAS_HIGH = """
groups:
  - name: g
    rules:
      - {alert: WasHigh, expr: "max_over_time(ldlm_train_loss[63s]) > 3"}
"""


def judging_by(rules: str, folder: Path) -> Monitor:
    (folder / "rules.yml").write_text(rules)
    return Monitor(rules=load_rules([folder / "rules.yml"], parse))


def test_a_rule_of_time_is_asked_at_every_slot_of_a_silence(tmp_path: Path) -> None:
    feeder = Feeder(judging_by(RULES_OF_TIME, tmp_path))
    feeder.append(bar(1, loss="9.5"), 4.0)
    feeder.append(bar(2), 6.0)
    feeder.wait(9200.0)
    assert [(each.alert, each.state, each.time - START) for each in feeder.transitions] == [
        ("Late", "firing", 3610.0),
        ("LateThisDay", "firing", 7210.0),
        ("LateThisDay", "resolved", 7240.0),
        ("VeryLate", "pending", 9010.0),
        ("VeryLate", "firing", 9110.0),
    ]


def test_no_slot_is_skipped_before_a_window_has_left_its_last_sample_behind(tmp_path: Path) -> None:
    feeder = Feeder(judging_by(WAS_HIGH, tmp_path))
    feeder.append(bar(1, loss="9.5"), 4.0)
    feeder.append(bar(2), 6.0)
    feeder.wait(3000.0)
    assert [(each.state, each.time - START) for each in feeder.transitions] == [
        ("firing", 5.0),
        ("resolved", 70.0),
    ]


@given(st.lists(st.integers(1, 400), max_size=12), st.booleans())
def test_cutting_the_same_bytes_differently_changes_nothing(cuts: list[int], early: bool) -> None:
    text = (
        "".join(bar(step) for step in range(5))
        + NAN
        + bar(5)
        + "Traceback (most recent call last):\n"
    )
    text += '  File "train.py", line 3, in <module>\nIndexError: Target 9 is out of bounds.\n'
    records = text.replace("\r", "\r\0").replace("\n", "\n\0").split("\0")
    bounds = sorted({min(cut % len(records), len(records)) for cut in cuts} | {0, len(records)})

    def play(pieces: list[str]) -> list[object]:
        feeder = Feeder(Monitor())
        for piece in pieces:
            feeder.append(piece, 10.0)
        feeder.wait(13.0 if early else 60.0)
        return [(t.alert, t.state, t.position, t.time) for t in feeder.transitions]

    pieces = ["".join(records[a:b]) for a, b in pairwise(bounds)]
    assert play(pieces) == play([text])


@st.composite
def timed_rows(draw: st.DrawFn) -> list[dict[str, float]]:
    """Stretches of a training that logs its times, with pauses, resumes and NaN among them."""
    rows: list[dict[str, float]] = []
    when, step = START, 0
    for _ in range(draw(st.integers(1, 5))):
        pace = draw(st.sampled_from([0.0, 0.01, 0.3, 1.0, 4.9, 5.0, 7.3]))
        for _ in range(draw(st.integers(1, 30))):
            when, step = when + pace, step + 1
            rows.append({"step": step, "loss": 2.0 + step % 3, "time": when})
        odd = {"loss": draw(st.sampled_from([2.0, 1e9, math.nan]))}
        odd |= draw(st.sampled_from([{}, {"total_steps": 500.0}, {"eval_progress": 0.5}]))
        pause = draw(st.sampled_from([0.0, 3.0, 29.0, 31.0, 700.0, -20.0]))
        when, step = when + pause, draw(st.sampled_from([step, step + 1, 3]))
        rows.append({"step": step, "time": when, **odd})
    return rows


AHEAD = [{"step": n, "loss": 2.0 + n % 3, "time": START + 7.3 * n} for n in range(1, 7)]


@example([*AHEAD, {"step": 6, "loss": 2.0, "time": START + 23.8}], Stall(), 5.0, 0.0)
@given(
    timed_rows(),
    st.sampled_from([Stall(), Stall(floor_seconds=2.0), Stall(floor_seconds=0.1)]),
    st.sampled_from([5.0, 1.0, 30.0]),
    st.sampled_from([0.0, 1000.0]),
)
def test_rows_that_tell_their_times_are_judged_together_as_one_by_one(
    rows: list[dict[str, float]], stall: Stall, interval: float, read_after: float
) -> None:
    path, now = "a.jsonl", rows[-1]["time"] + read_after
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    chunk = Chunk(path, (1, 1, 0), 0, 1, data)
    together, apart = (Monitor(evaluation_interval=interval, stall=stall) for _ in range(2))
    found = together.feed(chunk, now) + together.finish(now + 60)
    samples = Parser().feed(chunk, apart.names.origin(path), now)
    expected = apart.observe(samples, now) + apart.finish(now + 60)
    assert [replace(each, line=None) for each in found] == expected
    seen, known = together.snapshot(), apart.snapshot()
    # Texts, because NaN is not equal to itself.
    assert repr(seen.runs) == repr(known.runs)
    assert sorted(map(repr, seen.points)) == sorted(map(repr, known.points))
    assert seen.monitor.evaluations == known.monitor.evaluations


@given(st.lists(st.floats(0.0, 700.0), max_size=40))
def test_how_often_time_is_said_to_pass_changes_nothing(ticks: list[float]) -> None:
    """Lines of a traceback with pauses, a hang, a NaN: all at seconds of their own."""
    lines = [
        (0.0, "".join(bar(step) for step in range(40))),
        (40.0, "Traceback (most recent call last):\n"),
        (41.0, '  File "train.py", line 12, in <module>\n    main()\n'),
        (44.5, "ValueError: the batch is empty\n"),
        (45.0, NAN),
        (600.0, "".join(bar(step) for step in range(40, 45))),
    ]
    reported = []
    for extra in (ticks, []):
        feeder = Feeder(Monitor())
        for second, text in sorted([*lines, *((tick, "") for tick in extra)], key=lambda at: at[0]):
            feeder.append(text, second) if text else feeder.wait(second)
        feeder.wait(700.0)
        reported.append([(each.alert, each.state, each.time) for each in feeder.transitions])
    assert reported[0] == reported[1]


def test_another_training_in_the_same_log_is_compared_with_its_own_past() -> None:
    """A second data set with higher losses begins at its first epoch: no loss diverges."""
    feeder = Feeder(Monitor())
    for second, base in enumerate((0.1, 0.9)):
        rows = [
            f"Epoch {epoch}/6, batch {batch}/60, loss: {base + (batch % 7) / 1000:.4f}\n"
            for epoch in range(1, 7)
            for batch in range(1, 61)
        ]
        feeder.append("".join(rows), 60.0 * second)
        feeder.wait(60.0 * second + 30)
    assert "LossDiverging" not in {each.alert for each in feeder.transitions}


def test_a_monitor_answers_for_the_time_that_its_store_reaches_back() -> None:
    monitor = Monitor()
    for step in range(30):
        line = f"step {step} loss 2.5\n".encode()
        monitor.feed(Chunk("a.log", (1, 1, 0), step * 100, step + 1, line), 1_769_681_700.0 + step)
    view = monitor.engine.view(None, monitor.clock)
    times = steps(1_769_681_690.0, 1_769_681_725.0, 5.0)
    (found,) = Evaluator(view).over(parse("ldlm_train_step"), times)
    assert dict(found.labels) == {"__name__": "ldlm_train_step", "run": "a"}
    assert [*zip(found.times, found.values, strict=True)]


def test_a_stall_cites_no_line_of_another_step() -> None:
    """A step may come without its bytes: the text of the step before is not its own."""
    monitor, line = Monitor(), b"step 1 loss 2.5 grad_norm 1.0\n"
    monitor.feed(Chunk("train.log", (1, 1, 0), 0, 1, line), 1000.0)
    later = Sample(
        run="train",
        step=2,
        values={"loss": 2.5},
        position=Position("train.log", 2, len(line)),
    )
    found = monitor.observe([later], 1001.0) + monitor.tick(5000.0)
    (run,) = monitor.runs
    stalled = next(each for each in found if each.alert == "TrainingStalled")
    assert stalled.labels["run"] == run.name
    assert (stalled.step, stalled.line) == (2, None)
