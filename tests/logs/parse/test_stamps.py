"""Times of lines: their differences are exact even where their origin is not."""

from datetime import UTC, datetime

import pytest

from ldlm_monitor.logs.parse.stamps import placed, stamps


def unix(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


WRITTEN = unix("2026-08-22T12:00:00")


def times(
    *lines: str, written: float = WRITTEN, zone: float = 0.0, is_last: bool = True
) -> list[float]:
    text = "".join(f"{line}\n" for line in lines).encode()
    found = placed(stamps(text), written, lambda *_: zone, is_last=is_last)
    return [when for _, when in found]


@pytest.mark.parametrize(
    "line",
    [
        "2026-08-22 10:00:33,500 - mmdet - INFO - a",
        "[2026-08-22 10:00:33.500] [INFO] a",
        "2026-08-22T10:00:33.500Z stdout F a",
        "2026-08-22T12:00:33.500+02:00 a",
        "2026-08-22T05:30:33.500-0430 a",
        "08/22/2026 10:00:33.500 - INFO - __main__ - a",
        "[08/22 10:00:33.500 d2.utils.events]: a",
        "I0822 10:00:33.500000 140 trainer.py:12] a",
        "[rank3]:[W0822 10:00:33.500 a.cpp:1] a",
        "[rank3]:[W822 10:00:33.500 a.cpp:1] a",
        "0822 10:00:33.500 a",
        "INFO 08-22 10:00:33.500 [core.py:1] a",
        "Aug 22 10:00:33.500 node1 kernel: a",
        "[INFO|trainer.py:3512] 2026-08-22 10:00:33,500 >> a",
    ],
)
def test_the_forms_of_loggers(line: str) -> None:
    assert times(line) == [unix("2026-08-22T10:00:33.5")]


@pytest.mark.parametrize("line", ["step 1000 10:00:33", "1399 10:00:33 a", "eta 10:00:33", "a b c"])
def test_other_numbers_are_no_times(line: str) -> None:
    assert times(line) == []


def test_a_time_without_zone_is_of_this_hosts_zone() -> None:
    assert times("2026-08-22 12:00:33 a", zone=7200.0) == [unix("2026-08-22T10:00:33")]


def test_a_time_that_would_be_after_the_last_write_was_at_the_last_write() -> None:
    found = times("2026-08-22 17:00:00 a", "2026-08-22 17:30:00 b")
    assert found == [WRITTEN - 1800, WRITTEN]


@pytest.mark.parametrize(("is_last", "late"), [(True, 0.0), (False, 1800.0)])
def test_half_an_hour_before_the_last_write_is_a_zone_in_the_last_line_alone(
    is_last: bool, late: float
) -> None:
    """Below it, a line without a stamp may have come after a timeout."""
    found = times("2026-08-22 11:29:00 a", "2026-08-22 11:30:00 b", is_last=is_last)
    assert found == [WRITTEN - late - 60, WRITTEN - late]


def test_zoned_times_of_the_same_file_place_those_without_zone() -> None:
    found = times("2026-08-22T08:00:00Z a", "2026-08-22 10:00:01 b", "2026-08-22 10:00:05 c")
    assert [when - unix("2026-08-22T08:00:00") for when in found] == [0.0, 1.0, 5.0]


@pytest.mark.parametrize("minute", range(0, 50, 10))
def test_the_zone_is_that_of_the_two_lines_with_the_least_time_between_them(minute: int) -> None:
    found = times(
        f"2026-08-22T08:{minute:02}:00Z a",
        f"2026-08-22 10:{minute + 9:02}:00 b",  # after a pause that a quarter of an hour may hide
        f"2026-08-22T08:{minute + 9:02}:59Z c",
        f"2026-08-22 10:{minute + 10:02}:00 d",
    )
    assert [when - found[0] for when in found] == [0.0, 540.0, 599.0, 600.0]


def test_a_log_over_the_turn_of_the_year_has_no_year_in_its_lines() -> None:
    written = unix("2026-01-01T00:00:10")
    found = times("I1231 23:59:50.0 1 a.py:1] a", "I0101 00:00:05.0 1 a.py:1] b", written=written)
    assert [written - when for when in found] == [20.0, 5.0]


def test_a_time_without_a_year_is_of_the_year_of_the_file_s_other_times() -> None:
    found = times(
        "2022-04-12 17:05:16 a", "W0412 17:05:20.5 247 d.cc:4] b", "2022-04-12 17:05:24 c"
    )
    assert [when - found[0] for when in found] == [0.0, 4.5, 8.0]
    found = times("I1231 23:59:50.0 1 a.py:1] a", "2022-01-01 00:00:05 b")
    assert found[1] - found[0] == 15.0


def test_a_clock_that_is_set_back_does_not_turn_the_order() -> None:
    found = times("2026-08-22 10:00:10 a", "2026-08-22 10:00:05 b", "2026-08-22 10:00:20 c")
    assert found == sorted(found)
