"""Records of logs as the screen shows them: their rows, their order in several files, titles."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ldlm_monitor.base.queries import LogLine, LogQuery, LogSlice, Source
from ldlm_monitor.base.text.format import byte_size
from ldlm_monitor.screen.draw import Glyphs, Line, StyledSpan, fit, safe
from ldlm_monitor.screen.keys import Key

_MERGED_LINES = 1000  # records of all merged files, roughly. A choice: older ones, or a fast answer
_MERGED_FILES = 64  # at most. A choice: the page waits for a request each, and lacks other files
_LEVEL_STYLE = {"error": "error", "warning": "warning"}  # other levels are plain
_FILE_CELLS = 18  # for `heartbeat_rank1024`; of 80 cells, 49 remain for the text


LOG_KEYS = (
    Key("slash", "search", "Search", "search; next, previous match, round the end", "/ n N", True),
    Key("n", "again(False)", "Next match"),
    Key("N", "again(True)", "Previous match"),
    Key("e", "event(True)", "Next event", "next, previous event", "e E", True),
    Key("E", "event(False)", "Event before"),
    Key("f", "follow", "Follow", "follow the end, or stay", "f", True),
    Key("m", "merge", "Merge", "all files of the run merged by time, or one", "m", True),
    Key("w", "wrap", "Wrap", "break long lines, or cut them", "w", True),
    Key("left", "scroll(-1)", "Left", "where lines are cut: scroll sideways", "left right"),
    Key("right", "scroll(1)", "Right"),
    Key("r", "rank", "Rank", "one rank only: each in turn, then all", "r"),
    Key("v", "level", "Severity", "warnings and errors, errors only, all", "v"),
    Key("b", "bars", "Bars", "progress bars as drawn, or the last of each", "b"),
    Key("y", "copy", "Copy", "copy the line as it is (OSC 52)", "y", True),
    Key("left_square_bracket", "file(-1)", "File before", "another file of the run", "[ ]"),
    Key("right_square_bracket", "file(1)", "Next file"),
)


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """A record and the path of its file."""

    path: str
    line: LogLine


def merged(source: Source, paths: Sequence[str], shown: LogQuery) -> list[PlacedLine]:
    """The last records of each file that pass the filters of `shown`, by time.

    A record without a time stays behind the record before it in its file. Files without any time
    come first, one after the other. Raises RemoteError or UsageError.
    """
    found: list[tuple[float, PlacedLine]] = []
    # At least 20 of each file, a choice: fewer cut tracebacks at its end, more take longer.
    each = max(_MERGED_LINES // min(max(len(paths), 1), _MERGED_FILES), 20)
    for path in paths[:_MERGED_FILES]:
        time = -math.inf
        for line in source.log(replace(shown, path=path, before=each)).lines:
            time = line.time if line.time is not None else time
            found.append((time, PlacedLine(path, line)))
    return [placed for _, placed in sorted(found, key=lambda entry: entry[0])]


@dataclass(slots=True)
class Search:
    """The searched `text`; which match was `found`, of how many; whether it went round the end."""

    text: str = ""
    found: str = ""
    went_round: bool = False

    def __str__(self) -> str:
        return f"{self.text}  {self.found}" if self.text else ""

    def begin(self, query: LogQuery, here: LogLine, *, backwards: bool) -> LogQuery:
        """The query for the next match after the record `here`, or if `backwards` before it."""
        self.went_round = False
        at = here.offset if backwards else here.end
        return replace(query, at=at, find=self.text, backwards=backwards)

    def further(self, query: LogQuery, found: LogSlice) -> LogQuery | None:
        """The query after one without a match, of which each reads only a part; None: none is."""
        if found.start > 0 if query.backwards else found.end < found.size:
            return replace(query, at=found.end)
        if self.went_round:
            return None
        self.went_round = True
        return replace(query, at=found.size if query.backwards else 0)


def next_match(lines: Sequence[PlacedLine], here: int, text: str, *, backwards: bool) -> int | None:
    """The index of the next record with `text`, round the end; None if no record has it."""
    after, before = range(here + 1, len(lines)), range(here)
    others = [*reversed(before), *reversed(after)] if backwards else [*after, *before]
    return next((i for i in others if text.lower() in lines[i].line.text.lower()), None)


def index_at(lines: Sequence[PlacedLine], offset: int) -> int:
    """The index of the record that contains a byte, otherwise of the last record."""
    return next((i for i, each in enumerate(lines) if each.line.end > offset), len(lines) - 1)


def log_row(
    placed: PlacedLine,
    severities: Mapping[tuple[str, int], str],
    glyphs: Glyphs,
    found: str,
    shift: int = 0,
    *,
    with_file: bool,
) -> Line:
    """The row of a record, without the cursor's mark; matches of `found` are highlighted.

    `shift`: characters of the text that are scrolled out at the left.

    `severities`: those of events, by path and first byte of the record. `with_file`: name the file.
    """
    line, severity = placed.line, severities.get((placed.path, placed.line.offset), "")
    style = severity or _LEVEL_STYLE.get(line.level or "", "")
    number = f"{line.line}" if line.line is not None else f"@{line.offset}"
    row: Line = [
        StyledSpan(f"{number:>8}", "dim"),  # cells: line numbers below 100 million
        StyledSpan(f" {glyphs.marks.get(severity, ' ')} ", style),
    ]
    if with_file:
        name = safe(placed.path.rsplit("/", 1)[-1], glyphs)
        row.append(StyledSpan(fit(name, _FILE_CELLS, glyphs) + " ", "dim"))
    return [*row, *_highlighted(safe(line.text, glyphs)[shift:], found, style)]


def _highlighted(text: str, found: str, style: str) -> Line:
    parts = re.split(f"({re.escape(found)})", text, flags=re.IGNORECASE) if found else [text]
    return [StyledSpan(part, "found" if i % 2 else style) for i, part in enumerate(parts)]


def log_title(
    path: str, files: Sequence[str], size: int | None, width: int, glyphs: Glyphs
) -> Line:
    """The path and `size` (bytes) of the shown file; if `size` is None, all `files` are merged."""
    if size is None:
        of = f"{_MERGED_FILES} of " if len(files) > _MERGED_FILES else ""
        return [StyledSpan(f" {of}{len(files)} files merged", "title")]
    shown, room = safe(path, glyphs), width // 2
    if len(shown) > room:  # the end has the file's name
        shown = glyphs.ellipsis + shown[len(shown) - room + 1 :]
    line = [StyledSpan(f" {shown}", "title"), StyledSpan(f"  {byte_size(size)}", "dim")]
    if len(files) > 1 and path in files:
        line.append(StyledSpan(f"  file {files.index(path) + 1} of {len(files)}", "dim"))
    return line


def filters(shown: LogQuery, text: str, glyphs: Glyphs, *, follows: bool) -> Line:
    """Whether the page follows the end of the file, the filters of `shown`, the searched `text`."""
    found = [f"rank {shown.rank}"] if shown.rank is not None else []
    found += [f"{shown.level} and worse"] if shown.level else []
    found += ["bars"] if shown.bars else []
    found += [f"/{safe(text, glyphs)}"] if text else []
    how = StyledSpan("  following", "ok") if follows else StyledSpan("  f follows", "dim")
    return [how, StyledSpan("  " + "  ".join(found), "accent")]
