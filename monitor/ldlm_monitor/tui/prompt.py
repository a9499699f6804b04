"""Dialogs: a text to search for, and the list of all keys."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from ldlm_monitor.tui.draw import Line, StyledSpan
from ldlm_monitor.tui.widgets import Painted, RowList

KEYS = (  # keys and their meaning (the BINDINGS define them), or a heading and ""
    ("Everywhere", ""),
    ("1 2 3 4 5", "overview, run, alerts, log, events"),
    ("Esc", "back to the overview; closes a dialog"),
    ("?", "this page"),
    ("Ctrl+P", "command palette: themes and everything else by name"),
    ("q, Ctrl+C", "quit; prints the health report unless attached"),
    ("Lists", ""),
    ("arrows, j k g G", "move; so do PgUp PgDn Home End and the mouse"),
    ("Enter", "open: a run, the line of an alert or of an event"),
    ("Run", ""),
    ("left right", "cursor over the steps; Shift moves the window"),
    ("+ - 0", "zoom in, zoom out, whole run; the wheel zooms, dragging moves"),
    ("l", "linear or logarithmic axis"),
    ("s", "smoothing: none, light, strong"),
    ("c", "components of the loss: total, each, all"),
    ("Enter", "the line of the log at the cursor"),
    ("[ ]", "previous and next run"),
    ("Alerts", ""),
    ("a", "acknowledge: no more messages until it has ended"),
    ("s", "silence for a time"),
    ("Events", ""),
    ("v", "errors only, or all"),
    ("o", "the chosen run only, or all"),
    ("Log", ""),
    ("/ n N", "search, next match, previous match"),
    ("e E", "next event, previous event"),
    ("f", "follow the end, or stay"),
    ("m", "all files of the run merged by time, or one"),
    ("r", "one rank only: each in turn, then all"),
    ("v", "warnings and errors, errors only, all"),
    ("b", "progress bars as they were drawn, or only the last of each"),
    ("[ ]", "previous and next file of the run"),
    ("y", "copy the line as it is (OSC 52)"),
    ("Playback", ""),
    ("p", "pause, go on; after the end, begin again"),
    ("< >", "slower, faster"),
    ("A", "on to the next alert, and stop there"),
    ("R", "begin again"),
)


class SearchPrompt(ModalScreen[str | None]):
    """Asks what to search for, proposing `text`; returns what was entered, or None if closed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back")]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """One line to type in."""
        with Vertical(classes="box small"):
            yield Painted(lambda width, height: [[StyledSpan(" Search in this log", "title")]])
            yield Input(
                self._text, placeholder="text, in upper or lower case", select_on_focus=True
            )

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return the text."""
        self.dismiss(event.value)


class Help(ModalScreen[None]):
    """The list of all keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "dismiss", "Back")
    ]

    def compose(self) -> ComposeResult:
        """The keys, in a list that scrolls."""
        with Vertical(classes="box tall"):
            yield RowList(self._row, count=len(KEYS), id="keys")

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Close the list on Enter."""
        self.dismiss()

    def _row(self, index: int, width: int) -> Line:
        key, meaning = KEYS[index]
        if not meaning:
            return [StyledSpan(f" {key}", "title")]
        return [StyledSpan(f"   {key:<15} ", "key"), StyledSpan(meaning)]  # the longest: 15 cells
