"""Rules over a list of samples."""

from pathlib import Path

import pytest

from ldlm_promrules import (
    Context,
    Expression,
    ListedSeries,
    RuleError,
    RuleSet,
    evaluate,
    instant,
    load_rules,
    parse,
)

UP = (("__name__", "up"), ("job", "a"))
RULES = """
groups:
  - name: g
    rules:
      - {record: down, expr: 1 - up}
      - alert: A
        expr: down > 0
        labels: {zone: "{{ $externalLabels.zone }}"}
        annotations: {now: '{{ query "sum(up)" | first | value }}'}
"""


def rules_of(folder: Path, text: str) -> RuleSet[Expression]:
    path = folder / "rules.yml"
    path.write_text(text, encoding="utf-8")
    return load_rules([path], parse)


def samples() -> ListedSeries:
    found = ListedSeries()
    found.add(UP, [(0.0, 1.0), (60.0, 0.0), (120.0, 1.0)])
    return found


def test_rules_read_what_rules_before_them_record(tmp_path: Path) -> None:
    series = samples()
    context = Context(external_labels={"zone": "x"})
    changes = [*evaluate(rules_of(tmp_path, RULES), series, (0, 60, 120), context)]
    assert [(each.time, each.rule, each.state, each.previous) for each in changes] == [
        (60, "A", "firing", "inactive"), (120, "A", "resolved", "firing"),
    ]  # fmt: skip
    assert changes[0].labels == {"job": "a", "zone": "x"}
    assert changes[0].annotations == {"now": "0"}
    asked = parse('ALERTS{alertname="A"}')
    assert [len(instant(series, asked, at)["result"]) for at in (0, 60, 120)] == [0, 1, 0]


def test_a_rule_sees_no_sample_of_later_times(tmp_path: Path) -> None:
    text = "groups: [{name: g, rules: [{alert: A, expr: 'up offset -1m == 0'}]}]"
    assert [*evaluate(rules_of(tmp_path, text), samples(), (0,))] == []


def test_a_rule_that_fails_raises(tmp_path: Path) -> None:
    series = samples()
    series.add((("__name__", "up2"), ("job", "a")), [(0.0, 1.0)])
    text = "groups: [{name: g, rules: [{record: x, expr: '{__name__=~\"up.*\"} + 1'}]}]"
    with pytest.raises(RuleError, match="same labels"):
        list(evaluate(rules_of(tmp_path, text), series, (0,)))
