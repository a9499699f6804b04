"""A log is placed by the times in its lines, and its bars between these lines."""

import pytest

from ldlm_monitor.base.chunk import ClockMark
from ldlm_monitor.logs.history.arrival_times import from_bars
from ldlm_monitor.logs.history.line_clock import between_lines, from_lines, with_ends

NOON = 1_769_688_000.0
Places = list[tuple[int, float]]


def from_noon(places: Places) -> Places:
    return [(offset, when - NOON) for offset, when in places]


def after_noon(places: Places) -> Places:
    return [(offset, NOON + when) for offset, when in places]


@pytest.mark.parametrize(
    ("lines", "places", "steps"),
    [
        pytest.param(
            [], [(0, 0), (100, 10), (200, 20), (300, 30)], [10, 20, 30], id="no line moves them"
        ),
        pytest.param(
            [(50, 0), (250, 25)],
            [(0, 0), (100, 10), (200, 20), (250, 25), (300, 30)],
            [10, 20, 30],
            id="lines that fit do not move them",
        ),
        pytest.param(
            [(50, 100)],
            [(0, 90), (50, 100), (200, 110), (300, 120)],
            [100, 110, 120],
            id="none comes before the line above it",
        ),
        pytest.param(
            [(50, -500)],
            [(0, -500), (100, -490), (200, -480), (300, -470)],
            [-490, -480, -470],
            id="where the last write is that of a copy, the first comes at once",
        ),
        pytest.param(
            [(50, -50)],
            [(0, 0), (100, 10), (200, 20), (300, 30)],
            [10, 20, 30],
            id="a minute after the line above it may be a start",
        ),
        pytest.param(
            [(350, 5)],
            [(0, -25), (100, -15), (200, -5), (300, 5)],
            [-15, -5, 5],
            id="none comes after the line below it",
        ),
        pytest.param(
            [(150, 40), (350, 41)],
            [(0, 11), (100, 21), (150, 40), (300, 50)],
            [21, 40, 50],
            id="those after a pause move on further",
        ),
        pytest.param(
            [(50, 0), (250, 500)],
            [(0, 470), (100, 480), (200, 490), (250, 500)],
            [480, 490, 500],
            id="a line further on shows that they came later",
        ),
    ],
)
def test_bars_move_as_little_as_puts_them_between_the_lines(
    lines: Places, places: Places, steps: list[float]
) -> None:
    marks = [ClockMark(100 * step, step, 10.0 * step) for step in (1, 2, 3)]
    found = from_bars(marks, NOON + 30)
    assert found is not None
    timeline, clock = between_lines(*found, after_noon(lines))
    assert from_noon(timeline.places) == places
    assert [clock.when(step) - NOON for step in (1, 2, 3)] == steps


def test_what_stands_before_the_first_time_came_two_seconds_before_it() -> None:
    assert from_lines([(0, 1.0), (9, 4.0)]).places == [(0, 1.0), (9, 4.0)]
    assert from_lines([(5, 10.0), (9, 14.0)]).places == [(0, 8.0), (5, 10.0), (9, 14.0)]


LINES = [(10, 100.0), (20, 110.0), (40, 130.0)]


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        ([], LINES),
        ([(30, 120.0)], [(10, 100.0), (20, 110.0), (30, 120.0), (40, 130.0)]),
        ([(30, 110.0)], [(10, 100.0), (20, 110.0), (30, 110.0), (40, 130.0)]),
        ([(30, 109.0)], LINES),  # before the line above it
        ([(30, 131.0)], LINES),  # after the line below it
        ([(20, 105.0)], LINES),  # a line begins there, and says itself when
        ([(5, 90.0)], [(5, 90.0), *LINES]),
        ([(50, 140.0)], [*LINES, (50, 140.0)]),
        ([(30, 120.0), (50, 119.0)], LINES),  # copies, written in another order
        ([(30, 120.0), (50, 140.0)], [*LINES[:2], (30, 120.0), LINES[2], (50, 140.0)]),
    ],
)
def test_the_end_of_a_rotated_file_counts_where_its_time_fits(ends: Places, found: Places) -> None:
    assert with_ends(LINES, ends) == found
