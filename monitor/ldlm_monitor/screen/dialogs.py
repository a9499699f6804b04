"""Dialogs over the pages: the list of all keys, the digest."""

import math
from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from ldlm_monitor.base.text.format import counted
from ldlm_monitor.screen.alert_page import items
from ldlm_monitor.screen.draw import STATE_STYLE, Line, StyledSpan, labelled, safe
from ldlm_monitor.screen.hold_back import suppression
from ldlm_monitor.screen.keys import help_rows
from ldlm_monitor.screen.page_context import PageContext, is_trouble, severity_of, whole_duration
from ldlm_monitor.screen.widgets import RowList

_KEY_CELLS = 14  # of keys in the help: `Shift+left right` is broken, all others fit


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
    """The list of all keys, `changed` ones as they are configured; `pages`: in their order."""

    def __init__(self, changed: dict[str, str], pages: Sequence[str]) -> None:
        super().__init__()
        self._changed, self._order = changed, pages

    def lines(self, width: int) -> list[Line]:
        """Keys and meanings, broken between words."""
        found: list[Line] = []
        for key, meaning in help_rows(self._changed, self._order):
            if meaning:
                found += labelled(
                    key, meaning, max(width - _KEY_CELLS - 4, 10), cells=_KEY_CELLS + 1
                )
            else:
                found.append([StyledSpan(f" {key}", "title")])
        return found


AWAY_SECONDS = 600.0  # without a key; a choice: people who read a page press one sooner
_MOST = 12  # lines of a part. A choice: the pages have the others


class Absence:
    """Notices when somebody comes back, and what to show them then.

    `attached`: the screen was just opened on a daemon that has run before; the digest is then of
    the last `AWAY_SECONDS`.
    """

    def __init__(self, context: PageContext, *, attached: bool) -> None:
        self._pages = context
        self._last_input = context.clock()
        self._left_at: float | None = self._last_input - AWAY_SECONDS if attached else None

    def note_input(self) -> None:
        """Somebody pressed a key or moved the mouse."""
        now = self._pages.clock()
        if now - self._last_input >= AWAY_SECONDS:
            self._left_at = self._last_input
        self._last_input = now

    def digest(self) -> "Digest | None":
        """The digest once somebody has come back and there is something to show."""
        if self._left_at is None or not self._pages.snapshot.runs:
            return None
        left, self._left_at = self._left_at, None
        found = Digest(self._pages, left)
        return found if found.has_news else None


class Digest(ScrolledText):
    """What happened since `left_at` (Unix seconds); any key closes it."""

    def __init__(self, context: PageContext, left_at: float) -> None:
        super().__init__()
        self._pages, self._left = context, left_at
        changes = [
            each
            for each in items(context.snapshot, context.held_back)
            if each.of.state != "pending"
        ]
        self._fired = [each for each in changes if each.of.active_at >= left_at]
        self._over = [
            each
            for each in changes
            if each.of.state != "firing" and (getattr(each.of, "time", None) or 0.0) >= left_at
        ]
        self._ended = [
            run for run in context.snapshot.runs if (run.ended_at or -math.inf) >= left_at
        ]
        self._waiting = [
            alert
            for alert in context.snapshot.alerts
            if alert.state == "firing"
            and is_trouble(alert)
            and not suppression(alert, context.held_back)
        ]

    @property
    def has_news(self) -> bool:
        """Whether anything happened."""
        return bool(self._fired or self._over or self._ended)

    def lines(self, width: int) -> list[Line]:
        """A part for each kind of change."""
        now = self._pages.clock()
        found: list[Line] = [
            [StyledSpan(f" Since you left, {whole_duration(now - self._left)} ago", "title")]
        ]
        fired = [(severity_of(each.of), each.name, each.of.annotations.get("summary", ""))
                 for each in self._fired]  # fmt: skip
        over = [("dim", each.of.state, f"{each.name}: {each.of.labels.get('run', '')}")
                for each in self._over]  # fmt: skip
        ended = [(STATE_STYLE.get(run.state, ""), run.state, run.name) for run in self._ended]
        waiting = [(severity_of(each), each.name, each.labels.get("run", ""))
                   for each in self._waiting]  # fmt: skip
        parts = (("fired", fired), ("over", over), ("ended", ended), ("to acknowledge", waiting))
        for title, rows in parts:
            if rows:
                found += self._part(
                    f"{counted(len(rows), 'alert' if title != 'ended' else 'run')} {title}",
                    rows,
                    width,
                )
        return [*found, [], [StyledSpan(" Esc closes this; 3 lists the alerts", "dim")]]

    def _part(self, title: str, rows: Iterable[tuple[str, str, str]], width: int) -> list[Line]:
        glyphs, shown = self._pages.glyphs, list(rows)
        lines: list[Line] = [[], [StyledSpan(f" {title}", "title")]]
        for style, head, text in shown[:_MOST]:
            cells = min(max(len(head), 10) + 2, 24)
            rest = max(width - cells - 4, 10)
            lines += labelled(
                safe(head, glyphs)[: cells - 1], safe(text, glyphs), rest, style, cells=cells
            )
        if len(shown) > _MOST:
            lines.append([StyledSpan(f"  and {len(shown) - _MOST} more", "dim")])
        return lines
