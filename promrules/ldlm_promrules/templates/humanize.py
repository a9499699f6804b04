"""Prometheus' `humanize` functions.

Source of the formats: Prometheus `template/template.go`. Annotations must be equal
here and in Prometheus; the Python package `humanize` writes other texts.
"""

import math
import re
from collections.abc import Callable

from ldlm_promrules.golang import go_float, not_finite
from ldlm_promrules.templates.go_time import GoTime

# Prefixes of units, as Prometheus writes them.
_LARGE = ("k", "M", "G", "T", "P", "E", "Z", "Y")  # powers of 1000
_SMALL = ("m", "u", "n", "p", "f", "a", "z", "y")  # powers of 1/1000
_BINARY = ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")  # powers of 1024


def _short(value: float) -> str:
    """Go's `%.4g`: at most four significant digits."""
    return f"{value:.4g}" if math.isfinite(value) else not_finite(value)


def humanize(value: float) -> str:
    """The value with a decimal prefix and at most four significant digits, such as `1.235M`."""
    if value == 0 or not math.isfinite(value):
        return _short(value)
    return _scaled(value, _LARGE, 1000.0) if abs(value) >= 1 else _shrunk(value)


def humanize1024(value: float) -> str:
    """The value with a binary prefix and at most four significant digits, such as `1.5Gi`."""
    if abs(value) <= 1 or not math.isfinite(value):
        return _short(value)
    return _scaled(value, _BINARY, 1024.0)


def _scaled(value: float, prefixes: tuple[str, ...], base: float) -> str:
    shown = ""
    for prefix in prefixes:
        if abs(value) < base:
            break
        shown = prefix
        value /= base
    return _short(value) + shown


def _shrunk(value: float) -> str:
    shown = ""
    for prefix in _SMALL:
        if abs(value) >= 1:
            break
        shown = prefix
        value *= 1000
    return _short(value) + shown


def humanize_duration(value: float) -> str:
    """Seconds as days, hours, minutes and seconds such as `1h 1m 1s`; below 1 s as `12.5ms`."""
    if not math.isfinite(value):
        return _short(value)
    if abs(value) < 1:
        return ("0" if value == 0 else _shrunk(value)) + "s"
    minutes, seconds = divmod(int(abs(value)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    sign = "-" if value < 0 else ""
    if abs(value) < 60:
        return sign + _short(abs(value)) + "s"
    shown = f"{days}d {hours}h {minutes}m {seconds}s"
    return sign + re.sub("^(?:0[dhm] )+", "", shown)


def humanize_timestamp(value: float) -> str:
    """Unix seconds as UTC such as `2015-04-24 12:08:05.5 +0000 UTC`; a number if no date."""
    try:
        return str(GoTime(value))
    except ValueError:
        return go_float(value)


FILTERS: dict[str, Callable[[float], str]] = {  # by the name in templates
    "humanize": humanize,
    "humanize1024": humanize1024,
    "humanizeDuration": humanize_duration,
    "humanizePercentage": lambda ratio: _short(ratio * 100) + "%",  # 0.1234 is 12.34%
    "humanizeTimestamp": humanize_timestamp,
}
