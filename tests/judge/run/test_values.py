"""One value from one source, and what it was lately."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.records import Event, Position, Sample, SampleBlock, TimedRows
from ldlm_monitor.judge.run.file_rows import FileSteps, ValueSource
from ldlm_monitor.judge.run.logged_values import MAX_QUANTITIES, RunValues
from ldlm_monitor.judge.run.quantity import exported_name
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.judge.run.training_run import TrainingRun

AT = Position("saved/r/training_log.jsonl", 1, 0)


def sample(step: int | None = 1, rank: int | None = None, **values: float) -> Sample:
    return Sample(run="r", step=step, rank=rank, values=values, position=AT)


def observe(values: RunValues, sample: Sample, source: ValueSource) -> list[str]:
    rows = FileSteps().rows(sample, (0.0,), timed=True)
    return values.observe([replace(rows, source=source)], 0.0)


def exported(values: RunValues) -> dict[str, float]:
    return {
        point.name + "".join(f" {v}" for n, v in point.labels if n != "run"): point.value
        for point in values.points()
    }


@pytest.mark.parametrize(
    ("quantity", "name"),
    [
        ("loss", ("ldlm_train_loss", ())),
        ("loss_text", ("ldlm_train_component_loss", (("component", "text"),))),
        ("loss_scale", ("ldlm_train_loss_scale", ())),
        ("accuracy", ("ldlm_train_accuracy_ratio", ())),
        ("accuracy_text", ("ldlm_train_accuracy_ratio", (("component", "text"),))),
        ("gpu_power_watts", ("ldlm_gpu_power_watts", (("gpu", "3"),))),
        ("gpu_throttled_power", ("ldlm_gpu_throttled", (("gpu", "3"), ("reason", "power")))),
        ("gpu_sm_clock_hertz", ("ldlm_train_metric", (("name", "gpu_sm_clock_hertz"),))),
        ("latent_norm", ("ldlm_train_metric", (("name", "latent_norm"),))),
    ],
)
def test_every_quantity_has_its_metric(quantity: str, name: Any) -> None:
    assert exported_name(quantity, rank=3) == name


def test_a_better_source_takes_over_and_a_worse_one_is_ignored_from_then_on() -> None:
    values = RunValues("r")
    observe(values, sample(loss=9.0, grad_norm=1.0), ValueSource.BAR)
    observe(values, sample(loss=2.0), ValueSource.JSONL)
    observe(values, sample(loss=9.5, grad_norm=1.5), ValueSource.BAR)
    assert values.last("loss") == 2.0
    assert values.last("grad_norm") == 1.5
    loss = values.statistics()["loss"]
    assert (loss.current, loss.mean, loss.count, loss.nonfinite) == (2.0, 2.0, 1, 0)


def test_a_better_source_of_some_rank_ends_a_worse_one_that_knows_no_rank() -> None:
    """A log began; then came the callback's files. A spike must not ring for both."""
    values = RunValues("r")
    observe(values, sample(loss=2.0, grad_norm=1.0), ValueSource.JSONL)
    observe(values, sample(rank=1, loss=3.0), ValueSource.CALLBACK)
    observe(values, sample(loss=9.0, grad_norm=1.5), ValueSource.JSONL)
    shown = exported(values)
    assert [name for name in shown if name.startswith("ldlm_train_loss")] == ["ldlm_train_loss 1"]
    assert shown["ldlm_train_loss 1"] == 3.0
    assert values.last("grad_norm") == 1.5


def test_each_rank_has_its_own_series() -> None:
    values = RunValues("r")
    observe(values, sample(rank=0, loss=2.0), ValueSource.CALLBACK)
    observe(values, sample(rank=1, loss=3.0), ValueSource.CALLBACK)
    shown = exported(values)
    assert (shown["ldlm_train_loss 0"], shown["ldlm_train_loss 1"]) == (2.0, 3.0)


def test_the_rate_of_a_run_is_the_sum_of_what_each_callback_was_given() -> None:
    values = RunValues("r")
    for step in (1, 2):
        for rank in (0, 1):
            rates = {"samples_per_second": 40.0 * step + rank, "loss": 2.0 + rank}
            observe(values, sample(step, rank, **rates), ValueSource.CALLBACK)
    known = values.statistics()
    rate = known["samples_per_second"]
    assert (rate.current, rate.minimum, rate.maximum, rate.count) == (161.0, 81.0, 161.0, 2)
    assert known["loss"].current == 2.0
    assert exported(values)["ldlm_train_samples_per_second 1"] == 81.0


def test_the_rate_in_a_log_is_that_of_all_ranks() -> None:
    values = RunValues("r")
    for rank in (0, 1):
        observe(values, sample(1, rank, samples_per_second=160.0), ValueSource.TEXT)
    assert values.statistics()["samples_per_second"].current == 160.0


def test_counts_of_what_is_not_finite_begin_at_zero_and_count_a_step_once() -> None:
    values = RunValues("r")
    assert exported(values)["ldlm_train_nonfinite_total loss"] == 0
    assert observe(values, sample(44, loss=math.nan), ValueSource.JSONL)
    block = {"quantity": "loss", "step": 44}
    logged = Event(
        kind="nonfinite_metric", severity="error", run="r", message="m", fields=block, position=AT
    )
    assert not values.observe_nonfinite(logged, 7.0)
    assert exported(values)["ldlm_train_nonfinite_total loss"] == 1
    logged = Event(
        kind="nonfinite_metric",
        severity="error",
        run="r",
        message="m",
        fields={"quantity": "loss", "step": 67},
        position=AT,
    )
    assert values.observe_nonfinite(logged, 7.0)
    assert values.statistics()["loss"].nonfinite == 2


def test_a_loss_that_the_trainer_hides_behind_a_constant_is_counted() -> None:
    values = RunValues("r")
    fields = {"quantity": "loss_latent", "hidden": True}
    logged = Event(
        kind="nonfinite_metric", severity="error", run="r", message="m", fields=fields, position=AT
    )
    assert values.observe_nonfinite(logged, 7.0)
    assert exported(values)["ldlm_train_nonfinite_total loss_latent"] == 1


def test_quantities_are_bounded_and_what_is_dropped_is_counted() -> None:
    values = RunValues("r")
    many = {f"key_{index}": 1.0 for index in range(MAX_QUANTITIES + 5)}
    observe(values, sample(**many), ValueSource.JSONL)
    assert values.dropped == 5


def test_a_block_with_too_many_quantities_drops_what_its_rows_would() -> None:
    columns = {f"key_{index}": [1.0, 2.0, 3.0] for index in range(MAX_QUANTITIES + 5)}
    block = SampleBlock(
        run="r",
        rank=None,
        path=AT.path,
        first_line=1,
        offsets=[0, 10, 20],
        steps=[1, 2, 3],
        epochs=None,
        times=None,
        values=columns,
    )
    values = RunValues("r")
    values.observe([FileSteps().rows(block, [0.0] * 3, timed=True)], 0.0)
    assert values.dropped == 15


@given(
    st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=2, max_size=40),
    st.integers(0, 3),
    st.sets(st.integers(0, 39)),
)
def test_a_block_of_rows_is_taken_in_as_its_rows_one_by_one(
    rows: list[tuple[float, float]], before: int, now_and_then: set[int]
) -> None:
    cells = {index: float(index) for index in sorted(now_and_then) if index < len(rows)}
    block = SampleBlock(
        run="r",
        rank=None,
        path=AT.path,
        first_line=1,
        offsets=range(0, 10 * len(rows), 10),
        steps=range(before, before + len(rows)),
        epochs=[0.0] * len(rows),
        times=None,
        values={"loss": [a for a, _ in rows], "latent_norm": [b for _, b in rows]},
        sparse={"ratio": cells} if cells else {},
    )
    together, apart = (TrainingRun("r", 0.0, Stall(), AT) for _ in range(2))
    found = TimedRows(block, [10.0] * len(rows))
    together.observe([found], 10.0)
    for each in found.singly():
        apart.observe([each], 10.0)
    assert together.view("HEALTHY") == apart.view("HEALTHY")
    assert together.points(0.0) == apart.points(0.0)
    assert sorted(together.values.evidence(), key=repr) == sorted(apart.values.evidence(), key=repr)


def test_a_better_source_that_finds_no_room_does_not_take_the_value_away() -> None:
    values = RunValues("r")
    observe(values, sample(loss=2.0), ValueSource.TEXT)
    many = {f"layer{index}": 1.0 for index in range(MAX_QUANTITIES)}
    observe(values, sample(rank=0, **many), ValueSource.CALLBACK)
    observe(values, sample(rank=0, loss=2.5), ValueSource.CALLBACK)
    assert values.dropped == 1
    observe(values, sample(step=2, loss=3.0), ValueSource.TEXT)
    assert values.last("loss") == 3.0


def test_a_nan_at_a_step_that_is_trained_again_counts_and_alerts_again() -> None:
    run = TrainingRun("r", 0.0, Stall(), AT)

    def logged(step: int, loss: float, at: float) -> str | None:
        return run.observe([TimedRows(sample(step, loss=loss), (at,))], at)

    assert logged(150, math.nan, 150.0) is not None
    assert logged(150, math.nan, 150.5) is None  # a bar that was redrawn
    logged(143, 2.0, 2000.0)
    assert logged(150, math.nan, 2007.0) is not None
    line = replace(AT, line=9)
    end = Event(kind="run_finished", severity="info", run="r", message="", position=line)
    run.observe([TimedRows(end, (2100.0,))], 2100.0)
    run.observe([TimedRows(replace(end, kind="run_started"), (2200.0,))], 2200.0)
    assert logged(150, math.nan, 2300.0) is not None
    assert run.values.statistics()["loss"].nonfinite == 3
