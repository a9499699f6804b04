"""What all pages share, and the messages that they send to the app."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from textual.message import Message

from ldlm_monitor.model.queries import Source
from ldlm_monitor.model.records import Position
from ldlm_monitor.model.view import RunView, Snapshot
from ldlm_monitor.tui.draw import UNICODE, Glyphs


@dataclass(slots=True)
class Desk:
    """The last snapshot, the source of more, and the name of the selected run.

    `clock` gives Unix seconds. `held_back` are silences and acknowledgements.
    """

    source: Source
    clock: Callable[[], float]
    snapshot: Snapshot
    glyphs: Glyphs = UNICODE
    run: str | None = None
    held_back: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def chosen(self) -> RunView | None:
        """The selected run; None if there is none of that name."""
        return next((run for run in self.snapshot.runs if run.name == self.run), None)


class OpenRun(Message):
    """Show the page of a run."""

    def __init__(self, run: str) -> None:
        super().__init__()
        self.run = run


class OpenLog(Message):
    """Show a line of a log."""

    def __init__(self, position: Position) -> None:
        super().__init__()
        self.position = position


class Commanded(Message):
    """A silence or an acknowledgement was sent; `problem` is empty if it was accepted."""

    def __init__(self, done: str, problem: str = "") -> None:
        super().__init__()
        self.done = done
        self.problem = problem
