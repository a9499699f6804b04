"""The one human-readable format for each of numbers, byte sizes, durations, times and ranks."""

import math
import signal
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

# Sizes (of durations: seconds) with their units, the largest first: the first that fits is used.
_DURATIONS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))  # SI prefixes
_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))  # IEC prefixes
_UNKNOWN = "-"  # for None, and for times that are not finite
_YEAR_9999 = 253_370_764_800.0  # Unix seconds; dates go no further
_MOST_SPANS = 400
"""Spans of ranks in one text: about 3000 characters, which Slack and a terminal still show."""


def signal_name(number: int) -> str | None:
    """A signal's name such as `SIGTERM`; None if no signal of this system has the number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def number(value: float | None, digits: int = 5) -> str:
    """A number with `digits` significant digits; whole numbers below 1e9 in full; None as `-`.

    Five digits show a change of 0.01 % of a loss; from 1e9 on, an exponent is easier to read.
    """
    if value is None:
        return _UNKNOWN
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value)}"
    return f"{value:.{digits}g}"


def si_number(value: float | None) -> str:
    """A number with three significant digits and an SI prefix, such as `1.25M`; None as `-`."""
    if value is None or not math.isfinite(value):
        return number(value)
    value = float(f"{value:.3g}")  # rounded first, so that 999,999 is 1M and not 1e+03k
    for size, prefix in _DECIMAL:
        if abs(value) >= size:
            return f"{value / size:.3g}{prefix}"
    return f"{value:.3g}"


def byte_size(count: float | None) -> str:
    """A number of bytes with an IEC prefix and one decimal, such as `1.5 GiB`; None as `-`."""
    if count is None or not math.isfinite(count):
        return number(count)
    for size, prefix in _BINARY:
        if abs(count) >= size:
            return f"{count / size:.1f} {prefix}"
    return f"{count:.0f} B"


def counted(count: int, noun: str) -> str:
    """A count with its noun: `1 line`, `1,200 lines`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """`text` with unprintable characters as Python's escapes, such as `\\x1b`."""
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )


def compressed(ranks: Iterable[int]) -> str:
    """Ranks as text such as `0-36,38-63`; spans after the first 400 become an ellipsis."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in spans[:_MOST_SPANS]]
    return ",".join([*shown, "…"] if len(spans) > _MOST_SPANS else shown)


def names_of(ranks: Iterable[int]) -> str:
    """Ranks with their noun: `rank 3`, `ranks 0-2,5`."""
    listed = compressed(ranks)
    return f"rank {listed}" if listed.isdecimal() else f"ranks {listed}"


def mesh_text(mesh: Mapping[str, int]) -> str:
    """A rank's coordinates in the dimensions of parallelism: `dp 1, pp stage 3`."""
    return ", ".join(
        f"{name} {'stage ' if name == 'pp' else ''}{number}" for name, number in mesh.items()
    )


def duration(seconds: float | None) -> str:
    """Seconds in their two largest units, such as `1h 12m`; below ten as `1.25s`, below 0 as `0s`.

    The units are those of Prometheus' `humanizeDuration`, which alert annotations use. None: `-`.
    """
    if seconds is None or not math.isfinite(seconds):
        return number(seconds)
    if seconds < 10:
        return f"{max(seconds, 0):.3g}s"
    rest = round(seconds)
    parts: list[str] = []
    for size, unit in _DURATIONS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0"))


def utc(time: float | None) -> str:
    """Unix seconds as `2026-01-29 10:15:00 UTC`; `-` if the time is unknown."""
    if time is None or not math.isfinite(time):
        return _UNKNOWN
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(time: float | None) -> str:
    """Unix seconds as RFC 3339 in UTC with milliseconds, which programs may parse; None as `-`."""
    if time is None:
        return _UNKNOWN
    moment = datetime.fromtimestamp(time, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local_time(time: float | None) -> str:
    """Unix seconds as local date and time, for the screen's one viewer; `-` if unknown or <= 0."""
    if time is None or not 0 < time < _YEAR_9999:
        return _UNKNOWN
    return datetime.fromtimestamp(time).astimezone().strftime("%m-%d %H:%M:%S")
