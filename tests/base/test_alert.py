"""Matchers of alert labels as Alertmanager has them, and the identity of an alert."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from ldlm_monitor.base.alert import (
    MAX_NAME,
    MAX_VALUE,
    LabelMatcher,
    Transition,
    alert_key,
    check_pattern,
    parse_matcher,
)

FIRING = Transition(
    time=1000.0,
    alert="LossNaN",
    state="firing",
    previous="pending",
    reason="",
    labels={"run": "gpt", "severity": "critical"},
    value=1.0,
    active_at=990.0,
)


@pytest.mark.parametrize(
    ("text", "name", "value", "is_regex", "is_equal"),
    [
        ('severity="critical"', "severity", "critical", False, True),
        ("severity=critical", "severity", "critical", False, True),
        ('  run != "a b"  ', "run", "a b", False, False),
        ('alertname=~"Nccl.*"', "alertname", "Nccl.*", True, True),
        ('run!~"a|b"', "run", "a|b", True, False),
        (r'run="a\"b\\c\nd\d"', "run", 'a"b\\c\nd\\d', False, True),
        ('run=""', "run", "", False, True),
        ("run=", "run", "", False, True),
        ('run="a,{b"', "run", "a,{b", False, True),
        ("_x1=a\nb", "_x1", "a\nb", False, True),
    ],
)
def test_a_matcher_is_read_as_it_is_written(
    text: str, name: str, value: str, is_regex: bool, is_equal: bool
) -> None:
    found = parse_matcher(text)
    assert (found.name, found.value) == (name, value)
    assert (found.is_regex, found.is_equal) == (is_regex, is_equal)


@pytest.mark.parametrize(
    "text", ["", "run", "1run=a", "run=a,b", 'run=a"b', "run={a}", 'run="a" b="c', 'run=~"("']
)
def test_text_that_is_no_matcher_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"matcher|quotes|RE2"):
        parse_matcher(text)


def test_names_and_values_of_matchers_are_bounded() -> None:
    assert parse_matcher(f"{'n' * MAX_NAME}={'v' * MAX_VALUE}").value == "v" * MAX_VALUE
    for text in (f"{'n' * (MAX_NAME + 1)}=v", f"n={'v' * (MAX_VALUE + 1)}"):
        with pytest.raises(ValidationError, match="at most"):
            parse_matcher(text)
    assert (MAX_NAME, MAX_VALUE) == (128, 1024)


@pytest.mark.parametrize(
    ("matcher", "holding", "others"),
    [
        ('run="a"', ["a"], ["", "b", "aa"]), ('run!="a"', ["", "b", "aa"], ["a"]),
        ('run=~"a.*"', ["a", "ab", "a\nb"], ["", "ba"]), ('run!~"a|b"', ["", "ab"], ["a", "b"]),
        ('run=""', [""], ["a"]), ('run=~""', [""], ["a"]), ('run=~"gr.ße"', ["größe"], ["grße"]),
    ],
)  # fmt: skip
def test_a_matcher_compares_the_whole_value(
    matcher: str, holding: list[str], others: list[str]
) -> None:
    read = parse_matcher(matcher)
    assert [value for value in holding + others if read.holds({"run": value})] == holding


def test_a_label_that_is_missing_has_an_empty_value() -> None:
    assert parse_matcher('run=""').holds({})
    assert parse_matcher('run!="a"').holds({"job": "a"})
    assert not parse_matcher('run=~"a.*"').holds({"job": "a"})


def test_a_matcher_has_the_json_of_alertmanager() -> None:
    read = LabelMatcher.model_validate_json('{"name": "run", "value": "a.*", "isRegex": true}')
    assert (read.is_regex, read.is_equal) == (True, True)
    assert LabelMatcher.model_validate({"name": "run", "value": "("}).is_regex is False
    by_name = {"name": "run", "value": "a.*", "is_regex": True, "is_equal": True}
    assert LabelMatcher.model_validate(by_name) == read
    with pytest.raises(ValidationError, match="extra"):
        LabelMatcher.model_validate_json('{"name": "run", "value": "a", "other": 1}')
    with pytest.raises(ValidationError, match="boolean"):
        LabelMatcher.model_validate({"name": "run", "value": "a", "isEqual": "true"})
    with pytest.raises(ValidationError, match="frozen"):
        read.value = "b"


def test_a_pattern_that_re2_refuses_is_explained() -> None:
    check_pattern("a|b")
    with pytest.raises(ValueError, match="is no regular expression of RE2: missing"):
        check_pattern("(")


def test_a_pattern_that_takes_much_memory_is_refused() -> None:
    check_pattern(r"\pL{10}")
    with pytest.raises(ValueError, match="too large"):
        check_pattern(r"\pL{500}")


def test_the_identity_of_an_alert_has_its_labels_in_order() -> None:
    assert alert_key("LossNaN", {"run": "a", "job": "b"}) == "LossNaN{job=b,run=a}"
    assert alert_key("LossNaN", {}) == "LossNaN{}"


def test_all_transitions_of_an_alert_have_its_identity() -> None:
    resolved = replace(FIRING, state="resolved", previous="firing", time=None)
    assert FIRING.key == resolved.key == "LossNaN{run=gpt,severity=critical}"


def test_the_identity_of_an_alert_lacks_the_rank_that_its_incident_names() -> None:
    named = replace(FIRING, labels={**FIRING.labels, "rank": "3"}, identity=FIRING.key)
    assert named.key == FIRING.key


def test_a_critical_alert_of_an_incident_wants_its_rank() -> None:
    assert not FIRING.wants_rank
    of_incident = replace(FIRING, incident="gpt-1")
    assert of_incident.wants_rank
    assert not replace(of_incident, labels={"severity": "warning"}).wants_rank
    assert not replace(of_incident, labels={}).wants_rank


def test_an_alert_with_a_rank_of_its_rule_wants_no_other() -> None:
    with_rank = replace(FIRING, incident="gpt-1", labels={**FIRING.labels, "rank": "3"})
    assert not with_rank.wants_rank
    assert replace(with_rank, identity="LossNaN{}").wants_rank


def test_an_alert_of_the_severity_none_is_a_heartbeat() -> None:
    assert not FIRING.is_heartbeat
    assert not replace(FIRING, labels={}).is_heartbeat
    assert replace(FIRING, labels={"severity": "none"}).is_heartbeat


def test_transitions_share_no_annotations() -> None:
    other = replace(FIRING)
    fresh = Transition(
        time=None, alert="A", state="pending", previous="inactive", reason="", labels={},
        value=0.0, active_at=0.0,
    )  # fmt: skip
    fresh.annotations["summary"] = "of this one alone"
    assert (FIRING.annotations, other.annotations) == ({}, {})
