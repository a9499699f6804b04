"""Round values along an axis, and labels that tell them apart."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.text.ticks import LABEL_CELLS, log_ticks, tick_labels, ticks, time_ticks


@pytest.mark.parametrize(
    ("low", "high", "about", "values"),
    [
        (0.0, 10.0, 5, [0, 2, 4, 6, 8, 10]), (0.0, 10.0, 2, [0, 5, 10]),
        (0.0, 10.0, 10, [*range(11)]), (-1.0, 1.0, 4, [-1, -0.5, 0, 0.5, 1]),
        (3.1, 7.9, 5, [4, 5, 6, 7]), (0.0, 0.004, 4, [0, 0.001, 0.002, 0.003, 0.004]),
        (0.0, 5000.0, 5, [0, 1000, 2000, 3000, 4000, 5000]),
    ],
)  # fmt: skip
def test_ticks_are_round_values_of_the_range(
    low: float, high: float, about: int, values: list[float]
) -> None:
    assert ticks(low, high, about) == pytest.approx(values)


@pytest.mark.parametrize(
    ("low", "high", "about"),
    [(1.0, 1.0, 5), (2.0, 1.0, 5), (0.0, 1.0, 0), (0.0, math.inf, 5), (math.nan, 1.0, 5)],
)
def test_a_range_of_nothing_has_no_ticks(low: float, high: float, about: int) -> None:
    assert ticks(low, high, about) == []


def test_a_scale_has_two_ticks_where_a_finer_step_gives_them() -> None:
    assert ticks(0.9, 2.1, 1) == pytest.approx([1.0, 2.0])


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 12))
def test_ticks_lie_in_their_range_at_equal_distances(low: float, wide: float, about: int) -> None:
    high = low + wide
    found = ticks(low, high, about)
    assert found
    slack = 1e-6 * max(abs(low), abs(high), 1.0)
    assert all(low - slack <= each <= high + slack for each in found)
    gaps = [two - one for one, two in pairwise(found)]
    assert gaps == pytest.approx([gaps[0]] * len(gaps) if gaps else [])
    assert len(found) <= 3 * about + 1


def test_many_decades_have_a_tick_each_or_each_second() -> None:
    assert log_ticks(-3.0, 2.0, 6) == [-3, -2, -1, 0, 1, 2]
    assert log_ticks(-3.0, 2.0, 3) == [-3, -1, 1]
    assert log_ticks(-2.5, 0.5, 6) == [-2, -1, 0]
    assert log_ticks(0.0, 2.0, 0) == [0]


def test_few_decades_have_ticks_between_them() -> None:
    shown = [10**each for each in log_ticks(0.0, 1.0, 6)]
    assert shown == pytest.approx([1, 2, 5, 10])
    assert [10**each for each in log_ticks(-0.5, 0.4, 6)] == pytest.approx([0.5, 1, 2])


@pytest.mark.parametrize(
    ("high", "most", "distance"),
    [
        (4, 4, 1), (8, 4, 2), (20, 4, 5), (40, 4, 10), (60, 4, 15), (100, 4, 30), (240, 4, 60),
        (480, 4, 120), (1200, 4, 300), (2400, 4, 600), (3600, 4, 900), (7200, 4, 1800),
        (14400, 4, 3600), (28800, 4, 7200), (43200, 4, 10800), (86400, 4, 21600),
        (172800, 4, 43200), (345600, 4, 86400),
    ],
)  # fmt: skip
def test_ticks_of_time_are_whole_units(high: float, most: int, distance: int) -> None:
    found = time_ticks(0.0, high, most)
    assert found == [*range(0, int(high) + 1, distance)]
    assert len(found) <= most + 1


def test_ticks_of_time_keep_to_the_clock_wherever_the_axis_begins() -> None:
    assert time_ticks(50.0, 290.0, 4) == [60, 120, 180, 240]


def test_weeks_have_round_numbers_of_seconds() -> None:
    assert time_ticks(0.0, 4e6, 4) == [0, 1e6, 2e6, 3e6, 4e6]


def test_labels_have_as_many_digits_as_tell_them_apart() -> None:
    assert tick_labels([1.0, 2.0, 3.0]) == ["1", "2", "3"]
    assert tick_labels([0.5, 1.0]) == ["0.5", "1"]
    assert tick_labels([2.34561, 2.34562]) == ["2.34561", "2.34562"]
    assert tick_labels([0.123456]) == ["0.1235"]


def test_a_long_label_has_its_exponent_apart() -> None:
    assert tick_labels([1.25e-5, 2.5e-5]) == ["1.25e-05", "2.5e-05"]
    assert tick_labels([-1.25e-5]) == ["-1.25e-5"]
    assert tick_labels([123_456_789.0]) == ["1.235e8"]
    assert tick_labels([100_000_000_000.0]) == ["1e+11"]
    assert tick_labels([math.nan, -math.inf]) == ["NaN", "-Inf"]
    assert LABEL_CELLS == 8


def test_ticks_are_round_and_in_view() -> None:
    assert ticks(1.6, 4.9, 3) == [2.0, 3.0, 4.0]
    assert ticks(2.07, 5.93, 2) == [3.0, 4.0, 5.0]
    assert ticks(0.0, 0.0, 3) == []
    assert tick_labels([6.25, 6.3]) == ["6.25", "6.3"]
    assert tick_labels([1e6, 1.0001e6]) == ["1000000", "1000100"]
    assert tick_labels([412e6, 413e6]) == ["4.12e8", "4.13e8"]
    assert tick_labels([1.00001e-4, 1.00002e-4]) == ["1.00001e-4", "1.00002e-4"]
    assert log_ticks(0.0, 4.0, 3) == [0.0, 2.0, 4.0]
