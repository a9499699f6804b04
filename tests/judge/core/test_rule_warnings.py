"""A rule that can never have a result is found by its comparisons, and no other rule is."""

from pathlib import Path

import pytest

from ldlm_monitor.judge.core.rule_warnings import EXPORTED, warnings_of
from ldlm_promrules.alerting import load_rules
from ldlm_promrules.promql import parse
from ldlm_promrules.rule_lint import NEVER, interval

NEVER_FIRE = [
    "ldlm_train_progress_ratio > 2",
    "ldlm_train_progress_ratio > 1",
    "2 < ldlm_goodput_ratio",
    'ldlm_run_state{state="crashed"} == 2',
    "ldlm_run_health >= 4",
    "max by (run) (ldlm_train_progress_ratio) > 1.5",
    "count(ldlm_run_health > 3) > 0",
    "max_over_time(ldlm_run_state[5m]) > 1",
    "ldlm_goodput_ratio < -0.1",
    "x > 1 and x < 0",
    "x > 1 and x < 1",
    "(x > 5) < 4",
    "x == 1 and x == 2 unless y",
    "y and (x > 1 and x <= 1)",
    "(x > 2) <= 2 or (y > 1 and y < 1)",
    "(x > 2) * 3 < 2 and (x > 2) < 2",
]
MAY_FIRE = [
    "ldlm_train_progress_ratio >= 1",
    "ldlm_train_accuracy_ratio > 2",  # what a trainer logs may be a percentage
    "ldlm_train_mfu_ratio > 1",
    "ldlm_run_health > 2",
    "sum(ldlm_run_state) > 3",
    "count by (run) (ldlm_run_info) > 1",
    "ldlm_run_state * 5 > 2",
    "ldlm_run_state > bool 2",
    "x > 1 and y < 0",
    "x > 1 and on (run) x < 0",  # another series of the run may be the second one
    "x > 1 and ignoring (rank) x < 0",
    'x{a="1"} > 1 and x{a="2"} < 0',
    "x > 1 and x offset 5m < 0",
    "x > 1 or x < 0",
    "x > 1 unless x > 0",
    "(x > 1) - 2 < 0",
    "x >= 1 and x <= 1",
    "x != 1 and x != 2",
    "x > NaN and x < 3",
    "absent(x > 1 and x < 0)",
    "count(x > 1) or vector(0) > 1",
    "quantile(2, ldlm_run_health) > 3",  # of no share: infinite
    "ldlm_alerts != 1 or up == 0",
    "delta(ldlm_run_health[5m]) > 4",
    "rate(x[5m]) > 1 and x < 0",
]


@pytest.mark.parametrize("text", NEVER_FIRE)
def test_comparisons_that_leave_no_value_are_found(text: str) -> None:
    assert interval(parse(text).root, EXPORTED.bounds).is_empty


@pytest.mark.parametrize("text", MAY_FIRE)
def test_whatever_may_have_a_value_is_left_alone(text: str) -> None:
    assert not interval(parse(text).root, EXPORTED.bounds).is_empty


def test_it_is_one_of_the_lines_of_the_lint(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(
        "groups: [{name: g, rules: [{alert: A, expr: ldlm_train_progress_ratio > 2}]}]\n"
    )
    rules = load_rules([path], parse).rules
    assert [line.partition(": ")[2] for line in warnings_of(rules, 5.0)] == [
        f"group g (A): {NEVER}"
    ]
