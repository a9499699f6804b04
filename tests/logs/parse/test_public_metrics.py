"""Other people's logs: the numbers that a reader sees in them come out, named and in base units."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Sample
from ldlm_monitor.logs.parse import Parser

CORPUS = Path(__file__).resolve().parents[3] / "../shared/corpus/public"
pytestmark = pytest.mark.shared
INDEX = json.loads((CORPUS / "index.json").read_text()) if CORPUS.is_dir() else []
LOGS = [log for log in INDEX if log["truth"].get("metrics_example")]

NAMES = {
    "loss": ("loss", 1),
    "lr": ("learning_rate", 1),
    "grad_norm": ("grad_norm", 1),
    "val_loss": ("eval_loss", 1),
    "eval_accuracy": ("eval_accuracy", 1),
    "ppl": ("ppl", 1),
    "reward": ("reward", 1),
    "loss_scale": ("loss_scale", 1),
    "critic_loss": ("loss_critic", 1),
    "samples": ("samples_total", 1),
    "time_ms": ("step_seconds", 1e-3),
    "time_s": ("step_seconds", 1),
    "step_time_s": ("step_seconds", 1),
    "step_avg_ms": ("step_seconds", 1e-3),
    "mfu": ("mfu", 1e-2),
    "mem_gb": ("memory_allocated_bytes", 2**30),
}
"""The index's names, ours, and how many of our unit one of theirs is."""
THROUGHPUT = {
    "mp": "throughput",
    "ds": "samples_per_second",
    "t03": "steps_per_second",
    "t05": "tokens_per_second_per_device",
    "t06": "tokens_per_second_per_device",
    "t07": "tokens_per_second",
    "t14": "tokens_per_second_per_device",
    "t15": "tokens_per_second_per_device",
}
"""What each trainer counts a second; MLPerf's results do not say what."""
ELAPSED = {"kj02": {"time_ms": ("elapsed_seconds", 1e-3)}}
"""Where the index's name is that of another quantity: the time since the start."""
OTHERS = frozenset(("line_number", "last_line", "step", "epoch", "raw"))


def meaning(log: str, key: str) -> tuple[str, float]:
    """Our name of a number of the index, and its factor."""
    if key == "throughput":
        return next(name for start, name in THROUGHPUT.items() if log.startswith(start)), 1
    return ELAPSED.get(log.partition("__")[0], {}).get(key) or NAMES[key]


def samples(log: str) -> dict[int, list[Sample]]:
    parser = Parser()
    data = (CORPUS / log).read_bytes()
    chunk = Chunk(log, (1, 1, 0), 0, 1, data, final=True)
    found = parser.feed(chunk, Origin(run="r"), 0.0) + parser.finish(log)
    by_line: dict[int, list[Sample]] = {}
    for record in found:
        if isinstance(record, Sample):
            by_line.setdefault(record.position.line, []).append(record)
    return by_line


def differences(sample: Sample, log: str, example: dict[str, Any]) -> list[str]:
    """The values of an example that the sample lacks."""
    wrong = [
        f"{key} {getattr(sample, key)}, not {example[key]}"
        for key in ("step", "epoch")
        if key in example and getattr(sample, key) != example[key]
    ]
    for key in example.keys() - OTHERS:
        name, factor = meaning(log, key)
        expected = float(example[key]) * factor
        value = sample.values.get(name)
        same = value is not None and (
            math.isclose(value, expected, rel_tol=1e-9)
            or (math.isnan(value) and math.isnan(expected))
        )
        if not same:
            wrong.append(f"{name} {value}, not {expected}")
    return wrong


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log["file"])
def test_every_metric_that_was_read_by_hand_comes_out_at_its_line(log: dict[str, Any]) -> None:
    found = samples(log["file"])
    wrong = {}
    for example in log["truth"]["metrics_example"]:
        line = example["line_number"]
        tried = [differences(sample, log["file"], example) for sample in found.get(line, [])]
        if not any(not missing for missing in tried):
            wrong[line] = tried or "no sample"
    assert wrong == {}
