"""Prometheus' own test scripts, and the runner that reads them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).with_name("run_script.py")
SCRIPTS = sorted((Path(__file__).resolve().parents[2] / "../shared/promql").glob("*.test"))


def run_scripts(*paths: Path) -> tuple[str, int]:
    """The last line of the runner's output, and its exit code."""
    command = [sys.executable, str(RUNNER), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()[-1], done.returncode


@pytest.mark.skipif(not SCRIPTS, reason="shared/promql is not beside this clone")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_prometheus_scripts_pass(path: Path) -> None:
    summary, code = run_scripts(path)
    assert code == 0
    assert re.fullmatch(r"[1-9]\d* passed, 0 failed, 0 unsupported", summary)


def test_own_script_passes() -> None:
    summary, code = run_scripts(RUNNER.with_name("semantics.test"))
    assert (summary, code) == ("70 passed, 0 failed, 0 unsupported", 0)


@pytest.mark.parametrize(
    ("script", "summary"),
    [
        ("load 1m\n  up 1\neval instant at 0 up\n  up 2\n", "0 passed, 1 failed, 0 unsupported"),
        ("load 1m\n  up 1\neval instant at 0 up\n", "0 passed, 1 failed, 0 unsupported"),
        ("eval instant at 0 up\n  up 1\n", "0 passed, 1 failed, 0 unsupported"),
        ("eval_fail instant at 0 1 + 1\n", "0 passed, 1 failed, 0 unsupported"),
        ("eval instant at 0 limitk(1, up)\n", "0 passed, 0 failed, 1 unsupported"),
        ("eval instant at 0 sum(\n", "0 passed, 1 failed, 0 unsupported"),
    ],
)
def test_runner_tells_failures_from_refusals(tmp_path: Path, script: str, summary: str) -> None:
    path = tmp_path / "one.test"
    path.write_text(script, encoding="utf-8")
    assert run_scripts(path)[0] == summary
