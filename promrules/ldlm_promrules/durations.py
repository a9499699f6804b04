"""Prometheus' durations, as rule files and templates write them."""

import re

# Prometheus' grammar of durations (`model.ParseDuration`).
_DURATION = re.compile(
    r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?"
)
# Seconds of the units, in the order of `_DURATION`; in Prometheus, too, a year has 365 days.
_UNITS = (365 * 86400.0, 7 * 86400.0, 86400.0, 3600.0, 60.0, 1.0, 0.001)
_LONGEST = 2**63 / 1e9  # seconds: Go counts nanoseconds in 64 bits


def parse_duration(text: str) -> float:
    """Seconds of a Prometheus duration such as `1h30m`. Raises ValueError for any other text."""
    found = _DURATION.fullmatch(text)
    if text == "0":
        return 0.0
    if found is None or not text:
        raise ValueError(f"{text!r} is not a duration such as 30s, 5m or 1h30m")
    seconds = sum(int(count) * unit for count, unit in zip(found.groups("0"), _UNITS, strict=True))
    if seconds >= _LONGEST:
        raise ValueError(f"{text!r} is longer than the 292 years that a duration can be")
    return seconds
