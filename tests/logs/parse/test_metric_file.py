"""MLflow's file store: one file a metric."""

from __future__ import annotations

import math

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Sample
from ldlm_monitor.logs.parse import Parser

RUN = "mlruns/0/0123456789abcdef0123456789abcdef"
ROWS = "1700000000250 2.5 10\n1700000001250 nan 20\n1700000002250 1e-05 30\n"

GENUINE = """\
1795283932959 3.0 0
1795283932961 1.5 1
1795283932962 1.0 2
1795283932992 nan 3
1795283932993 0.6 4
"""
"""What mlflow-skinny 3.17.2 wrote for `log_metric("train/loss", value, step)`."""


def samples(parse, text: str, path: str) -> list[Sample]:
    return [record for record in parse(text, path) if isinstance(record, Sample)]


def test_a_row_is_a_sample_of_the_metric_that_the_file_is_called(parse) -> None:
    found = samples(parse, ROWS, f"{RUN}/metrics/train_loss")
    assert [(s.step, s.time) for s in found] == [
        (10, 1700000000.25),
        (20, 1700000001.25),
        (30, 1700000002.25),
    ]
    assert [s.values["loss"] for s in found] == pytest.approx([2.5, math.nan, 1e-05], nan_ok=True)
    assert [(s.position.line, s.position.offset) for s in found] == [(1, 0), (2, 21), (3, 42)]


def test_what_mlflow_wrote_is_read(parse) -> None:
    found = samples(parse, GENUINE, f"{RUN}/metrics/train/loss")
    losses = [sample.values["loss"] for sample in found]
    assert losses == pytest.approx([3.0, 1.5, 1.0, math.nan, 0.6], nan_ok=True)
    assert [sample.step for sample in found] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "value"), [("train/loss", "loss"), ("val_loss", "eval_loss"), ("lr-Adam", "lr_adam")]
)
def test_a_metric_in_a_folder_has_its_name(parse, name: str, value: str) -> None:
    (sample,) = samples(parse, "1700000000250 2.5 10\n", f"{RUN}/metrics/{name}")
    assert sample.values == {value: 2.5}


def test_only_the_loss_tells_where_the_run_stands(parse) -> None:
    (sample,) = samples(parse, "1700000000250 71.5 3\n", f"{RUN}/metrics/system/gpu_0_power")
    assert (sample.step, sample.values) == (None, {"system_gpu_0_power": 71.5})


def test_rows_of_mlflow_3_name_a_dataset(parse) -> None:
    (sample,) = samples(parse, "1700000000250 2.5 10 train 0f3a\n", f"{RUN}/metrics/loss")
    assert (sample.step, sample.values) == (10, {"loss": 2.5})


def test_a_row_without_its_end_waits(parse) -> None:
    assert (
        samples(parse, "1700000000250 2.5 10\n1700000001250 2.4 1", f"{RUN}/metrics/loss")[1:] == []
    )


def test_a_line_that_is_no_row_is_counted() -> None:
    parser = Parser()
    text = b"1700000000250 2.5 10\n1700000000250 much 11\n\n"
    parser.feed(Chunk(f"{RUN}/metrics/loss", (1, 1, 0), 0, 1, text), Origin("r"), 0.0)
    assert parser.counters.parse_errors == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("logs/train.log", ROWS),
        (f"{RUN}/params/loss", "0.5"),
        ("metrics/node0.log", "step=10 loss=2.5\n"),
        ("metrics/counts", "10 20 30\n"),
    ],
)
def test_other_files_are_none(parse, path: str, text: str) -> None:
    found = samples(parse, text, path)
    assert [s.values for s in found] == ([{"loss": 2.5}] if "loss=" in text else [])
