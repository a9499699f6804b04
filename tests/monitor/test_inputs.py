"""Companions are found as they come, and as the log comes to tell whose they are."""

from pathlib import Path

import pytest

from ldlm_monitor.inputs import COMPANION_SECONDS, Inputs
from ldlm_monitor.monitor import Monitor
from ldlm_monitor.source import DIRECT, resolve

NOW = 1_769_681_700.0


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    write(tmp_path / "train_logs/train_20260129_101500_node0.log", "* World size: 2\n")
    patterns = resolve([str(tmp_path / "train_logs/*.log")], base=tmp_path)
    inputs = Inputs(patterns, Monitor(), companions=True, disk=DIRECT)
    assert names(inputs, NOW) == ["train_20260129_101500_node0.log"]
    return inputs


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def names(inputs: Inputs, now: float) -> list[str]:
    return [str(each.path.name) for each in inputs.joining(now, rung=False)]


def test_rows_that_are_written_later_join_their_log(inputs: Inputs, tmp_path: Path) -> None:
    write(tmp_path / "saved/run_a/training_log.jsonl", '{"step": 1}\n')
    assert names(inputs, NOW + COMPANION_SECONDS) == ["training_log.jsonl"]
    assert names(inputs, NOW + 100 * COMPANION_SECONDS) == []


def test_a_log_that_grew_may_say_whose_rows_they_are(inputs: Inputs, tmp_path: Path) -> None:
    for run in ("run_a", "run_b"):
        write(tmp_path / f"saved/{run}/training_log.jsonl", '{"step": 1}\n')
    assert names(inputs, NOW + COMPANION_SECONDS) == []
    log = tmp_path / "train_logs/train_20260129_101500_node0.log"
    write(log, f"Working directory: {tmp_path}/saved/run_b\n")
    (joining,) = inputs.joining(NOW + 100 * COMPANION_SECONDS, rung=False)
    assert joining.path == tmp_path / "saved/run_b/training_log.jsonl"
