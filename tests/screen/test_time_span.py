"""For how long, or until when: what a person may type where a run is muted."""

from datetime import datetime, timedelta

import pytest

from ldlm_monitor.screen.time_span import ends_at

NOON = datetime(2026, 11, 30, 12, 0).astimezone()
NOW = NOON.timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 7200), ("2 hours", 7200), ("2 Hours", 7200), ("90 min", 5400), ("45m", 2700),
        ("1h 30m", 5400), ("1h30m", 5400), ("3 days", 259_200), ("1 week", 604_800),
        ("for 10 minutes", 600), ("0.5h", 1800), (" 30s ", 30), ("1 day, 2 hours", 93_600),
    ],
)  # fmt: skip
def test_a_duration_counts_from_now(text: str, seconds: float) -> None:
    assert ends_at(text, NOW) == NOW + seconds


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("until 18:30", NOON.replace(hour=18, minute=30)),
        ("until 08:00", NOON.replace(hour=8) + timedelta(days=1)),
        ("8:00", NOON.replace(hour=8) + timedelta(days=1)),
        ("until 12:00", NOON + timedelta(days=1)),
        ("until 2026-12-24 08:00", NOON.replace(month=12, day=24, hour=8)),
    ],
)
def test_a_clock_time_is_the_next_of_this_machines_clock(text: str, at: datetime) -> None:
    assert ends_at(text, NOW) == at.timestamp()


@pytest.mark.parametrize(
    "text",
    ["", "2", "2 parsecs", "0h", "-1h", "2h x", "until", "25:00", "until 2026-11-29 08:00",
     "until 2026-13-01 08:00", "9999999 weeks", "1e400h"],
)  # fmt: skip
def test_what_is_neither_is_refused_with_what_to_type(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|passed|no day"):
        ends_at(text, NOW)
