"""The pages that are lists: all runs, alerts, events."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.worker import get_current_worker

from ldlm_monitor.model.errors import LdlmError
from ldlm_monitor.model.view import AlertView, CurveView
from ldlm_monitor.tui import alerts, overview, timeline
from ldlm_monitor.tui.desk import Commanded, Desk, OpenLog, OpenRun
from ldlm_monitor.tui.draw import Line, Span, safe
from ldlm_monitor.tui.prompt import Duration
from ldlm_monitor.tui.widgets import Painted, RowList

_CURVES_SECONDS = 2.0
"""The curves of the runs that are seen are asked for this often."""


class OverviewPage(Vertical):
    """One row a run; Enter opens it."""

    def __init__(self, desk: Desk, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._desk = desk
        self._runs = overview.sorted_runs(desk.snapshot)
        self._curves: dict[str, CurveView] = {}
        self._asked_at = 0.0
        self.rows = RowList(self._row, id="runs")

    def compose(self) -> ComposeResult:
        """Summary, titles, rows."""
        yield Painted(
            lambda width, height: [overview.summary(self._desk.snapshot, self._desk.glyphs)]
        )
        yield Painted(lambda width, height: [overview.header(width)])
        yield self.rows

    def look(self) -> None:
        """Show what is new."""
        here = self._runs[self.rows.cursor].name if self._runs else None
        self._runs = overview.sorted_runs(self._desk.snapshot)
        names = [run.name for run in self._runs]
        self.rows.show(len(names))
        if here in names:
            self.rows.cursor = names.index(here)
        now = self._desk.clock()
        if abs(now - self._asked_at) >= _CURVES_SECONDS:  # a playback may begin again
            self._asked_at = now
            top, height = self.rows.scroll_offset.y, max(self.rows.size.height, 10)
            self.run_worker(
                lambda: self._ask(names[top : top + height]), thread=True, exclusive=True
            )
        for widget in self.query(Painted):
            widget.refresh()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Open the run."""
        self.post_message(OpenRun(self._runs[event.index].name))

    def _ask(self, names: list[str]) -> None:
        worker = get_current_worker()
        found: dict[str, CurveView] = {}
        for name in names:
            if worker.is_cancelled:
                return
            try:
                curve = self._desk.source.series(name, "loss", None, None, overview.SPARK)
            except LdlmError:
                return
            if curve is not None:
                found[name] = curve
        self.app.call_from_thread(self._take, found)

    def _take(self, found: dict[str, CurveView]) -> None:
        self._curves.update(found)
        self.rows.refresh()

    def _row(self, index: int, width: int) -> Line:
        run = self._runs[index]
        return overview.row(
            run,
            self._desk.snapshot,
            self._curves.get(run.name),
            width,
            now=self._desk.clock(),
            glyphs=self._desk.glyphs,
            chosen=index == self.rows.cursor,
        )


class AlertsPage(Vertical):
    """What fires, may fire and fired; the chosen one whole below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "acknowledge", "Acknowledge"),
        Binding("s", "silence", "Silence"),
    ]

    def __init__(self, desk: Desk, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._desk = desk
        self._items: list[alerts.Item] = []
        self.rows = RowList(self._row, id="alerts-rows")
        self._detail = RowList(self._detail_row, id="alerts-detail")
        self._lines: list[Line] = []

    def compose(self) -> ComposeResult:
        """Rows above, the chosen one below."""
        yield Painted(self._title)
        yield self.rows
        yield self._detail

    def look(self) -> None:
        """Show what is new."""
        self._items = alerts.items(self._desk.snapshot, self._desk.held_back)
        self.rows.show(len(self._items))
        self._show_detail()
        for widget in self.query(Painted):
            widget.refresh()

    def on_row_list_moved(self) -> None:
        """Show the chosen one."""
        self._show_detail()

    def on_resize(self) -> None:
        """Break the lines anew."""
        self._show_detail()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Jump to the line."""
        if self._items and (position := self._items[self.rows.cursor].position):
            self.post_message(OpenLog(position))
        else:
            self.notify("This alert has no line in a log.", severity="warning", markup=False)

    def action_acknowledge(self) -> None:
        """Somebody looks after it."""
        if alert := self._active():
            self._command(
                lambda by: self._desk.source.acknowledge(alert, by, "seen on the screen"),
                f"{alert.name} is acknowledged",
            )

    def action_silence(self) -> None:
        """Ask for how long, then do not tell it."""
        alert = self._active()
        if alert is None:
            return

        def silence(seconds: float | None) -> None:
            if seconds:
                self._command(
                    lambda by: self._desk.source.silence(alert, seconds, by, "from the screen"),
                    f"{alert.name} is silenced",
                )

        self.app.push_screen(Duration(f"Silence {alert.name} for how long?"), silence)

    def _active(self) -> AlertView | None:
        item = self._items[self.rows.cursor] if self._items else None
        if item is None or item.alert is None:
            self.notify("It has ended: nothing to do.", severity="warning", markup=False)
            return None
        return item.alert

    def _command(self, command: Callable[[str], None], done: str) -> None:
        from getpass import getuser

        def obey() -> None:
            try:
                try:
                    by = getuser()
                except (KeyError, OSError):
                    by = "somebody"
                command(by)
            except LdlmError as problem:
                self.post_message(Commanded(done, str(problem)))
            else:
                self.post_message(Commanded(done))

        self.run_worker(obey, thread=True, group="commands")

    def _title(self, width: int, height: int) -> list[Line]:
        counts = {"firing": 0, "pending": 0}
        for item in self._items:
            if item.state in counts:
                counts[item.state] += 1
        past = len(self._items) - sum(counts.values())
        return [
            [
                Span(f" {counts['firing']} firing", "critical" if counts["firing"] else "ok"),
                Span(f"   {counts['pending']} pending   {past} over", "dim"),
            ]
        ]

    def _show_detail(self) -> None:
        item = self._items[self.rows.cursor] if self._items else None
        width = self._detail.size.width or self.size.width
        now, glyphs = self._desk.clock(), self._desk.glyphs
        self._lines = alerts.detail(item, width, now=now, glyphs=glyphs) if item else []
        self._detail.show(len(self._lines))

    def _detail_row(self, index: int, width: int) -> Line:
        return self._lines[index]

    def _row(self, index: int, width: int) -> Line:
        return alerts.row(
            self._items[index],
            width,
            now=self._desk.clock(),
            glyphs=self._desk.glyphs,
            chosen=index == self.rows.cursor,
        )


class EventsPage(Vertical):
    """What the logs told, in order; the chosen one whole below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "worst", "Errors only"),
        Binding("o", "only_run", "This run only"),
    ]

    def __init__(self, desk: Desk, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._desk = desk
        self._worst_only = False
        self._all_runs = True
        self._entries: list[timeline.Entry] = []
        self.rows = RowList(self._row, id="events-rows")
        self._detail = RowList(self._detail_row, id="events-detail")
        self._lines: list[Line] = []

    def compose(self) -> ComposeResult:
        """Rows above, the chosen one below."""
        yield Painted(self._title)
        yield self.rows
        yield self._detail

    def look(self) -> None:
        """Show what is new; who stands at the end stays there."""
        at_end = self.rows.cursor >= self.rows.count - 1
        run = None if self._all_runs else self._desk.run
        self._entries = timeline.entries(self._desk.snapshot, run, worst_only=self._worst_only)
        self.rows.show(len(self._entries))
        if at_end:
            self.rows.move_to(len(self._entries) - 1)
        self._show_detail()
        for widget in self.query(Painted):
            widget.refresh()

    def action_worst(self) -> None:
        """Show errors only, or all."""
        self._worst_only = not self._worst_only
        self.look()

    def action_only_run(self) -> None:
        """Show the chosen run only, or all."""
        self._all_runs = not self._all_runs
        self.look()

    def on_row_list_moved(self) -> None:
        """Show the chosen one."""
        self._show_detail()

    def on_resize(self) -> None:
        """Break the lines anew."""
        self._show_detail()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Jump to the line."""
        if self._entries and (position := self._entries[self.rows.cursor].position).path:
            self.post_message(OpenLog(position))

    def _title(self, width: int, height: int) -> list[Line]:
        which = "all runs" if self._all_runs else safe(self._desk.run or "", self._desk.glyphs)
        what = "errors" if self._worst_only else "events"
        return [[Span(f" {len(self._entries)} {what}", "title"), Span(f"   of {which}", "dim")]]

    def _show_detail(self) -> None:
        entry = self._entries[self.rows.cursor] if self._entries else None
        width = self._detail.size.width or self.size.width
        self._lines = timeline.detail(entry, width, self._desk.glyphs) if entry else []
        self._detail.show(len(self._lines))

    def _detail_row(self, index: int, width: int) -> Line:
        return self._lines[index]

    def _row(self, index: int, width: int) -> Line:
        entry = self._entries[index]
        return timeline.row(entry, width, self._desk.glyphs, chosen=index == self.rows.cursor)
