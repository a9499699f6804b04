"""The page of alerts: firing, pending, ended; details of the selected one; and the bell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from getpass import getuser
from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from ldlm_monitor.model.alert import Transition, alert_key
from ldlm_monitor.model.errors import LdlmError
from ldlm_monitor.model.records import Position
from ldlm_monitor.model.view import AlertView, Snapshot
from ldlm_monitor.text.format import local_time, number
from ldlm_monitor.tui.desk import Commanded, Desk, OpenLog
from ldlm_monitor.tui.draw import Glyphs, Line, StyledSpan, fit, safe, wrap
from ldlm_monitor.tui.palette import SEVERITY_STYLE
from ldlm_monitor.tui.prompt import DurationPrompt
from ldlm_monitor.tui.run_values import is_for_people, whole_duration
from ldlm_monitor.tui.widgets import DetailPage, RowList


@dataclass(frozen=True, slots=True)
class Item:
    """An active alert (`alert`), or one that ended.

    `suppression` is who silenced or acknowledged it, or why it ended.
    """

    name: str
    state: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    value: float
    since: float | None
    position: Position | None
    alert: AlertView | None = None
    ended: float | None = None
    suppression: str = ""


def items(snapshot: Snapshot, held_back: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Item]:
    """Firing by severity, pending, then those that ended, the newest first."""
    active = [_active(alert, held_back) for alert in snapshot.alerts if is_for_people(alert)]
    order = {"critical": 0, "error": 1, "warning": 2, "info": 3}
    active.sort(
        key=lambda item: (
            item.state != "firing",
            order.get(item.labels.get("severity", ""), 4),
            -(item.since or 0.0),
        )
    )
    return active + [
        _ended(passed)
        for passed in reversed(snapshot.transitions)
        if passed.state not in ("pending", "firing") and passed.previous == "firing"
    ]


def _active(alert: AlertView, held_back: Mapping[str, Sequence[Mapping[str, Any]]]) -> Item:
    return Item(
        name=alert.name,
        state=alert.state,
        labels=alert.labels,
        annotations=alert.annotations,
        value=alert.value,
        since=alert.active_at,
        position=alert.position,
        alert=alert,
        suppression=_suppression(alert, held_back),
    )


def _ended(passed: Transition) -> Item:
    return Item(
        name=passed.alert,
        state=passed.state,
        labels=passed.labels,
        annotations=passed.annotations,
        value=passed.value,
        since=passed.active_at,
        position=passed.position,
        ended=passed.time,
        suppression=passed.reason,
    )


def _suppression(alert: AlertView, held_back: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Who acknowledged the alert, or silenced it by its exact labels; empty: nobody."""
    for ack in held_back.get("acks", ()):
        if ack.get("alert") == alert.name and ack.get("labels") == alert.labels:
            return f"acknowledged by {ack.get('by', '?')}"
    labels = {"alertname": alert.name, **alert.labels}
    for silence in held_back.get("silences", ()):
        matchers = silence.get("matchers", ())
        exact = all(
            not matcher.get("isRegex")
            and matcher.get("isEqual", True)
            and labels.get(str(matcher.get("name"))) == matcher.get("value")
            for matcher in matchers
        )
        if exact and matchers:
            until = str(silence.get("endsAt", "?"))[:16].replace("T", " ")
            return f"silenced until {until} UTC by {silence.get('createdBy', '?')}"
    return ""


def row(item: Item, *, now: float, glyphs: Glyphs, chosen: bool) -> Line:
    """One alert in one line."""
    severity = item.labels.get("severity", "")
    over = item.alert is None
    style = "dim" if over or item.suppression else SEVERITY_STYLE.get(severity, "")
    since = local_time(item.ended) if over else whole_duration(now - (item.since or now))
    note = f"[{item.suppression}] " if item.suppression and not over else ""
    return [
        StyledSpan(f"{glyphs.cursor if chosen else ' '} ", "key"),
        StyledSpan(fit(item.state.upper(), 9, glyphs), style),
        StyledSpan(fit(severity, 9, glyphs), style),
        StyledSpan(fit(safe(item.name, glyphs), 20, glyphs) + " ", "dim" if over else "title"),
        StyledSpan(fit(since, 15, glyphs), "dim"),
        StyledSpan(safe(note, glyphs), "info"),
        StyledSpan(safe(item.annotations.get("summary", ""), glyphs), "dim" if over else ""),
    ]


def detail(item: Item, width: int, *, now: float, glyphs: Glyphs) -> list[Line]:
    """All details of one alert."""
    style = SEVERITY_STYLE.get(item.labels.get("severity", ""), "")
    inner = max(width - 4, 10)
    lines: list[Line] = [
        [
            StyledSpan(f" {safe(item.name, glyphs)}", style),
            StyledSpan(f"  {item.state}", "title"),
            StyledSpan(f"  since {local_time(item.since)}", "dim"),
            StyledSpan(
                "" if item.since is None else f" ({whole_duration(now - item.since)})", "dim"
            ),
            StyledSpan(f"  value {number(item.value)}", "dim"),
        ]
    ]
    if item.suppression:
        lines.append([StyledSpan(f"  {safe(item.suppression, glyphs)}", "info")])
    for name in ("summary", "description", "action"):
        if text := item.annotations.get(name):
            shown = wrap(safe(text, glyphs), inner - 10, "title" if name == "action" else "")
            head = {"summary": "what", "description": "why", "action": "to do"}[name]
            for index, line in enumerate(shown):
                lines.append([StyledSpan(f"  {head if index == 0 else '':<8}", "key"), *line])
    labels = "  ".join(f"{name}={value}" for name, value in sorted(item.labels.items()))
    for index, line in enumerate(wrap(safe(labels, glyphs), inner - 10, "dim")):
        lines.append([StyledSpan(f"  {'labels' if index == 0 else '':<8}", "key"), *line])
    if item.position:
        where = f"{item.position.path}:{item.position.line}"
        lines.append(
            [
                StyledSpan("  line    ", "key"),
                StyledSpan(safe(where, glyphs)),
                StyledSpan("  (Enter)", "dim"),
            ]
        )
    return lines


class Bell:
    """Rings for each critical alert that begins to fire, unless it is silenced or acknowledged.

    Alerts that fire already when the screen opens do not ring.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._known: frozenset[str] | None = None

    def rings(
        self, snapshot: Snapshot, held_back: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> bool:
        """Whether to ring for this snapshot."""
        critical = {
            alert_key(item.name, item.labels): item
            for item in items(snapshot, held_back)
            if item.state == "firing" and item.labels.get("severity") == "critical"
        }
        known, self._known = self._known, frozenset(critical)
        if known is None or not self._enabled:
            return False
        return any(not item.suppression for key, item in critical.items() if key not in known)


class AlertsPage(DetailPage):
    """A row for each alert, and the details of the selected one below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "acknowledge", "Acknowledge"),
        Binding("s", "silence", "Silence"),
    ]

    def __init__(self, desk: Desk, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._desk = desk
        self._items: list[Item] = []

    def look(self) -> None:
        """Show the alerts of the last snapshot."""
        self._items = items(self._desk.snapshot, self._desk.held_back)
        self.show_rows(len(self._items))

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Open the alert's line in its log."""
        if self._items and (position := self._items[self.rows.cursor].position):
            self.post_message(OpenLog(position))
        else:
            self.notify("This alert has no line in a log.", severity="warning", markup=False)

    def action_acknowledge(self) -> None:
        """Acknowledge the selected alert."""
        if alert := self._active():
            self._command(
                lambda by: self._desk.source.acknowledge(alert, by, "seen on the screen"),
                f"{alert.name} is acknowledged",
            )

    def action_silence(self) -> None:
        """Ask for how long, then silence the selected alert."""
        alert = self._active()
        if alert is None:
            return

        def silence(seconds: float | None) -> None:
            if seconds:
                self._command(
                    lambda by: self._desk.source.silence(alert, seconds, by, "from the screen"),
                    f"{alert.name} is silenced",
                )

        self.app.push_screen(DurationPrompt(f"Silence {alert.name} for how long?"), silence)

    def _active(self) -> AlertView | None:
        item = self._items[self.rows.cursor] if self._items else None
        if item is None or item.alert is None:
            self.notify("It has ended: nothing to do.", severity="warning", markup=False)
            return None
        return item.alert

    def _command(self, command: Callable[[str], None], done: str) -> None:
        def send() -> None:
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

        self.run_worker(send, thread=True, group="commands")

    def title(self, width: int, height: int) -> list[Line]:
        """How many alerts are in each state."""
        counts = {"firing": 0, "pending": 0}
        for item in self._items:
            if item.state in counts:
                counts[item.state] += 1
        past = len(self._items) - sum(counts.values())
        return [
            [
                StyledSpan(f" {counts['firing']} firing", "critical" if counts["firing"] else "ok"),
                StyledSpan(f"   {counts['pending']} pending   {past} over", "dim"),
            ]
        ]

    def detail(self, width: int) -> list[Line]:
        """The details of the selected alert."""
        item = self._items[self.rows.cursor] if self._items else None
        now, glyphs = self._desk.clock(), self._desk.glyphs
        return detail(item, width, now=now, glyphs=glyphs) if item else []

    def row(self, index: int, width: int) -> Line:
        """One alert."""
        chosen = index == self.rows.cursor
        now, glyphs = self._desk.clock(), self._desk.glyphs
        return row(self._items[index], now=now, glyphs=glyphs, chosen=chosen)
