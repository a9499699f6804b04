"""Whatever is cut off or mixed, nothing raises, and no number appears that nobody wrote."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Record, Sample
from ldlm_monitor.logs.parse import Parser, definitions
from ldlm_monitor.logs.parse.triggers import compiled

Value = tuple[str, float]


def records_of(data: bytes) -> list[Record]:
    parser = Parser()
    chunk = Chunk("a.log", (1, 1, 0), 0, 1, data, final=True)
    return parser.feed(chunk, Origin(run="r"), 0.0) + parser.finish("a.log")


def values_of(records: Iterable[Record]) -> set[Value]:
    """Every value, and every number in a field; NaN as a value that equals itself."""
    found: list[tuple[str, object]] = []
    for record in records:
        if isinstance(record, Sample):
            found += [("step", record.step), ("epoch", record.epoch), *record.values.items()]
        elif hasattr(record, "fields"):
            found += record.fields.items()
    return {
        (name, math.inf if math.isnan(value) else float(value))
        for name, value in found
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def written(text: str) -> set[float]:
    """The numbers that stand in a text as whole words: an earlier frame's line, another's pid."""
    return {float(word) for word in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])", text)} | {0.0}


@cache
def texts() -> tuple[str, ...]:
    """The examples of all packaged definitions: what trainers, torchrun and NCCL print."""
    return tuple(
        example.line
        for loaded in map(definitions.load, definitions.packaged_files())
        for entries in (loaded.bars, loaded.lines, loaded.events)
        for entry in entries
        for example in entry.examples
    )


def wrong_when_cut(text: str, end: int) -> set[Value]:
    """What a text gives that is cut behind so many bytes, and the whole text does not.

    Keras paints a line over itself: what stands before the cut may be its earlier state.
    """
    whole = text.encode()
    if " - ETA: " in text:
        return set()
    given = samples_of(records_of(whole[:end]))
    sure = samples_of(records_of(whole + b"\n"))
    return given - sure


def samples_of(records: Iterable[Record]) -> set[Value]:
    return values_of(record for record in records if isinstance(record, Sample))


@pytest.fixture(scope="module", autouse=True)
def _compile_before_time_is_measured() -> None:
    compiled()


@given(st.data())
def test_a_text_cut_anywhere_gives_no_value_that_the_whole_text_does_not_give(data) -> None:
    whole = data.draw(st.sampled_from(texts())).encode()
    end = data.draw(st.integers(0, len(whole)))
    sure = values_of(records_of(whole + b"\n"))
    found = {value for _, value in values_of(records_of(whole[:end]))}
    assert found <= {value for _, value in sure} | written(whole.decode())


@given(st.data())
def test_a_text_cut_anywhere_gives_no_other_sample(data) -> None:
    text = data.draw(st.sampled_from(texts()))
    assert not wrong_when_cut(text, data.draw(st.integers(0, len(text.encode()))))


@pytest.mark.long
def test_no_text_cut_at_any_byte_gives_another_sample() -> None:
    wrong = [
        (text, end)
        for text in texts()
        for end in range(len(text.encode()))
        if wrong_when_cut(text, end)
    ]
    assert wrong == []


@pytest.mark.long
def test_no_text_that_begins_at_any_byte_gives_a_number_that_was_shortened() -> None:
    """Behind a cut a line may be one of another form; its numbers are those that were written."""
    judged = ("loss", "eval_loss", "grad_norm")
    wrong = []
    for text in texts():
        whole = text.encode()
        sure = {value for _, value in samples_of(records_of(whole + b"\n"))} | written(text)
        sure |= {math.inf, -math.inf}
        for start in range(len(whole)):
            found = samples_of(records_of(whole[start:] + b"\n"))
            wrong += [
                (text, start) for name, value in found if name in judged and value not in sure
            ]
    assert wrong == []


@given(st.data())
def test_a_text_that_begins_anywhere_raises_nothing(data) -> None:
    whole = data.draw(st.sampled_from(texts())).encode()
    start = data.draw(st.integers(0, len(whole)))
    for record in records_of(whole[start:] + b"\n"):
        assert 0 <= record.position.offset <= len(whole) - start


@given(st.data())
def test_lines_of_two_ranks_in_any_order_give_no_value_that_neither_gives_alone(data) -> None:
    ranks = [data.draw(st.sampled_from(texts())).splitlines() for _ in range(2)]
    alone = values_of([r for lines in ranks for r in records_of("\n".join([*lines, ""]).encode())])
    mixed: list[str] = []
    while any(ranks):
        rank = data.draw(st.sampled_from([lines for lines in ranks if lines]))
        mixed.append(rank.pop(0))
    text = "\n".join([*mixed, ""])
    found = {value for _, value in values_of(records_of(text.encode()))}
    assert found <= {value for _, value in alone} | written(text)
