"""`promrules check|test|query`: what it prints, its exit codes, and promtool's."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ldlm_promrules.command import main

GOOD = "groups: [{name: g, rules: [{alert: A, expr: up == 0, for: 1m}]}]\n"
BROKEN = GOOD.replace("up == 0", "up ==")
TWICE = "groups: [{name: g, rules: [{alert: A, expr: up == 0}, {alert: A, expr: up == 0}]}]\n"
TESTS = """
rule_files: [good.yml]
tests:
  - input_series: [{series: 'up{job="a"}', values: '0x5'}]
    alert_rule_test: [{eval_time: 2m, alertname: A, exp_alerts: [{exp_labels: {job: a}}]}]
"""
FILES = {
    "good.yml": GOOD,
    "broken.yml": BROKEN,
    "twice.yml": TWICE,
    "good.test.yml": TESTS,
    "wrong.test.yml": TESTS.replace("job: a}", "job: b}"),
    "samples.prom": 'up{job="a"} 1 1000\nup{job="a"} 0 61000\nother 7 61000\n',
    "samples.om": 'up{job="a"} 1 1\nup{job="a"} 0 61\n# EOF\n',
    "samples.txt": 'up{job="a"} 1 0\nup{job="b"} 1 _ stale\n',
}
Told = tuple[int, str, str]


@pytest.fixture
def told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Told]:
    """The exit code, stdout and stderr of `promrules`, in a folder with `FILES`."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Told:
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(str(ended.code or 0))
        return code, *capsys.readouterr()

    return run


def test_check_names_the_place_of_what_is_wrong(told: Callable[..., Told]) -> None:
    assert told("check", "good.yml") == (0, "Checking good.yml\n  SUCCESS: 1 rules found\n", "")
    code, out, err = told("check", "broken.yml", "good.yml")
    assert (code, err) == (1, "")
    assert "broken.yml: group g, rule 1 (A), expression `up ==`: " in out
    assert "SUCCESS" in out


def test_warnings_are_fatal_where_that_is_wanted(told: Callable[..., Told]) -> None:
    warned = told("check", "twice.yml")
    assert warned[0] == 0
    assert "A{} is written 2 times with one expression" in warned[2]
    assert told("check", "twice.yml", "--lint-fatal") == (3, *warned[1:])
    assert told("check", "good.yml", "--lint-fatal")[0] == 0


def test_a_metric_that_no_sample_has_is_warned_of(told: Callable[..., Told]) -> None:
    assert told("check", "good.yml", "--samples", "samples.prom")[2] == ""
    Path("rare.yml").write_text(GOOD.replace("up == 0", "othr == 0"), encoding="utf-8")
    code, _, err = told("check", "rare.yml", "--samples", "samples.prom")
    assert code == 0
    assert "nothing here exports othr; did you mean other?" in err


def test_unit_tests_print_success_or_both_results(told: Callable[..., Told]) -> None:
    good = told("test", "good.test.yml")
    assert good == (0, "Unit Testing:  good.test.yml\n  SUCCESS\n\n", "")
    code, out, err = told("test", "wrong.test.yml", "good.test.yml")
    assert (code, err) == (1, "")
    assert 'exp:[\n            0:\n              Labels:{alertname="A", job="b"}' in out
    assert 'got:[\n            0:\n              Labels:{alertname="A", job="a"}' in out


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["up", "samples.prom"], 'up{job="a"} => 0 @[61]\n'),
        (["up", "samples.om"], 'up{job="a"} => 0 @[61]\n'),
        (["up", "samples.om", "--time", "1.5"], 'up{job="a"} => 1 @[1.5]\n'),
        (["up", "samples.om", "--time", "1970-01-01T00:01:00Z"], 'up{job="a"} => 1 @[60]\n'),
        (["up", "samples.txt", "--interval", "1m"], 'up{job="a"} => 0 @[120]\n'),
        (["up", "samples.txt", "--interval", "60", "--time", "60"],
         'up{job="a"} => 0 @[60]\nup{job="b"} => 1 @[60]\n'),
        (["sum(up)", "samples.om", "--step", "30"],
         "{} =>\n1 @[1]\n1 @[31]\n0 @[61]\n"),
        (["up[5m]", "samples.om"], 'up{job="a"} =>\n1 @[1]\n0 @[61]\n'),
        (["count(up)", "samples.om"], "{} => 1 @[61]\n"),
        (["1 + 1", "samples.om"], "scalar: 2 @[61]\n"),
        (["nothing", "samples.om"], ""),
    ],
)  # fmt: skip
def test_query_prints_as_promtool(
    told: Callable[..., Told], words: list[str], printed: str
) -> None:
    assert told("query", *words) == (0, printed, "")


def test_query_gives_json_as_the_api(told: Callable[..., Told]) -> None:
    code, out, _ = told("query", "up", "samples.om", "--format", "json")
    assert (code, json.loads(out)["result"]) == (
        0, [{"metric": {"__name__": "up", "job": "a"}, "value": [61, "0"]}],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["query", "up", "none"], "none: cannot be read: No such file"),
        (["query", "up", "."], ".: cannot be read: Is a directory"),
        (["query", "up(", "samples.om"], "expression `up(`"),
        (["query", "up", "samples.txt"], "samples.txt, line 2: '1 _ stale' is no value"),
        (["query", "up", "samples.om", "--interval", "0s"], "--interval: must be above 0"),
        (["query", "up", "samples.om", "--interval", "nan"], "--interval"),
        (["query", "up", "samples.om", "--time", "noon"], "--time"),
        (["query", "up", "samples.om", "--step", "0"], "--start, --end, --step"),
        (["query", "up", "samples.om", "--step", "1ms"], "more than 11,000"),
        (["query", "up[1m]", "samples.om", "--step", "1"], "a range vector has no value over time"),
        (["query", "up"], "the following arguments are required: SAMPLES"),
        (["check"], "the following arguments are required: RULES"),
        (["check", "good.yml", "--samples", "none"], "none: cannot be read"),
        (["tset"], "invalid choice"),
        ([], "the following arguments are required: check|test|query"),
    ],
)
def test_bad_input_is_one_clear_line(
    told: Callable[..., Told], words: list[str], line: str
) -> None:
    code, out, err = told(*words)
    assert (code, out) == (1, "")
    assert line in err
    assert err.startswith("promrules")
    assert err.count("\n") == 1


def test_what_a_terminal_would_obey_is_escaped(told: Callable[..., Told]) -> None:
    Path("odd.om").write_text('up{job="\x1b[31m\u202e"} 1\n# EOF\n', encoding="utf-8")
    assert told("query", "up", "odd.om")[1] == 'up{job="\\x1b[31m\\u202e"} => 1 @[0]\n'
    Path("\x1b]0;x.yml").write_text(BROKEN, encoding="utf-8")
    assert "\x1b" not in "".join(map(str, told("check", "\x1b]0;x.yml")))


@pytest.mark.live
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing")
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (["check", "good.yml"], ["check", "rules", "good.yml"]),
        (["check", "broken.yml"], ["check", "rules", "broken.yml"]),
        (["check", "none.yml"], ["check", "rules", "none.yml"]),
        (["check", "twice.yml"], ["check", "rules", "twice.yml"]),
        (["check", "twice.yml", "--lint-fatal"], ["check", "rules", "--lint-fatal", "twice.yml"]),
        (["test", "good.test.yml"], ["test", "rules", "good.test.yml"]),
        (["test", "wrong.test.yml"], ["test", "rules", "wrong.test.yml"]),
        (["test", "none.yml"], ["test", "rules", "none.yml"]),
        (["tset", "none.yml"], ["tset", "none.yml"]),
    ],
)
def test_exit_codes_are_those_of_promtool(
    told: Callable[..., Told], ours: list[str], theirs: list[str]
) -> None:
    done = subprocess.run(["promtool", *theirs], capture_output=True, check=False)
    assert told(*ours)[0] == done.returncode
