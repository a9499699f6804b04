"""Widgets that show lines of spans: a painted one and a list of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from rich.segment import Segment
from textual import events
from textual.binding import BindingType
from textual.dom import DOMNode
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import Reactive
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBarRender
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import get_current_worker

from ldlm_monitor.base.errors import LdlmError
from ldlm_monitor.screen.draw import Line, style_of
from ldlm_monitor.screen.keys import Key, keys

if TYPE_CHECKING:
    from rich.style import Style

_T = TypeVar("_T")


def in_thread(
    node: DOMNode,
    ask: Callable[[], _T],
    arrived: Callable[[_T], None],
    failed: Callable[[LdlmError], None] = lambda problem: None,
    *,
    group: str = "default",
) -> None:
    """Call `ask` in a thread; then, in the app's thread, `arrived` with the result.

    If `ask` raised an LdlmError, `failed` is called with it instead (by default, nothing happens).
    A later call with the same node and group drops the result of this call.
    """

    def work() -> None:
        worker = get_current_worker()
        then: Callable[[], None]
        try:
            found = ask()
        except LdlmError as problem:
            then = partial(failed, problem)
        else:
            then = partial(arrived, found)
        if not worker.is_cancelled:
            node.app.call_from_thread(then)

    node.run_worker(work, thread=True, exclusive=True, group=group)


class PlainScrollBar(ScrollBarRender):
    """A scrollbar of coloured blanks, for terminals with ASCII only."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8  # eight: Textual draws in eighths of a cell
    HORIZONTAL_BARS: ClassVar[list[str]] = [" "] * 8


def strip_of(line: Line, width: int, base: Style, *, dark: bool, also: str = "") -> Strip:
    """The line as a strip of exactly `width` cells. Styles: a span's, over `also`, over `base`."""
    ground = style_of(also, base, dark=dark)
    segments = [Segment(text, style_of(style, ground, dark=dark)) for text, style in line if text]
    return Strip(segments).adjust_cell_length(width, ground)


class PagesScreen(Screen[object]):
    """The screen of the pages: a new focus draws the two widgets it concerns, not everything."""

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)


class LineWidget(Widget):
    """Draws lines of spans over its own style, which is found once for all lines of a drawing."""

    _ground: tuple[Style, bool]

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of the region `crop`."""
        self._ground = self.rich_style, self.app.current_theme.dark
        return super().render_lines(crop)

    def strip(self, line: Line, width: int, *, also: str = "") -> Strip:
        """`strip_of` over the widget's own style."""
        return strip_of(line, width, self._ground[0], dark=self._ground[1], also=also)


class Painted(LineWidget):
    """Shows the lines that `paint(width, height)` returns; `refresh` calls it again."""

    def __init__(
        self,
        paint: Callable[[int, int], list[Line]],
        *,
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self._paint = paint
        self._painted: tuple[Size, list[Line]] | None = None

    def refresh(self, *regions: object, **more: object) -> Painted:
        """Paint again."""
        self._painted = None
        super().refresh(*regions, **more)  # type: ignore[arg-type]
        return self

    def render_line(self, y: int) -> Strip:
        """One line of the painting."""
        if self._painted is None or self._painted[0] != self.size:
            self._painted = (self.size, self._paint(self.size.width, self.size.height))
        lines = self._painted[1]
        return self.strip(lines[y] if y < len(lines) else [], self.size.width)


class RowList(ScrollView, LineWidget, can_focus=True):
    """Rows of one line each; only the visible ones are drawn.

    `row(index, width)` returns one of `count` rows; `cursor` is the index of the selected one.
    `Chosen` is sent for Enter on it, or a double click.
    """

    BINDINGS: ClassVar[list[BindingType]] = keys(
        "Lists",
        Key("up,k", "move(-1)", "Up", "move; a click does, too", "arrows j k"),
        Key("down,j", "move(1)", "Down"),
        Key("pageup", "page(-1)", "Page up", "move by pages", "PgUp PgDn"),
        Key("pagedown", "page(1)", "Page down"),
        Key("home,g", "end(0)", "Start", "to the first, to the last", "g G"),
        Key("end,G", "end(-1)", "End"),
        Key("enter", "choose", "Open", "open: a run, the line of an alert or event", "Enter", True),
    )

    @dataclass
    class Chosen(Message):
        """Enter was pressed on the row `index`, or the row was clicked twice."""

        index: int

    class Moved(Chosen):
        """The cursor has moved to the row `index`."""

    def __init__(
        self,
        row: Callable[[int, int], Line],
        *,
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self._row = row
        self.count = self.cursor = 0

    def show(self, count: int, *, shifted: int = 0) -> None:
        """Show `count` rows; `shifted` of them are new and above the rows shown before."""
        self.count = count
        self.cursor = max(min(self.cursor + shifted, count - 1), 0)
        self._set_extent()
        if shifted:
            self.scroll_to(y=self.scroll_offset.y + shifted, animate=False, immediate=True)
        self.refresh()

    def _set_extent(self) -> None:
        # A hidden list has no width; another one would lay out the screen again when it shows.
        self.virtual_size = Size(self.size.width or self.virtual_size.width, self.count)

    def render_line(self, y: int) -> Strip:
        """The row at line `y` of the visible part."""
        index = self.scroll_offset.y + y
        width = self.scrollable_content_region.width
        if index >= self.count:
            return self.strip([], width)
        also = "cursor" if index == self.cursor and self.has_focus else ""
        return self.strip(self._row(index, width), width, also=also)

    def move_to(self, index: int, *, centre: bool = False) -> None:
        """Move the cursor to a row and scroll it into view, if `centre` to the middle."""
        before, self.cursor = self.cursor, max(min(index, self.count - 1), 0)
        height = max(self.scrollable_content_region.height, 1)
        top = self.scroll_offset.y
        if centre and not top <= self.cursor < top + height:
            top = self.cursor - height // 2
        elif self.cursor < top:
            top = self.cursor
        elif self.cursor >= top + height:
            top = self.cursor - height + 1
        self.scroll_to(y=max(top, 0), animate=False, immediate=True, force=True)
        self.refresh()
        if before != self.cursor:
            self.post_message(self.Moved(self.cursor))

    def on_resize(self) -> None:
        """Keep the cursor in view: a list that was hidden has no height to scroll in."""
        self._set_extent()
        self.call_after_refresh(self._show_cursor)

    def _show_cursor(self) -> None:
        top = self.scroll_offset.y
        if not top <= self.cursor < top + self.scrollable_content_region.height:
            self.move_to(self.cursor, centre=True)

    def action_move(self, by: int) -> None:
        """Move the cursor by rows, up if below 0."""
        self.move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by pages, up if below 0."""
        self.move_to(self.cursor + by * max(self.size.height - 1, 1))

    def action_end(self, index: int) -> None:
        """Move the cursor to the first row (0) or to the last one (-1)."""
        self.move_to(index % max(self.count, 1))

    def action_choose(self) -> None:
        """Send `Chosen` for the row at the cursor."""
        if self.count:
            self.post_message(self.Chosen(self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor; a second click on its row does what Enter does."""
        index = self.scroll_offset.y + event.y
        if index < self.count:
            if index == self.cursor and event.chain > 1:
                self.action_choose()
            self.move_to(index)
