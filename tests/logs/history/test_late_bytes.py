"""Bytes that were read late are taken to have come evenly, and no record is cut for that."""

import math

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.logs.history.late_bytes import evenly

FILE = (1, 2, 0)
LINES = b"".join(b"step %2d loss 2.5\n" % step for step in range(20))
WIDTH = len(LINES) // 20


def chunk(data: bytes, offset: int = 0) -> Chunk:
    return Chunk("a.log", FILE, offset, 1, data)


def test_a_quarter_of_the_lines_came_in_each_quarter_of_the_time() -> None:
    found = evenly([chunk(LINES)], 10.0, 30.0)
    assert found == [(5 * WIDTH, 15.0), (10 * WIDTH, 20.0), (15 * WIDTH, 25.0)]


def test_the_pitch_is_at_most_five_seconds() -> None:
    assert [when for _, when in evenly([chunk(LINES)], 10.0, 22.0)] == [14.0, 18.0]


def test_bytes_of_several_chunks_are_of_one_time() -> None:
    half = 10 * WIDTH
    parts = [chunk(LINES[:half], 100), chunk(LINES[half:], 100 + half)]
    assert evenly(parts, 10.0, 20.0) == [(100 + half, 15.0)]


@pytest.mark.parametrize(("since", "until"), [(10.0, 15.0), (10.0, 9.0), (-math.inf, 20.0)])
def test_a_moment_and_what_began_nobody_knows_when_are_not_spread(
    since: float, until: float
) -> None:
    assert evenly([chunk(LINES)], since, until) == []


def test_a_traceback_is_not_cut() -> None:
    traceback = b'Traceback (most recent call last):\n  File "a.py", line 1\n' * 20
    data = b"step 1 loss 2.5\n" + traceback + b"2026-01-29 10:15:00 step 2 loss 2.5\n"
    stamped = data.index(b"2026")
    assert evenly([chunk(data)], 10.0, 110.0)[0] == (stamped, 15.0)


def test_one_long_line_has_the_last_time_alone() -> None:
    assert evenly([chunk(b"x" * 10_000)], 10.0, 110.0) == []
