"""The example logs through `--once`, `report` and `replay`: what a new user tries first."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def healthy(examples: Path) -> str:
    return str(*examples.glob("*_083409_node0.log"))


@pytest.fixture(scope="module")
def bad_latents(examples: Path) -> str:
    return str(*examples.glob("*_083451_node0.log"))


@pytest.fixture(scope="module")
def bad_token(examples: Path) -> str:
    return str(*examples.glob("*_083515_node0.log"))


def test_a_healthy_run_is_healthy(ask: Ask, healthy: str) -> None:
    answer = ask("--once", "--fail-on", "warning", healthy)
    assert answer.code == 0
    assert "\nHEALTHY  train_" in answer.out
    assert " finished" in answer.out
    assert "Firing" not in answer.out


def test_a_crashed_run_is_critical_and_names_the_rank(ask: Ask, bad_token: str) -> None:
    answer = ask("--once", bad_token)
    assert answer.code == 3
    assert "CRITICAL" in answer.out
    assert "TrainingCrashed" in answer.out
    assert "Failed rank  1" in answer.out
    assert ask("--once", "--fail-on", "never", bad_token).code == 0


def test_report_says_the_same_as_once(ask: Ask, bad_token: str) -> None:
    assert ask("report", bad_token).out == ask("--once", bad_token).out


@pytest.mark.parametrize("suffix", [".txt", ".md", ".json"])
def test_a_report_can_be_written_to_a_file(
    ask: Ask, folder: Path, bad_token: str, suffix: str
) -> None:
    output = folder / f"health{suffix}"
    answer = ask("report", "-o", str(output), bad_token)
    assert (answer.code, answer.out) == (3, "")
    text = output.read_text(encoding="utf-8")
    assert "TrainingCrashed" in text
    if suffix == ".json":
        (run,) = json.loads(text)["runs"]
        assert (run["health"], run["failed_rank"]) == ("CRITICAL", 1)


def test_a_report_in_json_is_valid_whatever_a_log_says(ask: Ask, folder: Path) -> None:
    """Lone surrogates are legal in JSON's escapes and in no UTF-8; NaN is no JSON at all."""
    log = folder / os.fsdecode(b"b\xffd.jsonl")
    log.write_text('{"step": 1, "loss": NaN, "\\ud800": 2}\n', encoding="utf-8")
    assert ask("report", "-o", "health.json", log.name).code == 3
    (run,) = json.loads((folder / "health.json").read_text("utf-8"), parse_constant=None)["runs"]
    assert run["files"] == ["b\ufffdd.jsonl"]
    assert run["statistics"]["loss"]["current"] == "NaN"


def test_a_report_that_cannot_be_written_is_said_so(ask: Ask, healthy: str) -> None:
    answer = ask("report", "-o", "no/folder/health.txt", healthy)
    assert answer.code == 2
    assert "--output no/folder/health.txt: cannot be written" in answer.err


def test_replay_prints_where_the_loss_went_nan(ask: Ask, bad_latents: str) -> None:
    answer = ask("replay", "--format", "json", bad_latents)
    transitions = [json.loads(line) for line in answer.out.splitlines()]
    first = next(t for t in transitions if t["alert"] == "NonFiniteLoss")
    assert first["state"] == "firing"
    assert first["labels"]["severity"] == "critical"
    assert set(first) == {
        *("time", "alert", "state", "reason", "labels", "annotations", "value", "position"),
    }


def test_replay_tries_other_rules(ask: Ask, folder: Path, healthy: str) -> None:
    (folder / "mine.yml").write_text(
        "groups: [{name: mine, rules: [{alert: Far, expr: 'ldlm_train_step > 300', "
        "labels: {severity: warning}, annotations: {summary: 'step {{ $value }}'}}]}]\n",
        encoding="utf-8",
    )
    answer = ask("replay", "--rules", "mine.yml", healthy)
    assert answer.out.split()[1:3] == ["FIRING", "Far"]


def test_a_companion_is_said_to_be_read_too(ask: Ask, bad_token: str) -> None:
    assert "training_log.jsonl" in ask("--once", bad_token).err
    assert "training_log.jsonl" not in ask("--once", "--no-companions", bad_token).err
