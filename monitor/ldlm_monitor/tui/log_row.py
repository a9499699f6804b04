"""Drawing a log: its title; a record with line number, file, severity and found text."""

from __future__ import annotations

from collections.abc import Sequence

from ldlm_monitor.text.format import byte_size
from ldlm_monitor.tui.draw import Glyphs, Line, StyledSpan, fit, safe
from ldlm_monitor.tui.log_window import PlacedLine
from ldlm_monitor.tui.palette import SEVERITY_STYLE

_LEVEL_STYLE = {"error": "error", "warning": "warning"}
_FILE_CELLS = 18


def log_row(
    placed: PlacedLine,
    severity: str,
    glyphs: Glyphs,
    *,
    chosen: bool,
    with_file: bool,
    found: str,
) -> Line:
    """The row of a record. `severity` is that of an event in it; `found` is highlighted."""
    line = placed.line
    style = SEVERITY_STYLE.get(severity, _LEVEL_STYLE.get(line.level or "", ""))
    number = f"{line.line}" if line.line is not None else f"@{line.offset}"
    row: Line = [
        StyledSpan(glyphs.cursor if chosen else " ", "key"),
        StyledSpan(f"{number:>8}", "dim"),
        StyledSpan(f" {glyphs.marks.get(severity, ' ')} ", style),
    ]
    if with_file:
        name = safe(placed.path.rsplit("/", 1)[-1], glyphs)
        row.append(StyledSpan(fit(name, _FILE_CELLS, glyphs) + " ", "dim"))
    return [*row, *_highlighted(safe(line.text, glyphs), found, style)]


def _highlighted(text: str, found: str, style: str) -> Line:
    """The text with each match of `found` in another style."""
    if not found:
        return [StyledSpan(text, style)]
    line: Line = []
    low, find, start = text.lower(), found.lower(), 0
    # A few letters have more characters in lower case: then the offsets would differ.
    while len(low) == len(text) and (at := low.find(find, start)) >= 0:
        line += [StyledSpan(text[start:at], style), StyledSpan(text[at : at + len(find)], "found")]
        start = at + len(find)
    return [*line, StyledSpan(text[start:], style)]


def log_title(
    path: str, files: Sequence[str], size: int | None, width: int, glyphs: Glyphs
) -> Line:
    """The file that is shown, of `size` bytes; None: all of `files` are merged."""
    if size is None:
        return [StyledSpan(f" {len(files)} files merged", "title")]
    shown, room = safe(path, glyphs), width // 2
    if len(shown) > room:  # the end has the file's name
        shown = glyphs.ellipsis + shown[len(shown) - room + 1 :]
    line = [StyledSpan(f" {shown}", "title"), StyledSpan(f"  {byte_size(size)}", "dim")]
    if len(files) > 1 and path in files:
        line.append(StyledSpan(f"  file {files.index(path) + 1} of {len(files)}", "dim"))
    return line
