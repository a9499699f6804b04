"""Runs promtool's unit tests of rules through our loader, evaluator and state machine."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from promqltest import duration, points, series
from run_script import ScriptStorage

from ldlm_monitor.alerts import AlertStates, load_rules
from ldlm_monitor.promql import Evaluator, parse


@dataclass
class UnitTest:
    """One entry of `tests:`; `mismatches` is empty where all expectations are met."""

    name: str
    checked: int = 0
    mismatches: list[str] = field(default_factory=list)


@pytest.fixture
def run_unit_tests() -> Callable[[Path], list[UnitTest]]:
    """What `promtool test rules` does with a file, for alert tests."""

    def run(path: Path) -> list[UnitTest]:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        rule_files = [path.parent / name for name in document["rule_files"]]
        interval = duration(document.get("evaluation_interval", "1m"))
        return [_run_one(test, rule_files, interval) for test in document["tests"]]

    return run


def _run_one(test: dict[str, Any], rule_files: list[Path], interval: float) -> UnitTest:
    storage = ScriptStorage()
    step = duration(test["interval"])
    for entry in test["input_series"]:
        labels, _ = series(entry["series"])
        values = enumerate(points(str(entry["values"])))
        storage.add(labels, [(i * step, value) for i, value in values if value is not None])
    states = AlertStates(load_rules(rule_files, parse))
    evaluator = Evaluator(storage)
    outcome = UnitTest(test["name"])
    expectations = sorted(
        test["alert_rule_test"], key=lambda expected: duration(expected["eval_time"])
    )
    at = 0.0
    for expected in expectations:
        until = duration(expected["eval_time"])
        while at <= until:
            states.evaluate(evaluator, at, ending=lambda *_: "resolved", record=lambda *_: None)
            at += interval
        assert not states.health
        outcome.checked += 1
        outcome.mismatches += _compare(states, expected)
    return outcome


def _compare(states: AlertStates[Any], expected: dict[str, Any]) -> list[str]:
    wanted = [
        (dict(alert["exp_labels"]), dict(alert.get("exp_annotations", {})))
        for alert in expected.get("exp_alerts") or []
    ]
    got = [
        (alert.labels, alert.annotations)
        for alert in states.active.values()
        if alert.rule.name == expected["alertname"] and alert.state == "firing"
    ]
    if sorted(wanted, key=str) == sorted(got, key=str) or _same(wanted, got):
        return []
    return [f"{expected['alertname']} at {expected['eval_time']}: got {got}, expected {wanted}"]


def _same(wanted: list[Any], got: list[Any]) -> bool:
    return len(wanted) == len(got) and all(alert in got for alert in wanted)
