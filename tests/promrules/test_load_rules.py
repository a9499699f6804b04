"""Rule files: what is read from them, and how a mistake is reported."""

from pathlib import Path

import pytest

from ldlm_promrules.alerting import AlertRule, RecordingRule, load_rules
from ldlm_promrules.alerting.rule_files import parse_duration
from ldlm_promrules.errors import RuleError

GOOD = """
groups:
  - name: first
    interval: 1m
    rules:
      - record: run:loss:avg
        expr: avg by (run) (loss)
        labels: {level: run}
      - alert: Hot
        expr: temperature > 90
        for: 1h30m
        keep_firing_for: 5m
        labels: {severity: critical, tier: 1}
        annotations: {summary: "{{ $labels.run }}"}
  - name: second
    rules:
      - {alert: Now, expr: 1}
"""


def rule_file(folder: Path, text: str, name: str = "rules.yml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_rules_are_read_in_the_order_in_which_they_are_written(tmp_path: Path) -> None:
    path = rule_file(tmp_path, GOOD)
    recording, hot, now = load_rules([path], str.upper).rules
    assert isinstance(recording, RecordingRule)
    assert (recording.record, recording.expr) == ("run:loss:avg", "AVG BY (RUN) (LOSS)")
    assert recording.labels == {"level": "run"}
    assert isinstance(hot, AlertRule)
    assert (hot.name, hot.group, hot.file, hot.hold) == ("Hot", "first", str(path), 5400.0)
    assert hot.keep_firing_for == 300.0
    assert hot.labels["tier"].source == "1"
    assert isinstance(now, AlertRule)
    assert (now.expr, now.hold) == ("1", 0.0)


def test_of_a_folder_the_rule_files_are_read_and_the_unit_tests_are_not(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yml", "a.test.yml", "notes.txt"):
        group = f"groups: [{{name: {name}, rules: [{{alert: A, expr: x}}]}}]"
        rule_file(tmp_path, group, name)
    assert [rule.group for rule in load_rules([tmp_path], str).rules] == ["a.yml", "b.yml"]


KEYS_OF_PROMETHEUS = """
groups:
  - name: first
    labels: {team: ml, tier: low}
    limit: 2
    interval: 0s
    query_offset:
    rules:
      - &hot
        alert: Hot
        expr: a
        for: 5m
        labels: {tier: 1.50, on: true, day: 2020-01-01, none: }
      - <<: *hot
        alert: Warm
        labels:
        annotations:
      - <<: *hot
        for:
      - record: b
        expr: a
        for: 0s
        annotations: {}
"""


def test_keys_without_value_merged_keys_and_those_of_groups(tmp_path: Path) -> None:
    hot, warm, again, recorded = load_rules([rule_file(tmp_path, KEYS_OF_PROMETHEUS)], str).rules
    assert isinstance(hot, AlertRule)
    assert isinstance(warm, AlertRule)
    assert isinstance(again, AlertRule)
    texts = {name: template.source for name, template in hot.labels.items()}
    assert texts == {"team": "ml", "tier": "1.50", "on": "true", "day": "2020-01-01", "none": ""}
    assert (warm.name, warm.hold, list(warm.labels)) == ("Warm", 300.0, ["team", "tier"])
    assert (again.name, again.hold) == ("Hot", 0.0)
    assert recorded.labels == {"team": "ml", "tier": "low"}
    assert {rule.limit for rule in (hot, warm, again, recorded)} == {2}


def rules(*lines: str) -> str:
    return "groups: [{name: g, rules: [{" + ", ".join(lines) + "}]}]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (rules("alert: A", "expr: x", "fro: 5m"), "group g, rule 1 (A): fro: unknown key"),
        (rules("alert: A"), "expr"),
        (rules("expr: x"), "either alert or record"),
        (rules("alert: A", "record: b", "expr: x"), "either alert or record"),
        (rules("record: b", "expr: x", "for: 1m"), "has no for"),
        (rules("record: 1b", "expr: x"), "'1b' is not a metric name"),
        (rules("alert: A", "expr: x", "for: soon"), "'soon' is not a duration"),
        (rules("alert: A", "expr: x", "labels: {a-b: c}"), "no label 'a-b'"),
        (rules("alert: A", "expr: x", "annotations: {s: '{{ $foo }}'}"), "$foo is not defined"),
        (rules("alert: A", "expr: bad"), "group g, rule 1 (A), here: no such thing; try another"),
        ("groups: [{name: g, limits: 5}]", "groups.0.limits: unknown key"),
        ("groups: [{name: g, limit: few}]", "groups.0.limit"),
        ("groups: [{name: g, query_offset: 1m}]", "Prometheus has it, the monitor not"),
        ("groups: [{name: g, labels: {a-b: c}}]", "no label 'a-b'"),
        ("groups: [{name: g}, {name: g}]", "group 'g' is defined twice"),
        ("groups: [{name: g, name: h}]", "written twice"),
        ("groups: [", "YAML"),
        ("- a", "should be an object (a mapping"),
        ("groups: [{name: g, rules: [5]}]", "rule 1"),
    ],
)
def test_a_mistake_is_one_line_that_says_where(tmp_path: Path, text: str, expected: str) -> None:
    def parse(expr: str) -> str:
        if expr == "bad":
            raise RuleError("no such thing", where="here", remedy="try another")
        return expr

    path = rule_file(tmp_path, text)
    with pytest.raises(RuleError) as caught:
        load_rules([path], parse)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert expected in message
    assert "\n" not in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"nowhere\.yml: cannot be read"):
        load_rules([tmp_path / "nowhere.yml"], str)


def test_an_empty_file_holds_no_rules(tmp_path: Path) -> None:
    assert load_rules([rule_file(tmp_path, "")], str).rules == ()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("30s", 30), ("1h30m", 5400), ("1d", 86400), ("1w2d", 777600), ("250ms", 0.25)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "1.5h", "m", "30s1h", "-5m", "1 h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)
