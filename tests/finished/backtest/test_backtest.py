"""Real logs, replayed and held against what is known of them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.finished.backtest.play import backtest
from ldlm_monitor.finished.backtest.score import LogScore, overall
from ldlm_monitor.service.config import Settings

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples/train_logs"
RUNS = ROOT / "tests/together/corpus/runs/upstream"
PUBLIC = ROOT / "../shared/corpus/public"


def scores(truth: Path, *logs: Path) -> list[LogScore]:
    settings = Settings(files=tuple(map(str, logs)), companions=True)
    return [score for score, _ in backtest(settings, truth)]


def written(folder: Path, *entries: Any) -> Path:
    path = folder / "truth.json"
    path.write_text(
        json.dumps([{"file": file, "truth": {"events": events}} for file, events in entries]),
        encoding="utf-8",
    )
    return path


def event(kind: str, line: int, quote: str = "") -> dict[str, Any]:
    return {"kind": kind, "line_number": line, "quote": quote, "severity": "failure"}


def test_the_examples_raise_what_happened_in_them_and_nothing_else(tmp_path: Path) -> None:
    truth = written(
        tmp_path,
        ("train_20261121_083409_node0.log", []),
        ("train_20261121_083451_node0.log", [event("nan", 20, "Invalid loss detected")]),
        (
            "train_20261121_083515_node0.log",
            [event("traceback", 18, "Traceback"), event("process_failed", 71, "exitcode: 1")],
        ),
    )
    healthy, nan, crash = scores(truth, EXAMPLES)
    assert (healthy.healthy, healthy.alerts) == (True, 0)
    assert [nan.recall, nan.precision] == [1.0, 1.0]
    assert [crash.recall, crash.precision] == [1.0, 1.0]
    assert [event.seconds_to_detect for event in nan.expected_events] == [pytest.approx(0, abs=0.5)]
    assert [event.seconds_to_detect for event in crash.expected_events] == pytest.approx(
        [0, 0], abs=0.5
    )


def test_each_log_is_a_run_of_its_own(tmp_path: Path) -> None:
    """Two logs of one launch, which together would be one run with one alert."""
    log = (EXAMPLES / "train_20261121_083451_node0.log").read_bytes()
    for node in ("node0", "node1"):
        (tmp_path / f"train_20261121_083451_{node}.log").write_bytes(log)
    truth = written(
        tmp_path,
        ("train_20261121_083451_node0.log", [event("nan", 20)]),
        ("train_20261121_083451_node1.log", [event("nan", 20)]),
    )
    assert [one.found for one in scores(truth, tmp_path)] == [1, 1]


def test_the_quote_tells_which_state_of_a_progress_bar_is_meant(tmp_path: Path) -> None:
    """Line 229 holds the bars of half a minute, and the pause after its first state."""
    log = next((RUNS / "H_hang_sigstop_rank1_90s/train_logs").glob("*.log"))
    truth = written(tmp_path, (log.name, [event("TrainingStalled", 229, "200/475")]))
    (one,) = scores(truth, log)
    (event_score,) = one.expected_events
    assert event_score.alert == "TrainingStalled"
    assert event_score.seconds_to_detect == pytest.approx(30, abs=1)


@pytest.mark.long  # each run replays each of these logs, in test_public_logs.py
@pytest.mark.shared
def test_the_truth_of_the_public_corpus_is_understood_and_no_healthy_log_rings() -> None:
    files = [PUBLIC / entry["file"] for entry in json.loads((PUBLIC / "index.json").read_bytes())]
    found = overall(scores(PUBLIC / "index.json", *files))
    total = found.overall
    assert (total.logs, total.healthy, total.healthy_with_false_alarms) == (40, 26, 0)
    assert total.expected == 30
    assert sum(len(log.false_alarms) for log in found.logs) == 0
    events = [event for log in found.logs for event in log.expected_events]
    found_kinds = Counter(event.kind for event in events if event.alert is not None)
    assert (found_kinds["oom_cuda"], found_kinds["job_time_limit"]) == (2, 1)
