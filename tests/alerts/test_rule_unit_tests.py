"""promtool and we read the same rules and the same unit tests, and agree."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT_TESTS = sorted((ROOT / "rules").glob("*.test.yml"))
RULES = sorted(set((ROOT / "rules").glob("*.yml")) - set(UNIT_TESTS))

promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is missing"
)


def test_every_rule_file_has_unit_tests() -> None:
    assert RULES
    assert [path.name.replace(".yml", ".test.yml") for path in RULES] == [
        path.name for path in UNIT_TESTS
    ]


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.name)
def test_our_evaluation_meets_the_unit_tests(
    path: Path, run_unit_tests: Callable[[Path], list[Any]]
) -> None:
    outcomes = run_unit_tests(path)
    assert sum(outcome.checked for outcome in outcomes) > 20
    assert {outcome.name: outcome.mismatches for outcome in outcomes if outcome.mismatches} == {}


def test_a_wrong_expectation_is_noticed(
    tmp_path: Path, run_unit_tests: Callable[[Path], list[Any]]
) -> None:
    text = UNIT_TESTS[0].read_text(encoding="utf-8")
    (tmp_path / "default.yml").write_bytes(RULES[0].read_bytes())
    wrong = tmp_path / "wrong.test.yml"
    wrong.write_text(text.replace("no step for 35s", "no step for 36s"), encoding="utf-8")
    assert [len(outcome.mismatches) for outcome in run_unit_tests(wrong)].count(1) == 1


@pytest.mark.live
@promtool
@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_promtool_accepts_the_rules(path: Path) -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.live
@promtool
@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.name)
def test_promtool_meets_the_unit_tests(path: Path) -> None:
    done = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
