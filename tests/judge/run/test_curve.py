"""A curve is bounded, and loses no spike and no NaN."""

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.queries import part_of
from ldlm_monitor.base.records import Position, Sample, SampleBlock
from ldlm_monitor.judge.run.curve import CAPACITY, RunCurve, is_charted
from ldlm_monitor.judge.run.file_rows import FileSteps


def sample(step: int | None, value: float, line: int = 1) -> Sample:
    return Sample(
        run="r", step=step, values={"loss": value}, position=Position("a.jsonl", line, line * 10)
    )


def add(curve: RunCurve, sample: Sample, at: float, value: float) -> None:
    curve.extend((value,), FileSteps().rows(sample, (at,), timed=True), (0,))


def curve_of(values: list[float]) -> RunCurve:
    curve = RunCurve()
    for step, value in enumerate(values):
        add(curve, sample(step, value, step + 1), float(step), value)
    return curve


def single(value: float) -> float:
    return array("f", [value])[0]


NUMBERS = st.floats(-(2.0**99), 2.0**99, width=32) | st.sampled_from(
    [math.nan, math.inf, -math.inf]
)


@given(st.lists(NUMBERS, min_size=1, max_size=3000))
def test_extremes_and_every_nonfinite_value_survive(values: list[float]) -> None:
    shown = part_of(curve_of(values).view(), None, None, 64)
    assert len(shown.steps) <= 64
    finite = [value for value in values if math.isfinite(value)]
    assert sum(shown.nonfinite) == len(values) - len(finite)
    lows = [low for low in shown.lows if not math.isnan(low)]
    highs = [high for high in shown.highs if not math.isnan(high)]
    assert min(lows, default=None) == min(finite, default=None)
    assert max(highs, default=None) == max(finite, default=None)


def test_a_million_steps_stay_bounded_and_the_one_spike_is_there() -> None:
    curve, rows = RunCurve(), 100_000
    for part in range(10):
        column = [2.0] * rows
        column[77] = 9.0 if part == 3 else 2.0
        steps = range(part * rows, (part + 1) * rows)
        block = SampleBlock(
            run="r", rank=None, path="a.jsonl", first_line=part * rows + 1, offsets=steps,
            steps=steps, epochs=None, times=None, values={"loss": column},
        )  # fmt: skip
        curve.extend(column, FileSteps().rows(block, [5.0] * rows, timed=True), range(len(block)))
    shown = curve.view()
    assert len(shown.steps) <= CAPACITY
    spike = max(range(len(shown.steps)), key=lambda index: shown.highs[index])
    assert shown.highs[spike] == 9.0
    assert shown.steps[spike] <= 300_077 < shown.steps[spike + 1]


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=1500))
def test_rows_taken_together_give_the_curve_of_rows_taken_one_by_one(values: list[float]) -> None:
    steps = range(len(values))
    block = SampleBlock(
        run="r", rank=None, path="a.jsonl", first_line=1, offsets=[10 * (s + 1) for s in steps],
        steps=steps, epochs=None, times=None, values={"loss": values},
    )  # fmt: skip
    together = RunCurve()
    rows = FileSteps().rows(block, [float(step) for step in steps], timed=True)
    together.extend(values, rows, steps)
    one, other = together.view(), curve_of(values).view()
    for name in ("steps", "times", "lows", "highs", "nonfinite", "lines", "offsets"):
        assert list(getattr(one, name)) == list(getattr(other, name))
    assert list(one.means) == pytest.approx(list(other.means), rel=1e-4, abs=1e-2)


def test_a_redrawn_bar_is_ignored() -> None:
    curve = RunCurve()
    for value in (2.0, 2.0, 2.5):
        add(curve, sample(7, value), 1.0, value)
    assert list(curve.view().steps) == [7]
    assert list(curve.view().highs) == [2.0]


def test_a_resumed_run_goes_back() -> None:
    curve = RunCurve()
    for step in (1, 2, 3, 2, 3, 4):
        add(curve, sample(step, 1.0), 1.0, 1.0)
    assert list(curve.view().steps) == [1, 2, 3, 2, 3, 4]


def test_a_bucket_knows_its_line() -> None:
    shown = curve_of([1.0, 2.0, 3.0]).view()
    assert shown.position(2) == Position("a.jsonl", 3, 30)


def test_a_log_without_steps_is_drawn_in_its_order() -> None:
    curve = RunCurve()
    for value in (3.0, 2.0):
        add(curve, sample(None, value), 1.0, value)
    assert list(curve.view().steps) == [0, 1]


def test_values_beyond_single_precision_are_drawn_at_its_edge() -> None:
    assert list(curve_of([1e300]).view().highs) == [single(3.4e38)]


@pytest.mark.parametrize(
    ("quantity", "charted"), [("loss", True), ("loss_text", True), ("entropy", False)]
)
def test_what_is_charted(quantity: str, charted: bool) -> None:
    assert is_charted(quantity) is charted


def test_files_that_take_turns_are_listed_once() -> None:
    curve = RunCurve()
    for line in range(3000):
        number = line % 3  # two of the three files are behind the one before them
        sample = Sample(
            run="r",
            step=line - 5 * number,
            values={"loss": 1.0},
            position=Position("abc"[number], line, line),
        )
        add(curve, sample, float(line), 1.0)
    view = curve.view()
    assert view.files == ("a", "b", "c")
    assert all(
        view.position(bucket).path == "abc"[view.lines[bucket] % 3]
        for bucket in range(len(view.steps))
    )
