"""Prometheus' own test scripts, and the runner that reads them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[1] / "promql/run_script.py"
SCRIPTS = sorted((Path(__file__).resolve().parents[2] / "../shared/promql").glob("*.test"))


def run_scripts(*paths: Path) -> tuple[str, int]:
    """The last line of the runner's output, and its exit code."""
    command = [sys.executable, str(RUNNER), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()[-1], done.returncode


@pytest.mark.shared
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_prometheus_scripts_pass(path: Path) -> None:
    summary, code = run_scripts(path)
    assert code == 0
    assert re.fullmatch(r"[1-9]\d* passed, 0 failed, 0 unsupported", summary)


def test_own_script_passes() -> None:
    summary, code = run_scripts(Path(__file__).with_name("semantics.test"))
    assert (summary, code) == ("95 passed, 0 failed, 0 unsupported", 0)


HISTOGRAM = "{{schema:0 sum:1 count:1}}"
PASSED, FAILED, UNSUPPORTED = (
    f"{passed} passed, {failed} failed, {unsupported} unsupported"
    for passed, failed, unsupported in ((1, 0, 0), (0, 1, 0), (0, 0, 1))
)


@pytest.mark.parametrize(
    ("script", "summary"),
    [
        ("load 1m\n  up 1\neval instant at 0 up\n  up 2\n", FAILED),
        ("load 1m\n  up 1\neval instant at 0 up\n", FAILED),
        ("load 1m\n  up 1 nonsense\n", FAILED),
        ("load soon\n  up 1\n", FAILED),
        ("eval instant at 0 up\n  up 1\n", FAILED),
        ("eval_fail instant at 0 1 + 1\n", FAILED),
        ("eval instant at 0 1 + 1\n  expect fail\n", FAILED),
        ("eval instant at 0 1 + 1\n  expect nothing\n  2\n", FAILED),
        ("eval instant at 0 1 + 1\n  {} 2\n", FAILED),
        ("eval instant at 0 sum(\n", FAILED),
        ("eval at 0 up\n", FAILED),
        ("eval instant at 0 limitk(1, up)\n", UNSUPPORTED),
        ("eval instant at 0 info(up)\n", UNSUPPORTED),
        ("eval instant at 0 rate(up[1m + 1m])\n", UNSUPPORTED),
        ('eval instant at 0 "text"\n  expect string "text"\n', UNSUPPORTED),
        (
            (
                "load 1m\n  up 1\neval instant at 0 up[1m]\n"
                "  expect range vector from 0 to 0 step 1m\n  up 1\n"
            ),
            UNSUPPORTED,
        ),
        (f"load 1m\n  up {HISTOGRAM}\neval instant at 0 up\n  up {HISTOGRAM}\n", UNSUPPORTED),
        (f"load 1m\n  up {HISTOGRAM}x3\neval instant at 0 count(up)\n  {{}} 1\n", UNSUPPORTED),
        (
            'load_with_nhcb 1m\n  a_bucket{le="+Inf"} 1\neval instant at 0 count(a)\n  {} 1\n',
            UNSUPPORTED,
        ),
        (
            "load 1m\n  a@st -1sx3\n  a 1+1x3\neval instant at 3m resets(a[5m])\n  {} 3\n",
            UNSUPPORTED,
        ),
        ("eval_fail instant at 0 limitk(1, up)\n", PASSED),
        ("eval_fail instant at 0 sum(\n  expected_fail_message whatever\n", PASSED),
        ("eval instant at 0 sum(\n  expect fail regex: what.*ever\n", PASSED),
        ("eval_warn instant at 0 quantile(2, vector(1))\n  {} Inf\n", PASSED),
        ("eval instant at 0 quantile(2, vector(1))\n  expect warn\n  {} Inf\n", PASSED),
        ("eval instant at 0 1 + 1\n  expect warn msg: what\n  2\n", FAILED),
        ("eval instant at 0 quantile(2, vector(1))\n  expect no_warn\n  {} Inf\n", FAILED),
        ("eval instant at 0 1 + 1\nexpect no_warn\n2\n", PASSED),
        ("eval instant at 1ms vector(Inf)\n  {} +Inf\n", PASSED),
        ("load 1m\n  up 0x3\neval range from 0 to 3m step 1m up\n  up 0x3\n", PASSED),
        (
            (
                "load 1m\n  up 1-1x2 _x2 stale NaN\n"
                "eval range from 0 to 6m step 1m up\n  up 1 0 -1 -1 -1 _ NaN\n"
            ),
            PASSED,
        ),
        ("load 1m\n  up 1 2\nload 1m\n  up _ _ 3\neval instant at 2m up\n  up 3\n", PASSED),
        (
            'load 1m\n  {"a b", "c d"="e"} 1\neval instant at 0 {"a b"}\n  {"a b","c d"="e"} 1\n',
            PASSED,
        ),
        (
            (
                'load 1m\n  a{i="1"} 1\n  a{i="2"} 2\neval instant at 0 sort_desc(a)\n'
                '  expect ordered\n  a{i="2"} 2\n  a{i="1"} 1\n'
            ),
            PASSED,
        ),
        (
            (
                'load 1m\n  a{i="1"} 1\n  a{i="2"} 2\neval_ordered instant at 0 sort(a)\n'
                '  a{i="2"} 2\n  a{i="1"} 1\n'
            ),
            FAILED,
        ),
    ],
)
def test_runner_counts_passes_failures_and_refusals(
    tmp_path: Path, script: str, summary: str
) -> None:
    path = tmp_path / "one.test"
    path.write_text(script, encoding="utf-8")
    assert run_scripts(path)[0] == summary
