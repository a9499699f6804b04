"""Several ranks write into one file without a prefix: what they print comes apart again."""

from __future__ import annotations

import math
import random

import pytest

from ldlm_monitor.base.records import Event, Record, Sample

RULER = "=" * 60


def loss_block(value: str) -> list[str]:
    return [
        "",
        RULER,
        "ERROR: Invalid loss detected at step 44",
        RULER,
        f"  Total loss: {value}",
        f"  Text loss: {value}",
        "  Latent loss: 0.000000",
        "  Mode: unknown",
        "  Learning rate: 2.20e-04",
        "  Skipping this batch...",
        RULER,
    ]


def gradient_block(value: str) -> list[str]:
    return [
        "",
        RULER,
        "ERROR: Invalid gradient norm at step 44",
        RULER,
        f"  Gradient norm: {value}",
        "  Loss: 6.269017",
        "  Text loss: 6.269017",
        "  Latent loss: 0.000000",
        "  Learning rate: 2.00e-05",
        "  Skipping optimizer step and resetting gradients...",
        RULER,
    ]


def torn(blocks: list[list[str]], seed: int) -> str:
    """The blocks as unbuffered ranks print them: a text and its line break are two writes."""
    chance = random.Random(seed)
    writes = [[part for line in block for part in (line, "\n") if part] for block in blocks]
    text = ""
    while waiting := [rank for rank in writes if rank]:
        rank = chance.choice(waiting)
        for _ in range(min(chance.randint(1, 3), len(rank))):
            text += rank.pop(0)
    return text


def events_of(records: list[Record]) -> list[Event]:
    return [r for r in records if isinstance(r, Event) and r.kind == "nonfinite_metric"]


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("seed", range(8))
def test_every_rank_gives_one_whole_block_however_they_tear_each_other(parse, ranks, seed) -> None:
    text = torn([loss_block("nan")] * ranks, seed)
    events = events_of(parse(text))
    assert len(events) == ranks
    for event in events:
        assert (event.fields["step"], event.fields["value"]) == (44, "nan")
        assert math.isnan(event.fields["loss_text"])
        assert (event.fields["mode"], event.fields["learning_rate"]) == ("unknown", 0.00022)
        assert text.encode()[event.position.offset :].startswith(b"ERROR: Invalid loss")


@pytest.mark.parametrize("seed", range(8))
def test_torn_gradient_blocks_keep_each_value_once(parse, seed) -> None:
    records = parse(torn([gradient_block("inf"), gradient_block("NaN")], seed))
    assert sorted(str(event.fields["value"]) for event in events_of(records)) == ["NaN", "inf"]
    samples = [r for r in records if isinstance(r, Sample)]
    assert {sample.values["loss"] for sample in samples} == {6.269017}
    assert {sample.values["learning_rate"] for sample in samples} == {2e-05}


def test_an_error_glued_to_another_ranks_row_stands_where_its_own_text_begins(parse) -> None:
    first = ["ERROR: Invalid loss detected at step 44", "  Total loss: inf"]
    text = "\n".join(first) + "ERROR: Invalid loss detected at step 45\n\n  Total loss: nan\n"
    one, two = events_of(parse(text))
    assert (one.fields["step"], one.fields["value"]) == (44, "inf")
    assert (two.fields["step"], two.fields["value"]) == (45, "nan")
    assert two.message == "ERROR: Invalid loss detected at step 45"
    assert two.position.offset == text.rindex("ERROR")
    assert two.position.line == 2


def test_a_row_cut_by_the_end_of_the_file_is_not_a_number(parse) -> None:
    text = "ERROR: Invalid loss detected at step 44\n  Total loss: 123.45"
    (whole,) = [r for r in parse(text + "\n") if isinstance(r, Sample)]
    assert whole.values == {"loss": 123.45}
    assert not [r for r in parse(text) if isinstance(r, Sample)]


def test_a_message_glued_behind_the_end_of_a_block_is_not_lost(parse) -> None:
    block = "\n".join(loss_block("nan")[2:-1])
    records = parse(block + "WARNING: Invalid text_loss detected: nan\n")
    assert [event.message for event in events_of(records)] == [
        "ERROR: Invalid loss detected at step 44",
        "WARNING: Invalid text_loss detected: nan",
    ]
