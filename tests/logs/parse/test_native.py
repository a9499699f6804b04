"""What is read with the compiled part and without it is the same, to the last bit."""

from __future__ import annotations

import json
import math
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import SampleBlock
from ldlm_monitor.logs.parse import Parser, clock_marks
from ldlm_monitor.logs.parse.row_columns import shape_of
from tests.logs.parse.python_alone import needs_native, python_alone
from tests.logs.parse.test_rows import files

pytestmark = needs_native
ROWS, LOG = "training_log.jsonl", "train.log"


def read(path: str, data: bytes, cuts: tuple[int, ...] = ()) -> list[str]:
    """Every record and block, with columns, of data that come in pieces cut behind lines."""
    parser, found, line = Parser(), list[str](), 1
    ends = sorted({*cuts, len(data)})
    for start, end in zip([0, *ends], ends, strict=False):
        chunk = Chunk(path, (1, 1, 0), start, line, data[start:end], final=end == len(data))
        found += map(repr, parser.feed_blocks(chunk, Origin("r", rank=3), 1.7e9 + start))
        line += chunk.newlines
    found += map(repr, parser.finish(path))
    counters = parser.counters
    return [*found, repr((counters.records, counters.parse_errors, counters.faults))]


def row(step: int, **more: object) -> str:
    return json.dumps({"step": step, "loss": 1.5} | more) + "\n"


def assert_equal(path: str, data: bytes, cuts: tuple[int, ...] = ()) -> None:
    with python_alone():
        python = read(path, data, cuts)
    assert read(path, data, cuts) == python


def behind_lines(data: bytes, ends: bytes, numbers: list[int]) -> tuple[int, ...]:
    places = [at + 1 for at, byte in enumerate(data) if byte in ends]
    return tuple(places[number % len(places)] for number in numbers) if places else ()


_cuts = st.lists(st.integers(0, 1000), max_size=3)


@given(files(), _cuts)
def test_rows(data: bytes, numbers: list[int]) -> None:
    assert_equal(ROWS, data, behind_lines(data, b"\n", numbers))


@st.composite
def long_files(draw: st.DrawFn) -> bytes:
    """More rows than one call reads, with what ends a call, a block, or a column of all rows."""
    lines, step = list[str](), 0
    for _ in range(draw(st.integers(1, 6))):
        time = draw(st.sampled_from([None, 1.7e9, 1.6e9, 3.0]))
        more: dict[str, object] = {} if time is None else {"time": time}
        more |= draw(st.sampled_from([{}, {}, {"lr": 0.5}, {"lr": math.nan}, {"loss": 0.5}]))
        every = draw(st.sampled_from([1, 1, 7, 100]))
        for at in range(
            draw(st.sampled_from([1, 2, 254, 255, 256, 257, 766, 767, 768, 769, 2000]))
        ):
            step += 1
            lines.append(row(step, **(more if at % every == 0 else {})))
        step -= draw(st.sampled_from([0, 0, 1, 500]))
    return "".join(lines).encode()


@given(long_files(), _cuts)
def test_rows_of_many_calls(data: bytes, numbers: list[int]) -> None:
    assert_equal(ROWS, data, behind_lines(data, b"\n", numbers))


def test_a_stretch_of_few_rows_takes_memory_for_few() -> None:
    """Else each row that ends one, as a NaN does, takes time for all that follow."""
    shape = shape_of((("step", "number"), ("loss", "number")))
    data = (row(1) + row(2) + row(3, loss=math.nan) + row(4) * 10_000).encode()
    assert shape is not None
    tracemalloc.start()
    try:
        assert len(shape.read(data, 0, 0)) == 2
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


_spelled = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**25), 10**25).map(str),
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(["-0", "-0.0", "5e-324", "2.2250738585072011e-308", "1.7976931348623159e308"]),
    st.sampled_from(["01", "1.", ".5", "+1", "1e", "NaN", "Infinity", "true", "null", '"1"', ""]),
)


@given(st.lists(_spelled, min_size=1, max_size=8))
def test_numbers_of_every_spelling(spelled: list[str]) -> None:
    """Digits beyond a double's, halves between two doubles, least and greatest numbers."""
    rows = [row(step, lr=2.5) for step in range(3)]
    rows += [row(3 + at, lr=0).replace("0}", f"{each}}}") for at, each in enumerate(spelled)]
    assert_equal(ROWS, "".join(rows).encode())


_space = st.sampled_from(["", " ", "  ", "\t", "\r"])
_text = st.sampled_from(
    ['"a"', '"é"', '"\\u0041"', '"\\""', '"x\\\\"', '"\x01"', '"' + "n" * 99 + '"']
)


@st.composite
def odd_rows(draw: st.DrawFn) -> str:
    """Rows with text, in any order and spacing, some with a key twice or one more."""
    cells = [("step", str(draw(st.integers(0, 50)))), ("loss", "1.5"), ("mode", draw(_text))]
    cells += draw(st.lists(st.sampled_from([("lr", "3"), ("loss", "2"), ("x", "1")]), max_size=2))
    written = [
        f"{draw(_space)}{json.dumps(key)}{draw(_space)}:{draw(_space)}{value}{draw(_space)}"
        for key, value in draw(st.permutations(cells))
    ]
    return f"{draw(_space)}{{{','.join(written)}}}{draw(_space)}\n"


@given(st.lists(odd_rows(), max_size=12))
def test_rows_of_any_spacing_and_order(rows: list[str]) -> None:
    plain = [row(step, mode="a") for step in range(3)]
    assert_equal(ROWS, "".join([*plain, *rows, *plain]).encode())


_DESCRIPTIONS = [
    "Training",
    "Training",
    "Training",
    "Eval",
    "Skipping batches",
    "Epoch 3",
    "",
    "Tra:n",
]
_number = st.one_of(
    st.floats(0, 10).map(lambda value: f"{value:.4f}"),
    st.floats(0, 10).map(lambda value: f"{value:.2e}"),
    st.sampled_from(
        ["0", "-0", "nan", "0.0%", "12.5%", "1/3", "2e-05", "1,2", "tensor(1.)", "07", ""]
    ),
)
_clock = st.one_of(
    st.sampled_from(
        ["59", "1:02:03<?", "1:2:3:<1", "1:2:3:4<1", "1::2<1", ":1<1", "1:<1", "<", ""]
    ),
    st.from_regex(r"[0-9]{1,20}(:[0-9]{0,11}){0,4}(<[0-9:?]{0,4})?", fullmatch=True),
)
_KEYS = ["Loss", "Loss", "Text", "Epoch", "Progress", "Grad", "lr", "loss", "New key", "x"]


@st.composite
def bars(draw: st.DrawFn) -> bytes:
    """Stretches of a bar's repaints that differ in numbers, with anything between them."""
    written: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        description, total = draw(st.sampled_from(_DESCRIPTIONS)), draw(st.integers(5, 40))
        keys = draw(st.lists(st.sampled_from(_KEYS), max_size=4))
        constant = draw(st.sampled_from(["0/1", "0.5", "nan"]))
        step, width = draw(st.integers(0, 10)), draw(st.sampled_from([400, 400, 100, 70]))
        for _ in range(draw(st.integers(1, 10))):
            step += draw(st.sampled_from([1, 1, 1, 1, 0, -2, 10**15]))
            items = "".join(
                f", {key}={draw(_number) if at else constant}" for at, key in enumerate(keys)
            )
            rate = draw(st.sampled_from(["15.92it/s", " 1.50s/it", "0.00it/s", "?it/s", "3.1ba/s"]))
            clock = draw(st.one_of(st.just(f"00:0{step % 10}<01:00"), _clock))
            shown = f"{step}/{total} [{clock}, {rate}{items}]"
            bar = f"{description}: {100 * step // total:3d}%|##  | {shown}"
            end = draw(
                st.sampled_from(
                    ["\r", "\r", "\r", "\r", "\r", "\n", "\r\n", " \r", "] x\r", "\x1b[A\r"]
                )
            )
            written.append(bar[:width] + end)
        between = [
            "step 3 loss 2.5\n",
            "CUDA out of memory\r",
            "\n",
            "hello\r",
            "Epoch 2\n",
            "\r\r",
            "State: FAILED (exit code 1)\r",
            "All done!\r",
            "Epoch 2\r",
        ]
        written += draw(st.lists(st.sampled_from(between), max_size=1))
    return "".join(written).encode()


@given(bars(), _cuts)
@example(b"Training:   0%|  | 1/9 [00:00<00:37, 15.9it/s, Epoch=0/1, Loss=1.0]\r" * 3, [])
def test_bars(data: bytes, numbers: list[int]) -> None:
    assert_equal(LOG, data, behind_lines(data, b"\r\n", numbers))


@given(bars())
@example(b"10%|#| 1/10 [00:01<00:09, 1.0it/s]\rState: FAILED (exit code 1)\r\n")
def test_bars_that_come_one_by_one_give_the_records_of_the_whole_file(data: bytes) -> None:
    assert records_of(data.splitlines(keepends=True)) == records_of([data])


def records_of(pieces: list[bytes]) -> list[str]:
    parser, found, offset, line = Parser(), list[str](), 0, 1
    for piece in pieces:
        chunk = Chunk(LOG, (1, 1, 0), offset, line, piece)
        found += map(repr, parser.feed(chunk, Origin("r"), 0.0))
        offset, line = offset + len(piece), line + chunk.newlines
    return [*found, *map(repr, parser.finish(LOG))]


@given(bars(), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=6))
def test_bars_with_damaged_bytes(data: bytes, damages: list[tuple[int, int]]) -> None:
    damaged = bytearray(data)
    for place, byte in damages:
        damaged[place % len(data)] = byte
    assert_equal(LOG, bytes(damaged))


def repaint(step: int, end: str = "\r") -> str:
    shown = f"Progress={step / 60:.1f}%, Loss={2 + 1 / (step + 1):.4f}"
    clock = f"{step}/6000 [00:09<09:59, 9.5it/s"
    return f"Training:  {step // 10:3d}%|#| {clock}, Epoch=0/1, {shown}]{end}"


@given(bars())
@example("".join(map(repaint, (1, 2, 3), "\n\r\r")).encode())
@example("".join(map(repaint, (1, 2, 3), "\r\r\r")).replace("9<", "9:1:<").encode())
def test_the_clock_that_bars_show(data: bytes) -> None:
    with python_alone():
        python = clock_marks(data, 7)
    assert clock_marks(data, 7) == python


def test_of_a_bar_that_is_drawn_on_only_the_first_is_read_by_python() -> None:
    parser = Parser()
    data = "".join(map(repaint, range(1, 90))).encode()
    (block,) = parser.feed_blocks(Chunk(LOG, (1, 1, 0), 0, 1, data), Origin("r"), 0.0)
    assert isinstance(block, SampleBlock)
    assert (block.repaints, list(block.steps)) == (True, list(range(1, 90)))
    assert parser.counters.singly == 1
    assert block.sample(4).position.offset == sum(len(repaint(step)) for step in range(1, 5))


def test_where_each_bar_has_other_keys_fewer_and_fewer_are_followed() -> None:
    parser, followed = Parser(), 0
    for step in range(500):
        data = (repaint(step) if step % 2 else repaint(step).replace("Loss", "Grad")).encode()
        chunk = Chunk(LOG, (1, 1, 0), step * 100, 1, data)
        parser.feed_blocks(chunk, Origin("r"), 0.0)
        followed += bool(parser._files[LOG].ahead)
    assert 5 < followed < 20
    assert parser.counters.singly == 500
    data = "".join(map(repaint, range(500, 700))).encode()
    parser.feed_blocks(Chunk(LOG, (1, 1, 0), 10**5, 1, data), Origin("r"), 0.0)
    assert parser.counters.singly < 570


def test_of_rows_of_one_shape_only_the_first_two_are_read_by_python() -> None:
    parser = Parser()
    rows = [row(step, lr=math.sqrt(step)) for step in range(50)]
    data = "".join(rows).encode()
    parser.feed_blocks(Chunk(ROWS, (1, 1, 0), 0, 1, data), Origin("r"), 0.0)
    assert parser.counters.singly == 2


@pytest.mark.parametrize("odd", ['{"step": 7, "l\\u006fss": 1}', '{"step": 7, "loss": -0}'])
def test_a_row_that_is_left_to_python_ends_no_block(odd: str) -> None:
    rows = [row(step) for step in range(12)]
    rows[7] = odd + "\n"
    parser, data = Parser(), "".join(rows).encode()
    *_, block = parser.feed_blocks(Chunk(ROWS, (1, 1, 0), 0, 1, data), Origin("r"), 0.0)
    assert isinstance(block, SampleBlock)
    assert list(block.steps) == list(range(2, 12))
    assert parser.counters.singly == 3
