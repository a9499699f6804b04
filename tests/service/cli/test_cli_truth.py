"""`replay --truth`: how the alerts fare against what is known of the logs."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.finished.backtest.truth import DETECTED_BY

Ask = Callable[..., Any]
NAN = {"kind": "nan", "line_number": 20, "severity": "failure", "quote": "ERROR: Invalid loss"}
SPIKE = {"kind": "loss_spike", "line_number": 18, "severity": "warning"}
TRUTH = {
    "train_20261121_083409_node0.log": [],
    "train_20261121_083451_node0.log": [NAN, SPIKE],
    "train_20261121_083515_node0.log": [],
}


@pytest.fixture
def truth(folder: Path) -> Path:
    """Of the examples, one entry wrong on purpose: the last log holds a crash."""
    entries = [{"file": file, "truth": {"events": events}} for file, events in TRUTH.items()]
    (folder / "truth.json").write_text(json.dumps(entries), encoding="utf-8")
    return folder / "truth.json"


def test_the_score_is_shown_log_by_log_and_over_all(ask: Ask, truth: Path, examples: Path) -> None:
    answer = ask("replay", str(examples), "--truth", str(truth), "--fail-on", "never")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        "train_20261121_083409_node0.log  healthy",
        (
            "train_20261121_083451_node0.log  1 of 2 found  0 of 1 alerts false"
            "  recall 50 %  precision 100 %"
        ),
        ("    found   failure nan at train_20261121_083451_node0.log:20 by NonFiniteLoss after 0s"),
        (
            "    MISSED  warning loss_spike at train_20261121_083451_node0.log:18:"
            " no LossSpike or LossDiverging"
        ),
        "train_20261121_083515_node0.log  healthy  1 of 1 alerts false  precision 0 %",
        "    FALSE   critical TrainingCrashed at train_20261121_083515_node0.log:18",
        "",
        "3 logs, 2 of them healthy, 1 of those with a false alarm",
        "recall          50 %    1 of 2 found",
        "precision       50 %    1 of 2 alerts true",
        "time to detect  median 0s, longest 0s (1 found by the log's own time)",
    ]


def test_in_json_it_is_one_object(ask: Ask, truth: Path, examples: Path) -> None:
    answer = ask("replay", str(examples), "--truth", str(truth), "--format", "json")
    shown = json.loads(answer.out, parse_constant=None)
    overall = shown["overall"]
    assert (overall["recall"], overall["precision"], overall["healthy"]) == (0.5, 0.5, 2)
    assert overall["seconds_to_detect"] == {"count": 1, "median": 0.0, "longest": 0.0}
    assert overall["lines_to_detect"] is None
    healthy, nan, crashed = shown["logs"]
    assert (healthy["recall"], healthy["precision"], healthy["healthy"]) == (None, None, True)
    assert [event["alert"] for event in nan["expected_events"]] == ["NonFiniteLoss", None]
    assert crashed["false_alarms"] == [
        {"alert": "TrainingCrashed", "severity": "critical", "line": 18, "benign": None}
    ]


def test_the_truth_file_of_the_page_works(ask: Ask, folder: Path, examples: Path) -> None:
    page = (examples.parents[1] / "docs/backtest.md").read_text("utf-8")
    block = re.search(r"^```json\n(.*?)^```$", page, re.M | re.S)
    assert block is not None
    (folder / "truth.json").write_text(block[1], encoding="utf-8")
    logs = [str(examples / entry["file"]) for entry in json.loads(block[1])]
    answer = ask("replay", *logs, "--truth", "truth.json", "--fail-on", "never")
    assert answer.code == 0, answer.err
    assert "recall          100 %" in answer.out
    assert {kind for kind in DETECTED_BY if f"`{kind}`" not in page} == set()


@pytest.mark.parametrize(("fail_on", "code"), [("critical", 3), ("never", 0)])
def test_health_decides_the_exit_code_as_ever(
    ask: Ask, truth: Path, examples: Path, fail_on: str, code: int
) -> None:
    assert ask("replay", str(examples), "--truth", str(truth), "--fail-on", fail_on).code == code


def test_a_truth_file_may_lie_among_the_logs(ask: Ask, folder: Path, examples: Path) -> None:
    log = "train_20261121_083409_node0.log"
    (folder / log).write_bytes((examples / log).read_bytes())
    truth = json.dumps([{"file": log, "truth": {"events": []}}])
    (folder / "truth.jsonl").write_text(truth, encoding="utf-8")
    assert ask("replay", ".", "--truth", "truth.jsonl").code == 0


@pytest.mark.parametrize(
    "case",
    [
        (("", ""), ("--truth", "none.json"), "--truth none.json: cannot be read (No such file"),
        (("[", "{"), (), "truth.json: Invalid JSON: key must be a string at line 1 column 2"),
        (("083409", "0"), (), "truth.json: train_20261121_0_node0.log fits none of the logs given"),
        (
            ('line_number": 20', 'line_number": 2000'),
            (),
            "train_20261121_083451_node0.log: has no line 2000",
        ),
        (("ERROR:", "WARN:"), (), "083451_node0.log: line 20 does not hold 'WARN: Invalid loss'"),
        (("", ""), ("--companions",), "replay: --companions does not go with --truth; leave it"),
        (("", ""), ("-",), "--truth: the truth of a log is found by its name, and a pipe"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_line_before_anything_is_played(
    ask: Ask,
    truth: Path,
    examples: Path,
    case: tuple[tuple[str, str], tuple[str, ...], str],
) -> None:
    change, words, message = case
    truth.write_text(truth.read_text("utf-8").replace(*change, 1), encoding="utf-8")
    named = () if "--truth" in words else ("--truth", "truth.json")
    answer = ask("replay", str(examples), *named, *words)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert message in answer.err
