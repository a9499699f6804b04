"""Prints of two ranks in one line: each value belongs to the rank whose prefix stands before it."""

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Sample
from ldlm_monitor.logs.parse import Parser


def losses(line: str) -> list[tuple[int | None, int | None, float, int]]:
    data = f"{line}\n\n".encode()
    parsed = Parser().feed(Chunk("train.log", (0, 0, 0), 0, 1, data, final=True), Origin("r"), 0.0)
    return [
        (each.rank, each.step, each.values["loss"], each.position.offset)
        for each in parsed
        if isinstance(each, Sample)
    ]


def test_a_line_of_two_ranks_gives_each_its_own_loss() -> None:
    one = "[RANK1] Epoch 1 | Iter 10 | Train Loss 4.38000"
    other = "[RANK0] Epoch 1 | Iter 10 | Train Loss 3.98000"
    assert losses(one + other) == [(1, 10, 4.38, 0), (0, 10, 3.98, len(one))]


def test_of_three_that_stand_in_one_line_each_has_its_own() -> None:
    line = "".join(f"[rank{rank}]: step {rank + 5} loss {rank + 0.5}" for rank in (2, 0, 1))
    assert [found[:3] for found in losses(line)] == [(2, 7, 2.5), (0, 5, 0.5), (1, 6, 1.5)]


@pytest.mark.parametrize(
    "line",
    [
        "[rank1]: step 10 loss 4.5 behind [rank0]: by a step",
        "[default1]:[rank1]:step 10 loss 4.5",
        "[rank1]: [rank1]: step 10 loss 4.5",
        "step 10 loss 4.5",
    ],
)
def test_a_rank_that_a_text_names_divides_no_line(line: str) -> None:
    assert [found[1:3] for found in losses(line)] == [(10, 4.5)]


@pytest.mark.parametrize(
    "line",
    [
        '[rank0] config={"note":"[rank1] step 9 loss 2.5"}',
        "[rank0] order=[rank1] step 9 loss 2.5",
        "[rank0] from ([rank1] step 9 loss 2.5)",
    ],
)
def test_a_rank_that_a_value_quotes_gets_no_part_of_the_line(line: str) -> None:
    assert 1 not in {found[0] for found in losses(line)}
