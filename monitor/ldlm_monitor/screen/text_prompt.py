"""A dialog for one line of text."""

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from ldlm_monitor.screen.draw import StyledSpan
from ldlm_monitor.screen.widgets import Painted


class TextPrompt(ModalScreen[str | None]):
    """Asks for a text, proposing `text`; returns what was entered, or None if it was closed.

    `problem` says what is wrong with a text, or ""; until nothing is, the dialog stays.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back")]

    def __init__(
        self, title: str, text: str, hint: str, problem: Callable[[str], str] = lambda text: ""
    ) -> None:
        super().__init__()
        self._title, self._text, self._hint = title, text, hint
        self._problem = problem

    def compose(self) -> ComposeResult:
        """One line to type in."""
        with Vertical(classes="box small"):
            yield Painted(
                lambda width, height: [[StyledSpan(f" {self._title}", "title")]], id="ask"
            )
            yield Input(self._text, placeholder=self._hint, select_on_focus=True)
            yield Painted(lambda width, height: [[StyledSpan(f" {self._hint}", "dim")]])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return the text, or say what is wrong with it."""
        if problem := self._problem(event.value):
            self._title = problem
            self.query_one("#ask").refresh()
        else:
            self.dismiss(event.value)
