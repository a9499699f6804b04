"""promtool and we read the same rules and the same unit tests, and agree."""

from pathlib import Path

import pytest

from ldlm_promrules.unit_tests import run_rule_tests
from tests.promrules.unit_test_judges import promtool, promtool_accepts, we_accept

SUMS = """
groups:
  - name: second
    rules:
      - {record: 'total:all', expr: 'sum(total)'}
  - name: first
    rules:
      - {record: total, expr: 'sum by (run) (jobs)', labels: {kind: sum}}
"""
ALERTS = """
groups:
  - name: alerts
    rules:
      - alert: Busy
        expr: total > 1
        for: 10s
        keep_firing_for: 5s
        labels: {severity: warning}
        annotations: {summary: '{{ $labels.run }} holds {{ $value }}'}
      - alert: WasBusy
        expr: count_over_time(ALERTS{alertname="Busy", alertstate="firing"}[1m]) > 0
"""
TESTS = """
rule_files: ['sums.yml', 'al*.yml']
evaluation_interval: 5s
group_eval_order: [first, second, alerts]
tests:
  - name: everything that a test file can say
    interval: 5s
    external_labels: {region: eu, zone: 1}
    external_url: http://localhost:9090
    input_series:
      - {series: 'jobs{run="a",rank="0"}', values: '0 1+1x3 _ stale'}
      - {series: 'jobs{run="a",rank="1"}', values: '_x2 0-1x2 stale 7'}
      - {series: '{__name__="jobs", run="1.50"}', values: '2x5 stale'}
      - {series: gauge, values: '-1.5 NaN +Inf 1e3'}
    alert_rule_test:
      - {eval_time: 9s, alertname: Busy}
      - eval_time: 12s
        alertname: Busy
        exp_alerts:
          - &busy
            exp_labels: {<<: &labels {severity: warning, kind: sum}, run: 1.50}
            exp_annotations: {summary: '1.50 holds 2'}
      - eval_time: 15s
        alertname: Busy
        exp_alerts: [*busy]
      - eval_time: 20s
        alertname: Busy
        exp_alerts:
          - *busy
          - exp_labels: {<<: *labels, run: a, alertname: Busy}
            exp_annotations: {summary: 'a holds 2'}
      - {eval_time: 4s, alertname: Busy, exp_alerts: }
      - eval_time: 40s
        alertname: WasBusy
        exp_alerts:
          - exp_labels: {<<: *labels, run: 1.50, alertstate: firing}
          - exp_labels: {<<: *labels, run: a, alertstate: firing}
    promql_expr_test:
      - expr: jobs{run="a"}
        eval_time: 17s
        exp_samples: [{labels: 'jobs{run="a",rank="0"}', value: 3}, {labels: 'jobs{rank="1",run="a"}', value: -1}]
      - {expr: jobs, eval_time: 30s, exp_samples: [{labels: 'jobs{rank="1",run="a"}', value: 7}]}
      - {expr: 'total:all', eval_time: 10s, exp_samples: [{labels: 'total:all', value: 4}]}
      - {expr: total, eval_time: 41s, exp_samples: [{labels: 'total{kind="sum",run="a"}', value: 7}]}
      - {expr: 'sum(count_over_time(total[18s:]))', eval_time: 21s, exp_samples: [{labels: '{}', value: 8}]}
      - {expr: 1 + 1, eval_time: 0s, exp_samples: [{value: 2}]}
      - {expr: gauge, eval_time: 10s, exp_samples: [{labels: gauge, value: .inf}]}
      - {expr: gauge, eval_time: 15s, exp_samples: [{labels: gauge, value: 1e3}]}
      - {expr: absent_metric, eval_time: 5s}
      - expr: ALERTS_FOR_STATE{run="a"}
        eval_time: 15s
        exp_samples: [{labels: 'ALERTS_FOR_STATE{alertname="Busy",severity="warning",run="a",kind="sum"}', value: 10}]
      - expr: ALERTS{alertname="Busy",run="a"}
        eval_time: 15s
        exp_samples: [{labels: 'ALERTS{alertname="Busy",alertstate="pending",severity="warning",run="a",kind="sum"}', value: 1}]
"""  # noqa: E501
BROKEN = [
    ("exp_annotations: {summary: '1.50 holds 2'}", "exp_annotations: {summary: '1.50 holds 3'}"),
    ("exp_annotations: {summary: '1.50 holds 2'}", ""),
    ("&labels {severity: warning,", "&labels {severity: error,"),
    ("&labels {severity: warning,", '&labels {severity: warning, empty: "",'),
    ("run: 1.50}", "run: 1.5}"),
    ("{eval_time: 9s, alertname: Busy}", "{eval_time: 10s, alertname: Busy}"),
    ("{eval_time: 9s, alertname: Busy}", "{eval_time: 9s}"),
    ("alertname: WasBusy", "alertname: WasNever"),
    ("group_eval_order: [first, second, alerts]", "group_eval_order: [second, first, alerts]"),
    ("group_eval_order: [first, second, alerts]", "group_eval_order: [first, second, first]"),
    ("evaluation_interval: 5s", "evaluation_interval: 10s"),
    ("evaluation_interval: 5s", "evaluation_interval: often"),
    ("evaluation_interval: 5s", "evaluation: 5s"),
    ("evaluation_interval: 5s", "evaluation_interval: 5s\nevaluation_interval: 5s"),
    ("    interval: 5s", "    interval: 4s"),
    ("'al*.yml'", "'no*.yml'"),
    ("'sums.yml'", "'broken.yml'"),
    ("0 1+1x3 _ stale", "0 1+1x3 _"),
    ("0 1+1x3 _ stale", "0 1+1x2 _ stale"),
    ("0 1+1x3 _ stale", "0 1 + 1x3 _ stale"),
    ("0 1+1x3 _ stale", "0 1+1x3 _ gone"),
    ("0 1+1x3 _ stale", "0 {{schema:1}}x3"),
    ("series: gauge", "series: '{gauge'"),
    ("series: gauge", "name: gauge"),
    ("value: 1e3", "value: 1e4"),
    ("value: 1e3", "value: 1000.0000001"),
    ("value: 1e3", "value: much"),
    ("value: .inf", "value: .nan"),
    ("labels: gauge, value: 1e3", "labels: 'gauge{', value: 1e3"),
    ("{value: 2}", "{value: 2}, {value: 2}"),
    ("expr: 1 + 1", "expr: 1 +"),
    ("expr: 1 + 1", "expr: '\"2\"'"),
    ("expr: absent_metric", "expr: gauge"),
    ("expr: absent_metric", "expr: jobs + on() jobs"),
    ("tests:", "tests: {"),
]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The test file of a small set of rules; both use whatever the format has."""
    (tmp_path / "sums.yml").write_text(SUMS, encoding="utf-8")
    (tmp_path / "alerts.yml").write_text(ALERTS, encoding="utf-8")
    (tmp_path / "broken.yml").write_text(SUMS.replace("sum(total)", "sum(total"), encoding="utf-8")
    path = tmp_path / "mine.test.yml"
    path.write_text(TESTS, encoding="utf-8")
    return path


def test_an_interval_of_zero_is_the_evaluation_interval_as_in_prometheus_3(files: Path) -> None:
    files.write_text(TESTS.replace("    interval: 5s", "    interval: 0s"), encoding="utf-8")
    assert we_accept(files)


def test_our_evaluation_meets_all_that_a_test_file_can_say(files: Path) -> None:
    outcome = run_rule_tests(files)
    assert outcome.checked == 17
    assert (outcome.failures, outcome.notices) == ((), ())


@pytest.mark.parametrize(("right", "wrong"), BROKEN)
def test_a_wrong_test_file_is_noticed(files: Path, right: str, wrong: str) -> None:
    assert right in TESTS
    files.write_text(TESTS.replace(right, wrong, 1), encoding="utf-8")
    assert not we_accept(files)


def test_failures_read_as_those_of_promtool(files: Path) -> None:
    text = TESTS.replace("holds 2'", "holds 9'", 1).replace("value: 1e3", "value: 1e4")
    files.write_text(text.replace("alertname: WasBusy", "alertname: Gone"), encoding="utf-8")
    outcome = run_rule_tests(files)
    assert outcome.failures[0] == (
        "    name: everything that a test file can say,\n"
        "    alertname: Busy, time: 12s,\n"
        "        exp:[\n"
        "            0:\n"
        '              Labels:{alertname="Busy", kind="sum", run="1.50", severity="warning"}\n'
        '              Annotations:{summary="1.50 holds 9"}\n'
        "            ],\n"
        "        got:[\n"
        "            0:\n"
        '              Labels:{alertname="Busy", kind="sum", run="1.50", severity="warning"}\n'
        '              Annotations:{summary="1.50 holds 2"}\n'
        "            ]"
    )
    assert outcome.failures[-1] == (
        "    name: everything that a test file can say,\n"
        '    expr: "gauge", time: 15s,\n'
        '        exp: {__name__="gauge"} 10000\n'
        '        got: {__name__="gauge"} 1000'
    )
    assert outcome.notices == (f"{files}: no rule of its rule_files is called Gone",)


@pytest.mark.live
@promtool
def test_promtool_agrees_on_all_that_a_test_file_can_say(files: Path) -> None:
    assert promtool_accepts(files)


@pytest.mark.live
@promtool
@pytest.mark.parametrize(("right", "wrong"), BROKEN)
def test_promtool_notices_a_wrong_test_file_too(files: Path, right: str, wrong: str) -> None:
    files.write_text(TESTS.replace(right, wrong, 1), encoding="utf-8")
    assert not promtool_accepts(files)
