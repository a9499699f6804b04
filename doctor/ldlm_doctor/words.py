"""Counts, durations and untrusted text as the doctor writes them."""

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))  # seconds, the largest first


def counted(count: int, noun: str) -> str:
    """A count with its noun: `1 line`, `1,200 lines`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Finite seconds in their two largest units, such as `1h 12m`; below ten as `1.25s`."""
    if seconds < 10:
        return f"{max(seconds, 0):.3g}s"
    rest = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0"))


def printable(text: str) -> str:
    """`text` with unprintable characters as Python's escapes, such as `\\x1b`."""
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
