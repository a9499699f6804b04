"""Rows of one named value each: the name is the quantity, all other numbers are none."""

import json
import math
from typing import Any

import pytest

from ldlm_monitor.base.records import Event, Sample
from ldlm_monitor.logs.parse.run_names import origin_of

FIXED = {
    "delta_ms": 0.4, "tid": 4711, "rank": 3, "global_rank": 3, "local_rank": 3,
    "source": "training", "host_name": "n0", "pid": 812, "step": 5, "relative_step": 5,
    "time": 1787000121, "time_ms": 1787000121499, "time_us": 1787000121499980,
    "log_type": "event", "event_name": None, "caller": "trainer.py:796:train_step",
    "log_level": "INFO", "seq_id": 42,
}  # fmt: skip
"""What each record of torchtitan's structured logger has."""


def titan(kind: str, **more: Any) -> str:
    return json.dumps(FIXED | {"log_type_name": kind} | more) + "\n"


def test_a_scalar_of_torchtitan_is_the_quantity_that_it_names(parse: Any) -> None:
    rows = [titan("metric_value", event_name="loss", value=2.325)] * 5
    found = parse("".join(rows), path="training_rank_3.jsonl")
    first = found[0]
    assert isinstance(first, Sample)
    assert [each.values for each in found] == [{"loss": 2.325}] * 5
    assert (first.step, first.rank, first.time) == (5, 3, 1787000121.49998)


@pytest.mark.parametrize(
    ("name", "value", "values"),
    [
        ("train.loss", 2.5, {"loss": 2.5}),
        ("grad_norm", math.inf, {"grad_norm": math.inf}),
        ("moe.load", 3, {"moe_load": 3.0}),
    ],
)
def test_names_of_scalars_are_those_of_any_key(
    parse: Any, name: str, value: float, values: dict[str, float]
) -> None:
    (found,) = parse(titan("metric_value", event_name=name, value=value), path="a.jsonl")
    assert found.values == values


def test_a_span_that_ended_has_its_seconds(parse: Any) -> None:
    log = titan("fwd_bwd_start") + titan("fwd_bwd_end", value=812.5)
    (found,) = parse(log, path="a.jsonl")
    assert found.values == {"fwd_bwd_seconds": 0.8125}


def test_markers_and_starts_have_no_value_and_are_no_errors(parse: Any) -> None:
    assert parse(titan("training_start") + titan("Optimizer_start"), path="a.jsonl") == []


def test_a_span_that_failed_is_a_failure_with_its_message(parse: Any) -> None:
    text = "[step 5] fwd_bwd_error: ValueError: bad batch"
    (found,) = parse(titan("fwd_bwd_error", message=text), path="a.jsonl")
    assert isinstance(found, Event)
    assert (found.message, found.rank) == ("ValueError: bad batch", 3)
    assert found.severity == "error"


@pytest.mark.parametrize("key", ["name", "metric", "metric_name", "tag", "key"])
def test_any_row_may_name_its_one_value(parse: Any, key: str) -> None:
    rows = [{key: "train/loss", "value": 0.25, "step": step, "worker": 12} for step in range(5)]
    found = parse("".join(f"{json.dumps(row)}\n" for row in rows), path="a.jsonl")
    assert [(each.step, each.values) for each in found] == [(n, {"loss": 0.25}) for n in range(5)]


@pytest.mark.parametrize(
    ("row", "values"),
    [
        ({"name": "run-7", "step": 1, "loss": 2.0, "value": 0.5}, {"loss": 2.0, "value": 0.5}),
        ({"step": 1, "value": 0.5, "entropy": 1.2}, {"value": 0.5, "entropy": 1.2}),
        ({"name": "run-7", "step": 1, "value": "high", "loss": 1.5}, {"loss": 1.5}),
        ({"name": "a", "tag": "b", "step": 1, "value": 0.5}, {"value": 0.5}),
        ({"name": "run-7", "step": 1, "value": 0.5, "kl": 1.5}, {"value": 0.5, "kl": 1.5}),
    ],
)
def test_a_row_with_quantities_as_keys_keeps_them(
    parse: Any, row: dict[str, Any], values: dict[str, float]
) -> None:
    (found,) = parse(json.dumps(row) + "\n", path="a.jsonl")
    assert found.values == values


def test_files_of_a_launch_are_ranks_of_the_run_that_has_the_folder() -> None:
    name = "jobs/llama/structured_logs/{}.global_rank_{}.20260817-205320-{}.jsonl"
    first = origin_of(name.format("training", 0, "ABC12D"))
    second = origin_of(name.format("training", 1, "9BC12E"))
    assert (first.run, first.rank) == ("llama", 0)
    assert (second.run, second.rank) == ("llama", 1)
    assert origin_of(name.format("generator", 0, "ABC12D")).run == "llama/generator"


@pytest.mark.parametrize("beside", [{"wall_time": 17.25}, {"epoch": 0.5}, {"elapsed_seconds": 2.5}])
def test_a_clock_beside_a_named_value_is_no_quantity(parse: Any, beside: dict[str, float]) -> None:
    (found,) = parse(json.dumps({"name": "loss", "value": 2.5, "step": 1} | beside), path="a.jsonl")
    assert found.values == {"loss": 2.5}


def test_a_named_value_may_be_a_text(parse: Any) -> None:
    row = {"name": "loss", "step": 1, "value": "NaN"}
    (found,) = parse(json.dumps(row) + "\n", path="a.jsonl")
    assert math.isnan(found.values["loss"])


@pytest.mark.parametrize("key", ["split", "phase", "stage", "mode", "subset"])
@pytest.mark.parametrize("row", [{"loss": 1.5}, {"name": "loss", "value": 1.5}])
def test_the_split_of_a_row_is_that_of_its_values(parse: Any, key: str, row: Any) -> None:
    splits = ["train", "val", "train", "Validation"]
    rows = [{key: split, "step": n} | row for n, split in enumerate(splits)]
    found = parse("".join(f"{json.dumps(row)}\n" for row in rows), path="a.jsonl")
    names = ["loss", "eval_loss", "loss", "eval_loss"]
    assert [each.values for each in found] == [{name: 1.5} for name in names]


@pytest.mark.parametrize(
    ("row", "names"),
    [
        ({"phase": "val", "train_loss": 1.5, "val_loss": 2.5}, {"loss", "eval_loss"}),
        ({"stage": "dev", "loss": 1.5}, {"loss"}),
        ({"mode": "test", "loss": 1.5}, {"loss"}),
        ({"split": "dev", "loss": 1.5}, {"eval_loss"}),
        ({"mode": "val", "loss": 1.5, "lr": 0.5}, {"loss", "learning_rate"}),
    ],
)
def test_a_row_of_an_update_is_none_of_an_evaluation(
    parse: Any, row: dict[str, Any], names: set[str]
) -> None:
    (found,) = parse(json.dumps(row | {"step": 1}) + "\n", path="a.jsonl")
    assert found.values.keys() == names
