"""What a log is parsed into: records, their blocks, and their JSON."""

import math
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ldlm_monitor.base.records import (
    MAX_COUNT,
    Event,
    Heartbeat,
    Position,
    Record,
    Sample,
    SampleBlock,
    Scalar,
    as_count,
    from_json,
    row_source,
    to_json,
)

RANKS: list[Scalar] = [1, 2]
PLACE = Position("train.log", line=12, offset=840)
BLOCK = SampleBlock(
    run="gpt",
    rank=3,
    path="logs/train.jsonl",
    first_line=10,
    offsets=[100, 150, 200, 250],
    steps=[1, 2, 3, 4],
    epochs=[0.1, 0.2, 0.3, 0.4],
    times=[1000.0, 1001.0, 1002.0, 1003.0],
    values={"loss": [4.0, 3.0, 2.0, 1.0]},
    sparse={"eval_loss": {1: 5.0, 3: 6.0}, "accuracy": {0: 0.5}},
)


@pytest.mark.parametrize(
    "record",
    [
        Sample(run="gpt", values={"loss": 2.5, "lr": math.inf}, position=PLACE),
        Sample(
            run="gpt", rank=0, step=100, epoch=0.5, time=1000.25, values={}, source="bar",
            position=PLACE,
        ),
        Event(kind="gpu_xid", severity="critical", run="gpt", message="fell off", position=PLACE),
        Event(
            kind="oom", severity="error", run="gpt", rank=1, node="n1", time=1.0, message="",
            fields={"xid": 79, "ranks": RANKS, "at": {"a": None}, "ok": True},
            position=PLACE,
        ),
        Heartbeat(
            run="gpt", rank=1, host="n1", pid=7, step=4, phase="running", time=1.5, position=PLACE
        ),
    ],
)  # fmt: skip
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert from_json(to_json(record)) == record
    assert from_json(to_json(record).decode()) == record


def test_the_json_of_a_record_says_its_type_and_has_nan_as_text() -> None:
    written = to_json(Sample(run="gpt", values={"loss": math.nan}, position=PLACE))
    assert b'"type":"sample"' in written
    assert b'"values":{"loss":"NaN"}' in written


def test_text_that_is_no_record_is_refused() -> None:
    with pytest.raises(ValidationError):
        from_json('{"type": "other"}')


def test_a_record_names_its_fields_and_cannot_be_changed() -> None:
    sample = Sample(run="gpt", values={}, position=PLACE)
    assert (sample.rank, sample.step, sample.epoch, sample.time) == (None, None, None, None)
    assert sample.source == "text"
    with pytest.raises(FrozenInstanceError):
        sample.run = "other"  # type: ignore[misc]
    assert sample == replace(sample)
    assert sample != replace(sample, step=1)


def test_two_events_share_no_fields() -> None:
    one, two = (
        Event(kind="oom", severity="error", run="gpt", message="", position=PLACE) for _ in range(2)
    )
    one.fields["xid"] = 79
    assert two.fields == {}


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("health_rank0.jsonl", "callback"), ("/runs/a/health_rank12.jsonl", "callback"),
        ("/runs/health_rank/metrics.jsonl", "jsonl"), ("my_health_rank0.jsonl", "jsonl"),
    ],
)  # fmt: skip
def test_the_name_of_a_file_says_who_wrote_its_rows(path: str, source: str) -> None:
    assert row_source(path) == source


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (0.0, 0), (12.0, 12), (-3.0, -3), (1.5, None), (math.nan, None), (math.inf, None),
        (float(MAX_COUNT), None), (float(-MAX_COUNT), None), (MAX_COUNT - 1, MAX_COUNT - 1),
        (1 - MAX_COUNT, 1 - MAX_COUNT),
    ],
)  # fmt: skip
def test_a_count_is_whole_and_bounded(value: float, count: int | None) -> None:
    assert as_count(value) == count
    assert 9 * (MAX_COUNT - 1) < 2**63


def test_a_block_gives_the_sample_of_each_line() -> None:
    assert len(BLOCK) == 4
    assert BLOCK.sample(1) == Sample(
        run="gpt",
        rank=3,
        step=2,
        epoch=0.2,
        time=1001.0,
        values={"loss": 3.0, "eval_loss": 5.0},
        source="jsonl",
        position=Position("logs/train.jsonl", 11, 150),
    )
    assert [*BLOCK.samples()] == [BLOCK.sample(index) for index in range(4)]
    assert BLOCK.sample(2).values == {"loss": 2.0}


def test_a_block_without_epochs_and_times_gives_samples_without() -> None:
    bare = replace(BLOCK, epochs=None, times=None)
    sample = bare.sample(0)
    assert (sample.step, sample.epoch, sample.time) == (1, None, None)
    part = bare.part(1, 3)
    assert (part.epochs, part.times) == (None, None)


def test_a_part_of_a_block_has_its_columns_and_its_first_line() -> None:
    part = BLOCK.part(1, 3)
    assert part == replace(
        BLOCK,
        first_line=11,
        offsets=[150, 200],
        steps=[2, 3],
        epochs=[0.2, 0.3],
        times=[1001.0, 1002.0],
        values={"loss": [3.0, 2.0]},
        sparse={"eval_loss": {0: 5.0}},
    )


@given(st.integers(0, 4), st.integers(0, 4))
def test_a_part_gives_the_samples_of_its_lines(one: int, two: int) -> None:
    start, stop = sorted((one, two))
    assert [*BLOCK.part(start, stop).samples()] == [*BLOCK.samples()][start:stop]


def test_the_part_of_all_lines_is_the_block() -> None:
    assert BLOCK.part(0, 4) is BLOCK
