"""Numbers as Go prints them, and Prometheus' `humanize` functions.

Source of the formats: Prometheus `template/template.go` and Go's `fmt`. Annotations must be equal
here and in Prometheus; the Python package `humanize` writes other texts.
"""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

# Prefixes of units, as Prometheus writes them.
_LARGE = ("k", "M", "G", "T", "P", "E", "Z", "Y")  # powers of 1000
_SMALL = ("m", "u", "n", "p", "f", "a", "z", "y")  # powers of 1/1000
_BINARY = ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")  # powers of 1024
# Verbs of Go's `fmt` for floats, as far as Python's `%` formats finite numbers equally.
_VERB = re.compile(r"%(?P<flags>[-+0 ]*)(?P<width>\d*)(?P<precision>\.\d*)?(?P<verb>[efg])")


def go_float(value: float) -> str:
    """Go's `%v`: the fewest digits that keep the value; an exponent from 1e+06 on or below 1e-4."""
    if not math.isfinite(value):
        return _not_finite(value)
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    power = len(digits) + exponent - 1
    text = "".join(map(str, digits))
    if -4 <= power < 6:
        shown = format(Decimal((0, digits, exponent)), "f")
    else:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        shown = f"{text[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"
    return f"-{shown}" if sign else shown


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def go_format(verb: str, value: float) -> str:
    """`value` by a verb of Go's `fmt` such as `%.4g` (e, f or g). Raises ValueError for others."""
    if verb == "%g":
        return go_float(value)
    found = _VERB.fullmatch(verb)
    if found is None:
        raise ValueError(f"{verb!r} is no floating-point verb")
    if math.isfinite(value):
        return verb % value
    text = _not_finite(value)
    if value == math.inf and "+" not in found["flags"]:
        text = " Inf" if " " in found["flags"] else "+Inf"
    elif math.isnan(value) and "+" in found["flags"]:
        text = "+NaN"
    width = int(found["width"] or 0)
    return text.ljust(width) if "-" in found["flags"] else text.rjust(width)


def humanize(value: float) -> str:
    """The value with a decimal prefix and at most four significant digits, such as `1.235M`."""
    if value == 0 or not math.isfinite(value):
        return go_format("%.4g", value)
    return _scaled(value, _LARGE, 1000.0) if abs(value) >= 1 else _shrunk(value)


def humanize1024(value: float) -> str:
    """The value with a binary prefix and at most four significant digits, such as `1.5Gi`."""
    if abs(value) <= 1 or not math.isfinite(value):
        return go_format("%.4g", value)
    return _scaled(value, _BINARY, 1024.0)


def _scaled(value: float, prefixes: tuple[str, ...], base: float) -> str:
    shown = ""
    for prefix in prefixes:
        if abs(value) < base:
            break
        shown = prefix
        value /= base
    return go_format("%.4g", value) + shown


def _shrunk(value: float) -> str:
    shown = ""
    for prefix in _SMALL:
        if abs(value) >= 1:
            break
        shown = prefix
        value *= 1000
    return go_format("%.4g", value) + shown


def humanize_duration(value: float) -> str:
    """Seconds as days, hours, minutes and seconds such as `1h 1m 1s`; below 1 s as `12.5ms`."""
    if not math.isfinite(value):
        return go_format("%.4g", value)
    if abs(value) < 1:
        return ("0" if value == 0 else _shrunk(value)) + "s"
    minutes, seconds = divmod(int(abs(value)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    sign = "-" if value < 0 else ""
    if abs(value) < 60:
        return sign + go_format("%.4g", abs(value)) + "s"
    shown = f"{days}d {hours}h {minutes}m {seconds}s"
    return sign + re.sub("^(?:0[dhm] )+", "", shown)


def humanize_timestamp(value: float) -> str:
    """Unix seconds as UTC such as `2015-04-24 12:08:05.5 +0000 UTC`; a number if no date."""
    if not math.isfinite(value):
        return go_format("%.4g", value)
    milliseconds = math.floor(value * 1000)
    try:
        date = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (ValueError, OverflowError, OSError):  # beyond the years that a date can hold
        return go_float(value)
    fraction = f".{milliseconds % 1000:03d}".rstrip("0") if milliseconds % 1000 else ""
    return f"{date:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


FILTERS: dict[str, Callable[[float], str]] = {  # by the name in templates
    "humanize": humanize,
    "humanize1024": humanize1024,
    "humanizeDuration": humanize_duration,
    "humanizePercentage": lambda ratio: go_format("%.4g", ratio * 100) + "%",  # 0.1234 is 12.34%
    "humanizeTimestamp": humanize_timestamp,
}
