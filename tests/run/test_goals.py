"""Whether a training has reached its end, by its own totals and words."""

from collections.abc import Iterable

import pytest

from ldlm_monitor.model.records import Position, Sample
from ldlm_monitor.run.goals import StepGoal


def sample(epoch: float | None, *, of: int | None = None, source: str = "text") -> Sample:
    values = {"loss": 1.0} | ({} if of is None else {"total_epochs": float(of)})
    return Sample(
        run="r",
        rank=None,
        step=None,
        epoch=epoch,
        time=None,
        values=values,
        source=source,  # type: ignore[arg-type]
        position=Position("log", 1, 0),
    )


def after(epochs: Iterable[float], of: int) -> StepGoal:
    goal = StepGoal()
    for epoch in epochs:
        goal.note(sample(float(epoch), of=of))
    return goal


@pytest.mark.parametrize(
    ("epochs", "total", "why"),
    [
        ((1, 2, 3), 3, "a record an epoch"),
        ((1, 1, 2, 2, 3, 3), 3, "two records an epoch"),
        ((0, 0, 1, 1, 2, 2), 3, "counted from 0"),
        ((1, 1, 1, 1, 2, 2, 3, 3), 3, "the first epoch has more"),
        ((7, 8, 9, 10), 10, "resumed in between"),
    ],
)
def test_a_run_with_as_many_records_in_its_last_epoch_as_before_is_complete(
    epochs: tuple[float, ...], total: int, why: str
) -> None:
    assert after(epochs, total).is_reached, why


@pytest.mark.parametrize(
    ("epochs", "total", "why"),
    [
        ((1, 2), 3, "an epoch is missing"),
        ((1, 1, 2, 2, 3), 3, "the last epoch has begun"),
        ((3,), 3, "nothing shows how many records an epoch has"),
        ((0, 1, 2), 4, "counted from 0, an epoch is missing"),
        ((1, 2, 3, 1), 3, "another training has begun"),
        ((1, 2), 0, "the total is not known"),
    ],
)
def test_a_run_with_fewer_is_not(epochs: tuple[float, ...], total: int, why: str) -> None:
    assert not after(epochs, total).is_reached, why


def test_a_training_begins_anew_where_its_epochs_do() -> None:
    goal = after((1, 2, 3), 3)
    assert not goal.note(sample(2.0)), "a rank that is behind"
    assert goal.note(sample(1.0))
    goal = after((1, 2, 3, 4, 5, 6), 9)
    assert not goal.note(sample(4.0)), "a resume"


def test_bars_do_not_count_as_records() -> None:
    goal = after((1, 1, 2), 2)
    goal.note(sample(2.0, source="bar"))
    assert not goal.is_reached


def test_a_total_of_steps_counts_in_the_last_epoch_only() -> None:
    goal = after((1, 2), 3)
    goal.observe(196, {"total_steps": 196.0}, 1)
    assert not goal.is_reached
    goal.note(sample(3.0))
    assert goal.is_reached


def test_words_before_each_epoch_are_of_an_epoch() -> None:
    goal = StepGoal()
    for epoch in (1.0, 2.0, 3.0):
        goal.declare("training finished")
        for _ in range(3):
            goal.note(sample(epoch))
            goal.went_on()
    goal.declare("training finished")
    assert not goal.is_reached


def test_words_at_the_end_of_several_trainings_in_one_log_are_of_all() -> None:
    goal = StepGoal()
    for _ in range(4):
        for epoch in (1.0, 2.0, 3.0):
            goal.note(sample(epoch))
            goal.went_on()
        goal.declare("training finished")
    assert goal.is_reached
