"""Times of the week and the year, as Alertmanager has them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ldlm_monitor.config.time_intervals import Interval, TimeInterval


def holds(interval: dict, moment: str) -> bool:
    at = datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()
    return Interval.model_validate(interval).holds(at)


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        ({"times": [{"start_time": "22:00", "end_time": "24:00"}]},
         "2026-01-30 22:00:00", "2026-01-30 21:59:59"),
        ({"times": [{"start_time": "00:00", "end_time": "07:00"}]},
         "2026-01-30 06:59:59", "2026-01-30 07:00:00"),
        ({"weekdays": ["saturday", "Sunday"]}, "2026-11-21 12:00", "2026-11-20 12:00"),
        ({"weekdays": ["monday:friday"]}, "2026-11-20 12:00", "2026-11-22 12:00"),
        ({"days_of_month": ["1:5"]}, "2026-01-05 12:00", "2026-01-06 12:00"),
        ({"days_of_month": ["-1"]}, "2026-02-28 12:00", "2026-02-27 12:00"),
        ({"days_of_month": ["-3:-1"]}, "2024-02-27 12:00", "2024-02-26 12:00"),
        ({"days_of_month": ["31"]}, "2026-01-31 12:00", "2026-02-28 12:00"),
        ({"months": ["december", "1:2"]}, "2026-12-01 12:00", "2026-03-01 12:00"),
        ({"years": ["2026:2027"]}, "2027-06-01 12:00", "2028-06-01 12:00"),
        ({"years": [2026]}, "2026-06-01 12:00", "2025-06-01 12:00"),
        ({"weekdays": ["friday"], "location": "Asia/Tokyo"},
         "2026-11-19 15:00", "2026-11-20 15:00"),
        ({"weekdays": ["friday"], "months": ["november"]},
         "2026-11-20 12:00", "2026-12-04 23:00"),
    ],
)  # fmt: skip
def test_a_moment_lies_in_it_where_all_its_fields_hold(interval, inside, outside):
    assert holds(interval, inside)
    assert not holds(interval, outside)


def test_summer_time_of_its_place_counts():
    nine = {"times": [{"start_time": "09:00", "end_time": "10:00"}], "location": "Europe/Berlin"}
    assert holds(nine, "2026-07-01 07:30")
    assert holds(nine, "2026-12-01 08:30")


def test_a_named_one_holds_where_one_of_its_intervals_does():
    nights = TimeInterval.model_validate(
        {
            "name": "nights",
            "time_intervals": [
                {"times": [{"start_time": "22:00", "end_time": "24:00"}]},
                {"times": [{"start_time": "00:00", "end_time": "07:00"}]},
            ],
        }
    )
    hours = [hour for hour in range(24) if nights.holds(hour * 3600.0)]
    assert hours == [0, 1, 2, 3, 4, 5, 6, 22, 23]


@given(st.floats(0, 4e9))
def test_an_empty_interval_is_always(moment):
    assert Interval().holds(moment)


@pytest.mark.parametrize(
    "wrong",
    [
        {"times": [{"start_time": "22:00", "end_time": "07:00"}]},
        {"times": [{"start_time": "9:00", "end_time": "24:01"}]},
        {"weekdays": ["mon"]},
        {"weekdays": ["friday:monday"]},
        {"days_of_month": ["0"]},
        {"days_of_month": ["-1:5"]},
        {"days_of_month": ["32"]},
        {"months": ["13"]},
        {"years": ["x"]},
        {"location": "Berlin"},
        {"minutes": ["1"]},
    ],
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(ValidationError):
        Interval.model_validate(wrong)
