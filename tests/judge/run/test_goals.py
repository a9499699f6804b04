"""Whether a training has reached its end, by its own totals and words."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from ldlm_monitor.base.records import Position, Sample
from ldlm_monitor.judge.run.goals import StepGoal


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


def test_of_many_records_one_may_lack_where_epochs_are_no_multiple_of_the_logged_steps() -> None:
    epochs = [each for each in range(1, 20) for _ in range(5)]
    assert after([*epochs, 20, 20, 20, 20], 20).is_reached
    assert not after([*epochs, 20, 20, 20], 20).is_reached


def test_a_training_begins_anew_where_its_epochs_do() -> None:
    goal = after((1, 2, 3), 3)
    assert not goal.note(sample(2.0)), "a rank that is behind"
    assert goal.note(sample(1.0))
    goal = after((1, 2, 3, 4, 5, 6), 9)
    assert not goal.note(sample(4.0)), "a resume"


def test_a_rank_an_epoch_behind_is_no_new_training() -> None:
    goal = after((1, 1, 2, 2, 3), 3)
    assert not goal.note(sample(2.0)), "its record is of an epoch that counts already"
    assert not goal.is_reached
    goal.note(sample(3.0))
    assert goal.is_reached, "the epochs before are still known"
    assert not after((1, 2), 3).note(sample(1.0)), "also in the first epoch"


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
        goal.declare("training finished", weak=False)
        for _ in range(3):
            goal.note(sample(epoch))
            goal.went_on()
    goal.declare("training finished", weak=False)
    assert not goal.is_reached


def test_words_at_the_end_of_several_trainings_in_one_log_are_of_all() -> None:
    goal = StepGoal()
    for _ in range(4):
        for epoch in (1.0, 2.0, 3.0):
            goal.note(sample(epoch))
            goal.went_on()
        goal.declare("training finished", weak=False)
    assert goal.is_reached


def planned(seen: Iterable[float], **settings: float) -> StepGoal:
    goal = StepGoal()
    goal.expect(settings)
    for epoch in seen:
        goal.note(sample(float(epoch)))
        goal.went_on()
    return goal


@pytest.mark.parametrize(
    ("epochs", "reached", "why"),
    [
        ((1, 2, 3), True, "counted from 1"),
        ((0, 1, 2), True, "counted from 0"),
        ((0, 0, 1, 1, 2, 2), True, "two records an epoch"),
        ((1, 2), False, "an epoch is missing"),
        ((1, 1, 2, 2, 3), False, "the last epoch has begun"),
        ((1, 2, 3, 4, 5), False, "the settings were of something else"),
    ],
)
def test_printed_settings_are_a_total_where_the_records_have_none(
    epochs: tuple[float, ...], reached: bool, why: str
) -> None:
    assert planned(epochs, epochs=3).is_reached == reached, why


def test_of_two_settings_the_greater_counts() -> None:
    goal = StepGoal()
    goal.expect({"epochs": 300})
    goal.expect({"epochs": 2})
    for epoch in (1.0, 2.0):
        goal.note(sample(epoch))
        goal.went_on()
    assert not goal.is_reached


def test_of_one_setting_the_last_statement_holds() -> None:
    """An override is printed after the default."""
    goal = StepGoal()
    goal.expect({"steps": 5000, "setting": "max_iters"})
    goal.expect({"steps": 400, "setting": "--max-iters"})
    goal.went_on()
    goal.observe(400, {}, 1)
    assert goal.is_reached
    goal = StepGoal()
    goal.expect({"steps": 5000, "setting": "max_iters"})
    goal.expect({"steps": 400, "setting": "decay_steps"})
    goal.went_on()
    goal.observe(400, {}, 1)
    assert not goal.is_reached, "the greater of two settings"


def test_a_total_of_the_records_outranks_the_settings() -> None:
    goal = StepGoal()
    goal.expect({"epochs": 2, "steps": 4})
    for epoch in (1.0, 2.0):
        goal.note(sample(epoch, of=5))
        goal.went_on()
    goal.observe(4, {"total_steps": 100.0}, 1)
    assert not goal.is_reached


@pytest.mark.parametrize(
    ("step", "stride", "reached"),
    [(1000, 50, True), (950, 50, True), (900, 50, False), (1001, 50, True), (1050, 50, False)],
)
def test_planned_steps_are_reached_at_their_number_and_not_beyond(
    step: int, stride: int, reached: bool
) -> None:
    goal = StepGoal()
    goal.expect({"steps": 1000})
    goal.went_on()
    goal.observe(0, {}, 0)
    goal.observe(step, {}, stride)
    assert goal.is_reached == reached


def test_settings_after_records_are_those_of_the_next_training() -> None:
    goal = planned((1, 2, 3), epochs=9)
    goal.expect({"epochs": 2})
    assert not goal.is_reached
    assert goal.note(sample(1.0)), "its first epoch"
    goal.went_on()
    goal.note(sample(2.0))
    goal.went_on()
    assert goal.is_reached


def test_words_before_the_first_record_are_of_something_else() -> None:
    goal = StepGoal()
    goal.declare("done", weak=False)
    goal.note(sample(1.0))
    goal.went_on()
    assert not goal.is_reached


def test_weak_words_do_not_count_where_a_total_is_ahead() -> None:
    goal = after((1, 2), 3)
    goal.declare("total runtime: 3 h", weak=True)
    assert not goal.is_reached, "the third epoch is to come"
    goal.declare("training finished", weak=False)
    assert goal.is_reached, "a training may stop early"
    goal = planned((1, 2), steps=200)
    goal.observe(100, {}, 1)
    goal.declare("total runtime: 3 h", weak=True)
    assert not goal.is_reached
    goal = after((1, 2), 0)
    goal.declare("total runtime: 3 h", weak=True)
    assert goal.is_reached, "no total is known"


def test_results_that_no_epoch_had_end_a_training_and_those_of_each_epoch_do_not() -> None:
    goal = StepGoal()
    for epoch in (1.0, 2.0, 3.0, 4.0, 5.0):
        goal.note(sample(epoch))
        goal.went_on()
        goal.declare_results("Test accuracy: 0.5")
    assert not goal.is_reached
    goal.declare_results("Best epoch: 4")
    assert goal.is_reached


RESULT, SAVED = "Test accuracy: 0.5", "Model saved to ckpt_1000.pt"


def without_epochs(*lines: str, records: int = 100) -> StepGoal:
    goal = StepGoal()
    for _ in range(records):
        goal.went_on()
    for line in lines:
        goal.declare_results(line)
    return goal


@pytest.mark.parametrize(
    ("lines", "records", "reached", "why"),
    [
        ((RESULT,), 100, False, "of the first interval"),
        ((SAVED,), 100, False, "the first checkpoint"),
        ((SAVED, "Best model saved to best_1.pt"), 100, False, "both are of one checkpoint"),
        ((RESULT, "Test loss: 1"), 100, False, "both are of one test"),
        ((RESULT, SAVED), 100, True, "tested and saved"),
        ((RESULT, SAVED), 3, False, "too early"),
    ],
)
def test_without_epochs_a_first_result_or_saved_model_alone_ends_nothing(
    lines: tuple[str, ...], records: int, reached: bool, why: str
) -> None:
    assert without_epochs(*lines, records=records).is_reached == reached, why


def test_results_that_an_interval_had_end_nothing_after_a_later_one() -> None:
    goal = without_epochs(RESULT, SAVED)
    for _ in range(10):
        goal.went_on()
    goal.declare_results(RESULT)
    goal.declare_results("Saved model to out/2.pt")
    assert not goal.is_reached


def test_results_end_nothing_while_the_logs_writer_lives() -> None:
    goal = without_epochs(RESULT, SAVED)
    goal.deny_results()
    assert not goal.is_reached
    goal.declare("Training finished", weak=False)
    goal.deny_results()
    assert goal.is_reached, "words are no results"


def test_where_losses_are_logged_counts_without_one_after_the_words_are_of_an_evaluation() -> None:
    goal = StepGoal()
    goal.note(sample(None))
    goal.went_on()
    goal.declare("training finished", weak=False)
    for step in range(5):
        goal.note(replace(sample(None, source="bar"), step=step, values={"progress": 0.5}))
        goal.went_on()
    assert goal.is_reached


def test_weak_words_that_a_log_without_progress_repeats_end_nothing() -> None:
    goal = StepGoal()
    goal.declare("Done!", weak=True)
    assert goal.is_reached
    for _ in range(2):
        goal.declare("Done!", weak=True)
    assert not goal.is_reached


@pytest.mark.parametrize(("planned", "reached"), [(32.0, True), (40.0, False)])
def test_steps_of_which_as_many_are_to_come_as_epochs_are_planned_are_these(
    planned: float, reached: bool
) -> None:
    goal = StepGoal()
    goal.expect({"epochs": planned})
    for step in range(1, 33):
        goal.observe(step, {"total_steps": 32.0}, 1)
    assert goal.is_reached is reached


def test_results_and_weak_words_end_a_training_of_several_parts_in_the_last_one_only() -> None:
    goal = StepGoal()
    for part in (1, 2, 3):
        goal.expect({"part": part, "parts": 3})
        for epoch in (1.0, 2.0, 3.0, 4.0, 5.0):
            goal.note(sample(epoch))
            goal.went_on()
        goal.declare_results("[test] loss: 0.5")
        assert goal.is_reached == (part == 3)
    goal.expect({"part": 1, "parts": 3})
    goal.note(sample(1.0))
    goal.declare("total time: 3 h", weak=True)
    assert not goal.is_reached
    goal.declare("training finished", weak=False)
    assert goal.is_reached, "one part alone may be all that was started"


def test_results_of_each_whole_training_end_the_last_one_too() -> None:
    goal = StepGoal()
    for _ in range(4):
        for epoch in (1.0, 2.0, 3.0, 4.0, 5.0):
            goal.note(sample(epoch))
            goal.went_on()
        goal.declare_results("Test accuracy: 0.5")
        assert goal.is_reached
