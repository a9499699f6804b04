"""Where a run may pause for the first time: after an epoch, and at round numbers of steps."""

import pytest

from ldlm_monitor.base.records import Position, Sample
from ldlm_monitor.judge.run.places import Places, is_first_round


def row(step: int | None, epoch: float | None = None, **values: float) -> Sample:
    return Sample(
        run="r",
        rank=None,
        step=step,
        epoch=epoch,
        time=None,
        values={"loss": 1.0} | values,
        source="text",
        position=Position("log", 1, 0),
    )


@pytest.mark.parametrize(
    ("step", "stride", "begun", "is_first"),
    [
        (1000, 1, 0, True),
        (999, 1, 0, True),  # counted from 0
        (1001, 1, 0, False),
        (11000, 1, 0, False),  # a period of 1,000 has passed without a pause
        (1500, 1, 0, True),  # a digit and a half
        (7000, 1, 0, True),
        (1024, 1, 0, True),  # a power of two
        (1020, 10, 0, True),
        (1536, 1, 0, False),  # one of 512 has passed
        (2500, 10, 0, True),
        (50, 1, 0, True),
        (48, 1, 0, False),  # too few logged steps
        (790, 10, 0, True),  # the pause is before the line of step 800
        (820, 10, 0, False),
        (5000, 1, 4321, True),  # the first multiple of 1,000 after a resume
        (6000, 1, 4321, True),  # and of 2,000
        (11000, 1, 4321, False),
        (140, 10, 0, True),
        (500, 100, 0, False),  # too few logged steps
    ],
)
def test_a_period_is_possible_until_one_of_its_multiples_has_passed(
    step: int, stride: int, begun: int, *, is_first: bool
) -> None:
    assert is_first_round(step, stride, begun) is is_first


def test_few_steps_are_the_first_of_a_round_number() -> None:
    assert sum(is_first_round(step, 1, 0) for step in range(10**4)) <= 90
    assert sum(is_first_round(step, 10, 0) for step in range(0, 10**4, 10)) <= 60


@pytest.mark.parametrize(
    ("before", "last"),
    [
        ([], row(4950, 1.0, total_steps=5005.0)),  # the next line is of the next epoch
        ([row(40, 0.8)], row(50, 1.0)),
        ([row(7)], row(None, 1.0)),  # what the epoch came to
        ([row(7)], row(7, eval_loss=2.0)),
    ],
)
def test_an_epoch_ends_with_its_last_logged_step_or_with_what_it_came_to(
    before: list[Sample], last: Sample
) -> None:
    places = Places()
    for each in before:
        places.observe(each, 50, moves=True, ends_epoch=False)
        assert not places.here
    moves = not before or last.step not in (before[-1].step, None)
    places.observe(last, 100, moves=moves, ends_epoch=False)
    assert places.here["epoch"]


def test_every_so_many_epochs_more_may_follow() -> None:
    places, first = Places(), []
    for epoch in range(1, 31):
        places.here.clear()
        places.observe(row(epoch), 1, moves=True, ends_epoch=True)
        first += [epoch] if places.here["epoch"] else []
    assert first == [*range(1, 11), 15, 16, 20, 25, 30]


def test_results_at_a_round_number_of_steps_hide_no_period() -> None:
    places = Places()
    for step in range(90, 1001, 10):  # evaluated every 10 steps
        places.here.clear()
        places.observe(row(step), 1, moves=True, ends_epoch=False)
        places.observe(row(step, eval_loss=2.0), 1, moves=False, ends_epoch=False)
    assert places.here["round"]
    assert not places.here["epoch"], "the 92nd"


def test_batches_are_passed_over_before_the_first_step_of_an_attempt() -> None:
    places = Places()
    places.note({"skips"})
    assert places.here == {"skip": True}
    places.here.clear()
    places.observe(row(7), 1, moves=True, ends_epoch=False)
    places.note({"skips"})
    assert not places.here
    places.begin()
    places.note({"skips"})
    assert places.here == {"skip": True}
