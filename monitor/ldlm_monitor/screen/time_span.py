"""A time that a person types: for how long (`2h`, `90 min`, `1h 30m`) or until when (`08:00`)."""

import re
from datetime import datetime, timedelta
from typing import Final

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?) *([a-z]+)[, ]*")
_WORDS: Final = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("w", "week", "weeks"), "w"),
}
_CLOCK = re.compile(r"(?:until *|to *)?(?:(\d{4}-\d\d-\d\d)[ t]+)?([01]?\d|2[0-3]):([0-5]\d)")
_MOST: Final = 366 * 86400.0  # seconds. A choice: a longer silence is one that is forgotten


def ends_at(text: str, now: float) -> float:
    """When the typed time is over (Unix seconds), from `now` on; clocks are this machine's.

    Raises ValueError, with a sentence to show, for another form, and for a time that has passed.
    """
    words = text.strip().lower()
    if found := _CLOCK.fullmatch(words):
        return _at_clock(found, now)
    seconds = _seconds(words.removeprefix("for ").strip())
    if not 0 < seconds <= _MOST:
        raise ValueError("a duration is 45m, 2h, 3 days or 1h 30m; a time is until 08:00")
    return now + seconds


def _seconds(words: str) -> float:
    total, at = 0.0, 0
    while found := _PART.match(words, at):
        unit = _WORDS.get(found[2])
        if unit is None:
            return 0.0
        total, at = total + float(found[1]) * _UNITS[unit], found.end()
    return total if at == len(words) else 0.0


def _at_clock(found: re.Match[str], now: float) -> float:
    present = datetime.fromtimestamp(now).astimezone()
    day, hour, minute = found[1], int(found[2]), int(found[3])
    try:
        date = datetime.fromisoformat(day) if day else present
    except ValueError:
        raise ValueError(f"there is no day {day}") from None
    # Of a clock that is set forward or back in between, the local time counts.
    wanted = date.replace(hour=hour, minute=minute, second=0, microsecond=0, tzinfo=None)
    if day is None and wanted.astimezone() <= present:
        wanted += timedelta(days=1)
    at = wanted.astimezone().timestamp()
    if not now < at <= now + _MOST:
        raise ValueError("that time has passed, or is more than a year ahead")
    return at
