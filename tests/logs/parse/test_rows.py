"""Similar JSON rows come in blocks, with the same values as one by one."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Record, Sample, SampleBlock
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.row_columns import signature
from ldlm_monitor.logs.parse.vocabulary import MAX_KEY

OWNER = Origin(run="r", rank=4)


def row(step: int, **more: object) -> bytes:
    return json.dumps({"epoch": 0, "step": step, "loss": 1.5, "lr": 1e-4, **more}).encode() + b"\n"


def chunk_of(data: bytes, offset: int = 0, line: int = 1) -> Chunk:
    return Chunk("saved/r/training_log.jsonl", (1, 1, 0), offset, line, data)


def blocks_of(data: bytes) -> list[Record | SampleBlock]:
    return Parser().feed_blocks(chunk_of(data), OWNER, 0.0)


def one_by_one(data: bytes) -> tuple[list[Record], int]:
    """Every line by a parser that has seen no other, so that none can look like another."""
    found: list[Record] = []
    errors, offset = 0, 0
    for line, raw in enumerate(data.split(b"\n"), 1):
        parser = Parser()
        found += parser.feed(chunk_of(raw + b"\n", offset, line), OWNER, 0.0)
        errors += parser.counters.parse_errors
        offset += len(raw) + 1
    return found, errors


def described(records: list[Record]) -> list[str]:
    """Comparable also where a number is NaN; the order of a sample's values means nothing."""
    return [
        repr(replace(record, values=dict(sorted(record.values.items()))))
        if isinstance(record, Sample)
        else repr(record)
        for record in records
    ]


def test_rows_of_the_same_keys_come_as_columns() -> None:
    first, second, block = blocks_of(b"".join(row(step, mode="l2t") for step in range(10)))
    assert isinstance(first, Sample)
    assert isinstance(second, Sample)
    assert isinstance(block, SampleBlock)
    assert list(block.steps) == list(range(2, 10))
    assert block.epochs == [0.0] * 8
    assert (block.run, block.rank, block.path) == ("r", 4, "saved/r/training_log.jsonl")
    assert block.values == {"loss": [1.5] * 8, "learning_rate": [1e-4] * 8}
    assert block.first_line == 3
    assert block.offsets == [step * len(row(0, mode="l2t")) for step in range(2, 10)]


def test_a_file_fed_row_by_row_gives_the_same_samples_as_in_one_piece() -> None:
    rows = [row(step) for step in range(6)]
    parser, found, offset = Parser(), [], 0
    for line, raw in enumerate(rows, 1):
        found += parser.feed_blocks(chunk_of(raw, offset, line), OWNER, 0.0)
        offset += len(raw)
    assert found == Parser().feed(chunk_of(b"".join(rows)), OWNER, 0.0)


@pytest.mark.parametrize(
    "odd",
    [
        b'{"epoch": 0, "step": 50, "loss": NaN, "lr": 0.0001}',
        b'{"epoch": 0, "step": 50, "loss": 1e400, "lr": 0.0001}',
        b'{"epoch": 0, "step": 50, "loss": "nan", "lr": 0.0001}',
        b'{"epoch": 0, "step": 50, "loss": -Infinity, "lr": -Infinity}',
    ],
)
def test_a_value_that_is_not_finite_comes_alone_at_its_own_line(odd: bytes) -> None:
    rows = [*(row(step) for step in range(50)), odd + b"\n", *(row(s) for s in range(51, 60))]
    before, sample, after = blocks_of(b"".join(rows))[2:]
    assert isinstance(sample, Sample)
    assert not math.isfinite(sample.values["loss"])
    assert (sample.step, sample.position.line) == (50, 51)
    assert sample.position.offset == sum(map(len, rows[:50]))
    assert (list(before.steps), list(after.steps)) == (list(range(2, 50)), list(range(51, 60)))
    assert (after.first_line, after.offsets[0]) == (52, sum(map(len, rows[:51])))


def test_a_block_ends_where_the_step_falls_back() -> None:
    steps = [0, 1, 2, 3, 4, 2, 3, 3, 4, 5]
    found = blocks_of(b"".join(row(step) for step in steps))
    assert [list(b.steps) if isinstance(b, SampleBlock) else b.step for b in found] == [
        0,
        1,
        [2, 3, 4],
        [2, 3],
        [3, 4, 5],
    ]


def test_times_of_rows_are_columns_too_and_never_fall_in_a_block() -> None:
    times = [1.7e9, 1.7e9 + 1, 1.7e9 + 2, 1.7e9 + 3, 1.7e9 + 1, 1.7e9 + 2]
    found = blocks_of(b"".join(row(step, time=when) for step, when in enumerate(times)))
    assert [b.times for b in found[2:]] == [times[2:4], times[4:]]
    assert all("time" not in b.values for b in found[2:])


def test_seconds_since_the_start_are_a_value_not_a_time() -> None:
    block = blocks_of(b"".join(row(step, time=step / 2) for step in range(6)))[2]
    assert (block.times, block.values["time"]) == (None, [1.0, 1.5, 2.0, 2.5])


def test_the_rank_of_rows_beats_that_of_the_file() -> None:
    block = blocks_of(b"".join(row(step, rank=7) for step in range(6)))[2]
    assert (block.rank, "rank" in block.values) == (7, False)


def test_rows_of_several_ranks_in_one_file_keep_their_own() -> None:
    found = blocks_of(b"".join(row(step // 2, rank=step % 2) for step in range(12)))
    assert [(s.step, s.rank) for s in found] == [(i // 2, i % 2) for i in range(12)]


def test_a_callbacks_steps_are_a_block_between_its_other_rows() -> None:
    def health(step: int) -> bytes:
        written = {"schema": "ldlm.health/1", "type": "step", "step": step, "loss": 1.0}
        return json.dumps(written).encode() + b"\n"

    start = b'{"schema": "ldlm.health/1", "type": "run", "run": "x", "rank": 3}\n'
    end = b'{"schema": "ldlm.health/1", "type": "end", "status": "finished"}\n'
    found = blocks_of(start + b"".join(map(health, range(9))) + end)
    block = found[3]
    assert isinstance(block, SampleBlock)
    assert (block.rank, list(block.steps), list(block.values)) == (3, list(range(2, 9)), ["loss"])
    assert [getattr(item, "kind", None) for item in found] == [
        "run_started",
        None,
        None,
        None,
        "run_finished",
    ]


def test_a_key_that_is_there_now_and_then_ends_no_block_once_it_was_seen_twice() -> None:
    rows = [row(s, extra=s / 2) if s % 100 == 0 else row(s) for s in range(1000)]
    found = blocks_of(b"".join(rows))
    blocks = [item for item in found if isinstance(item, SampleBlock)]
    assert [list(block.steps) for block in blocks] == [
        list(range(3, 100)),
        list(range(101, 200)),
        list(range(201, 1000)),
    ]
    assert blocks[-1].sparse == {"extra": {99 + 100 * n: 150.0 + 50 * n for n in range(7)}}
    assert found == blocks_of(b"".join(rows))


def test_a_key_that_comes_to_stay_is_a_column_like_the_others() -> None:
    rows = [row(s) if s < 10 else row(s, extra=s / 2) for s in range(20)]
    block = blocks_of(b"".join(rows))[-1]
    assert isinstance(block, SampleBlock)
    assert (list(block.steps), block.sparse) == (list(range(12, 20)), {})
    assert block.values["extra"] == [s / 2 for s in range(12, 20)]


@pytest.mark.parametrize("key", ["time", "rank", "epoch_progress", "train_loss", "type"])
def test_a_key_now_and_then_tells_the_same_as_row_by_row_whatever_it_is(key: str) -> None:
    written = {"type": "step", "time": 1.7e9}.get(key, 3)
    rows = [row(s, **{key: written}) if s % 5 == 0 else row(s) for s in range(50)]
    data = b"".join(rows)
    assert described(Parser().feed(chunk_of(data), OWNER, 0.0)) == described(one_by_one(data)[0])


def test_counters_count_rows_not_blocks() -> None:
    parser = Parser()
    parser.feed_blocks(chunk_of(b"".join(map(row, range(20))) + b"torn {\n"), OWNER, 0.0)
    assert (parser.counters.records["sample"], parser.counters.parse_errors) == (20, 1)


_number = st.one_of(
    st.integers(),
    st.integers(-20, 20),
    st.floats(),
    st.sampled_from([0, -0.0, 2**53 + 1, 2**64, -(2**63) - 1, 10**400, 1e16, 5.0, 1.7e9]),
)
_value = st.one_of(
    _number,
    st.booleans(),
    st.none(),
    st.sampled_from(["nan", "l2t", "1.5", "-Infinity", "step", "2026-06-11T11:44:19Z"]),
    st.just([1]),
    st.just({"a": 1.0, "b": "x"}),
)
_KEYS = [
    "step",
    "global_step",
    "epoch",
    "rank",
    "time",
    "timestamp",
    "loss",
    "lr",
    "learning_rate",
    "text_loss",
    "grad_norm",
    "mode",
    "é",
    'q"uote',
    "back\\slash",
]
_LINES = [
    r"",
    r"[1]",
    r"torn {",
    r'{"step": 1, "loss":',
    r'{"step": 1, "step": 2, "loss": 3}',
    r'{"type": "step", "step": 1, "schema": 5, "loss": 1}',
    r'{"type": "other", "step": 1, "loss": 1}',
    r'{"type": "heartbeat"}',
    r'{"step": 01, "loss": 1}',
    r'{"step": 1, "loss": 1} x',
    r'{"step": 1, "mode": "\ud800", "loss": 1}',
    r"",
]
_key = st.sampled_from([*_KEYS, "", "K" * 200])
_metric_row = st.dictionaries(_key, _value, max_size=6).map(json.dumps)
_raw = st.sampled_from([*_LINES, "  ", "\x00", "\ud800", '{"step": 1, "loss": 1}\r'])


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Stretches of rows of the same keys and steps that mostly rise, with anything between."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        keys = draw(st.lists(_key, max_size=4, unique=True))
        more = draw(st.lists(_key, max_size=2, unique=True))
        step = draw(st.integers(-3, 100))
        for _ in range(draw(st.integers(0, 10))):
            step += draw(st.integers(-1, 3))
            written = [*keys, *more] if draw(st.integers(0, 2)) == 0 else keys
            values = {key: draw(_number) for key in written}
            lines.append(json.dumps({**values, "step": step, "loss": draw(_number)}))
        lines += draw(st.lists(st.one_of(_metric_row, _raw), max_size=3))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


@given(files())
@example(b'{"step": 1, "loss": 1}\n' * 3 + b'{"loss": 1, "step": 2}\n' * 3)
@example(b'{"step": 1.0, "loss": 1}\n' * 3 + b'{"step": 1.5, "loss": 1}\n{"step": 2, "loss": 1}')
@example(b'{"step": 1, "time": 1.7e9, "a": 1}\n' * 3 + b'{"step": 2, "time": 3, "a": 1}\n' * 2)
@example(b'{"step": 1, "loss": 1}\n' * 3 + b'{"step": 2, "loss": 1' + b"0" * 400 + b"}")
def test_blocks_tell_exactly_what_the_rows_tell_one_by_one(data: bytes) -> None:
    parser = Parser()
    together = parser.feed(chunk_of(data), OWNER, 0.0)
    alone, errors = one_by_one(data)
    assert described(together) == described(alone)
    assert parser.counters.parse_errors == errors


@given(files())
def test_in_a_block_numbers_are_finite_steps_rise_and_times_do_not_fall(data: bytes) -> None:
    for block in blocks_of(data):
        if not isinstance(block, SampleBlock):
            continue
        assert len(block) > 1
        assert all(earlier < later for earlier, later in pairwise(block.steps))
        assert all(earlier <= later for earlier, later in pairwise(block.times or ()))
        assert all(math.isfinite(value) for column in block.values.values() for value in column)
        for cells in block.sparse.values():
            assert 0 < len(cells) <= len(block)
            assert list(cells) == sorted(cells)
            assert all(math.isfinite(value) for value in cells.values())
        columns = (block.steps, block.offsets, *block.values.values())
        assert {len(column) for column in columns} == {len(block)}


@given(st.integers(0, 7), st.integers(0, 7))
def test_a_part_of_a_block_holds_its_lines_and_no_others(start: int, stop: int) -> None:
    block = blocks_of(b"".join(row(step, time=1.7e9 + step) for step in range(10)))[2]
    assert isinstance(block, SampleBlock)
    block = replace(block, sparse={"eval_loss": {1: 5.0, 6: 7.0}})
    samples = list(block.samples())
    start, stop = sorted((start, stop))
    assert list(block.part(start, stop).samples()) == samples[start:stop]
    assert block.sample(start) == samples[start]


def test_step_logs_of_genuine_runs_read_the_same_in_blocks(corpus: Path) -> None:
    logs = sorted((corpus / "upstream").glob("*/saved/*.jsonl"))
    assert logs
    for path in logs:
        data = path.read_bytes()
        together = Parser().feed(chunk_of(data), OWNER, 0.0)
        assert described(together) == described(one_by_one(data)[0])


def test_each_row_without_numbers_may_be_an_error() -> None:
    """The third row of one form is read as a block's, where only numbers count."""
    data = b"".join(
        json.dumps({"step": step, "level": "error", "message": f"boom {step}"}).encode() + b"\n"
        for step in range(6)
    )
    found = Parser().feed(chunk_of(data), OWNER, 0.0)
    assert [each.message for each in found if each.type == "event"] == [
        f"boom {step}" for step in range(6)
    ]


def test_rows_with_a_key_of_any_length_are_read_one_by_one() -> None:
    """Signatures are cached: keys of a megabyte would fill the memory."""
    row: dict[str, object] = {"step": 1, "loss": 2.5, "a" * MAX_KEY: 1.0}
    assert signature(row) is not None
    assert signature({**row, "a" * (MAX_KEY + 1): 1.0}) is None


@pytest.mark.parametrize(
    ("row", "names"),
    [
        ({"train_mean_nll": 2.5, "test/nll": 1.5}, {"loss", "eval_loss"}),
        ({"nll": 2.5, "num_loss_tokens": 7}, {"loss", "num_loss_tokens"}),
        ({"loss": 2.5, "nll": 1.5}, {"loss", "nll"}),
        ({"loss_text": 2.5, "ce": 1.5}, {"loss_text", "ce"}),
        ({"nll": 2.5, "ce": 1.5}, {"loss", "ce"}),
        ({"valid_nll": 2.5, "lr": 1.5}, {"eval_loss", "learning_rate"}),
    ],
)
def test_what_a_loss_measures_is_the_loss_of_rows_without_one(
    row: dict[str, float], names: set[str]
) -> None:
    """As columns and one by one."""
    lines = [json.dumps({"step": step} | row).encode() + b"\n" for step in range(9)]
    found = blocks_of(b"".join(lines))
    assert isinstance(found[-1], SampleBlock)
    columns = [*found[-1].samples()]
    alone, _ = one_by_one(b"".join(lines))
    assert {frozenset(each.values) for each in columns} == {frozenset(names)}
    assert described(alone[-len(columns) :]) == described([*columns])
