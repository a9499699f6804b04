"""The log itself: only the records around what is looked at are read, whatever the file's size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from ldlm_monitor.model.errors import LdlmError
from ldlm_monitor.model.queries import Level, LogQuery, LogSlice
from ldlm_monitor.model.records import Position
from ldlm_monitor.tui.desk import Desk
from ldlm_monitor.tui.draw import Line, Span, fit, safe
from ldlm_monitor.tui.merged import Placed, merged
from ldlm_monitor.tui.palette import SEVERITY_STYLE
from ldlm_monitor.tui.prompt import Search
from ldlm_monitor.tui.timeline import neighbour
from ldlm_monitor.tui.widgets import Painted, RowList
from ldlm_monitor.tui.words import size

_T = TypeVar("_T")
_AROUND = 300
"""Records that are read at once, on each side."""
_KEPT = 3000
"""Records that are held; beyond, those on the far side are forgotten."""
_EDGE = 50
"""So near to the end of what is held, more is read."""
_MERGED_FILES = 64
_LEVELS: tuple[Level | None, ...] = (None, "warning", "error")
_LEVEL_STYLE = {"error": "error", "warning": "warning"}


class LogPage(Vertical):
    """One followed file, or all of a run merged by time; its cursor is where one reads."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search", key_display="/"),
        Binding("n", "again(False)", "Next", show=False),
        Binding("N", "again(True)", "Previous", show=False),
        Binding("e", "event(True)", "Next event"),
        Binding("E", "event(False)", "Event before", show=False),
        Binding("f", "follow", "Follow"),
        Binding("m", "merge", "Merge"),
        Binding("r", "rank", "Rank", show=False),
        Binding("v", "level", "Severity", show=False),
        Binding("b", "bars", "Bars", show=False),
        Binding("y", "copy", "Copy"),
        Binding("left_square_bracket", "file(-1)", "File before", show=False),
        Binding("right_square_bracket", "file(1)", "Next file", show=False),
    ]

    def __init__(self, desk: Desk, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._desk = desk
        self.path = ""
        self.lines: list[Placed] = []
        self.follows = True
        self._ranks: set[int] = set()
        self.merges = False
        self._bytes = self._start = self._end = 0
        self._level = 0
        self._rank: int | None = None
        self._text = ""
        self._bars = False
        self._busy = False
        self._problem = ""
        self._severities: dict[tuple[str, int], str] = {}
        self._events_of = -1
        self.rows = RowList(self._row, id="log-rows")

    def compose(self) -> ComposeResult:
        """Which file, and its records."""
        yield Painted(self._title)
        yield self.rows

    def look(self) -> None:
        """Read what was appended, where one follows; otherwise leave everything as it is."""
        files = self._files()
        if self.path not in files and files and not self.path:
            self.open(files[0])
        elif self.follows and self.path:
            self._go_to_end()
        if self._events_of != self._desk.snapshot.version:
            self._events_of = self._desk.snapshot.version
            self._severities = {
                (event.position.path, event.position.offset): event.severity
                for event in self._desk.snapshot.events
                if event.severity != "info"
            }
        self.query_one(Painted).refresh()

    def open(self, path: str, position: Position | None = None) -> None:
        """Show a file's end, or a place in it."""
        self.path, self.merges = path, False
        self.follows = position is None
        if position is None:
            self._go_to_end(anew=True)
            return
        self._rank, self._level = None, 0
        at, line = position.offset, position.line
        self._ask(LogQuery(path=path, at=at, at_line=line, before=_AROUND, after=_AROUND), at)

    def action_search(self) -> None:
        """Ask what to search for; the cursor goes to the next match."""

        def search(text: str | None) -> None:
            if text:
                self._text = text
                self._find(backwards=False)

        self.app.push_screen(Search(self._text), search)

    def action_again(self, backwards: bool) -> None:
        """The next match, or the one before."""
        if self._text:
            self._find(backwards=backwards)

    def action_event(self, forward: bool) -> None:
        """The next event of this file, or the one before."""
        here = self._here()
        offset = here.line.offset if here else 0
        path = here.path if here else self.path
        found = neighbour(self._desk.snapshot.events, path, offset, forward=forward)
        if found is None:
            self.notify("No more events that way.", markup=False)
        else:
            self.open(path, found.position)

    def action_follow(self) -> None:
        """Go to the end and on with it, or stay."""
        self.follows = not self.follows
        if self.follows:
            self._go_to_end(anew=True)
        self.query_one(Painted).refresh()

    def action_merge(self) -> None:
        """All files of the run by time, or one."""
        self.merges = not self.merges
        self.follows = True
        self._go_to_end(anew=True)

    def action_rank(self) -> None:
        """One rank only: each that is seen in turn, then all."""
        seen = {placed.line.rank for placed in self.lines if placed.line.rank is not None}
        run = self._desk.chosen()
        known = {*seen, *((rank.rank for rank in run.ranks) if run else ())}
        # Where one rank is shown, only what was seen before tells of the others.
        self._ranks = known if self._rank is None else self._ranks | known
        later = [rank for rank in sorted(self._ranks) if self._rank is None or rank > self._rank]
        self._rank = later[0] if later else None
        self._reload()

    def action_level(self) -> None:
        """Warnings and errors, errors, all."""
        self._level = (self._level + 1) % len(_LEVELS)
        self._reload()

    def action_bars(self) -> None:
        """What a terminal would have overwritten, or not."""
        self._bars = not self._bars
        self._reload()

    def action_copy(self) -> None:
        """The line as it is, to the terminal's clipboard (OSC 52)."""
        if here := self._here():
            self.app.copy_to_clipboard(here.line.text)
            self.notify("The line is copied.", markup=False)

    def action_file(self, by: int) -> None:
        """Another file of the run."""
        files = self._files()
        if files:
            here = files.index(self.path) if self.path in files else 0
            self.open(files[(here + by) % len(files)])

    def on_row_list_moved(self) -> None:
        """Who goes up wants to read there; near an end of what is held, more is read."""
        if self.rows.cursor < self.rows.count - 1:
            self.follows = False
        if self.merges or not self.lines or self._busy:
            return
        if self.rows.cursor < _EDGE and self._start > 0:
            self._ask(self._query(at=self._start, before=_AROUND), None, above=True)
        elif self.rows.cursor > self.rows.count - _EDGE and self._end < self._bytes:
            self._ask(self._query(at=self._end, after=_AROUND), None, below=True)
        self.query_one(Painted).refresh()

    def _files(self) -> list[str]:
        run = self._desk.chosen()
        runs = (run,) if run else self._desk.snapshot.runs[:1]
        return [path for run in runs for path in run.files]

    def _here(self) -> Placed | None:
        return self.lines[self.rows.cursor] if self.lines else None

    def _query(
        self, *, at: int | None = None, before: int = 0, after: int = 0, find: str = ""
    ) -> LogQuery:
        known = None
        if before and not find and self.lines and self.lines[0].line.offset == at:
            known = self.lines[0].line.line
        return LogQuery(
            path=self.path,
            at=at,
            at_line=known,
            before=before,
            after=after,
            rank=self._rank,
            level=_LEVELS[self._level],
            bars=self._bars,
            find=find,
        )

    def _reload(self) -> None:
        """The same place, by other filters."""
        here = self._here()
        if self.merges or self.follows or here is None:
            self._go_to_end(anew=True)
            return
        query = self._query(at=here.line.offset, before=_AROUND, after=_AROUND)
        self._ask(query, here.line.offset)

    def _go_to_end(self, *, anew: bool = False) -> None:
        if self._busy and not anew:
            return
        if self.merges:
            self._merge()
        elif anew or not self.lines:
            self._ask(self._query(before=_AROUND), None)
        else:
            last = self.lines[-1].line
            at = last.offset if last.is_open else self._end
            self._ask(self._query(at=at, after=_AROUND), None, below=True)

    def _find(self, *, backwards: bool) -> None:
        here = self._here()
        if self.merges:
            self._find_merged(backwards=backwards)
            return
        at = 0 if here is None else here.line.offset if backwards else here.line.end
        query = LogQuery(
            path=self.path,
            at=at,
            before=_AROUND,
            after=_AROUND,
            bars=self._bars,
            find=self._text,
            backwards=backwards,
        )
        self.follows, self._rank, self._level = False, None, 0
        self._ask(query, at)

    def _find_merged(self, *, backwards: bool) -> None:
        wanted, here = self._text.lower(), self.rows.cursor
        places = [i for i, placed in enumerate(self.lines) if wanted in placed.line.text.lower()]
        found = [i for i in places if (i < here if backwards else i > here)]
        if found:
            self.follows = False
            self.rows.move_to(found[-1 if backwards else 0], centre=True)
        else:
            self.notify("Not found in what is merged.", markup=False)

    def _ask(
        self, query: LogQuery, cursor: int | None, *, above: bool = False, below: bool = False
    ) -> None:
        """Read in a thread; `cursor` is the byte to go to, None: the end, or stay."""
        self._busy = True

        def arrived(found: LogSlice) -> None:
            if query.path != self.path or self.merges:
                return
            self._bytes = found.size
            placed = [Placed(query.path, line) for line in found.lines]
            if above:
                self._put_above(placed, found)
            elif below:
                self._put_below(placed, found)
            else:
                self._replace(placed, found, query, cursor)

        self._in_thread(lambda: self._desk.source.log(query), arrived)

    def _merge(self) -> None:
        self._busy = True
        files = self._files()[:_MERGED_FILES]

        def arrived(found: list[Placed]) -> None:
            if self.merges:
                self.lines = found
                self.rows.show(len(found))
                self.rows.move_to(len(found) - 1)

        self._in_thread(lambda: merged(self._desk.source, files, self._query), arrived)

    def _in_thread(self, ask: Callable[[], _T], arrived: Callable[[_T], None]) -> None:
        def work() -> None:
            try:
                found = ask()
            except LdlmError as problem:
                self.app.call_from_thread(self._settle, str(problem))
            else:
                self.app.call_from_thread(self._settle, "", lambda: arrived(found))

        self.run_worker(work, thread=True, exclusive=True, group="log")

    def _settle(self, problem: str, then: Callable[[], None] | None = None) -> None:
        self._busy, self._problem = False, problem
        if then is not None:
            then()
        self.query_one(Painted).refresh()

    def _replace(
        self, placed: list[Placed], found: LogSlice, query: LogQuery, cursor: int | None
    ) -> None:
        if query.find and found.found is None:
            if found.start > 0 if query.backwards else found.end < found.size:
                self._ask(replace(query, at=found.end), found.end)  # so far in one question
            else:
                self.notify("Not found that way.", markup=False)
            return
        self.lines, self._start, self._end = placed, found.start, found.end
        self.rows.show(len(placed))
        if cursor is None:
            self.rows.move_to(len(placed) - 1)
            return
        at = cursor if found.found is None else found.found
        index = next((i for i, each in enumerate(placed) if each.line.end > at), len(placed) - 1)
        self.rows.scroll_to(y=max(index - self.rows.size.height // 2, 0), animate=False)
        self.rows.move_to(index, centre=True)

    def _put_above(self, placed: list[Placed], found: LogSlice) -> None:
        self._start = found.start
        self.lines = [*placed, *self.lines][:_KEPT]
        if self.lines:
            self._end = self.lines[-1].line.end if len(self.lines) == _KEPT else self._end
        self.rows.show(len(self.lines), shifted=len(placed))

    def _put_below(self, placed: list[Placed], found: LogSlice) -> None:
        if self.lines and self.lines[-1].line.is_open and found.start <= self.lines[-1].line.offset:
            self.lines.pop()  # it went on, or was overwritten
        if self.lines and placed and placed[0].line.offset < self.lines[-1].line.end:
            return
        self._end = max(found.end, self._end)
        gone = max(len(self.lines) + len(placed) - _KEPT, 0)
        if gone:
            self._start = self.lines[min(gone, len(self.lines)) - 1].line.end
        self.lines = [*self.lines, *placed][gone:]
        self.rows.show(len(self.lines), shifted=-gone)
        if self.follows and placed:
            self.rows.move_to(len(self.lines) - 1)
        if found.size < self._end:  # the file was emptied: there is another start
            self._go_to_end(anew=True)

    def _title(self, width: int, height: int) -> list[Line]:
        glyphs = self._desk.glyphs
        if self._problem:
            return [[Span(f" {safe(self._problem, glyphs)}", "error")]]
        if not self.path:
            return [[Span(" no file is followed yet", "dim")]]
        files = self._files()
        which = f"{len(files)} files merged" if self.merges else self._short(width // 2)
        marks = [f"rank {self._rank}"] if self._rank is not None else []
        level = _LEVELS[self._level]
        marks += [f"{level} and worse"] if level else []
        marks += ["bars"] if self._bars else []
        marks += [f"/{safe(self._text, glyphs)}"] if self._text else []
        line: Line = [Span(f" {which}", "title")]
        if not self.merges:
            line.append(Span(f"  {size(float(self._bytes))}", "dim"))
            if len(files) > 1 and self.path in files:
                line.append(Span(f"  file {files.index(self.path) + 1} of {len(files)}", "dim"))
        line += [Span("  following", "ok") if self.follows else Span("  f follows", "dim")]
        return [[*line, Span("  " + "  ".join(marks), "accent")]]

    def _short(self, width: int) -> str:
        """The end of the path: the file's name tells most."""
        path, glyphs = safe(self.path, self._desk.glyphs), self._desk.glyphs
        return path if len(path) <= width else glyphs.ellipsis + path[len(path) - width + 1 :]

    def _row(self, index: int, width: int) -> Line:
        placed, glyphs = self.lines[index], self._desk.glyphs
        line = placed.line
        severity = self._severities.get((placed.path, line.offset))
        style = SEVERITY_STYLE.get(severity or "", _LEVEL_STYLE.get(line.level or "", ""))
        told = f"{line.line}" if line.line is not None else f"@{line.offset}"
        mark = glyphs.marks.get(severity or "", " ")
        cursor = glyphs.cursor if index == self.rows.cursor else " "
        row: Line = [Span(cursor, "key"), Span(f"{told:>8}", "dim"), Span(f" {mark} ", style)]
        if self.merges:
            row.append(
                Span(fit(safe(placed.path.rsplit("/", 1)[-1], glyphs), 18, glyphs) + " ", "dim")
            )
        return [*row, *_highlighted(safe(line.text, glyphs), self._text, style)]


def _highlighted(text: str, wanted: str, style: str) -> Line:
    """The text, what was searched for standing out."""
    if not wanted:
        return [Span(text, style)]
    line: Line = []
    low, find, start = text.lower(), wanted.lower(), 0
    while (at := low.find(find, start)) >= 0 and len(low) == len(text):
        line += [Span(text[start:at], style), Span(text[at : at + len(find)], "found")]
        start = at + len(find)
    return [*line, Span(text[start:], style)]
