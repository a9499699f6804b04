"""The unit tests of the packaged rules: ours and promtool's verdicts on them agree."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ldlm_promrules.alerting import load_rules
from ldlm_promrules.promql import parse
from ldlm_promrules.unit_tests import run_rule_tests
from tests.promrules.unit_test_judges import promtool, promtool_accepts, we_accept

ROOT = Path(__file__).resolve().parents[3]
UNIT_TESTS = sorted((ROOT / "rules").glob("*.test.yml"))
SLOW = ("default.test", "detected.test", "failures.test", "monitor.test")
WITH_ALERTS = [path for path in UNIT_TESTS if path.name != "recording.test.yml"]
RULES = sorted(set((ROOT / "rules").glob("*.yml")) - set(UNIT_TESTS))

VARIANTS = 3 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 1
"""So many tests of a file are made wrong, one at a time; each costs promtool seconds."""


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
        # promtool takes 8 to 19 s of CPU for each of these; ours evaluates them in each run.
        pytest.param(path, marks=[pytest.mark.long] if path.stem in SLOW else [])
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
