"""`[[expect]]`: a line that does not come in time, or with a wrong value, is an alert."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.service.cli import main
from ldlm_monitor.service.config import load
from ldlm_monitor.service.config.expectations import written

BEGIN = datetime(2026, 11, 29, 10, 0, 0, tzinfo=UTC)
SAVED = 'name = "checkpoint"\nline = "saved checkpoint"\n'
ACCURATE = 'name = "accuracy"\nline = "accuracy (?P<value>\\\\S+)"\nexample = "accuracy 0.5"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def expect(text: str) -> None:
    Path("ldlm-monitor.toml").write_text(f"[[expect]]\n{text}", encoding="utf-8")


def log(also: dict[int, str], last: int = 400, name: str = "train.log") -> None:
    """Steps at each third second, and what stands below some of them."""

    def lines() -> Iterator[str]:
        for step in range(1, last + 1):
            at = f"{BEGIN + timedelta(seconds=3 * step):%Y-%m-%dT%H:%M:%SZ}"
            yield f"{at} INFO step {step}/1000 loss {1 + 2 / step:.4f}\n"
            if step in also:
                yield f"{at} INFO {also[step]}\n"

    Path(name).write_text("".join(lines()), encoding="utf-8")


def missed(capsys: pytest.CaptureFixture[str], *files: str) -> list[tuple[str, str, int]]:
    """State, which part of the expectation, and seconds since the begin, of each transition."""
    main(["replay", "--format", "json", "--fail-on", "never", *(files or ("train.log",))])
    found = map(json.loads, capsys.readouterr().out.splitlines())
    alerts = [each for each in found if each["alert"] == "ExpectationMissed"]
    began = BEGIN.timestamp()
    return [(each["state"], each["labels"]["missed"], each["time"] - began) for each in alerts]


def test_a_first_line_that_does_not_come_is_missed_until_it_comes(capsys: Any) -> None:
    expect(SAVED + 'within = "5m"\n')
    log({200: "saved checkpoint to /ckpt/200"})
    (fired, _, at), (over, _, then) = missed(capsys)
    assert (fired, over) == ("firing", "resolved")
    assert 303 < at <= 313
    assert 600 <= then <= 610


def test_a_line_that_comes_in_time_is_no_news(capsys: Any) -> None:
    expect(SAVED + 'within = "5m"\nevery = "5m"\n')
    log(dict.fromkeys(range(90, 401, 90), "saved checkpoint"))
    assert missed(capsys) == []


def test_the_next_line_must_come_too(capsys: Any) -> None:
    expect(SAVED + "every = 300\n")
    log({50: "saved checkpoint"})
    ((fired, which, at),) = missed(capsys)
    assert (fired, which) == ("firing", "every")
    assert 450 < at <= 460


def test_a_value_must_hold(capsys: Any) -> None:
    expect(ACCURATE + 'value = ">= 0.5"\nseverity = "error"\n')
    log({100: "step 100 accuracy 0.5", 200: "step 200 accuracy 0.4", 300: "accuracy nan"})
    ((fired, which, at),) = missed(capsys)
    assert (fired, which) == ("firing", "value")
    assert 600 <= at <= 610


def test_the_last_line_of_any_rank_has_the_value(capsys: Any) -> None:
    expect(ACCURATE + 'value = ">= 0.5"\n')
    log({100: "[rank1]: accuracy 0.2", 200: "[rank0]: accuracy 0.9", 300: "accuracy 0.9.1"})
    states = [state for state, _, _ in missed(capsys)]
    assert states == ["firing", "resolved", "firing"]


def test_a_value_of_an_attempt_that_is_over_holds_no_longer(capsys: Any) -> None:
    expect(ACCURATE + 'value = ">= 0.5"\n')
    agent = "torch/distributed/elastic/agent/server/api.py:553]   restart_count="
    log({200: "step 200 accuracy 0.4", 300: f"I1129 10:15:00.769000 14784 {agent}1"})
    ((fired, _, _), (over, _, at)) = missed(capsys)
    assert (fired, over) == ("firing", "ended")
    assert 900 <= at < 920


def test_other_runs_are_not_asked(capsys: Any) -> None:
    expect(SAVED + 'within = "5m"\nrun = "night-.*"\n')
    log({}, name="day-1.log")
    log({}, name="night-1.log")
    assert len(missed(capsys, "day-1.log", "night-1.log")) == 1


def test_a_run_that_is_over_misses_nothing(capsys: Any) -> None:
    expect(SAVED + 'within = "5m"\n')
    log({80: "Training complete."}, last=80, name="over.log")
    log({90: "saved checkpoint"}, name="other.log")
    assert missed(capsys, "over.log", "other.log") == []


def test_it_takes_nothing_from_what_else_a_line_says(capsys: Any) -> None:
    log({100: "Saving model checkpoint to out/checkpoint-100", 200: "step 200 loss 9 accuracy 1"})
    main(["parse", "train.log"])
    before = capsys.readouterr().out.splitlines()
    expect('name = "any"\nline = "step|Saving"\nevery = "5m"\n')
    main(["parse", "train.log"])
    after = [line for line in capsys.readouterr().out.splitlines() if "expected_any" not in line]
    assert after == before


def test_rules_and_formats_commands_have_it(capsys: Any) -> None:
    expect(SAVED + 'within = "5m"\n')
    assert main(["rules", "check"]) == 0
    assert "rules.yml: 1 rule" in capsys.readouterr().out
    main(["rules", "list"])
    assert "ExpectationMissed" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_the_rules_are_those_of_prometheus() -> None:
    expect(ACCURATE + 'within = "1m"\nevery = "1h30m"\nvalue = "!= 0"\nrun = "a\\\\d\\"b"\n')
    _, rules = written(load({}).expect)
    subprocess.run(["promtool", "check", "rules", rules], check=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('line = "a"\nwithin = "1m"\n', "ldlm-monitor.toml: expect[0].name: is missing"),
        ('name = "a b"\nline = "a"\nwithin = "1m"\n', "expect[0].name"),
        (SAVED, "needs `within`, `every` or `value`"),
        (SAVED + 'within = "soon"\n', "'soon' is not a duration such as 30s, 5m or 1h30m"),
        (SAVED + 'within = "0s"\n', "should be longer than 0"),
        (SAVED + 'value = "> 0"\n', "needs `value` and the group"),
        (ACCURATE + 'value = "0.5"\n', "should be a comparison with a number"),
        (ACCURATE + 'every = "1m"\n', "needs `value` and the group"),
        ('name = "a"\nline = "a\\\\d"\nevery = "1m"\n', "needs `example`"),
        ('name = "a"\nline = "(a"\nevery = "1m"\n', "is no regular expression of RE2"),
        (
            'name = "a"\nline = "sauv[éè] ok"\nexample = "sauvé ok"\nevery = "1m"\n',
            "needs `exa",
        ),
        (
            SAVED + 'every = "1m"\n[[expect]]\n' + SAVED + 'every = "2m"\n',
            "should have one checkpo",
        ),
        (SAVED + 'ever = "1m"\n', "unknown key; did you mean expect[0].every?"),
    ],
)
def test_what_cannot_be_expected_is_one_line(text: str, said: str) -> None:
    expect(text)
    with pytest.raises(ConfigError) as raised:
        load({})
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_that_cannot_be_written_is_one_line(folder: Path) -> None:
    expect(SAVED + 'within = "5m"\n')
    (folder / "cache").write_text("a file", encoding="utf-8")
    with pytest.raises(ConfigError, match="set XDG_CACHE_HOME"):
        load({})
