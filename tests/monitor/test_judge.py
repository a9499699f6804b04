"""Rules are asked again whenever their answer can differ."""

from pathlib import Path

import pytest

from ldlm_monitor.alerts import load_rules
from ldlm_monitor.core.rule_engine import RuleEngine
from ldlm_monitor.model.points import Point, make_labels
from ldlm_monitor.promql import parse


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
        return [transition.state for transition in judge.evaluate([points], at, lambda _: False)]

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
    assert len(judge.evaluate([points], 5.0, lambda _: False)) == 2
    left = [point for point in points if (point.name, point.labels) != (gone, (("run", "a"),))]
    (reported,) = judge.evaluate([left], 10.0, lambda _: False)
    assert (reported.state, reported.labels["run"]) == (ending, "a")
    judge.evaluate([points], 15.0, lambda _: False)
    (reported,) = judge.evaluate([left], 20.0, lambda run: run == "a")
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
        found = judge.evaluate([[point]], at, lambda _: False)
        return [(each.alert, each.state) for each in found]

    assert scrape(2.0, 5.0) == []
    assert scrape(4.0, 10.0) == [("High", "firing"), ("Seen", "firing")]
    assert scrape(4.0, 15.0) == []
    assert scrape(6.0, 20.0) == [("Seen", "resolved")]
    assert scrape(4.0, 25.0) == [("Seen", "firing")]
    assert scrape(0.0, 30.0) == [("High", "unknown"), ("Seen", "unknown")]
    assert scrape(4.0, 35.0) == [("High", "firing"), ("Seen", "firing")]
