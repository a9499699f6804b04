"""A page with a list and, below it, the details of the selected row."""

from abc import abstractmethod
from typing import Generic, TypeVar

from textual.app import ComposeResult

from ldlm_monitor.screen.draw import Line, StyledSpan
from ldlm_monitor.screen.page_context import PageContext, SelectRun
from ldlm_monitor.screen.screen_page import ScreenPage
from ldlm_monitor.screen.widgets import Painted, RowList

_T = TypeVar("_T")


class DetailPage(ScreenPage, Generic[_T]):
    """A title, a list with a row for each of `items`, and the details of the selected one below.

    A page defines `title`, `row` and `detail`, and calls `show` for each snapshot. The cursor
    stays on its item, by `identity`, when others are inserted or removed above it.
    """

    def __init__(self, context: PageContext) -> None:
        super().__init__(context)
        self.items: list[_T] = []
        self.rows = RowList(self._row, id=f"{self.id}-rows")
        self._detail = RowList(lambda index, width: self._lines[index], id=f"{self.id}-detail")
        self._detail.add_class("detail")
        self._lines: list[Line] = []

    def compose(self) -> ComposeResult:
        """Title, rows, details."""
        yield Painted(lambda width, height: [self.title()])
        yield self.rows
        yield self._detail

    @abstractmethod
    def title(self) -> Line:
        """The line above the rows."""

    def identity(self, item: _T) -> object:
        """What is equal in an item and its later versions; by default, the whole item."""
        return item

    @abstractmethod
    def row(self, item: _T) -> Line:
        """The row of an item, without the mark of the cursor."""

    @abstractmethod
    def detail(self, item: _T, width: int) -> list[Line]:
        """The details of an item, in lines for `width` cells."""

    @property
    def selected(self) -> _T | None:
        """The item at the cursor; None if there are no items."""
        return self.items[self.rows.cursor] if self.items else None

    def show(self, items: list[_T], *, to_end: bool = False) -> None:
        """Show these items; with `to_end`, move the cursor to the last one."""
        here = None if self.selected is None else self.identity(self.selected)
        self.items = items
        self.rows.show(len(items))
        places = (i for i, item in enumerate(items) if self.identity(item) == here)
        self.rows.cursor = next(places, self.rows.cursor)
        if to_end:
            self.rows.move_to(len(items) - 1)
        self.on_resize()
        self.query_one(Painted).refresh()

    def run_of(self, item: _T) -> str | None:
        """The run that an item is about; None if it is of no run."""
        return None

    def arrive(self) -> None:
        """Move the cursor to the selected run's first or next row, if it has one."""
        own = [i for i, item in enumerate(self.items) if self.run_of(item) == self._pages.run]
        if own and self.rows.cursor not in own:
            self.rows.move_to(next((i for i in own if i > self.rows.cursor), own[-1]), centre=True)
        self.on_row_list_moved()

    def on_row_list_moved(self) -> None:
        """Show the details of the item under the cursor, and select its run."""
        self.on_resize()
        if self.selected is not None and (run := self.run_of(self.selected)):
            self.post_message(SelectRun(run))

    def on_resize(self) -> None:
        """Show the details of the selected row, wrapped."""
        width, item = self._detail.size.width or self.size.width, self.selected
        self._lines = [] if item is None else self.detail(item, width)
        self._detail.show(len(self._lines))

    def _row(self, index: int, width: int) -> Line:
        mark = self._pages.glyphs.cursor if index == self.rows.cursor else " "
        return [StyledSpan(f"{mark} ", "key"), *self.row(self.items[index])]
