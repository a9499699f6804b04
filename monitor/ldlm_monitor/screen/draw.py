"""Turns values into lines of styled spans, without widgets, markup and escape sequences.

A style is a name (`critical`, `dim`) of a meaning; colours are distinguishable without red-green
vision. The hues are those of M. Okabe and K. Ito, "Color Universal Design" (2008). Words and
glyphs carry the same information, so that nothing is lost without colour. Text from a log goes
through `safe` and is never parsed.
"""

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from textual.color import Color

_LONGEST = 4000  # characters kept of a line: wider than any screen, and a bound for hostile logs
# ASCII for characters of our own texts and usual logs; the keys are what NFKD returns.
_PLAIN = {"–": "-", "—": "-", "×": "x", "μ": "u", "→": "->", "≈": "~", "“": '"', "”": '"', "’": "'"}
_MARKS = range(0x300, 0x370)  # combining diacritical marks (Unicode), which NFKD splits off


class StyledSpan(NamedTuple):
    """Text, and the name of its style: a key of `_COLOURS`, or empty for none."""

    text: str
    style: str = ""


Line: TypeAlias = list[StyledSpan]


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Characters of one cell each: `levels` from low to high, `marks` by severity."""

    levels: str = "▁▂▃▄▅▆▇█"
    full: str = "█"  # the done part of a bar
    empty: str = "░"  # the rest of a bar
    health: Mapping[str, str] = field(
        default_factory=lambda: {
            "READING": "○",
            "HEALTHY": "●",
            "WARNING": "△",
            "UNHEALTHY": "▲",
            "CRITICAL": "◆",
        }
    )
    picked: str = "✓"  # beside a run that is to be drawn together with others
    cursor: str = "▶"  # at the selected row
    vertical: str = "│"  # the cursor of a chart
    grid: str = "┈"  # of a chart, at the round values
    saved: str = "◇"  # a checkpoint below a chart
    nonfinite: str = "✕"  # a value that is not finite
    marks: Mapping[str, str] = field(
        default_factory=lambda: {"critical": "▲", "error": "▲", "warning": "△", "info": "·"}
    )
    braille: bool = True  # charts have braille dots; if False, all text is ASCII, too
    ellipsis: str = "…"
    cells: str = "■▤□○✕"
    """For a rank that is in step, behind, far behind, silent, or failed first, in this order."""


UNICODE = Glyphs()  # for a terminal whose locale is UTF-8
ASCII = Glyphs(  # for other terminals
    levels="_.-=+*#@",
    full="#",
    empty=".",
    health={"READING": "o", "HEALTHY": "*", "WARNING": "^", "UNHEALTHY": "!", "CRITICAL": "#"},
    picked="+",
    cursor=">",
    vertical="|",
    grid="-",
    saved="o",
    nonfinite="X",
    marks={"critical": "!", "error": "!", "warning": "^", "info": "."},
    braille=False,
    ellipsis="~",
    cells="#o-?X",
)
_COLOURS = {
    "ok": ("#00b386", "#007a5a"),
    "info": ("#56b4e9", "#0072b2"),
    "warning": ("#f0e442", "#8a6d00"),
    "error": ("#e69f00", "#a85b00"),
    "critical": ("bold #ff7733", "bold #c04000"),
    "accent": ("#56b4e9", "#0072b2"),
    "curve": ("#56b4e9", "#0072b2"),
    "curve2": ("#e69f00", "#a85b00"),
    "curve3": ("#00b386", "#007a5a"),
    "curve4": ("#cc79a7", "#a0437a"),
    "curve5": ("#f0e442", "#8a6d00"),
    "dim": ("#8a919c", "#5f6773"),
    "raw": ("#5f83ad", "#5b7fa3"),
    "grid": ("#3a4350", "#c9d0d8"),
    "title": ("bold #ffffff", "bold #000000"),
    "key": ("bold #56b4e9", "bold #0072b2"),
    "found": ("bold #000000 on #f0e442", "bold #000000 on #f0e442"),
    "cursor": ("bold on #2b3c52", "bold on #c3d7ea"),
    "here": ("bold reverse", "bold reverse"),
    "badge": ("bold #000000 on #ff7733", "bold #000000 on #ff7733"),
}
"""Colours by style, for a dark and for a light background: Okabe and Ito's hues, lighter or
darker for contrast, and greys."""
_TEXT_CONTRAST, _GRAPHICS_CONTRAST = 4.5, 3.0  # WCAG 2.1, 1.4.3 and 1.4.11; a grid may be fainter
CURVES = ("curve", "curve2", "curve3", "curve4", "curve5")  # a chart's lines: five distinct hues
HEALTH_STYLE = {  # by `RunView.health`
    "READING": "dim",
    "HEALTHY": "ok",
    "WARNING": "warning",
    "UNHEALTHY": "error",
    "CRITICAL": "critical",
}
STATE_STYLE = {
    "stalled": "critical",
    "crashed": "critical",
    "killed": "error",
    "ended": "warning",
    "finished": "dim",
}
"""Styles by `RunView.state`; other states are normal and have none."""


@lru_cache(maxsize=1024)  # entries: more than all names, on all grounds of a few themes
def style_of(name: str, ground: Style, *, dark: bool) -> Style:
    """The style of a name over `ground`, lighter or darker where WCAG's contrast asks for it (AA).

    An unknown name changes nothing but that. A ground of the terminal's own colours is not known.
    """
    style = ground + Style.parse(_COLOURS.get(name, ("", ""))[0 if dark else 1])
    front, back = (each and each.triplet for each in (style.color, style.bgcolor))
    if front is None or back is None or name == "grid":
        return style
    least = _GRAPHICS_CONTRAST if name == "raw" else _TEXT_CONTRAST
    best = max((Color(0, 0, 0), Color(255, 255, 255)), key=lambda end: contrast(end, Color(*back)))
    share, found = 0.0, Color(*front)
    while contrast(found, Color(*back)) < least and share < 1:
        share += 0.05
        found = Color(*front).blend(best, share)
    return style + Style(color=found.rich_color) if share else style


def contrast(one: Color, other: Color) -> float:
    """WCAG 2.1's contrast ratio of two colours: 1 (equal) to 21 (black and white)."""
    low, high = sorted(
        0.2126 * red + 0.7152 * green + 0.0722 * blue
        for red, green, blue in (map(_linear, each.normalized) for each in (one, other))
    )
    return (high + 0.05) / (low + 0.05)


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def is_utf8(environ: dict[str, str]) -> bool:
    """Whether the locale uses UTF-8 (POSIX: the first of these variables that is set counts)."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if value := environ.get(name):
            return "utf-8" in value.lower() or "utf8" in value.lower()
    return False


def safe(text: str, glyphs: Glyphs = UNICODE) -> str:
    """`text` as one line of printable characters, cut at `_LONGEST`; ASCII for ASCII `glyphs`."""
    kept = "".join(
        character if character.isprintable() or character == "\t" else " "
        for character in text[:_LONGEST]
    ).expandtabs(4)  # cells of a tab, a choice: more waste cells, fewer hide the indentation
    if glyphs.braille:
        return kept
    flat = unicodedata.normalize("NFKD", kept)
    return "".join(c if c.isascii() else _PLAIN.get(c, "?") for c in flat if ord(c) not in _MARKS)


def width_of(line: Iterable[StyledSpan]) -> int:
    """The number of cells that a line fills."""
    return sum(cell_len(span.text) for span in line)


def fit(text: str, width: int, glyphs: Glyphs = UNICODE, *, right: bool = False) -> str:
    """`text` in `width` cells: cut with an ellipsis, or blanks after it, if `right` before it."""
    if width <= 0:
        return ""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + glyphs.ellipsis
    return " " * (width - length) + text if right else text + " " * (width - length)


def bar(share: float | None, width: int, glyphs: Glyphs) -> Line:
    """A bar of `width` cells for a share of 0 to 1; empty if the share is None or not finite."""
    done = 0 if share is None or not math.isfinite(share) else round(max(min(share, 1), 0) * width)
    return [
        StyledSpan(glyphs.full * done, "accent"),
        StyledSpan(glyphs.empty * (width - done), "dim"),
    ]


def spark(values: Sequence[float], bad: Sequence[int], width: int, glyphs: Glyphs) -> Line:
    """The last `width` values as bars; a mark for those with `bad` (non-finite values) above 0."""
    values, bad = values[-width:], bad[-width:]
    (bars,) = columns(values, 1, glyphs.levels)
    line = [
        StyledSpan(glyphs.nonfinite, "critical")
        if count or not math.isfinite(value)
        else StyledSpan(bar, "curve")
        for value, count, bar in zip(values, bad, bars, strict=True)
    ]
    return [StyledSpan(" " * (width - len(values))), *line]


def columns(
    values: Sequence[float], height: int, levels: str, *, base: float | None = None
) -> list[str]:
    """The `height` lines of a bar chart: a bar of `levels` for each value, blank if not finite.

    Bars begin at `base`, or if it is None at the least value.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    low = low if base is None or low < base else base
    most, rows = len(levels), [""] * height
    for value in values:
        share = (value - low) / (high - low) if high > low else 0.5  # a constant: half high
        filled = round(share * (height * most - 1)) + 1 if math.isfinite(value) else 0
        for row in range(height):
            cell = filled - (height - 1 - row) * most
            rows[row] += levels[min(cell, most) - 1] if cell > 0 else " "
    return rows


def wrap(text: str, width: int, style: str = "") -> list[Line]:
    """The text in lines of at most `width` cells, broken between words if possible."""
    rows = [""]
    for word in text.split():
        rest = word
        while cell_len(rest) > width > 0:
            head = set_cell_size(rest, width).rstrip()
            rows += [head, ""]
            rest = rest[len(head) :]
        joined = f"{rows[-1]} {rest}" if rows[-1] else rest
        if cell_len(joined) > width:
            rows.append(rest)
        else:
            rows[-1] = joined
    return [[StyledSpan(row, style)] for row in rows if row or len(rows) == 1]


def labelled(head: str, text: str, width: int, style: str = "", *, cells: int = 8) -> list[Line]:
    """The text in lines of `width` cells behind `head`, whose 8 `cells` hold `labels` and a gap."""
    return [
        [StyledSpan(f"  {head if index == 0 else '':<{cells}}", "key"), *line]
        for index, line in enumerate(wrap(text, width, style))
    ]
