"""Bars of the common form are split by their delimiters, and read as the pattern reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Sample
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.bar_form import match_meter, split_meter
from ldlm_monitor.logs.parse.bars import BarReading, BarRecords, Bars
from ldlm_monitor.logs.parse.triggers import Scanner, compiled

BARS = compiled(()).bars
PLAIN = b"Training:  25%|##8 | 475/1900 [00:28<01:19, 17.55it/s, Epoch=0/2, Loss=1.7353, Text=1.7"


@pytest.mark.parametrize(
    "bar",
    [
        PLAIN,
        b"Training:  25%|##8 | 475/1900 [00:28<01:19, 17.55it/s, Epoch=0/1, Progress=2.5%, Loss=2",
        b" 12%|#1        | 1200/10000 [02:00<14:40, 10.00it/s, epoch=3, loss=2.31, acc=0.71]",
        b"Epoch 3: 100%|##########| 469/469 [00:05<00:00, 88.12it/s, loss=0.31, accuracy=0.91]",
    ],
)
def test_a_bar_asks_no_rule_of_events(bar: bytes) -> None:
    """A bar that does is read as any other line, which takes five times as long."""
    rules = compiled(())
    hits = Scanner(rules.databases).scan(b"\r" + bar + b"\r")
    claims = rules.of(tuple(expression for _, expression in hits))
    assert claims.bar
    assert claims.alone, [rule.spec for rule in claims.events]


def agree(text: bytes) -> bool:
    """Whether a text has the common form; then the pattern must read the same."""
    split = split_meter(text, 0)
    assert split is None or split == match_meter(text, 0)
    return split is not None


_part = st.one_of(
    st.sampled_from([b"Training", b"Training:", b": ", b" ", b"  0%|", b"100%|##|", b"%|", b"|"])
    | st.sampled_from([b" 7/9", b" 12/", b"/", b" 1/" + b"9" * 18, b" 1/" + b"9" * 19, b" ["])
    | st.sampled_from([b"00:01", b"<", b"?", b"1:02:03<5:00", b", ", b",", b"  1.25s/it", b"s/s"])
    | st.sampled_from([b"17.55it/s", b"1.2.3it/s", b"?it/s", b".it/s", b"it/s", b"8batch/s", b"]"])
    | st.sampled_from([b"Loss=1.5", b"Loss=nan", b"Grad=NaN", b"Epoch=0/2", b"Progress=5.0%", b"="])
    | st.sampled_from([b"Loss=", b"x y=1", b"Loss= 1", b"_=2", b"Loss=1_0", b"Loss=\xa01", b"\xff"])
)
_glued = st.lists(_part, max_size=14).map(b"".join)
_rates = st.sampled_from([b"17.55it/s", b"  1.25s/it", b"?it/s", b"8.0batch/s", b"1it/s]", b"3"])
_items = st.lists(_part, max_size=6).map(b", ".join)
_likely = st.builds(
    lambda count, clock, rate, items, glue: (
        b"Training:   0%|  | " + count + b" [" + clock + b", " + rate + b", " + items + glue
    ),
    st.sampled_from([b"7/9", b"0/0", b"12/1900", b"1/" + b"9" * 18]),
    st.sampled_from([b"00:01<00:09", b"1:00:00<?", b"00:01", b":1<2", b"1<<2", b"<1", b"1<"]),
    _rates,
    _items,
    st.sampled_from([b"", b"]", b", ]", b"]error, 7]", b"[rank1]: oops"]),
)


# A record holds no terminator.
_glue = st.binary(max_size=3).filter(lambda text: b"\r" not in text and b"\n" not in text)


@given(st.one_of(_likely, _glued, _glued.map(lambda text: b"Training: " + text)))
def test_both_ways_of_reading_agree_on_any_text(text: bytes) -> None:
    agree(text)


@given(st.integers(0, len(PLAIN)), st.integers(0, len(PLAIN)), _glue)
def test_both_ways_agree_wherever_a_bar_is_cut_and_whatever_is_glued_in(
    cut: int, resume: int, between: bytes
) -> None:
    agree(PLAIN[:cut] + between + PLAIN[resume:])


def test_both_ways_agree_on_the_examples_of_every_bar() -> None:
    lines = [example.line for rule in BARS.rules for example in rule.spec.examples]
    assert sum(agree(line.encode()) for line in lines) > 20


def test_a_bar_alone_in_its_record_is_the_same_bar_among_other_text(parse) -> None:
    """A prefix takes a record off the short way; the numbers stay the same."""
    bars = [PLAIN.replace(b"475/", b"%d/" % step) for step in range(300)]
    alone = parse(b"\r".join(bars))
    behind = parse(b"\r".join(b"[rank0]: " + bar for bar in bars))
    assert len(alone) == 300
    assert [(s.step, s.values) for s in alone] == [(s.step, s.values) for s in behind]
    assert {s.rank for s in alone} == {None}
    assert [s.position.offset for s in alone] == _starts(bars)


def _starts(records: list[bytes]) -> list[int]:
    starts, offset = [], 0
    for record in records:
        starts.append(offset)
        offset += len(record) + 1
    return starts


def test_an_escape_sequence_in_a_bar_is_stripped_as_ever(parse) -> None:
    (sample,) = parse(PLAIN.replace(b"|##8 |", b"|\x1b[32m##8\x1b[0m |"))
    assert (sample.step, sample.values["loss"]) == (475, 1.7353)


def test_what_a_rule_remembers_of_items_is_bounded() -> None:
    bars = Bars(BARS.rules)
    for number in range(5000):
        read(bars, PLAIN.replace(b"1.7353", b"%d" % number))
        read(bars, PLAIN.replace(b"Training", b"Part %d" % number))
    assert read(bars, PLAIN.replace(b"Epoch=0/2", b"X" * 100_000 + b"=1")) is not None
    caches = [bars.rule_of, *(rule.item for rule in bars.rules)]
    assert 1000 < max(cache.cache_info().currsize for cache in caches) < 2000


def read(bars: Bars, text: bytes) -> BarReading | None:
    return bars.read(text, 0, BarRecords(), closed=True)


def test_every_bar_of_genuine_logs_reads_the_same_both_ways(corpus: Path) -> None:
    logs = sorted((corpus / "upstream").glob("*/train_logs/*.log"))
    assert logs
    plain = 0
    for path in logs:
        for record in path.read_bytes().replace(b"\n", b"\r").split(b"\r"):
            plain += agree(record)
    assert plain > 1000


def test_genuine_logs_give_the_same_records_whole_and_line_by_line(corpus: Path) -> None:
    for path in sorted((corpus / "upstream").glob("[AB]*/train_logs/*.log")):
        data = path.read_bytes()
        whole = Parser().feed(Chunk("t.log", (1, 1, 0), 0, 1, data, final=True), Origin("r"), 0.0)
        parser, pieces, offset, line = Parser(), [], 0, 1
        for piece in data.splitlines(keepends=True):
            chunk = Chunk("t.log", (1, 1, 0), offset, line, piece)
            pieces += parser.feed(chunk, Origin("r"), 0.0)
            offset, line = offset + len(piece), line + piece.count(b"\n")
        pieces += parser.finish("t.log")
        assert list(map(repr, pieces)) == list(map(repr, whole))


@pytest.mark.parametrize(
    "bar",
    [
        "Train Epoch: 4 [45/287 (15%)] Loss: 7.25: : 45it [00:10,  4.29it/s]",
        "Train Epoch: 4 [45/287 (15%)] Loss: 7.25:  16%|#5   | 45/287 [00:10<00:50,  4.29it/s]",
        "Epoch 4, loss: 7.25: 45it [00:10, 4.29it/s]",
        "Epoch 4: 45it [00:10, 4.29it/s, loss=7.25]",
    ],
)
def test_a_bar_with_a_loss_is_a_training_s_with_a_percentage_or_without_a_total(parse, bar) -> None:
    (sample,) = [each for each in parse(f"{bar}\r{bar}\n") if isinstance(each, Sample)][-1:]
    assert (sample.step, sample.epoch, sample.values["loss"]) == (45, 4, 7.25)


def test_a_bar_without_total_and_loss_is_none(parse) -> None:
    assert not parse("Generating train split: 45it [00:10, 4.29it/s]\n" * 3)


@pytest.mark.parametrize(
    ("lines", "is_of_run"),
    [
        (["Epoch 1", "100%"], False),
        (["Epoch [1/3]", "50%", "100%", "Epoch [2/3]", "50%", "100%"], False),
        (["Epoch 1", "50%", "Epoch 2", "100%"], True),
        (["Epoch 1 of them", "100%"], True),
        (["100%"], True),
    ],
)
def test_a_bar_that_begins_anew_under_each_heading_is_of_an_epoch(
    lines: list[str], is_of_run: bool
) -> None:
    bars = {
        each: f"Training: {each}|###| {each[:-1]}/100 [00:18<00:00, 24.80it/s]" for each in lines
    }
    log = "\n".join(bars[each] if each.endswith("%") else each for each in lines)
    chunk = Chunk("a.log", (1, 1, 0), 0, 1, f"{log}\n".encode(), final=True)
    found = Parser().feed(chunk, Origin("r"), 0.0)
    *_, last = (each for each in found if isinstance(each, Sample))
    assert (last.values.get("progress") == 1.0) == is_of_run
    assert ("epoch_progress" in last.values) != is_of_run
