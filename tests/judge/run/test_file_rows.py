"""Rows of one file in blocks give a run the state that the same rows give it one by one."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.records import Position, Sample, SampleBlock, TimedRows
from ldlm_monitor.judge.run.file_rows import FileSteps
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.judge.run.training_run import TrainingRun

NOW = 1_795_000_000.0
PATHS = "a.jsonl", "b.jsonl"
GAPS = st.sampled_from([0.0, 0.5, 1.0, 1.0, 7.5, 45.0])
MOVES = st.sampled_from([1, 1, 1, 1, 2, 10])


def block_of(moves: list[int], gaps: list[float], path: str, first: int = 0) -> SampleBlock:
    steps = [*accumulate(moves, initial=first)]
    return SampleBlock(
        run="r",
        rank=PATHS.index(path),
        path=path,
        first_line=1,
        offsets=range(0, 40 * len(steps), 40),
        steps=steps,
        epochs=[0.0] * len(steps),
        times=[*accumulate(gaps[: len(moves)], initial=NOW)],
        values={"loss": [2.0 + step % 3 for step in steps], "data_seconds": [0.125] * len(steps)},
    )


def observe_singly(run: TrainingRun, block: SampleBlock) -> None:
    for row in TimedRows(block, block.times or ()).singly():
        run.observe([row], row.times[0])


def parts(block: SampleBlock, cuts: set[int]) -> Iterator[SampleBlock]:
    places = sorted({0, len(block), *(cut for cut in cuts if cut < len(block))})
    return (block.part(*ends) for ends in pairwise(places))


def state(run: TrainingRun) -> tuple[object, ...]:
    known = run.life.state, run.life.due(), run.life.steps.last, run.life.progress_step
    measured = run.measured()
    return known, run.view("HEALTHY", NOW + 3600), run.points(NOW), measured


@given(
    st.lists(MOVES, min_size=3, max_size=60),
    st.lists(GAPS, min_size=60, max_size=60),
    st.sets(st.integers(1, 60)),
    st.booleans(),
)
def test_a_block_cut_anywhere_gives_the_state_of_its_rows_one_by_one(
    moves: list[int], gaps: list[float], cuts: set[int], resumed: bool
) -> None:
    """With pauses, stalls of the clock, and steps that are taken again."""
    runs = alone, together = [TrainingRun("r", NOW, Stall(), Position("", 1, 0)) for _ in "ab"]
    blocks = [block_of(moves, gaps, PATHS[0])]
    if resumed:
        blocks.append(block_of(moves, gaps, PATHS[0], first=2))
    for block in blocks:
        observe_singly(alone, block)
        for part in parts(block, cuts):
            rows = TimedRows(part, part.times or ())
            if together.life.only_advances([rows]):
                together.observe([rows], rows.times[-1])
            else:
                observe_singly(together, part)
    assert state(alone) == state(together)
    assert {run.life.state for run in runs} == {"running"}


def test_a_block_that_follows_a_row_is_not_cut() -> None:
    run = TrainingRun("r", NOW, Stall(), Position("", 1, 0))
    first, second = parts(block_of([1] * 20, [1.0] * 20, PATHS[0]), {2})
    assert not run.life.only_advances([TimedRows(first, first.times or ())])
    observe_singly(run, first)
    assert run.life.only_advances([TimedRows(second, second.times or ())])


def test_rows_without_a_loss_go_together_in_a_run_that_has_one() -> None:
    """Where words report an end, each of them may be of an evaluation, and is judged alone."""
    run = TrainingRun("r", NOW, Stall(), Position("", 1, 0))
    first, second = parts(block_of([1] * 20, [1.0] * 20, PATHS[0]), {2})
    observe_singly(run, first)
    bare = replace(second, values={"data_seconds": second.values["data_seconds"]})
    assert run.life.only_advances([TimedRows(bare, bare.times or ())])
    run.life.goal.declare("Training complete", weak=False)
    assert not run.life.only_advances([TimedRows(bare, bare.times or ())])


def test_rows_fall_where_the_first_is_below_the_last_of_its_file_and_rank() -> None:
    steps = FileSteps()
    steps.last["a.jsonl", 0] = 5
    (fallen, *_) = block_of([1], [1.0], PATHS[0], first=4).samples()
    (other, *_) = block_of([1], [1.0], PATHS[1], first=4).samples()
    rows = [steps.rows(each, (NOW,), timed=True) for each in (fallen, other)]
    assert [each.falls for each in rows] == [True, False]


def test_only_the_first_row_of_a_block_without_times_falls() -> None:
    steps = FileSteps()
    steps.last["a.jsonl", 0] = 100
    block = replace(block_of([1] * 20, [1.0] * 20, PATHS[0]), times=None)
    rows = steps.rows(block, [NOW] * len(block), timed=False)
    rest = rows.rest()
    assert rest is not None
    assert [each.falls for each in (rows.first(), rest, rows.last_alone())] == [True, False, False]
    assert [each.previous for each in rows.singly()] == [100, *block.steps[:-1]]


def untimed(steps: range, **values: float) -> SampleBlock:
    columns = {"loss": [2.5] * len(steps)} | {
        name: [value] * len(steps) for name, value in values.items()
    }
    block = block_of([1] * (len(steps) - 1), [0.0] * len(steps), PATHS[0], first=steps[0])
    epochs = [float(step // 100) for step in steps] if "total_epochs" in values else None
    return replace(block, rank=None, times=None, epochs=epochs, values=columns)


def read_in(size: int, steps: int, **values: float) -> TrainingRun:
    """A run whose rows have no times, read `size` at a time, one step a second; then silence."""
    run = TrainingRun("r", NOW, Stall(), Position("", 1, 0))
    for first in range(0, steps, size):
        block = untimed(range(first, min(first + size, steps)), **values)
        at = NOW + first + len(block)
        run.observe([TimedRows(block, [at] * len(block))], at)
    run.tick(NOW + steps + 4000)
    return run


def test_a_run_that_hangs_near_its_end_has_not_finished_however_many_rows_come_at_once() -> None:
    for size in (10, 480):
        assert read_in(size, 9600, total_steps=10_000).life.state == "stalled"


def test_an_epoch_counts_all_its_rows_however_many_come_at_once() -> None:
    for size in (1, 5, 20):
        assert read_in(size, 960, total_epochs=10).life.state == "stalled"
        assert read_in(size, 1000, total_epochs=10).life.state == "finished"


@pytest.mark.parametrize(
    ("step", "loss", "total", "fall"),
    [
        (50, 5.0, None, ""),
        (49, 5.0, None, ""),
        (30, 9.0, None, "back"),
        (1, 9.0, None, "anew"),
        (1, 2.1, None, "kept"),
        (1, None, None, "begin"),
        (1, 2.1, 50, "kept"),
        (1, 2.1, 400, "back"),
    ],
)
def test_a_step_falls_back_or_to_the_first_one_with_its_loss_or_without(
    step: int, loss: float | None, total: int | None, fall: str
) -> None:
    """Of 50 steps whose loss fell from 10 to 2."""
    steps = FileSteps()

    def fallen(step: int, loss: float | None) -> str:
        values = {"loss": loss, "total_steps": total}
        sample = Sample(
            run="r",
            step=step,
            values={name: float(value) for name, value in values.items() if value is not None},
            source="text",
            position=Position("a.log", step, 0),
        )
        return steps.rows(sample, [NOW], timed=True).fall

    for each in range(1, 51):
        assert fallen(each, max(2 + each % 2 / 10, 10 - (each - 1) / 3)) == ""
    assert fallen(step, loss) == fall
