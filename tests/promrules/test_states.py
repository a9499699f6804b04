"""The state of alerts, minute by minute, as Prometheus' `AlertingRule.Eval` steps it."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_promrules.alerting import (
    AlertChange,
    AlertRule,
    AlertStates,
    RecordingRule,
    RuleSet,
    Template,
)
from ldlm_promrules.errors import RuleError
from ldlm_promrules.samples import VectorSample
from tests.promrules.labelled import make_labels

MINUTE = 60.0


def alert(name: str = "Hot", **options: Any) -> AlertRule[str]:
    settings: dict[str, Any] = {
        "expr": name,
        "hold": 0.0,
        "keep_firing_for": 0.0,
        "labels": {"severity": Template.parse("warning")},
        "annotations": {"summary": Template.parse("{{ $labels.run }} at {{ $value }}")},
        "file": "rules.yml",
        "group": "g",
    }
    return AlertRule(name=name, **(settings | options))


def vector(**values: float) -> list[VectorSample]:
    return [VectorSample(make_labels(run=run), value) for run, value in values.items()]


class Bench:
    """Evaluates rules at successive times against vectors given by hand."""

    def __init__(
        self, *rules: AlertRule[str] | RecordingRule[str], ending: str = "resolved"
    ) -> None:
        self.states: AlertStates[str] = AlertStates(RuleSet(rules))
        self.answers: dict[str, list[VectorSample] | RuleError] = {}
        self.recorded: list[tuple[str, list[VectorSample], float]] = []
        self._ending = ending

    def query(self, expr: str, at: float) -> list[VectorSample]:
        answer = self.answers.get(expr, [])
        if isinstance(answer, RuleError):
            raise answer
        return answer

    def ending(self, rule: AlertRule[str], labels: Mapping[str, str]) -> Any:
        return self._ending

    def at(self, minute: float, **answers: Any) -> list[AlertChange]:
        self.answers.update(answers)
        return self.states.evaluate(
            self.query,
            minute * MINUTE,
            ending=self.ending,
            record=lambda *row: self.recorded.append(row),
        )

    def step(self, minute: float, *samples: VectorSample) -> list[tuple[str, str, str]]:
        """Previous state, new state and reason of what `Hot` does."""
        found = self.at(minute, Hot=list(samples))
        return [(change.previous, change.state, change.reason) for change in found]


def test_without_for_an_alert_fires_at_once_and_resolves_at_once() -> None:
    bench = Bench(alert())
    [fired] = bench.at(1, Hot=vector(a=7))
    assert (fired.previous, fired.state, fired.reason) == ("inactive", "firing", "condition holds")
    assert (fired.time, fired.active_at, fired.value) == (MINUTE, MINUTE, 7)
    assert fired.labels == {"run": "a", "severity": "warning"}
    assert fired.annotations == {"summary": "a at 7"}
    assert bench.step(2, *vector(a=8)) == []
    [resolved] = bench.at(3, Hot=[])
    assert (resolved.previous, resolved.state) == ("firing", "resolved")
    assert resolved.reason == "condition no longer holds"
    assert (resolved.active_at, resolved.value) == (MINUTE, 8)
    assert list(bench.states.alerts()) == []


def test_with_for_it_is_pending_until_it_has_held_that_long() -> None:
    bench = Bench(alert(hold=5 * MINUTE))
    assert bench.step(0, *vector(a=1)) == [("inactive", "pending", "condition holds")]
    assert bench.states.due() == 5 * MINUTE
    assert bench.step(4, *vector(a=1)) == []
    assert bench.step(5, *vector(a=1)) == [("pending", "firing", "condition held for its duration")]
    [firing] = bench.states.alerts()
    assert (firing.state, firing.active_at, firing.fired_at) == ("firing", 0, 5 * MINUTE)
    assert bench.states.due() == math.inf


def test_a_pending_alert_that_goes_away_says_nothing_and_begins_anew() -> None:
    bench = Bench(alert(hold=5 * MINUTE))
    bench.step(0, *vector(a=1))
    assert bench.step(4) == []
    assert list(bench.states.alerts()) == []
    assert bench.step(5, *vector(a=1)) == [("inactive", "pending", "condition holds")]
    assert bench.states.due() == 10 * MINUTE


def test_keep_firing_for_bridges_a_gap_and_starts_over_with_each() -> None:
    bench = Bench(alert(keep_firing_for=3 * MINUTE))
    bench.step(0, *vector(a=1))
    assert bench.step(1) == []
    assert bench.states.due() == 4 * MINUTE
    assert bench.step(3, *vector(a=2)) == []
    assert bench.states.due() == math.inf
    assert bench.step(4) == []
    assert bench.step(6) == []
    assert bench.step(7) == [("firing", "resolved", "condition no longer holds")]


def test_keep_firing_for_does_not_keep_a_pending_alert() -> None:
    bench = Bench(alert(hold=5 * MINUTE, keep_firing_for=5 * MINUTE))
    bench.step(0, *vector(a=1))
    assert bench.step(1) == []
    assert list(bench.states.alerts()) == []


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("resolved", "condition no longer holds"),
        ("ended", "what it watches has ended"),
        ("unknown", "no data"),
    ],
)
def test_how_an_alert_ended_is_said(ending: str, reason: str) -> None:
    bench = Bench(alert(), ending=ending)
    bench.step(0, *vector(a=1))
    assert bench.step(1) == [("firing", ending, reason)]


def test_each_series_is_an_alert_of_its_own() -> None:
    bench = Bench(alert())
    bench.at(0, Hot=vector(a=1, b=2))
    changes = bench.at(1, Hot=vector(b=2, c=3))
    assert [(change.labels["run"], change.state) for change in changes] == [
        ("a", "resolved"),
        ("c", "firing"),
    ]


def test_a_label_that_changes_ends_one_alert_and_begins_another() -> None:
    level = {"severity": Template.parse("{{ if $value }}critical{{ else }}warning{{ end }}")}
    bench = Bench(alert(labels=level))
    bench.at(0, Hot=vector(a=0))
    changes = bench.at(1, Hot=vector(a=1))
    assert [(change.labels["severity"], change.state) for change in changes] == [
        ("warning", "resolved"),
        ("critical", "firing"),
    ]


def test_nan_is_a_value_like_any_other() -> None:
    bench = Bench(alert())
    [fired] = bench.at(0, Hot=vector(a=math.nan))
    assert fired.state == "firing"
    assert fired.annotations == {"summary": "a at NaN"}


def test_a_rule_that_fails_keeps_its_alerts_and_stops_no_other() -> None:
    bench = Bench(alert(), alert("Cold"))
    bench.at(0, Hot=vector(a=1))
    changes = bench.at(1, Hot=RuleError("many-to-many"), Cold=vector(a=1))
    assert [change.rule for change in changes] == ["Cold"]
    assert [one.rule.name for one in bench.states.alerts()] == ["Hot", "Cold"]
    assert {index: error.what for index, error in bench.states.health.items()} == {
        0: "many-to-many"
    }
    bench.at(2, Hot=vector(a=1))
    assert bench.states.health == {}


def test_two_series_that_become_one_alert_are_an_error_of_the_rule() -> None:
    bench = Bench(alert(labels={"run": Template.parse("all")}))
    assert bench.at(0, Hot=vector(a=1, b=1)) == []
    assert "same labels" in bench.states.health[0].what


def test_active_alerts_are_recorded_as_the_series_alerts() -> None:
    bench = Bench(alert(hold=MINUTE))
    bench.at(0, Hot=vector(a=1))
    bench.at(1)
    bench.at(2, Hot=[])
    bench.at(3)
    identity = {"alertname": "Hot", "run": "a", "severity": "warning"}
    assert bench.recorded == [
        ("ALERTS", [VectorSample(make_labels(**identity, alertstate="pending"), 1.0)], 0.0),
        ("ALERTS", [VectorSample(make_labels(**identity, alertstate="firing"), 1.0)], MINUTE),
        ("ALERTS", [], 2 * MINUTE),
    ]


def test_recording_rules_that_share_a_name_are_recorded_together() -> None:
    def recording(expr: str, part: str) -> RecordingRule[str]:
        return RecordingRule("run:x:sum", expr, {"part": part}, "rules.yml", "g")

    bench = Bench(recording("One", "1"), recording("Two", "2"))
    bench.at(0, One=vector(a=1), Two=vector(a=2))
    bench.at(1, One=[])
    one = VectorSample(make_labels(run="a", part="1"), 1)
    two = VectorSample(make_labels(run="a", part="2"), 2)
    assert bench.recorded == [
        ("run:x:sum", [one], 0.0),
        ("run:x:sum", [one, two], 0.0),
        ("run:x:sum", [two], MINUTE),
        ("run:x:sum", [two], MINUTE),
    ]


def test_a_rule_whose_result_is_beyond_its_groups_limit_fails() -> None:
    bench = Bench(alert(limit=1))
    bench.at(0, Hot=vector(a=1, b=1))
    assert "2 series, more than the group's limit of 1" in bench.states.health[0].what
    bench.at(1, Hot=vector(a=1))
    assert (len(list(bench.states.alerts())), bench.states.health) == (1, {})


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 4), st.integers(0, 4))
def test_transitions_alternate_and_account_for_what_is_active(
    holds: list[bool], hold: int, keep: int
) -> None:
    bench = Bench(alert(hold=hold * MINUTE, keep_firing_for=keep * MINUTE))
    state = "inactive"
    for minute, present in enumerate(holds):
        for change in bench.at(minute, Hot=vector(a=1) if present else []):
            assert change.previous == state or (state, change.previous) == ("pending", "inactive")
            state = "inactive" if change.state == "resolved" else change.state
        active = [one.state for one in bench.states.alerts()]
        assert active == ([state] if state != "inactive" and active else [])
        assert state != "firing" or active == ["firing"]
        due = bench.states.due()
        assert due > minute * MINUTE
