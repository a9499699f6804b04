"""Rules are asked again whenever their answer can differ."""

from pathlib import Path

import pytest

from ldlm_monitor.alerts import load_rules
from ldlm_monitor.judge import Judge
from ldlm_monitor.points import Point, make_labels
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
    judge = Judge(load_rules([path], parse), 5.0, 3600.0)

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
