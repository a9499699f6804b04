"""A view of a log: only the records around the cursor are read, whatever the file's size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical

from ldlm_monitor.model.errors import LdlmError
from ldlm_monitor.model.queries import LogQuery, LogSlice
from ldlm_monitor.model.records import Position
from ldlm_monitor.tui.desk import Desk
from ldlm_monitor.tui.draw import Line, StyledSpan, safe
from ldlm_monitor.tui.log_row import log_row, log_title
from ldlm_monitor.tui.log_window import LogFilter, LogWindow, PlacedLine, merged
from ldlm_monitor.tui.timeline import severities
from ldlm_monitor.tui.widgets import Painted, RowList

_T = TypeVar("_T")
AROUND = 300
"""Records that are read at once, on each side."""
_EDGE = 50
"""Rows from the end of what is held, within which more is read."""
_MERGED_FILES = 64


class LogView(Vertical):
    """One followed file, or all files of a run merged by time; `LogPage` adds the keys."""

    def __init__(self, desk: Desk, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._desk = desk
        self.path = ""
        self._window = LogWindow()
        self.follows = True
        self.merges = False
        self._filter = LogFilter()
        self._text = ""
        self._busy = False
        self._problem = ""
        self._severities: dict[tuple[str, int], str] = {}
        self._events_of = -1
        self.rows = RowList(self._row, id="log-rows")

    @property
    def lines(self) -> list[PlacedLine]:
        """The records that are held."""
        return self._window.lines

    def compose(self) -> ComposeResult:
        """Which file, and its records."""
        yield Painted(self._title)
        yield self.rows

    def look(self) -> None:
        """Read what was appended, if the page follows the end."""
        files = self._files()
        if self.path not in files and files and not self.path:
            self.open(files[0])
        elif self.follows and self.path:
            self._go_to_end()
        snapshot = self._desk.snapshot
        if self._events_of != snapshot.version:
            self._events_of, self._severities = snapshot.version, severities(snapshot.events)
        self.query_one(Painted).refresh()

    def open(self, path: str, position: Position | None = None) -> None:
        """Show a file's end, or a place in it."""
        self.path, self.merges = path, False
        self.follows = position is None
        if position is None:
            self._go_to_end(reload=True)
            return
        self._filter = LogFilter()
        at, line = position.offset, position.line
        self._show(self._query(at, at_line=line, before=AROUND, after=AROUND), at)

    def on_row_list_moved(self) -> None:
        """Stop following once the cursor moves up; read more near an end of what is held."""
        if self.rows.cursor < self.rows.count - 1:
            self.follows = False
        if self.merges or not self.lines or self._busy:
            return
        if self.rows.cursor < _EDGE and self._window.start > 0:
            at = self._window.start
            line = self._window.line_at(at)
            self._ask(self._query(at, at_line=line, before=AROUND), self._put_above)
        elif self.rows.cursor > self.rows.count - _EDGE and self._window.end < self._window.size:
            self._read_below(self._window.end)
        self.query_one(Painted).refresh()

    def _files(self) -> list[str]:
        run = self._desk.chosen()
        runs = (run,) if run else self._desk.snapshot.runs[:1]
        return [path for run in runs for path in run.files]

    def _query(
        self, at: int | None = None, *, at_line: int | None = None, before: int = 0, after: int = 0
    ) -> LogQuery:
        return self._filter.query(self.path, at=at, at_line=at_line, before=before, after=after)

    def _here(self) -> PlacedLine | None:
        return self.lines[self.rows.cursor] if self.lines else None

    def _reload(self) -> None:
        """Read the same place again, with other filters."""
        here = self._here()
        if self.merges or self.follows or here is None:
            self._go_to_end(reload=True)
            return
        at = here.line.offset
        line = self._window.line_at(at)
        self._show(self._query(at, at_line=line, before=AROUND, after=AROUND), at)

    def _go_to_end(self, *, reload: bool = False) -> None:
        if self._busy and not reload:
            return
        if self.merges:
            self._merge()
        elif reload or not self.lines:
            self._show(self._query(before=AROUND), None)
        else:
            last = self.lines[-1].line
            self._read_below(last.offset if last.is_open else self._window.end)

    def _read_below(self, at: int) -> None:
        self._ask(self._query(at, after=AROUND), self._put_below)

    def _show(self, query: LogQuery, cursor: int | None) -> None:
        """Read other records; `cursor` is the byte to go to, None: the end."""
        self._ask(query, lambda found: self._show_found(found, query, cursor))

    def _ask(self, query: LogQuery, put: Callable[[LogSlice], None]) -> None:
        """Read in a thread; an answer for a file that is not shown any more is dropped."""
        self._busy = True

        def arrived(found: LogSlice) -> None:
            if query.path == self.path and not self.merges:
                put(found)

        self._in_thread(lambda: self._desk.source.log(query), arrived)

    def _merge(self) -> None:
        self._busy = True
        files, shown = self._files()[:_MERGED_FILES], self._filter

        def arrived(found: list[PlacedLine]) -> None:
            if self.merges:
                self._window.lines = found
                self.rows.show(len(found))
                self.rows.move_to(len(found) - 1)

        self._in_thread(lambda: merged(self._desk.source, files, shown), arrived)

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

    def _show_found(self, found: LogSlice, query: LogQuery, cursor: int | None) -> None:
        if query.find and found.found is None:
            if found.start > 0 if query.backwards else found.end < found.size:
                self._show(replace(query, at=found.end), found.end)  # one query has a limit
            else:
                self.notify("Not found that way.", markup=False)
            return
        self._window.replace(self.path, found)
        self.rows.show(len(self.lines))
        if cursor is None:
            self.rows.move_to(len(self.lines) - 1)
            return
        index = self._window.index_at(cursor if found.found is None else found.found)
        self.rows.scroll_to(y=max(index - self.rows.size.height // 2, 0), animate=False)
        self.rows.move_to(index, centre=True)

    def _put_above(self, found: LogSlice) -> None:
        shifted = self._window.put_above(self.path, found)
        self.rows.show(len(self.lines), shifted=shifted)

    def _put_below(self, found: LogSlice) -> None:
        dropped = self._window.put_below(self.path, found)
        if dropped is None:
            return
        self.rows.show(len(self.lines), shifted=-dropped)
        if self.follows and found.lines:
            self.rows.move_to(len(self.lines) - 1)
        if found.size < self._window.end:  # the file was truncated
            self._go_to_end(reload=True)

    def _title(self, width: int, height: int) -> list[Line]:
        glyphs = self._desk.glyphs
        if self._problem:
            return [[StyledSpan(f" {safe(self._problem, glyphs)}", "error")]]
        if not self.path:
            return [[StyledSpan(" no file is followed yet", "dim")]]
        files = self._files()
        size = None if self.merges else self._window.size
        line = log_title(self.path, files, size, width, glyphs)
        line.append(
            StyledSpan("  following", "ok") if self.follows else StyledSpan("  f follows", "dim")
        )
        labels = self._filter.labels()
        labels += [f"/{safe(self._text, glyphs)}"] if self._text else []
        return [[*line, StyledSpan("  " + "  ".join(labels), "accent")]]

    def _row(self, index: int, width: int) -> Line:
        placed = self.lines[index]
        return log_row(
            placed,
            self._severities.get((placed.path, placed.line.offset), ""),
            self._desk.glyphs,
            chosen=index == self.rows.cursor,
            with_file=self.merges,
            found=self._text,
        )
