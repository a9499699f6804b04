"""Tables of metrics: known by their header, whatever the file is called."""

import math

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Sample
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.vocabulary import MAX_KEY

LIGHTNING = "epoch,late_key,step,train_loss\n0,,1,0.8256\n1,1.0,15,nan\n"
ULTRALYTICS = "         epoch,   train/box_loss,        lr/pg0\n 1, 1.25, 0.0033\n"


def rows(records) -> list[tuple[int | None, float | None, dict[str, float]]]:
    assert all(isinstance(record, Sample) for record in records)
    return [(record.step, record.epoch, record.values) for record in records]


def test_empty_cells_are_no_values_and_nan_is_one(parse) -> None:
    first, last = parse(LIGHTNING, path="metrics.csv")
    assert rows([first]) == [(1, 0.0, {"loss": 0.8256})]
    assert (last.step, last.values["late_key"], last.position.line) == (15, 1.0, 3)
    assert math.isnan(last.values["loss"])
    assert LIGHTNING[last.position.offset :].startswith("1,1.0,15")


def test_padding_is_no_part_of_names_and_numbers(parse) -> None:
    assert rows(parse(ULTRALYTICS, path="results.csv")) == [
        (None, 1.0, {"loss_box": 1.25, "learning_rate": 0.0033})
    ]


def test_keras_na_is_no_value(parse) -> None:
    text = "epoch,accuracy,loss,val_loss\n0,0.5,2.25,NA\n"
    assert rows(parse(text, path="history.log")) == [(None, 0.0, {"accuracy": 0.5, "loss": 2.25})]


def test_a_header_in_the_middle_names_the_columns_from_there_on(parse) -> None:
    text = "step,loss\n1,2.5\nstep,grad_norm,loss\n1,0.5,2.25\n"
    assert rows(parse(text, path="metrics.csv")) == [
        (1, None, {"loss": 2.5}),
        (1, None, {"grad_norm": 0.5, "loss": 2.25}),
    ]


def test_a_row_of_a_later_chunk_is_read_by_the_header_of_the_first() -> None:
    parser, found = Parser(), []
    for offset, line, data in ((0, 1, b"step,loss\n1,2.5\n"), (16, 3, b"2,2.25\n3,2.1")):
        chunk = Chunk("m.csv", (1, 1, 0), offset, line, data, final=offset > 0)
        found += parser.feed(chunk, Origin("r"), 0.0)
    assert rows(found) == [(1, None, {"loss": 2.5}), (2, None, {"loss": 2.25})]


@pytest.mark.parametrize(
    "text",
    [
        "name,age\nx,3\n",
        "step,host\n1,2\n",
        "epoch,learning_rate\n1,0.1\n",
        "Hello, this is a sentence about the loss\n1,2\n",
        "loss,accuracy\n0.5,0.5\n",
    ],
)
def test_other_tables_and_sentences_are_no_metrics(parse, text: str) -> None:
    assert parse(text, path="data.csv") == []


def test_a_columns_name_is_bounded(parse) -> None:
    (sample,) = parse("step,loss," + "a" * 5000 + "\n1,2.5,3.5\n", path="metrics.csv")
    assert sample.values == {"loss": 2.5, "a" * MAX_KEY: 3.5}
