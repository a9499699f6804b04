"""What a chart shows over time or tokens, and where an evaluation's values stand."""

import math
from dataclasses import replace

import pytest

from ldlm_monitor.base.snapshot import CurveView
from ldlm_monitor.screen.axis import along_axis, label_along
from ldlm_monitor.screen.chart import marks_of, nearest, placed, step_of
from ldlm_monitor.screen.draw import UNICODE
from tests.screen.screens import Shown
from tests.screen.test_draw import curve


def timed(times: list[float], means: list[float] | None = None) -> CurveView:
    return replace(curve(means or [1.0] * len(times)), times=times)


def test_over_time_a_curve_has_seconds_since_its_first_sample() -> None:
    shown = timed([100.0, 101.6, 160.0])
    assert along_axis(shown, "step", None) is shown
    assert list(along_axis(shown, "time", None).steps) == [0, 2, 60]
    without = timed([])
    assert along_axis(without, "time", None) is without


def test_over_tokens_a_curve_has_the_integral_of_its_rate() -> None:
    rate = timed([100.0, 110.0, 120.0, 140.0], [5.0, math.nan, 20.0, 99.0])
    shown = timed([90.0, 100.0, 104.0, 115.0, 130.0, 150.0])
    found = along_axis(shown, "tokens", rate)
    assert list(found.steps) == [0, 0, 20, 50, 250, 450]
    assert list(along_axis(shown, "tokens", None).steps) == []
    assert list(along_axis(shown, "tokens", timed([])).steps) == []


def test_two_rates_at_one_time_are_a_jump() -> None:
    rate = timed([100.0, 110.0, 110.0], [5.0, 7.0, 9.0])
    assert list(along_axis(timed([109.0, 110.0, 111.0]), "tokens", rate).steps) == [45, 50, 50]


@pytest.mark.parametrize(
    ("value", "along", "text"),
    [
        (12.4, "step", "12"), (2_500_000.0, "tokens", "2.5M"), (3.25, "time", "3.25s"),
        (-1.0, "time", "0s"), (9.75, "time", "9.75s"), (90.4, "time", "1m 30s"),
    ],
)  # fmt: skip
def test_a_place_on_the_axis_is_written_in_its_unit(value: float, along: str, text: str) -> None:
    assert label_along(value, along) == text  # type: ignore[arg-type]


def test_an_evaluation_stands_at_the_step_of_its_time() -> None:
    loss = timed([10.0, 20.0, 30.0])
    assert list(placed(timed([5.0, 20.0, 29.0, 99.0]), loss).steps) == [0, 1, 1, 2]
    alone = timed([5.0])
    assert placed(alone, timed([])) is alone


def test_a_step_is_found_by_its_time_or_its_bucket() -> None:
    shown = timed([10.0, 20.0, 30.0])
    assert [step_of(shown, at) for at in (9.0, 10.0, 29.0, 99.0)] == [None, 0.0, 1.0, 2.0]
    assert [nearest(shown, step) for step in (-5, 0, 1.5, 99)] == [0, 0, 1, 2]
    assert nearest(timed([]), 1) is None


def test_marks_stand_at_their_own_step_and_a_cause_has_its_name(shown: Shown) -> None:
    run = next(run for run in shown.snapshot.runs if run.health == "CRITICAL")
    loss = timed([run.started_at or 0.0, 9e12])
    found = marks_of(run, loss, shown.snapshot, UNICODE)
    (cause,) = (each for each in shown.snapshot.incidents if each.run == run.name)
    labels = {mark.label: mark for mark in found}
    assert labels[cause.root.kind].step == float(cause.last_step or 0)
    assert labels[cause.root.kind].style == "critical"
