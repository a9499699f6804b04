"""Times of the week or the year, as Alertmanager's `time_intervals` have them.

https://prometheus.io/docs/alerting/latest/configuration/#time_interval-0
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Annotated, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTHS = tuple(name.lower() for name in calendar.month_name[1:])
_TIME = re.compile(r"(?:([01]\d|2[0-3]):([0-5]\d)|(24):(00))")


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)


def _minute(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("should be a time from 00:00 to 24:00")
    hour, minute = (int(part) for part in found.groups() if part is not None)
    return 60 * hour + minute


def _span(text: str, names: Mapping[str, int], least: int, most: int) -> tuple[int, int]:
    """Both ends of `a:b` or of `a` alone. Raises ValueError."""
    ends = [names.get(part.strip().lower(), part.strip()) for part in text.split(":")]
    try:
        first, last = int(ends[0]), int(ends[-1])
    except ValueError:
        first, last = most + 1, least
    if len(ends) > 2 or not (least <= first <= most and least <= last <= most):
        known = f" or {', '.join(names)}" if names else ""
        raise ValueError(f"should be one of {least} to {most}{known}, or two of them as FROM:TO")
    if first > last and (first > 0) == (last > 0):
        raise ValueError("should not end before it begins: write two ranges")
    return first, last


def _weekdays(text: str) -> tuple[int, int]:
    return _span(text, {name: number for number, name in enumerate(_WEEKDAYS)}, 0, 6)


def _months(text: str) -> tuple[int, int]:
    return _span(text, {name: number for number, name in enumerate(_MONTHS, 1)}, 1, 12)


def _years(text: str) -> tuple[int, int]:
    return _span(text, {}, 1970, 9999)


def _days(text: str) -> tuple[int, int]:
    first, last = _span(text, {}, -31, 31)
    if first == 0 or last == 0 or (first < 0 < last):
        raise ValueError("should be days 1 to 31, or -31 to -1 counted from the month's end")
    return first, last


def _checked(check: Callable[[str], object]) -> AfterValidator:
    def checked(text: str) -> str:
        check(text)
        return text

    return AfterValidator(checked)


def _known_zone(name: str) -> str:
    _zone(name)
    return name


Clock: TypeAlias = Annotated[str, _checked(_minute)]


class TimeRange(_Table):
    """From `start_time` to just before `end_time`, within one day."""

    start_time: Clock
    end_time: Clock

    @model_validator(mode="after")
    def _goes_forward(self) -> TimeRange:
        if _minute(self.start_time) >= _minute(self.end_time):
            raise ValueError(
                "should end after it begins: over midnight, write two, one to 24:00 and one"
                " from 00:00"
            )
        return self

    def holds(self, minute: int) -> bool:
        """Whether a minute of the day lies in it."""
        return _minute(self.start_time) <= minute < _minute(self.end_time)


class Interval(_Table):
    """Times that satisfy every field that is given; of a field's ranges, one."""

    times: tuple[TimeRange, ...] = ()
    weekdays: tuple[Annotated[str, _checked(_weekdays)], ...] = ()
    days_of_month: tuple[Annotated[str, _checked(_days)], ...] = ()
    months: tuple[Annotated[str, _checked(_months)], ...] = ()
    years: tuple[Annotated[str, _checked(_years)], ...] = ()
    location: Annotated[str, AfterValidator(_known_zone)] = "UTC"

    def holds(self, now: float) -> bool:
        """Whether `now` (Unix seconds) lies in it."""
        at = _at(now, self.location)
        length = calendar.monthrange(at.year, at.month)[1]
        fields = (
            (self.weekdays, _weekdays, (at.weekday() + 1) % 7),
            (self.months, _months, at.month),
            (self.years, _years, at.year),
        )
        return (
            (not self.times or any(each.holds(60 * at.hour + at.minute) for each in self.times))
            and (
                not self.days_of_month
                or any(_holds_day(_days(text), at.day, length) for text in self.days_of_month)
            )
            and all(
                not ranges or any(low <= value <= high for low, high in map(read, ranges))
                for ranges, read, value in fields
            )
        )


class TimeInterval(_Table):
    """A name for several times; it holds where one of them does."""

    name: Annotated[str, Field(min_length=1)]
    time_intervals: tuple[Interval, ...] = Field(min_length=1)

    def holds(self, now: float) -> bool:
        """Whether `now` (Unix seconds) lies in one of them."""
        return any(each.holds(now) for each in self.time_intervals)


def _holds_day(span: tuple[int, int], day: int, length: int) -> bool:
    """Ends of a month that is shorter are its last day, or its first counted from the end."""
    low, high = (length + 1 + end if end < 0 else min(end, length) for end in span)
    starts_after = span[0] > length
    return not starts_after and max(low, 1) <= day <= high


def _at(now: float, location: str) -> datetime:
    moment = datetime.fromtimestamp(now, UTC)
    return moment.astimezone(None if location == "Local" else _zone(location))


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    if name in ("UTC", "Local"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("should be a time zone such as Europe/Berlin, UTC or Local") from None
