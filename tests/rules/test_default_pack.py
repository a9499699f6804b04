"""The default pack keeps what the contract promises of it."""

import pytest

from ldlm_monitor.alerts import AlertRule, load_rules, packaged_rules
from ldlm_monitor.model import names
from ldlm_monitor.promql import Expression, parse
from ldlm_monitor.promql.analysis import metric_names

RULES = load_rules(packaged_rules(), parse).alerts


def test_it_is_one_file_that_stands_beside_the_package() -> None:
    assert [path.name for path in packaged_rules()] == ["default.yml"]
    assert all(path.is_file() for path in packaged_rules())


def test_it_holds_exactly_the_named_alerts_with_their_severities() -> None:
    """Of an alert with rules of several severities, the worst counts."""
    severities: dict[str, str] = {}
    for rule in sorted(RULES, key=lambda rule: _badness(rule.labels["severity"].source)):
        severities[rule.name] = rule.labels["severity"].source
    assert severities == names.ALERTS


def _badness(severity: str) -> int:
    return ("none", *names.SEVERITIES).index(severity)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_alert_says_what_happened_and_what_to_try(rule: AlertRule[Expression]) -> None:
    assert set(rule.annotations) == {"summary", "description", "action"}
    about_the_monitor = rule.name.startswith("Monitor") or rule.name == "Watchdog"
    assert ("$labels.run" in rule.annotations["summary"].source) != about_the_monitor


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_metric_asked_for_is_one_that_we_export(rule: AlertRule[Expression]) -> None:
    asked = metric_names(rule.expr)
    assert bool(asked) != (rule.name == "Watchdog")
    assert asked <= set(names.METRICS)
