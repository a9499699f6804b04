"""Numbers of a run as a list and a page show them: throughput, and a curve in few cells."""

import math
from dataclasses import replace

import pytest

from ldlm_monitor.base.snapshot import RunView, Snapshot
from ldlm_monitor.screen.page_context import baseline, speed
from ldlm_monitor.screen.run_page import resampled
from tests.screen.test_draw import curve


@pytest.mark.parametrize(
    ("ratio", "shown"), [(0.724, "72%"), (1.2, "120%"), (math.inf, ""), (math.nan, ""), (None, "")]
)
def test_the_throughput_is_shown_in_percent_of_the_usual_one(
    read_all: Snapshot, ratio: float | None, shown: str
) -> None:
    detected = {} if ratio is None else {"throughput_ratio": ratio}
    assert baseline(read_all.runs[0].model_copy(update={"detected": detected})) == shown


def test_without_a_throughput_of_the_log_steps_a_second_are_shown(read_all: Snapshot) -> None:
    def of(**changes: object) -> RunView:
        return read_all.runs[0].model_copy(update={"statistics": {}, **changes})

    assert speed(of(step_seconds=0.25)) == "4 step/s"
    assert speed(of(step_seconds=None)) == "-"


def test_a_curve_of_few_steps_fills_its_cells() -> None:
    assert resampled(curve([2.5]), 4) == ([2.5] * 4, [False] * 4)
    values, bad = resampled(replace(curve([1.0, math.nan, 3.0], [0, 1, 0]), steps=(0, 5, 9)), 9)
    assert values[:5] == [1.0] * 5
    assert (values[-1], bad.index(True)) == (3.0, 5)


def test_a_curve_that_goes_back_is_in_the_order_of_the_log() -> None:
    found, _ = resampled(replace(curve([1.0, 2.0, 3.0, 4.0]), steps=(5, 6, 5, 6)), 4)
    assert found == [1.0, 2.0, 3.0, 4.0]
