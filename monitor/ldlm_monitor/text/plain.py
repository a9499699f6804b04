"""Plain text for people: log text made harmless, numbers, durations and times made readable."""

import math
import unicodedata
from datetime import UTC, datetime

from ldlm_monitor.text.redact import plain as without_escapes
from ldlm_monitor.text.redact import redact

ELLIPSIS = "…"
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


_LONGEST = 8192
"""Characters of a text that are looked at; beyond, nothing would be shown anyway."""


def plain(text: str, limit: int = 400) -> str:
    """One line of `limit` characters at most: no escapes, controls, direction marks or secrets."""
    text = redact(without_escapes(text[:_LONGEST]))
    kept = "".join(" " if _hidden(character) else character for character in text)
    return shorten(" ".join(kept.split()), limit)


def encodable(text: str) -> str:
    """`text` in which what UTF-8 cannot hold (lone surrogates) is replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _hidden(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def without_run(summary: str, run: str) -> str:
    """The summary without the run that it begins with, for a place that names the run already."""
    rest = summary.removeprefix(plain(run))
    return rest.lstrip(": ") if rest[:1] in (":", " ") else summary


def shorten(text: str, limit: int) -> str:
    """`text`, its end replaced by an ellipsis where it is longer than `limit`."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + ELLIPSIS


def shorten_path(path: str, limit: int) -> str:
    """`path`, its beginning replaced by an ellipsis: the file's name tells most."""
    return path if len(path) <= limit else ELLIPSIS + path[len(path) - limit + 1 :]


def number(value: float | None) -> str:
    """Five significant digits; non-finite values by name; `-` where there is none."""
    if value is None:
        return "-"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value)}"
    return f"{value:.5g}"


def duration(seconds: float) -> str:
    """The two largest units, such as `1 h 12 min`; below ten seconds three digits."""
    if not math.isfinite(seconds):
        return number(seconds)
    if seconds < 10:
        return f"{max(seconds, 0):.3g} s"
    rest = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 "))


def utc(time: float | None) -> str:
    """`2026-01-29 10:15:00 UTC`, or `-` where no time is known."""
    if time is None or not math.isfinite(time):
        return "-"
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
