"""Go's times and durations, as far as Prometheus' templates make them (`toTime`, `toDuration`)."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_LAYOUT = {  # an element of Go's reference time -> Python's form of it (`time/format.go`)
    "January": "%B", "Jan": "%b", "Monday": "%A", "Mon": "%a", "MST": "UTC", "2006": "%Y",
    "Z07:00": "Z", "-07:00": "+00:00", "-0700": "+0000", "01": "%m", "02": "%d", "03": "%I",
    "04": "%M", "05": "%S", "06": "%y", "15": "%H", "PM": "%p",
}  # fmt: skip
_ELEMENT = re.compile("|".join(_LAYOUT))


@dataclass(frozen=True, slots=True)
class GoTime:
    """A time in UTC, in Unix seconds, of whole milliseconds. Raises ValueError if it is no date."""

    seconds: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.seconds):
            raise ValueError("value is NaN or Inf")
        self.date()

    def date(self) -> datetime:
        """The date and time of the whole second."""
        try:
            return datetime.fromtimestamp(math.floor(self.seconds * 1000) // 1000, UTC)
        except (ValueError, OverflowError, OSError):  # beyond the years that a date can hold
            raise ValueError(f"{self.seconds:g} cannot be represented as a time") from None

    def format(self, layout: str) -> str:
        """By a layout of Go such as `2006-01-02 15:04:05`."""
        date = self.date()
        return _ELEMENT.sub(lambda found: date.strftime(_LAYOUT[found[0]]), layout)

    def __str__(self) -> str:
        """As Go shows it, such as `2015-04-24 12:08:05.5 +0000 UTC`."""
        milliseconds = math.floor(self.seconds * 1000) % 1000
        fraction = f".{milliseconds:03d}".rstrip("0") if milliseconds else ""
        return f"{self.date():%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


@dataclass(frozen=True, slots=True)
class GoDuration:
    """A duration in seconds."""

    seconds: float

    def __str__(self) -> str:
        """As Go shows it, such as `1h2m3.5s`, `12.5ms` or `0s`."""
        nanoseconds = round(abs(self.seconds) * 1e9)
        sign = "-" if self.seconds < 0 else ""
        for unit, size in (("ns", 1), ("µs", 1000), ("ms", 1_000_000)):
            if 0 < nanoseconds < 1000 * size:
                return f"{sign}{nanoseconds / size:.9g}{unit}"
        minutes, rest = divmod(nanoseconds, 60 * 10**9)
        hours, minutes = divmod(minutes, 60)
        fraction = f".{rest % 10**9:09d}".rstrip("0") if rest % 10**9 else ""
        shown = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
        return f"{sign}{shown}{rest // 10**9}{fraction}s"


METHODS: dict[type, dict[str, Callable[..., Any]]] = {  # Go's methods that a template may call
    GoTime: {
        "Format": GoTime.format,
        "String": str,
        "Unix": lambda time: math.floor(time.seconds),
        "UnixMilli": lambda time: math.floor(time.seconds * 1000),
        "Year": lambda time: time.date().year,
        "Month": lambda time: f"{time.date():%B}",
        "Day": lambda time: time.date().day,
        "Hour": lambda time: time.date().hour,
        "Minute": lambda time: time.date().minute,
        "Second": lambda time: time.date().second,
        "Weekday": lambda time: f"{time.date():%A}",
        "YearDay": lambda time: time.date().timetuple().tm_yday,
        "UTC": lambda time: time,
    },
    GoDuration: {
        "String": str,
        "Hours": lambda span: span.seconds / 3600,
        "Minutes": lambda span: span.seconds / 60,
        "Seconds": lambda span: span.seconds,
        "Milliseconds": lambda span: math.trunc(span.seconds * 1000),
    },
}
