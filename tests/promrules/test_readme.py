"""The README's lines run as they are written, and print what stands there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ldlm_promrules.command import main

README = Path(__file__).resolve().parents[2] / "promrules/README.md"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
RULES, SAMPLES, PROGRAM, PRINTED, COMMANDS = (text for _, text in BLOCKS[1:6])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rules.yml").write_text(RULES, encoding="utf-8")
    (tmp_path / "samples.txt").write_text(SAMPLES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_ten_lines_print_what_stands_below_them(folder: Path) -> None:
    assert len([line for line in PROGRAM.splitlines() if line]) <= 10
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (PRINTED, "")


def test_the_commands_end_with_0(folder: Path) -> None:
    (folder / "metrics.txt").write_text("# TYPE up gauge\nup 1\n", encoding="utf-8")
    (folder / "rules.test.yml").write_text(
        "rule_files: [rules.yml]\n"
        "tests:\n"
        "  - input_series: [{series: 'up{job=\"a\"}', values: '0x5'}]\n"
        "    alert_rule_test:\n"
        "      - {eval_time: 2m, alertname: JobDown, exp_alerts: [{exp_labels: {job: a}, "
        "exp_annotations: {summary: 'a: 0% are up'}}]}\n",
        encoding="utf-8",
    )
    lines = [shlex.split(line) for line in COMMANDS.splitlines()]
    assert [(words[0], words[1]) for words in lines] == [
        ("promrules", "check"), ("promrules", "test"), ("promrules", "query"),
    ]  # fmt: skip
    assert [main(words[1:]) for words in lines] == [0, 0, 0]
