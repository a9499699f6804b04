"""promtool and we read the same rules and the same unit tests, and agree."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ldlm_monitor.alerts import load_rules
from ldlm_monitor.core.rule_tests import run_rule_tests
from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.promql import parse

ROOT = Path(__file__).resolve().parents[2]
UNIT_TESTS = sorted((ROOT / "rules").glob("*.test.yml"))
HOURS = ("detected.test", "monitor.test")  # those whose tests go on for hours
WITH_ALERTS = [path for path in UNIT_TESTS if path.name != "recording.test.yml"]
RULES = sorted(set((ROOT / "rules").glob("*.yml")) - set(UNIT_TESTS))

VARIANTS = 3 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 1
"""So many tests of a file are made wrong, one at a time; each costs promtool seconds."""

promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is missing"
)

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


def we_accept(path: Path) -> bool:
    try:
        return not run_rule_tests(path).failures
    except RuleError:
        return False


def promtool_accepts(path: Path) -> bool:
    done = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert ("FAILED" in done.stderr) is (done.returncode != 0), done.stdout + done.stderr
    return done.returncode == 0


def test_an_interval_of_zero_is_the_evaluation_interval_as_in_prometheus_3(files: Path) -> None:
    files.write_text(TESTS.replace("    interval: 5s", "    interval: 0s"), encoding="utf-8")
    assert we_accept(files)


def test_every_rule_file_has_unit_tests() -> None:
    assert RULES
    tested = {name for path in UNIT_TESTS for name in rule_files(path)}
    assert tested == {path.name for path in RULES}


def test_every_alert_is_seen_firing_in_a_unit_test() -> None:
    seen = {
        check["alertname"]
        for path in UNIT_TESTS
        for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]
        for check in test.get("alert_rule_test", ())
        if check.get("exp_alerts")
    }
    assert seen == {rule.name for path in RULES for rule in load_rules([path], parse).alerts}


def rule_files(path: Path) -> list[str]:
    """The rule files that a file of unit tests names."""
    return list(yaml.safe_load(path.read_text(encoding="utf-8"))["rule_files"])


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.name)
def test_our_evaluation_meets_the_unit_tests(path: Path) -> None:
    outcome = run_rule_tests(path)
    assert outcome.checked > 9
    assert (outcome.failures, outcome.notices) == ((), ())


def test_our_evaluation_meets_all_that_a_test_file_can_say(files: Path) -> None:
    outcome = run_rule_tests(files)
    assert outcome.checked == 17
    assert (outcome.failures, outcome.notices) == ((), ())


@pytest.mark.parametrize(("right", "wrong"), BROKEN)
def test_a_wrong_test_file_is_noticed(files: Path, right: str, wrong: str) -> None:
    assert right in TESTS
    files.write_text(TESTS.replace(right, wrong, 1), encoding="utf-8")
    assert not we_accept(files)


@pytest.mark.parametrize("path", WITH_ALERTS, ids=lambda path: path.name)
def test_a_wrong_severity_is_noticed_wherever_it_is_expected(path: Path, tmp_path: Path) -> None:
    for variant in variants(path, tmp_path):
        assert not we_accept(variant), variant.read_text(encoding="utf-8")


def variants(path: Path, folder: Path) -> list[Path]:
    """Some unit tests of a rule file, each alone and with a severity that is not the rule's."""
    for rules in rule_files(path):
        (folder / rules).write_bytes((path.parent / rules).read_bytes())
    whole = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = []
    for test in whole["tests"]:
        expected = [alert for check in test.get("alert_rule_test", ()) for alert in alerts(check)]
        if expected:
            expected[0]["exp_labels"]["severity"] += "x"
            found.append(folder / f"{len(found)}.test.yml")
            found[-1].write_text(yaml.safe_dump(whole | {"tests": [test]}), encoding="utf-8")
    assert found
    return found[:: -(-len(found) // VARIANTS)]


def alerts(check: dict[str, Any]) -> list[dict[str, Any]]:
    """What a check expects to fire, of the alerts that have a severity."""
    return [a for a in check.get("exp_alerts") or () if "severity" in a["exp_labels"]]


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
@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_promtool_accepts_the_rules(path: Path) -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout + done.stderr, "what its lint finds counts too"


@pytest.mark.live
@promtool
@pytest.mark.parametrize(
    "path",
    [
        # promtool takes 8 and 15 s of CPU for the hours of these; ours evaluates them in each run.
        pytest.param(path, marks=[pytest.mark.long] if path.stem in HOURS else [])
        for path in UNIT_TESTS
    ],
    ids=lambda path: path.name,
)
def test_promtool_meets_the_unit_tests_and_none_of_their_broken_variants(
    path: Path, tmp_path: Path
) -> None:
    assert promtool_accepts(path)
    broken = variants(path, tmp_path)[:1] if path in WITH_ALERTS else []
    assert not any(promtool_accepts(variant) for variant in broken)


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
