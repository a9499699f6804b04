"""Widgets that show lines of spans: one that paints itself, one that is a list of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBarRender
from textual.strip import Strip
from textual.widget import Widget

from ldlm_monitor.tui import palette
from ldlm_monitor.tui.draw import ASCII, Glyphs, Line, fit_line

if TYPE_CHECKING:
    from rich.style import Style


class PlainScrollBar(ScrollBarRender):
    """A scrollbar of blanks and colours alone: no character that ASCII lacks."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8
    HORIZONTAL_BARS: ClassVar[list[str]] = [" "] * 8


def strip_of(line: Line, width: int, base: Style, *, dark: bool, also: str = "") -> Strip:
    """The line as Textual draws it, exactly `width` cells; a span's own style goes over `also`."""
    extra = palette.style(also, dark=dark)
    segments = [
        Segment(text, base + extra + palette.style(style, dark=dark))
        for text, style in fit_line(line, width)
    ]
    return Strip(segments, width)


class Painted(Widget):
    """Shows what `paint(width, height)` gives; painted again on `refresh`."""

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
        """Forget what was painted."""
        self._painted = None
        super().refresh(*regions, **more)  # type: ignore[arg-type]
        return self

    def render_line(self, y: int) -> Strip:
        """One line of the painting."""
        if self._painted is None or self._painted[0] != self.size:
            self._painted = (self.size, self._paint(self.size.width, self.size.height))
        lines = self._painted[1]
        dark = self.app.current_theme.dark
        return strip_of(
            lines[y] if y < len(lines) else [], self.size.width, self.rich_style, dark=dark
        )


class RowList(ScrollView, can_focus=True):
    """Rows of one line each, of which only those that are seen are drawn.

    `row(index, width)` gives a row. The cursor is a row too; `Chosen` is Enter or a second
    click on it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home,g", "to_start", "Start", show=False),
        Binding("end,G", "to_end", "End", show=False),
        Binding("enter", "choose", "Open"),
    ]

    class Chosen(Message):
        """Enter was pressed on a row."""

        def __init__(self, rows: RowList, index: int) -> None:
            super().__init__()
            self.rows = rows
            self.index = index

        @property
        def control(self) -> RowList:
            """The list."""
            return self.rows

    class Moved(Chosen):
        """The cursor stands on another row."""

    def __init__(
        self,
        row: Callable[[int, int], Line],
        *,
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self._row = row
        self.count = 0
        self.cursor = 0

    def show(self, count: int, *, shifted: int = 0) -> None:
        """There are `count` rows now, `shifted` of them new above those there were."""
        self.count = count
        self.cursor = max(min(self.cursor + shifted, count - 1), 0)
        self.virtual_size = Size(self.size.width, count)
        if shifted:
            self.scroll_to(y=self.scroll_offset.y + shifted, animate=False, immediate=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The row that is seen there."""
        index = self.scroll_offset.y + y
        width = self.scrollable_content_region.width
        base, dark = self.rich_style, self.app.current_theme.dark
        if index >= self.count:
            return strip_of([], width, base, dark=dark)
        also = "cursor" if index == self.cursor and self.has_focus else ""
        return strip_of(self._row(index, width), width, base, dark=dark, also=also)

    def move_to(self, index: int, *, centre: bool = False) -> None:
        """Put the cursor on a row and show it."""
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
            self.post_message(self.Moved(self, self.cursor))

    def on_resize(self) -> None:
        """Keep the cursor in sight: a list that was not seen has no height to scroll in."""
        self.virtual_size = Size(self.size.width, self.count)
        self.call_after_refresh(lambda: self.move_to(self.cursor, centre=True))

    def action_move(self, by: int) -> None:
        """Up or down."""
        self.move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        """A page up or down."""
        self.move_to(self.cursor + by * max(self.size.height - 1, 1))

    def action_to_start(self) -> None:
        """To the first row."""
        self.move_to(0)

    def action_to_end(self) -> None:
        """To the last row."""
        self.move_to(self.count - 1)

    def action_choose(self) -> None:
        """What the row leads to."""
        if self.count:
            self.post_message(self.Chosen(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Put the cursor there; a second click is Enter."""
        index = self.scroll_offset.y + event.y
        if index < self.count:
            if index == self.cursor and event.chain > 1:
                self.action_choose()
            self.move_to(index)


def draws_plainly(glyphs: Glyphs) -> bool:
    """Whether scrollbars must do without block characters."""
    return glyphs is ASCII
