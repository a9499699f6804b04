"""`rules check`, `rules test` and `rules list`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.judge.core.packaged_rules import packaged_alerts

Ask = Callable[..., Any]
GOOD = "groups: [{name: mine, rules: [{alert: Late, expr: 'ldlm_train_step > 3', for: 90s}]}]\n"


def test_the_packaged_rules_are_fine(ask: Ask) -> None:
    answer = ask("rules", "check")
    assert answer.code == 0
    assert "default.yml: " in answer.out
    assert "all fine" in answer.out


def test_every_packaged_alert_is_listed_with_its_severity(ask: Ask) -> None:
    answer = ask("rules", "list")
    listed = {tuple(line.split()[:2]) for line in answer.out.splitlines()}
    assert set(packaged_alerts().items()) <= listed


def test_a_file_of_my_own_is_listed_instead(ask: Ask, folder: Path) -> None:
    (folder / "mine.yml").write_text(GOOD, encoding="utf-8")
    assert ask("rules", "list", "mine.yml").out.split() == [
        *("Late", "-", "for", "1m", "30s", "mine.yml"),
    ]
    assert ask("rules", "list", "--rules", "mine.yml").out == ask("rules", "list", "mine.yml").out


def test_every_bad_file_is_named_and_the_good_ones_too(ask: Ask, folder: Path) -> None:
    (folder / "good.yml").write_text(GOOD, encoding="utf-8")
    (folder / "bad.yml").write_text(GOOD.replace("> 3", "> > 3"), encoding="utf-8")
    (folder / "typo.yml").write_text(GOOD.replace("alert", "alrt"), encoding="utf-8")
    answer = ask("rules", "check", "bad.yml", "good.yml", "typo.yml", "none.yml")
    assert answer.code == 2
    assert answer.out == "good.yml: 1 rule, all fine\n"
    named = [line.split(":")[1].strip() for line in answer.err.splitlines()]
    assert named == ["bad.yml", "typo.yml", "none.yml"]


DOUBTFUL = """
groups:
  - name: mine
    interval: 2s
    rules:
      - {record: 'run:loss:max', expr: max by (run) (ldlm_train_loss)}
      - {alert: Known, expr: 'run:loss:max > 3 and up and ldlm_events_total'}
      - {alert: Typo, expr: ldlm_trainig_loss > 3}
      - {alert: Loud, expr: ldlm_train_loss > 3, labels: {severity: urgent}}
      - {alert: Chosen, expr: ldlm_train_loss > 3, labels: {severity: '{{ $labels.severity }}'}}
      - {alert: Known, expr: 'run:loss:max > 3 and  up and ldlm_events_total'}
      - {alert: Buckets, expr: ldlm_train_step_duration_seconds_bucket > 3}
"""


SELECTORS = """
groups:
  - name: mine
    rules:
      - {alert: Nowhere, expr: 'ldlm_train_loss{layer="3"} > 3 and ldlm_train_step{run=~"a.*"}'}
      - {alert: Never, expr: 'ldlm_run_state{state="runing"} == 1'}
      - {alert: Fine, expr: 'ldlm_run_state{state=~"r.*",team="x"} unless ldlm_alerts{team="x"}'}
      - {alert: Without, expr: 'ldlm_train_loss{layer=""} > 3'}
"""


def test_a_selector_that_selects_no_series_is_a_warning(ask: Ask, folder: Path) -> None:
    (folder / "mine.yml").write_text(SELECTORS, encoding="utf-8")
    (folder / "ldlm-monitor.toml").write_text('external_labels = {team = "x"}\n', encoding="utf-8")
    answer = ask("rules", "check", "mine.yml")
    begin = "ldlm-monitor: warning: mine.yml: group mine"
    loss = "ldlm_train_loss has the labels run, rank"
    states = (
        "starting, running, evaluating, checkpointing, stalled, finished, crashed, killed, ended"
    )
    assert (answer.code, answer.err.splitlines()) == (
        0,
        [
            f'{begin} (Nowhere): layer="3" selects no series: {loss}',
            f'{begin} (Never): state="runing" selects no series: it is one of {states}',
        ],
    )


def test_what_is_doubtful_is_a_warning_and_no_error(ask: Ask, folder: Path) -> None:
    (folder / "mine.yml").write_text(DOUBTFUL, encoding="utf-8")
    answer = ask("rules", "check", "mine.yml")
    assert (answer.code, answer.out) == (0, "mine.yml: 7 rules, all fine\n")
    begin = "ldlm-monitor: warning: mine.yml: group mine"
    warnings = [line for line in answer.err.splitlines() if "interval" not in line]
    assert warnings == [
        f"{begin} (Typo): nothing here exports ldlm_trainig_loss; did you mean ldlm_train_loss?",
        f"{begin} (Loud): severity 'urgent' is none of info, warning, error, critical, none",
        "ldlm-monitor: warning: Known{} is written 2 times with one expression; keep one",
    ]
    assert f"{begin}: interval 2s is not followed: evaluation_interval is 5s" in answer.err
    (folder / "mine.yml").write_text(DOUBTFUL.replace("2s", "1m"), encoding="utf-8")
    assert "interval" not in ask("rules", "check", "mine.yml").err


@pytest.mark.parametrize(
    "call", ["mad_over_time(x[5m])", "double_exponential_smoothing(x[5m], 0.5, 0.5)"]
)
def test_experimental_functions_are_refused_unless_they_are_switched_on(
    ask: Ask, folder: Path, call: str
) -> None:
    rules = f"groups: [{{name: g, rules: [{{alert: A, expr: 'sum({call}) > 3'}}]}}]"
    (folder / "new.yml").write_text(rules, encoding="utf-8")
    refused = ask("rules", "check", "new.yml")
    assert (refused.code, refused.out) == (2, "")
    (line,) = refused.err.splitlines()
    assert "rule 1 (A)" in line
    assert "is experimental in Prometheus 3; allow it by `promql_experimental`" in line
    allowed = ask("rules", "check", "--experimental", "new.yml")
    assert (allowed.code, allowed.out) == (0, "new.yml: 1 rule, all fine\n")
    (folder / "a.log").write_text("step 1 loss 2.0\n", encoding="utf-8")
    ways = (["--once", "--rules", "new.yml", "a.log"], ["query", call, "a.log"])
    for way in ways:
        assert "is experimental in Prometheus 3" in ask(*way).err
    (folder / "ldlm-monitor.toml").write_text("promql_experimental = true\n", encoding="utf-8")
    for way in (["rules", "check", "new.yml"], *ways):
        assert "experimental" not in ask(*way).err


def test_a_file_without_rules_is_said_to_have_none(ask: Ask, folder: Path) -> None:
    (folder / "empty.yml").write_text("groups:\n", encoding="utf-8")
    answer = ask("rules", "check", "empty.yml")
    assert (answer.code, answer.out, answer.err) == (0, "empty.yml: it has no rules\n", "")


BAD = """
groups:
  - name: mine
    rules:
      - alert: Fine
        expr: ldlm_train_step > 3
      - alert: Syntax
        expr: |
          sum by (run) (rate(ldlm_train_step[5m]))
            > > 3
      - alert: Unknown
        expr: 1 + rte(ldlm_train_step[5m])
      - alert: Unsupported
        expr: limitk(1, ldlm_train_step)
      - alert: Template
        expr: ldlm_train_step > 3
        annotations: {summary: "{{ $value | humanise }}"}
      - alert: Open
        expr: ldlm_train_step > 3
        labels: {severity: "{{ $value"}
      - alert: Label
        expr: ldlm_train_step > 3
        labels: {a-b: c}
      - record: no name
        expr: ldlm_train_step
"""


def test_every_problem_of_a_file_is_one_line_that_says_where(ask: Ask, folder: Path) -> None:
    (folder / "bad.yml").write_text(BAD, encoding="utf-8")
    answer = ask("rules", "check", "bad.yml")
    assert (answer.code, answer.out) == (2, "")
    reported = [
        line.removeprefix("ldlm-monitor: bad.yml: group mine, rule ")
        for line in answer.err.splitlines()
    ]
    assert reported == [
        ("2 (Syntax), expression `sum by (run) (rate(ldlm_train_step[5m])) > > 3`: bad syntax"),
        (
            "3 (Unknown), expression `1 + rte(ldlm_train_step[5m])`: "
            "unknown function rte; check its spelling"
        ),
        (
            "4 (Unsupported), expression `limitk(1, ldlm_train_step)`: aggregation "
            "limitk is not supported; rewrite the rule without it, or evaluate it in Prometheus"
        ),
        (
            "5 (Template), annotation summary, template '{{ $value | humanise }}': "
            "humanise is not defined; see Prometheus' template reference"
        ),
        (
            "6 (Open), label severity, template '{{ $value': {{ is not closed; "
            "see Prometheus' template reference"
        ),
        (
            "7 (Label): labels: a rule can set no label 'a-b'; "
            "see the rule file format of Prometheus"
        ),
        "8 (no name): 'no name' is not a metric name; see the rule file format of Prometheus",
    ]


def test_what_is_no_yaml_is_shown_where_it_breaks(ask: Ask, folder: Path) -> None:
    (folder / "bad.yml").write_text("groups:\n  - name: g\n   rules: []\n", encoding="utf-8")
    answer = ask("rules", "check", "bad.yml")
    assert answer.err.startswith("ldlm-monitor: bad.yml, line 3, column 4: ")
    assert len(answer.err.splitlines()) == 1


def test_list_shows_the_first_problem_and_no_rules(ask: Ask, folder: Path) -> None:
    (folder / "bad.yml").write_text(BAD, encoding="utf-8")
    answer = ask("rules", "list", "bad.yml")
    assert (answer.code, answer.out) == (2, "")
    assert "rule 2 (Syntax)" in answer.err
    assert len(answer.err.splitlines()) == 1


RULES = "groups: [{name: mine, rules: [{alert: Late, expr: 'steps > 3', labels: {team: a}}]}]\n"
TESTS = """
rule_files: [mine.yml]
tests:
  - interval: 1m
    input_series: [{series: 'steps{run="a"}', values: 1+1x5}]
    alert_rule_test:
      - {eval_time: 2m, alertname: Late}
      - {eval_time: 3m, alertname: Late, exp_alerts: [exp_labels: {run: a, team: a}]}
"""


def test_rule_tests_that_succeed_say_so(ask: Ask, folder: Path) -> None:
    (folder / "mine.yml").write_text(RULES, encoding="utf-8")
    (folder / "mine.test.yml").write_text(TESTS, encoding="utf-8")
    answer = ask("rules", "test", "mine.test.yml")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "Unit Testing:  mine.test.yml\n  SUCCESS\n\n"
    assert ask("rules", "test", ".") == answer


def test_a_rule_test_that_fails_shows_what_was_expected_and_what_came(
    ask: Ask, folder: Path
) -> None:
    (folder / "mine.yml").write_text(RULES, encoding="utf-8")
    (folder / "good.test.yml").write_text(TESTS, encoding="utf-8")
    (folder / "bad.test.yml").write_text(TESTS.replace("team: a}]", "team: b}]"), encoding="utf-8")
    (folder / "typo.test.yml").write_text(TESTS.replace("values", "value"), encoding="utf-8")
    answer = ask("rules", "test", "bad.test.yml", "typo.test.yml", "none.yml", "good.test.yml")
    assert answer.code == 2
    assert answer.out == (
        "Unit Testing:  bad.test.yml\n"
        "  FAILED:\n"
        "    alertname: Late, time: 3m,\n"
        "        exp:[\n"
        "            0:\n"
        '              Labels:{alertname="Late", run="a", team="b"}\n'
        "              Annotations:{}\n"
        "            ],\n"
        "        got:[\n"
        "            0:\n"
        '              Labels:{alertname="Late", run="a", team="a"}\n'
        "              Annotations:{}\n"
        "            ]\n\n"
        "Unit Testing:  typo.test.yml\n  FAILED\n\n"
        "Unit Testing:  none.yml\n  FAILED\n\n"
        "Unit Testing:  good.test.yml\n  SUCCESS\n\n"
    )
    assert answer.err.splitlines() == [
        "ldlm-monitor: bad.test.yml: 1 failure with 2 expectations; compare exp and got above",
        (
            "ldlm-monitor: typo.test.yml: tests.0.input_series.0.values: Field required; "
            "see Prometheus' documentation, Unit Testing for Rules"
        ),
        "ldlm-monitor: none.yml: cannot be read: No such file or directory; check name and rights",
    ]


def test_what_makes_a_rule_test_check_nothing_is_said(ask: Ask, folder: Path) -> None:
    (folder / "mine.yml").write_text(RULES, encoding="utf-8")
    text = TESTS.replace("[mine.yml]", "[mine.yml, 'no*.yml']").replace(
        "2m, alertname: Late", "2m, alertname: Lat"
    )
    (folder / "mine.test.yml").write_text(text, encoding="utf-8")
    answer = ask("rules", "test", "mine.test.yml")
    assert answer.code == 0
    assert answer.err.splitlines() == [
        "ldlm-monitor: mine.test.yml: no file matches the rule_files entry no*.yml",
        "ldlm-monitor: mine.test.yml: no rule of its rule_files is called Lat",
    ]


def test_rule_tests_need_a_file(ask: Ask, folder: Path) -> None:
    assert ask("rules", "test").err == (
        "ldlm-monitor: rules test FILE: no file is named; try rules/*.test.yml\n"
    )
    (folder / "empty").mkdir()
    answer = ask("rules", "test", "empty")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("ldlm-monitor: empty: no *.test.yml in this folder")
