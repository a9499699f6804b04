"""What a training loop reports, and what the monitor reads of it."""

import json
import math
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ldlm_monitor.judge.core.monitor import Monitor


def watched(tmp_path) -> "Monitor":
    """A monitor that has read the file of rank 0."""
    from ldlm_monitor.base.chunk import Chunk
    from ldlm_monitor.judge.core.monitor import Monitor

    monitor = Monitor()
    path = tmp_path / "health_rank0.jsonl"
    last = json.loads(path.read_text().splitlines()[-1])
    monitor.feed(Chunk(str(path), (1, 1, 0), 0, 1, path.read_bytes()), last["time"] + 1)
    monitor.tick(last["time"] + 30)
    return monitor


def values(monitor: "Monitor", name: str) -> dict:
    return {point.labels: point.value for point in monitor.snapshot().points if point.name == name}


@pytest.mark.usefixtures("monitor_reads")
def test_a_step_is_written_under_the_canonical_names(health, reported) -> None:
    from ldlm_monitor.base.names import CANONICAL_PREFIXES, CANONICAL_VALUES

    callback = health()
    callback.on_step(1, loss=2.0, grad_norm=0.5, lr=1e-4, samples=8, tokens=64, loss_text=1.5)
    with callback.phase("data"):
        pass
    callback.on_step(2, loss=1.0, grad_norm=0.4, lr=1e-4, samples=8, tokens=64, loss_text=0.7)
    callback.close()
    first, second = reported("step")
    own = {"type", "step", "time"}
    names = set(second) - own
    assert all(name in CANONICAL_VALUES or name.startswith(CANONICAL_PREFIXES) for name in names)
    assert {"step_seconds", "data_seconds", "samples_per_second", "tokens_per_second"} <= names
    assert (first["samples_total"], second["samples_total"]) == (8, 16)
    assert second["tokens_total"] == 128


@pytest.mark.usefixtures("monitor_reads")
def test_the_monitor_alerts_to_a_nan_and_counts_it_once(health, tmp_path) -> None:
    callback = health()
    callback.on_step(1, loss=1.0)
    callback.on_step(2, loss=math.nan, batch=7)
    callback.close()
    monitor = watched(tmp_path)
    (count,) = {
        value
        for labels, value in values(monitor, "ldlm_train_nonfinite_total").items()
        if ("quantity", "loss") in labels and ("rank", "0") in labels
    }
    assert count == 1
    assert [event.kind for event in monitor.snapshot().events].count("nonfinite_metric") == 1


@pytest.mark.usefixtures("monitor_reads")
def test_the_monitor_reads_phases_as_pauses(health, tmp_path) -> None:
    callback = health()
    callback.on_step(1, loss=1.0)
    with callback.phase("eval"):
        pass
    with callback.phase("checkpoint"):
        pass
    callback.on_step(2, loss=1.0)
    callback.close()
    kinds = [event.kind for event in watched(tmp_path).snapshot().events]
    assert kinds == [
        "run_started",
        "eval_started",
        "eval_finished",
        "checkpoint_started",
        "checkpoint_saved",
        "run_finished",
    ]
