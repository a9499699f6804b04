"""The page of alerts (firing, pending, ended), and the bell."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import BindingType

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.names import severity_rank
from ldlm_monitor.base.snapshot import AlertView, Snapshot
from ldlm_monitor.base.text.format import number
from ldlm_monitor.judge.core.run_health import decided_on
from ldlm_monitor.screen.detail_page import DetailPage
from ldlm_monitor.screen.draw import Line, StyledSpan, fit, labelled, safe
from ldlm_monitor.screen.hold_back import send, silence, suppression
from ldlm_monitor.screen.keys import Key, keys
from ldlm_monitor.screen.page_context import (
    HeldBack,
    OpenLog,
    is_trouble,
    severity_of,
    whole_duration,
)


@dataclass(frozen=True, slots=True)
class AlertItem:
    """An alert or its end. `reason`: who suppressed it (empty: nobody), or why it ended."""

    name: str
    of: AlertView | Transition
    reason: str


def items(snapshot: Snapshot, held_back: HeldBack) -> list[AlertItem]:
    """Firing, then pending alerts, each the worst and newest first; then ended, newest first."""
    active = sorted(
        filter(is_trouble, snapshot.alerts),
        key=lambda a: (a.state != "firing", -severity_rank(severity_of(a)), -a.active_at),
    )
    return [AlertItem(alert.name, alert, suppression(alert, held_back)) for alert in active] + [
        AlertItem(passed.alert, passed, passed.reason)
        for passed in reversed(snapshot.transitions)
        if passed.state not in ("pending", "firing")
        and passed.previous == "firing"
        and is_trouble(passed)
    ]


class Bell:
    """Rings for each critical alert that begins to fire, unless it is silenced or acknowledged.

    Alerts that fire already when the screen opens do not ring.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._known: frozenset[str] | None = None

    def rings(self, snapshot: Snapshot, held_back: HeldBack) -> bool:
        """Whether to ring for this snapshot, compared with the snapshot of the call before."""
        critical = {
            alert.key: alert
            for alert in snapshot.alerts
            if alert.state == "firing" and severity_of(alert) == "critical"
        }
        known, self._known = self._known, frozenset(critical)
        if known is None or not self._enabled:
            return False
        fresh = (alert for key, alert in critical.items() if key not in known)
        return any(not suppression(alert, held_back) for alert in fresh)


class AlertsPage(DetailPage[AlertItem]):
    """A row for each alert, and the details of the selected one below."""

    tab = "Alerts"
    BINDINGS: ClassVar[list[BindingType]] = keys(
        "Alerts",
        Key("a", "acknowledge", "Acknowledge", "no more messages until it has ended", "a", True),
        Key("s", "silence", "Silence", "silence it for a time", "s", True),
    )

    @classmethod
    def badge(cls, snapshot: Snapshot) -> int:
        """The number of firing alerts."""
        return sum(a.state == "firing" and is_trouble(a) for a in snapshot.alerts)

    def look(self) -> None:
        """Show the alerts of the last snapshot."""
        self.show(items(self._pages.snapshot, self._pages.held_back))

    def on_row_list_chosen(self) -> None:
        """Open the log at the line of the selected alert, if it has one."""
        if self.selected and self.selected.of.position:
            self.post_message(OpenLog(self.selected.of.position))
        else:
            self.notify("This alert has no line in a log.", severity="warning", markup=False)

    def action_acknowledge(self) -> None:
        """Acknowledge the selected alert."""
        if alert := self._active():
            ack = {"alert": alert.name, "labels": alert.labels, "comment": "seen on the screen"}
            send(self, self._pages, "acks", [ack], f"{alert.name} is acknowledged")

    def action_silence(self) -> None:
        """Ask for how long, then silence the selected alert."""
        if alert := self._active():
            silence(self, self._pages, {"alertname": alert.name, **alert.labels}, alert.name)

    def _active(self) -> AlertView | None:
        if self.selected is not None and isinstance(self.selected.of, AlertView):
            return self.selected.of
        self.notify("Select an active alert first.", severity="warning", markup=False)
        return None

    def run_of(self, item: AlertItem) -> str | None:
        """The run of the alert's labels."""
        return item.of.labels.get("run")

    def identity(self, item: AlertItem) -> object:
        """The alert instance and its start, which stay the same when the alert ends."""
        return item.of.key, item.of.active_at

    def title(self) -> Line:
        """How many alerts are in each state."""
        states = Counter(item.of.state for item in self.items)
        firing, pending = states["firing"], states["pending"]
        over = states.total() - firing - pending
        return [
            StyledSpan(f" {firing} firing", "critical" if firing else "ok"),
            StyledSpan(f"   {pending} pending   {over} over", "dim"),
        ]

    def row(self, item: AlertItem) -> Line:
        """State, severity, name, age or end, who suppressed the alert, and summary."""
        of, glyphs, severity = item.of, self._pages.glyphs, severity_of(item.of)
        over = isinstance(of, Transition)
        style = "dim" if over or item.reason else severity
        age = whole_duration(self._pages.clock() - of.active_at)
        run = self.run_of(item)
        shown = self._pages.about(run, of.active_at) + age
        if isinstance(of, Transition):
            shown = self._pages.local_time(run, of.time)
        note = f"[{item.reason}] " if item.reason and not over else ""
        # Cells hold `RESOLVED`, `critical`, a default alert's name, a local time, and a blank each.
        return [
            StyledSpan(fit(of.state.upper(), 9, glyphs), style),
            StyledSpan(fit(severity, 9, glyphs), style),
            StyledSpan(fit(safe(item.name, glyphs), 20, glyphs) + " ", "dim" if over else "title"),
            StyledSpan(fit(shown, 14) + " ", "dim"),
            StyledSpan(safe(note, glyphs), "info"),
            StyledSpan(safe(of.annotations.get("summary", ""), glyphs), "dim" if over else ""),
        ]

    def detail(self, item: AlertItem, width: int) -> list[Line]:
        """Start, value, suppression, annotations, labels and log line of an alert."""
        # 10 cells hold the words at the left, 4 are a margin; on a tiny screen 10 remain for text.
        of, glyphs, inner = item.of, self._pages.glyphs, max(width - 14, 10)
        age = whole_duration(self._pages.clock() - of.active_at)
        about = self._pages.about(self.run_of(item), of.active_at)
        since = self._pages.local_time(self.run_of(item), of.active_at)
        lines: list[Line] = [
            [
                StyledSpan(f" {safe(item.name, glyphs)}", severity_of(of)),
                StyledSpan(f"  {of.state}", "title"),
                StyledSpan(f"  since {since} ({about}{age})", "dim"),
                StyledSpan(f"  value {number(of.value)}", "dim"),
            ]
        ]
        if item.reason:
            lines.append([StyledSpan(f"  {safe(item.reason, glyphs)}", "info")])
        own = of.annotations.get("action", "")
        run = next(
            (run for run in self._pages.snapshot.runs if run.name == self.run_of(item)), None
        )
        decided = decided_on(run, item.name) if run is not None and run.reasons else None
        now = decided.phrase if decided is not None else own
        for head, text, style in (
            ("what", of.annotations.get("summary"), ""),
            ("why", of.annotations.get("description"), ""),
            ("to do", now, "title"),
            ("try", own if own != now else "", "dim"),
            ("labels", "  ".join(f"{name}={of.labels[name]}" for name in sorted(of.labels)), "dim"),
            ("line", of.position and f"{of.position.path}:{of.position.line} (Enter)", ""),
        ):
            lines += labelled(head, safe(text, glyphs), inner, style) if text else []
        return lines
