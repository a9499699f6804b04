"""The page of logs: the keys that move, filter, search and copy."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.binding import Binding, BindingType

from ldlm_monitor.tui.log_view import AROUND, LogView
from ldlm_monitor.tui.log_window import LogFilter
from ldlm_monitor.tui.prompt import SearchPrompt
from ldlm_monitor.tui.timeline import neighbour
from ldlm_monitor.tui.widgets import Painted


class LogPage(LogView):
    """One followed file, or all files of a run merged by time."""

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

    def action_search(self) -> None:
        """Ask what to search for; the cursor goes to the next match."""

        def search(text: str | None) -> None:
            if text:
                self._text = text
                self._find(backwards=False)

        self.app.push_screen(SearchPrompt(self._text), search)

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
        """Follow the end of the file, or stay."""
        self.follows = not self.follows
        if self.follows:
            self._go_to_end(reload=True)
        self.query_one(Painted).refresh()

    def action_merge(self) -> None:
        """All files of the run by time, or one."""
        self.merges = not self.merges
        self.follows = True
        self._go_to_end(reload=True)

    def action_rank(self) -> None:
        """One rank only: each in turn, then all."""
        seen = {placed.line.rank for placed in self.lines if placed.line.rank is not None}
        run = self._desk.chosen()
        self._filter.next_rank({*seen, *((rank.rank for rank in run.ranks) if run else ())})
        self._reload()

    def action_level(self) -> None:
        """Warnings and errors, errors, all."""
        self._filter.next_level()
        self._reload()

    def action_bars(self) -> None:
        """Show, or hide, what a terminal would have overwritten."""
        self._filter.bars = not self._filter.bars
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

    def _find(self, *, backwards: bool) -> None:
        here = self._here()
        if self.merges:
            self._find_merged(backwards=backwards)
            return
        at = 0 if here is None else here.line.offset if backwards else here.line.end
        self.follows, self._filter = False, LogFilter(bars=self._filter.bars)
        query = self._query(at, before=AROUND, after=AROUND)
        self._show(replace(query, find=self._text, backwards=backwards), at)

    def _find_merged(self, *, backwards: bool) -> None:
        found = self._window.find(self._text, self.rows.cursor, backwards=backwards)
        if found is None:
            self.notify("Not found in what is merged.", markup=False)
        else:
            self.follows = False
            self.rows.move_to(found, centre=True)
