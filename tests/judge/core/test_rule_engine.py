"""Rules are asked again whenever their answer can differ."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.points import Point, make_labels
from ldlm_monitor.judge.core.evaluation_schedule import EvaluationSchedule
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.core.rule_engine import RuleEngine
from ldlm_monitor.judge.run.fleet import Fleet
from ldlm_monitor.judge.run.stall import Stall
from ldlm_promrules.alerting import RuleSet, load_rules
from ldlm_promrules.promql import Evaluator, Expression, parse
from tests.judge.core.attempts_of_runs import GOING_ON, none_began_anew

NOW = 1_769_681_700.0


@pytest.mark.parametrize(
    "expr",
    [
        "ldlm_train_loss > 3",
        "{__name__=~'ldlm_train_lo.+'} > 3",
        "{run='a'} > 3",
        "ldlm_train_step and on (run) {__name__!='ldlm_train_step',run='a'} > 3",
    ],
)
def test_a_rule_hears_of_a_change_however_it_names_the_metric(tmp_path: Path, expr: str) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(f'groups: [{{name: g, rules: [{{alert: High, expr: "{expr}"}}]}}]')
    judge = RuleEngine(load_rules([path], parse), 5.0)

    def scrape(loss: float, at: float) -> list[str]:
        points = [
            Point("ldlm_train_loss", make_labels(run="a"), loss),
            Point("ldlm_train_step", make_labels(run="a"), 1.0),
        ]
        return [transition.state for transition in judge.evaluate([points], at, *GOING_ON)]

    assert scrape(1.0, 5.0) == []
    assert scrape(1.0, 10.0) == []
    assert scrape(5.0, 15.0) == ["firing"]
    assert scrape(1.0, 20.0) == ["resolved"]


@pytest.mark.parametrize(
    ("expr", "gone", "ending"),
    [
        ("ldlm_train_loss > 3", "ldlm_train_loss", "unknown"),
        ("ldlm_train_loss > 3 unless ldlm_train_step > 9", "ldlm_train_loss", "unknown"),
        ("ldlm_train_loss > 3 and ldlm_train_step < 9", "ldlm_train_step", "resolved"),
        ("max by (run) (ldlm_train_loss) > 3", "ldlm_train_loss", "unknown"),
        ("ldlm_train_loss > 3 or ldlm_train_step > 9", "ldlm_train_loss", "resolved"),
    ],
)
def test_an_alert_whose_series_stopped_is_not_known_to_be_over(
    tmp_path: Path, expr: str, gone: str, ending: str
) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(
        f'groups: [{{name: g, rules: [{{alert: High, expr: "{expr}", labels: {{team: a}}}}]}}]'
    )
    judge = RuleEngine(load_rules([path], parse), 5.0)
    points = [
        Point(name, make_labels(run=run), value)
        for run in ("a", "b")
        for name, value in (("ldlm_train_loss", 5.0), ("ldlm_train_step", 1.0))
    ]
    assert len(judge.evaluate([points], 5.0, *GOING_ON)) == 2
    left = [point for point in points if (point.name, point.labels) != (gone, (("run", "a"),))]
    (reported,) = judge.evaluate([left], 10.0, *GOING_ON)
    assert (reported.state, reported.labels["run"]) == (ending, "a")
    judge.evaluate([points], 15.0, *GOING_ON)
    (reported,) = judge.evaluate([left], 20.0, "a".__eq__, none_began_anew)
    assert reported.state == "ended"


def test_what_a_rule_records_is_there_for_the_rules_that_follow(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(
        "groups: [{name: g, rules: ["
        "{record: 'run:loss:max', expr: 'max by (run) (ldlm_train_loss) > 1'},"
        "{alert: High, expr: 'run:loss:max > 3'},"
        "{alert: Seen, expr: 'ALERTS{alertname=\"High\"} unless on (run) run:loss:max > 5'}]}]"
    )
    judge = RuleEngine(load_rules([path], parse), 5.0)

    def scrape(loss: float, at: float) -> list[tuple[str, str]]:
        point = Point("ldlm_train_loss", make_labels(run="a"), loss)
        found = judge.evaluate([[point]], at, *GOING_ON)
        return [(each.alert, each.state) for each in found]

    assert scrape(2.0, 5.0) == []
    assert scrape(4.0, 10.0) == [("High", "firing"), ("Seen", "firing")]
    assert scrape(4.0, 15.0) == []
    assert scrape(6.0, 20.0) == [("Seen", "resolved")]
    assert scrape(4.0, 25.0) == [("Seen", "firing")]
    assert scrape(0.0, 30.0) == [("High", "unknown"), ("Seen", "unknown")]
    assert scrape(4.0, 35.0) == [("High", "firing"), ("Seen", "firing")]


def test_a_group_with_an_interval_is_evaluated_once_in_each_and_its_for_ends_on_time(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(
        "groups: [{name: g, interval: 1m, rules: ["
        "{alert: High, expr: ldlm_train_loss > 3, for: 10s},"
        "{alert: Seen, expr: ldlm_train_loss > 3}]}]"
    )
    judge = RuleEngine(load_rules([path], parse), 5.0)

    def scrape(loss: float, at: float) -> list[tuple[str, str]]:
        point = Point("ldlm_train_loss", make_labels(run="a"), loss)
        found = judge.evaluate([[point]], at, *GOING_ON)
        return [(each.alert, each.state) for each in found]

    assert scrape(1.0, 605.0) == []
    assert scrape(5.0, 610.0) == []
    assert scrape(5.0, 655.0) == []
    assert scrape(5.0, 660.0) == [("High", "pending"), ("Seen", "firing")]
    assert scrape(1.0, 665.0) == []
    assert scrape(1.0, 670.0) == [("High", "firing")]
    assert scrape(1.0, 719.0) == []
    assert scrape(1.0, 730.0) == [("High", "resolved"), ("Seen", "resolved")]


def test_a_last_change_is_judged_at_the_next_turn_of_a_group_with_an_interval(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(
        "groups: [{name: g, interval: 1h, rules: [{alert: High, expr: ldlm_train_loss > 3}]}]"
    )
    monitor = Monitor(rules=load_rules([path], parse))
    for chunk, at in steps([1.0, 1.0, 5.0]):
        monitor.feed(chunk, at)
    found = monitor.tick(NOW + 2 * 3600)
    assert [each.alert for each in found if each.alert == "High"] == ["High"]


def test_a_text_that_queries_is_expanded_again_while_its_alert_is_active(tmp_path: Path) -> None:
    """What `query` returns is no metric of the expression, so its change is none of the rule."""
    text = "{{ with query `ldlm_train_step` }}step {{ . | first | value }}{{ end }}"
    rule = f'{{alert: High, expr: ldlm_train_loss > 3, annotations: {{summary: "{text}"}}}}'
    judge = RuleEngine(rules_of(tmp_path, rule), 5.0)

    def summary(step: float, at: float) -> list[str]:
        points = [
            Point("ldlm_train_loss", make_labels(run="a"), 5.0),
            Point("ldlm_train_step", make_labels(run="a"), step),
        ]
        judge.evaluate([points], at, *GOING_ON)
        return [alert.annotations["summary"] for alert in judge.active]

    assert summary(1.0, 5.0) == ["step 1"]
    assert summary(2.0, 10.0) == ["step 2"]
    assert summary(2.0, 15.0) == ["step 2"]


def rules_of(folder: Path, *rules: str) -> RuleSet[Expression]:
    path = folder / "rules.yml"
    path.write_text(f"groups: [{{name: g, rules: [{', '.join(rules)}]}}]")
    return load_rules([path], parse)


def steps(losses: Iterable[float], seconds: float = 10.0) -> Iterator[tuple[Chunk, float]]:
    """The lines of a log, a step each, and when each is read."""
    offset = 0
    for step, loss in enumerate(losses):
        line = f"step {step} loss {loss}\n".encode()
        yield Chunk("a.log", (1, 1, 0), offset, step + 1, line), NOW + step * seconds
        offset += len(line)


@pytest.mark.parametrize("interval", [0.94, 5.0, 0.1])
def test_the_slot_after_an_evaluation_is_later_whatever_the_interval(
    tmp_path: Path, interval: float
) -> None:
    engine = RuleEngine(rules_of(tmp_path), interval)
    schedule = EvaluationSchedule(interval, engine, Fleet(Stall(), 900.0))
    first = round(1_768_099_924.98 / interval)  # of 0.94 s: a slot whose quotient is rounded down
    for slot in range(first, first + 2000):
        schedule.next = slot * interval
        schedule.evaluated(slot * interval)
        assert schedule.next == (slot + 1) * interval


@pytest.mark.parametrize(
    "condition", ["{since} > 40 * {limit}", "({since} > {limit}) > 40 * {limit}"]
)
def test_a_rule_at_a_multiple_of_the_stall_limit_fires_although_nothing_else_changes(
    tmp_path: Path, condition: str
) -> None:
    since = "time() - ldlm_train_last_progress_timestamp_seconds"
    expr = condition.format(since=since, limit="ldlm_train_stall_limit_seconds")
    late = f"{{alert: Late, expr: '{expr}'}}"
    monitor = Monitor(rules=rules_of(tmp_path, late))
    for chunk, at in steps([2.5] * 49, seconds=1.0):
        monitor.feed(chunk, at)
    found = [each for second in range(49, 3000, 10) for each in monitor.tick(NOW + second)]
    (limit,) = (
        point.value
        for point in monitor.snapshot().points
        if point.name == "ldlm_train_stall_limit_seconds"
    )
    assert [(each.alert, each.state) for each in found] == [("Late", "firing")]
    assert found[0].time == pytest.approx(NOW + 48 + 40 * limit, abs=5.0)


@pytest.mark.parametrize(("window", "are_dropped"), [("5s", True), ("30m", False)])
def test_samples_are_kept_as_long_as_is_said_or_as_rules_look_back(
    tmp_path: Path, window: str, are_dropped: bool
) -> None:
    high = f"{{alert: High, expr: 'max_over_time(ldlm_train_loss[{window}]) > 99'}}"
    monitor = Monitor(rules=rules_of(tmp_path, high), retention=600.0)
    for chunk, at in steps([2.5] * 600, 5.0):
        monitor.feed(chunk, at)
    times = [NOW + 5.0 * slot for slot in range(600)]
    view = monitor.engine.view(None, monitor.clock)
    (found,) = Evaluator(view).over(parse("ldlm_train_step"), times)
    assert (found.values[0] > 300) == are_dropped


def test_a_rule_loaded_later_looks_back_as_far_as_it_says(tmp_path: Path) -> None:
    day = "{alert: Day, expr: 'max_over_time(ldlm_train_loss[12h]) > 50'}"
    high = rules_of(tmp_path, "{alert: High, expr: 'ldlm_train_loss > 99'}")
    monitor = Monitor(rules=high, evaluation_interval=60.0)
    monitor.reconfigure(rules_of(tmp_path, day), Stall())
    found = []
    for chunk, at in steps([60.0 if step == 5 else 2.5 for step in range(13 * 12)], 300.0):
        found += monitor.feed(chunk, at) + monitor.tick(at + 299)
    assert [each.state for each in found] == ["firing", "resolved"]
    assert found[1].time == pytest.approx(NOW + 6 * 300 + 12 * 3600, abs=60.0)


def test_a_rule_loaded_later_finds_the_change_that_its_offset_leads_to(tmp_path: Path) -> None:
    changed = "{alert: Changed, expr: 'ldlm_train_loss offset 10m > 50'}"
    high = rules_of(tmp_path, "{alert: High, expr: 'ldlm_train_loss > 99'}")
    monitor = Monitor(rules=high)
    found = []
    for chunk, at in steps([60.0] * 3 + [2.5] * 3):
        found += monitor.feed(chunk, at)
    monitor.reconfigure(rules_of(tmp_path, changed), Stall())
    found += monitor.tick(NOW + 2000)
    assert [(each.state, each.time) for each in found] == [
        ("firing", NOW + 600),
        ("resolved", NOW + 635),
    ]


def test_time_passes_while_a_rule_fails_whose_alert_is_pending(tmp_path: Path) -> None:
    """It began as a match of one to one; now there are two series of the run."""
    both = "ldlm_train_loss * on (run) ldlm_train_grad_norm > 1"
    monitor = Monitor(rules=rules_of(tmp_path, f"{{alert: Both, expr: '{both}', for: 1m}}"))
    offset = 0
    for step in range(9):
        row = {"step": step, "time": NOW + 10 * step, "loss": 2.5, "grad_norm": 1.0}
        line = (json.dumps(row | ({"rank": step % 2} if step > 2 else {})) + "\n").encode()
        monitor.feed(Chunk("health.jsonl", (1, 1, 0), offset, step + 1, line), NOW + 10 * step)
        offset += len(line)
    monitor.tick(NOW + 2000)
    assert monitor.clock == NOW + 2000
    assert [each.state for each in monitor.alerts()] == ["pending"]


TWO_OF_A_NAME = (
    "{alert: High, expr: 'ldlm_train_loss > 50', labels: {severity: critical}}",
    "{alert: High, expr: 'ldlm_train_step > 3', labels: {severity: critical, by: step}}",
)


@pytest.mark.parametrize("losses", [[2.5] * 9, [60.0] * 3])
def test_an_alert_goes_on_through_a_reload_if_another_rule_has_its_name(
    tmp_path: Path, losses: list[float]
) -> None:
    monitor = Monitor(rules=rules_of(tmp_path, *TWO_OF_A_NAME))
    for chunk, at in steps(losses):
        monitor.feed(chunk, at)
        monitor.tick(at + 9)
    before = monitor.engine.active_keys()
    assert len(before) == 1
    monitor.reconfigure(rules_of(tmp_path, *TWO_OF_A_NAME), Stall())
    assert monitor.tick(NOW + 200) == []
    assert monitor.engine.active_keys() == before


def test_an_alert_of_before_a_restart_goes_on_by_its_own_rule(tmp_path: Path) -> None:
    before = Monitor(rules=rules_of(tmp_path, *TWO_OF_A_NAME))
    after = Monitor(rules=rules_of(tmp_path, *TWO_OF_A_NAME))
    for chunk, at in steps([2.5] * 9):
        before.feed(chunk, at)
        before.tick(at + 9)
    after.tick(NOW + 100)
    assert len(after.carry_over(before.alerts(), {})) == 1
    for chunk, at in list(steps([2.5] * 60))[20:]:
        assert after.feed(chunk, at) == []
    assert after.tick(NOW + 1000) == []
    assert after.engine.active_keys() == before.engine.active_keys()


def test_an_alert_of_before_a_restart_ends_with_the_attempt_of_the_training(tmp_path: Path) -> None:
    """Its lines are rotated away, so that its rule has too little data for its whole range."""
    high = "{alert: High, expr: 'max_over_time(ldlm_train_loss[10m]) > 50'}"
    before, after = (Monitor(rules=rules_of(tmp_path, high)) for _ in range(2))
    for chunk, at in steps([60.0] * 9):
        before.feed(chunk, at)
    after.tick(NOW + 100)
    assert len(after.carry_over(before.alerts(), {})) == 1
    found, offset = [], 0
    for at, line in [
        *((NOW + 110 + step, f"step {step} loss 2.5\n") for step in range(9, 20)),
        (NOW + 140, "api.py:553]   restart_count=1\napi.py:553]   global_ranks=[0, 1]\n"),
        *((NOW + 150 + step, f"step {step} loss 2.5\n") for step in range(9)),
    ]:
        found += after.feed(Chunk("a.log", (1, 1, 0), offset, 1, line.encode()), at)
        offset += len(line)
    found += after.tick(NOW + 170)
    assert [(each.state, each.reason) for each in found] == [("ended", "restarted")]


def test_an_alert_that_begins_again_has_the_line_of_its_new_beginning(tmp_path: Path) -> None:
    high = "{alert: High, expr: 'ldlm_train_loss > 50', for: 30s}"
    monitor = Monitor(rules=rules_of(tmp_path, high))
    found = []
    for chunk, at in steps([60.0 if step == 5 or step > 20 else 2.5 for step in range(40)]):
        found += monitor.feed(chunk, at)
    assert [(each.state, each.step) for each in found] == [
        ("pending", 5),
        ("pending", 21),
        ("firing", 21),
    ]


def test_counts_that_are_zero_are_exported_after_a_restart_too() -> None:
    before, after = Monitor(), Monitor()
    after.own.restore(before.own.view())
    assert after.own.view() == before.own.view()
