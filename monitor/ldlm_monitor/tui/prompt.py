"""Dialogs over the pages: a line of text to enter, the list of all keys, the digest."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from ldlm_monitor.tui.draw import Line, StyledSpan, labelled
from ldlm_monitor.tui.keys import help_rows
from ldlm_monitor.tui.widgets import Painted, RowList

_KEY_CELLS = 14  # of keys in the help: `Shift+left right` is broken, all others fit


class TextPrompt(ModalScreen[str | None]):
    """Asks for a text, proposing `text`; returns what was entered, or None if it was closed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back")]

    def __init__(self, title: str, text: str, hint: str) -> None:
        super().__init__()
        self._title, self._text, self._hint = title, text, hint

    def compose(self) -> ComposeResult:
        """One line to type in."""
        with Vertical(classes="box small"):
            yield Painted(lambda width, height: [[StyledSpan(f" {self._title}", "title")]])
            yield Input(self._text, placeholder=self._hint, select_on_focus=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return the text."""
        self.dismiss(event.value)


class ScrolledText(ModalScreen[None]):
    """Lines that scroll, until a key closes them; `lines` makes them for a width."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "dismiss", "Back")
    ]

    def __init__(self) -> None:
        super().__init__()
        self._drawn: list[Line] = []
        self._rows = RowList(lambda index, width: self._drawn[index], id="keys")

    def compose(self) -> ComposeResult:
        """The lines, in a list that scrolls."""
        with Vertical(classes="box tall"):
            yield self._rows

    def on_resize(self) -> None:
        """Break the lines for the width."""
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        self._drawn = self.lines(self._rows.scrollable_content_region.width or 60)
        self._rows.show(len(self._drawn))

    def lines(self, width: int) -> list[Line]:
        """The lines for `width` cells."""
        raise NotImplementedError

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Close the list on Enter."""
        self.dismiss()


class Help(ScrolledText):
    """The list of all keys, `changed` ones as they are configured."""

    def __init__(self, changed: dict[str, str]) -> None:
        super().__init__()
        self._changed = changed

    def lines(self, width: int) -> list[Line]:
        """Keys and meanings, broken between words."""
        found: list[Line] = []
        for key, meaning in help_rows(self._changed):
            if meaning:
                found += labelled(
                    key, meaning, max(width - _KEY_CELLS - 4, 10), cells=_KEY_CELLS + 1
                )
            else:
                found.append([StyledSpan(f" {key}", "title")])
        return found
