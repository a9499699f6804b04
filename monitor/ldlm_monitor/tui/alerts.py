"""The alerts: what fires, what may, what was; and the whole of the chosen one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.records import Position
from ldlm_monitor.model.view import AlertView, Snapshot
from ldlm_monitor.tui.draw import Glyphs, Line, Span, fit, safe, wrap
from ldlm_monitor.tui.palette import SEVERITY_STYLE
from ldlm_monitor.tui.words import clock, is_told, number, span


@dataclass(frozen=True, slots=True)
class Item:
    """An alert that is active (`alert`), or one that ended."""

    name: str
    state: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    value: float
    since: float | None
    position: Position | None
    alert: AlertView | None = None
    ended: float | None = None
    told: str = ""


def items(snapshot: Snapshot, held_back: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Item]:
    """Firing by severity, pending, then those that ended, the newest first."""
    active = [_active(alert, held_back) for alert in snapshot.alerts if is_told(alert)]
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
        told=_held_back(alert, held_back),
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
        told=passed.reason,
    )


def _held_back(alert: AlertView, held_back: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Who acknowledged the alert, or silenced exactly it."""
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


def row(item: Item, width: int, *, now: float, glyphs: Glyphs, chosen: bool) -> Line:
    """One alert in one line."""
    severity = item.labels.get("severity", "")
    over = item.alert is None
    style = "dim" if over or item.told else SEVERITY_STYLE.get(severity, "")
    since = clock(item.ended) if over else span(now - (item.since or now))
    told = f"[{item.told}] " if item.told and not over else ""
    return [
        Span(f"{glyphs.cursor if chosen else ' '} ", "key"),
        Span(fit(item.state.upper(), 9, glyphs), style),
        Span(fit(severity, 9, glyphs), style),
        Span(fit(safe(item.name, glyphs), 20, glyphs) + " ", "dim" if over else "title"),
        Span(fit(since, 15, glyphs), "dim"),
        Span(safe(told, glyphs), "info"),
        Span(safe(item.annotations.get("summary", ""), glyphs), "dim" if over else ""),
    ]


def detail(item: Item, width: int, *, now: float, glyphs: Glyphs) -> list[Line]:
    """Everything that is known of one alert."""
    style = SEVERITY_STYLE.get(item.labels.get("severity", ""), "")
    inner = max(width - 4, 10)
    lines: list[Line] = [
        [
            Span(f" {safe(item.name, glyphs)}", style),
            Span(f"  {item.state}", "title"),
            Span(f"  since {clock(item.since)}", "dim"),
            Span("" if item.since is None else f" ({span(now - item.since)})", "dim"),
            Span(f"  value {number(item.value)}", "dim"),
        ]
    ]
    if item.told:
        lines.append([Span(f"  {safe(item.told, glyphs)}", "info")])
    for name in ("summary", "description", "action"):
        if text := item.annotations.get(name):
            shown = wrap(safe(text, glyphs), inner - 10, "title" if name == "action" else "")
            head = {"summary": "what", "description": "why", "action": "to do"}[name]
            for index, line in enumerate(shown):
                lines.append([Span(f"  {head if index == 0 else '':<8}", "key"), *line])
    labels = "  ".join(f"{name}={value}" for name, value in sorted(item.labels.items()))
    for index, line in enumerate(wrap(safe(labels, glyphs), inner - 10, "dim")):
        lines.append([Span(f"  {'labels' if index == 0 else '':<8}", "key"), *line])
    if item.position:
        where = f"{item.position.path}:{item.position.line}"
        lines.append(
            [Span("  line    ", "key"), Span(safe(where, glyphs)), Span("  (Enter)", "dim")]
        )
    return lines
