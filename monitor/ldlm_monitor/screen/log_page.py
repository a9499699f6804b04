"""The page of logs: only the records around the cursor are read, whatever the file's size."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import BindingType

from ldlm_monitor.base.queries import Level, LogQuery, LogSlice
from ldlm_monitor.base.records import Position
from ldlm_monitor.screen.draw import Line, StyledSpan, safe, wrap
from ldlm_monitor.screen.keys import keys
from ldlm_monitor.screen.log_rows import (
    LOG_KEYS,
    PlacedLine,
    Search,
    filters,
    index_at,
    log_row,
    log_title,
    merged,
    next_match,
)
from ldlm_monitor.screen.page_context import PageContext
from ldlm_monitor.screen.screen_page import ScreenPage
from ldlm_monitor.screen.text_prompt import TextPrompt
from ldlm_monitor.screen.timeline import event_severities, neighbour
from ldlm_monitor.screen.widgets import Painted, RowList, in_thread

_T = TypeVar("_T")
_AROUND = 300  # records read on each side of the cursor. A choice: slower reads or more of them
_EDGE = 50  # rows from an end at which more are read. A choice: too late or in vain
_LEVELS: tuple[Level | None, ...] = (None, "warning", "error")  # in turn by key `v`; None: all


class LogPage(ScreenPage):
    """The file `path` (empty: none yet), or if `merges` all of a run; `lines`: the records read."""

    tab = "Log"
    BINDINGS: ClassVar[list[BindingType]] = keys("Log", *LOG_KEYS)

    def __init__(self, context: PageContext) -> None:
        super().__init__(context)
        self.path = ""
        self.lines: list[PlacedLine] = []
        self._held = LogSlice(path="", size=0, start=0, end=0, lines=())
        self.follows, self.merges = True, False
        self._filter = LogQuery(path="")
        self._ranks: set[int] = set()
        self._search = Search()
        self._shift = 0
        self._busy, self._problem = False, ""
        self._severities: dict[tuple[str, int], str] = {}
        self.rows = RowList(self._row, id="log-rows")

    def compose(self) -> ComposeResult:
        """A title with the file, the records, and if wished the one at the cursor whole."""
        yield Painted(self._title)
        yield self.rows
        yield Painted(self._whole, id="whole-line")

    def look(self) -> None:
        """Read what was appended, if the page follows the end."""
        files = self._files()
        if files and self.path not in files:
            self.open(files[0])
        elif self.follows and self.path and not self._busy:
            self._go_to_end()
        self._severities = event_severities(self._pages.snapshot.events)
        self.query_one(Painted).refresh()

    def open(self, path: str, position: Position | None = None) -> None:
        """Show a file at `position`, or if None its end."""
        self.path, self.merges = path, False
        self.follows = position is None
        if position is None:
            self._go_to_end()
        else:
            self._filter = LogQuery(path="")
            self._show(self._around(position.offset, position.line), position.offset)

    def on_row_list_moved(self) -> None:
        """Stop following once the cursor moves up; read other records near an end of the rows."""
        if self.rows.cursor < self.rows.count - 1:
            self.follows = False
        self.query_one("#whole-line").refresh()
        here = self._here()
        if self.merges or here is None or self._busy:
            return
        is_low, is_high = self.rows.cursor < _EDGE, self.rows.cursor > self.rows.count - _EDGE
        if (is_low and self._held.start > 0) or (is_high and self._held.end < self._held.size):
            self._read_around(here)
        self.query_one(Painted).refresh()

    def action_search(self) -> None:
        """Open the search dialog; then move the cursor to the next match."""

        def search(text: str | None) -> None:
            if text:
                self._search = Search(text)
                self.action_again(backwards=False)

        hint = "text, in upper or lower case"
        self.app.push_screen(TextPrompt("Search in this log", self._search.text, hint), search)

    def action_again(self, backwards: bool) -> None:
        """Go to the next match of the searched text, or if `backwards` to the previous one."""
        here, text = self._here(), self._search.text
        if not text or here is None:
            return
        found = next_match(self.lines, self.rows.cursor, text, backwards=backwards)
        self.follows = self.follows and self.merges and found is None
        if not self.merges:
            self._filter = LogQuery(path="", bars=self._filter.bars)
            query = self._query(before=_AROUND, after=_AROUND)
            query = self._search.begin(query, here.line, backwards=backwards)
            self._show(query, query.at)
        elif found is None:
            self.notify("Not found in the merged records.", markup=False)
        else:
            self.rows.move_to(found, centre=True)

    def action_event(self, forward: bool) -> None:
        """Go to the next event of this file, or if not `forward` to the previous one."""
        here = self._here()
        path, offset = (here.path, here.line.offset) if here else (self.path, 0)
        found = neighbour(self._pages.snapshot.events, path, offset, forward=forward)
        if found is None:
            self.notify("No more events in that direction.", markup=False)
        else:
            self.open(path, found.position)

    def action_follow(self) -> None:
        """Start or stop following the end of the file."""
        self.follows = not self.follows
        if self.follows:
            self._go_to_end()
        self.query_one(Painted).refresh()

    def action_merge(self) -> None:
        """Switch between one file and all files of the run, merged by time."""
        self.merges = not self.merges
        self.follows = True
        self._go_to_end()

    def action_wrap(self) -> None:
        """Show the record at the cursor whole, broken into lines below the others, or not."""
        whole = self.query_one("#whole-line")
        whole.display = not whole.display

    def action_scroll(self, by: int) -> None:
        """Scroll the text sideways by half of the width, to the left if below 0."""
        self._shift = max(self._shift + by * (self.size.width // 2), 0)
        self.rows.refresh()

    def action_rank(self) -> None:
        """Show one rank only: each in turn, then all of them."""
        run, shown = self._pages.chosen(), self._filter.rank
        seen = {placed.line.rank for placed in self.lines if placed.line.rank is not None}
        seen |= {rank.rank for rank in run.ranks} if run else set()
        # While one rank is shown, only earlier reads contain the others.
        self._ranks = seen if shown is None else self._ranks | seen
        later = (rank for rank in sorted(self._ranks) if shown is None or rank > shown)
        self._change_filter(rank=next(later, None))

    def action_level(self) -> None:
        """Show warnings and errors, then errors only, then all."""
        self._change_filter(level=_LEVELS[(_LEVELS.index(self._filter.level) + 1) % len(_LEVELS)])

    def action_bars(self) -> None:
        """Show or hide the states of a progress bar that a terminal would have overwritten."""
        self._change_filter(bars=not self._filter.bars)

    def action_copy(self) -> None:
        """Copy the unchanged line to the terminal's clipboard (OSC 52)."""
        if here := self._here():
            self.app.copy_to_clipboard(here.line.text)
            self.notify("The line is copied.", markup=False)

    def action_file(self, by: int) -> None:
        """Show the file of the run that is `by` files further on, or back if below 0."""
        if files := self._files():
            here = files.index(self.path) if self.path in files else 0
            self.open(files[(here + by) % len(files)])

    def _files(self) -> list[str]:
        run = self._pages.chosen()
        runs = (run,) if run else self._pages.snapshot.runs[:1]
        return [path for run in runs for path in run.files]

    def _here(self) -> PlacedLine | None:
        return self.lines[self.rows.cursor] if self.lines else None

    def _query(self, at: int | None = None, **around: int | None) -> LogQuery:
        return replace(self._filter, path=self.path, at=at, **around)  # type: ignore[arg-type]

    def _change_filter(self, **changes: Any) -> None:
        self._filter = replace(self._filter, **changes)
        here = self._here()
        if self.merges or self.follows or here is None:
            self._go_to_end()
        else:
            self._show(self._around(here.line.offset, here.line.line), here.line.offset)

    def _go_to_end(self) -> None:
        if self.merges:
            files, shown = self._files(), self._filter
            self._in_thread(lambda: merged(self._pages.source, files, shown), self._show_merged)
        else:
            self._show(self._query(before=_AROUND), None)

    def _around(self, at: int, line: int | None) -> LogQuery:
        return self._query(at, at_line=line, before=_AROUND, after=_AROUND)

    def _read_around(self, here: PlacedLine) -> None:
        """Read the records around `here`, which keeps its place on the screen."""
        at = here.line.offset
        query = self._around(at, here.line.line)

        def put(found: LogSlice) -> None:
            before = index_at(self.lines, at)
            self._hold(found)
            self.rows.show(len(self.lines), shifted=index_at(self.lines, at) - before)

        self._in_thread(lambda: self._pages.source.log(query), put)

    def _show(self, query: LogQuery, cursor: int | None) -> None:
        """Read other records; the cursor goes to that with byte `cursor`, or if None to the end."""
        log = self._pages.source.log
        self._in_thread(lambda: log(query), lambda found: self._show_found(found, query, cursor))

    def _in_thread(self, ask: Callable[[], _T], put: Callable[[_T], None]) -> None:
        """Call `ask` in a thread and `put` with its result, unless the file shown has changed."""
        shown = self.path, self.merges

        def settle(problem: str) -> None:
            self._busy, self._problem = False, problem
            self.query_one(Painted).refresh()

        def arrived(found: _T) -> None:
            settle("")
            if shown == (self.path, self.merges):
                put(found)

        self._busy = True
        in_thread(self, ask, arrived, lambda problem: settle(str(problem)), group="log")

    def _show_merged(self, found: list[PlacedLine]) -> None:
        self.lines = found
        self.rows.show(len(found))
        self.rows.move_to(len(found) - 1)

    def _show_found(self, found: LogSlice, query: LogQuery, cursor: int | None) -> None:
        if query.find and found.found is None:
            if (further := self._search.further(query, found)) is not None:
                self._show(further, further.at)
            else:
                self.notify("Not found in this file.", markup=False)
            return
        if query.find:
            self._search.found = "{} of {}".format(*found.matches) if found.matches else ""
            if self._search.went_round:
                self.notify("The search went on from the other end.", markup=False)
            self.query_one(Painted).refresh()
        last = len(self.lines) - 1
        if cursor is None and found == self._held and self.rows.cursor == last:
            return  # nothing new: the view stays where the wheel has scrolled it
        self._hold(found)
        self.rows.show(len(self.lines))
        if cursor is None:
            self.rows.move_to(len(self.lines) - 1)
            return
        index = index_at(self.lines, cursor if found.found is None else found.found)
        self.rows.scroll_to(y=max(index - self.rows.size.height // 2, 0), animate=False)
        self.rows.move_to(index, centre=True)

    def _hold(self, found: LogSlice) -> None:
        self._held = found
        self.lines = [PlacedLine(self.path, line) for line in found.lines]

    def _title(self, width: int, height: int) -> list[Line]:
        glyphs = self._pages.glyphs
        if self._problem:
            return [[StyledSpan(f" {safe(self._problem, glyphs)}", "error")]]
        if not self.path:
            return [[StyledSpan(" no file is followed yet", "dim")]]
        size = None if self.merges else self._held.size
        line = log_title(self.path, self._files(), size, width, glyphs)
        return [line + filters(self._filter, f"{self._search}", glyphs, follows=self.follows)]

    def _whole(self, width: int, height: int) -> list[Line]:
        here = self._here()
        return wrap(safe(here.line.text, self._pages.glyphs), width - 1) if here else []

    def _row(self, index: int, width: int) -> Line:
        glyphs = self._pages.glyphs
        mark = glyphs.cursor if index == self.rows.cursor else " "
        facts = self.lines[index], self._severities, glyphs, self._search.text, self._shift
        return [StyledSpan(mark, "key"), *log_row(*facts, with_file=self.merges)]
