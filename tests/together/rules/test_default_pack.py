"""The default pack keeps what the contract promises of it."""

from collections.abc import Iterator
from importlib import resources

import pytest
import yaml

from ldlm_monitor.base import names
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.judge.core.exported_metrics import METRICS
from ldlm_monitor.judge.core.packaged_rules import packaged_alerts, packaged_rules
from ldlm_monitor.judge.core.self_metrics import core_points
from ldlm_monitor.monitor import Monitor
from ldlm_promrules.alerting import AlertRule, load_rules
from ldlm_promrules.promql import Expression, parse
from ldlm_promrules.promql.expression import metric_names
from ldlm_promrules.promql.nodes import Range, Selector, walk

RULES = load_rules(packaged_rules(), parse).alerts


def test_it_is_one_file_that_stands_beside_the_package() -> None:
    assert [path.name for path in packaged_rules()] == ["default.yml"]
    assert all(path.is_file() for path in packaged_rules())


def test_of_an_alert_with_rules_of_two_severities_the_worse_counts() -> None:
    stalled = [rule.labels["severity"].source for rule in RULES if rule.name == "TrainingStalled"]
    assert sorted(stalled) == ["critical", "warning", "warning"]
    assert packaged_alerts()["TrainingStalled"] == "critical"
    assert packaged_alerts()["Watchdog"] == "none"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_alert_says_what_happened_and_what_to_try(rule: AlertRule[Expression]) -> None:
    assert set(rule.annotations) == {"summary", "description", "action"}
    about_the_monitor = rule.name.startswith("Monitor") or rule.name == "Watchdog"
    assert ("$labels.run" in rule.annotations["summary"].source) != about_the_monitor


def test_counters_that_a_rule_reads_over_time_exist_at_zero_when_a_run_begins() -> None:
    monitor = Monitor()
    line = b'{"type":"run","schema":"ldlm.health/1","run":"r","rank":0,"time":5.0}\n'
    chunk = Chunk("r/health_rank0.jsonl", (1, 1, 0), 0, 1, line, final=True)
    monitor.feed(chunk, 5.0)
    snapshot = monitor.snapshot()
    points = (*snapshot.points, *core_points(snapshot.monitor))
    zero = {point.name for point in points if point.value == 0}
    over_time = {
        name
        for rule in RULES
        for node in walk(rule.expr.root)
        if isinstance(node, Range) or (isinstance(node, Selector) and node.shift.offset)
        for name in metric_names(Expression("", node))
        if name.endswith("_total")
    }
    assert over_time - zero == {"ldlm_monitor_notifications_total", "ldlm_monitor_lines_total"}
    assert names.RESTARTS in over_time


def test_what_a_rule_asks_the_last_event_for_is_never_only_information() -> None:
    """Such events have no time of the last one."""
    severities: dict[str, set[str]] = {"replica_mismatch": {"critical"}}
    for path in (resources.files("ldlm_monitor.logs.parse") / "data/events").iterdir():
        for kind, severity in said(yaml.safe_load(path.read_text("utf-8"))):
            severities.setdefault(kind, set()).add(severity)
    matchers = [
        {each.name: each for each in node.matchers}
        for rule in RULES
        for node in walk(rule.expr.root)
        if isinstance(node, Selector) and names.LAST_EVENT in {m.value for m in node.matchers}
    ]
    assert len(matchers) > 10
    for asked in matchers:
        for kind in asked["kind"].value.split("|"):
            assert severities[kind] - {"info"}
            assert "severity" in asked or "info" not in severities[kind]


def said(node: object, kind: str = "") -> Iterator[tuple[str, str]]:
    """Kind and severity, wherever a file of event definitions gives both."""
    if isinstance(node, dict):
        kind = str(node.get("kind", kind))
        if "severity" in node:
            yield kind, str(node["severity"])
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from said(child, kind)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_metric_asked_for_is_one_that_we_export(rule: AlertRule[Expression]) -> None:
    asked = metric_names(rule.expr)
    assert bool(asked) != (rule.name == "Watchdog")
    assert asked <= {*METRICS, "ALERTS"}  # Prometheus' own, of each rule's alerts
