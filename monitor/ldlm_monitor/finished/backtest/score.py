"""Compares the alerts of a log with its truth: events found and missed, false alerts, delays.

An alert detects an event if its name is among those of the event's kind, and its line is the
event's or a later one (not after the event's `last_line`). Of a record of several lines, such as a
traceback, an alert names the first line; the alert counts if its text contains the event's quote.
An alert that is not in the default pack counts for the event's own lines only. A true alert that
still fires at a later event of a kind that it detects, detects that event too. An alert of severity
error or above is false for an event of severity warning.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pydantic import Field

from ldlm_monitor.base.incident_view import View
from ldlm_monitor.base.text.sanitize import encodable
from ldlm_monitor.finished.backtest.truth import (
    KNOWN_ALERTS,
    TrueEvent,
    Truth,
    detected_by,
    follow_from,
)
from ldlm_monitor.judge.core.packaged_rules import packaged_alerts

QUIET = frozenset({"", "info", "none"})
"""Severities of alerts that a backtest leaves out, as such alerts ask nobody to act."""


@dataclass(slots=True)
class Alarm:
    """An alert that fired, of severity warning or above.

    `line` (from 1) and `text`: the log line that made the alert fire (None: none did). `below`: the
    text is that of a later line of the same record. `time`: Unix seconds, None if the log has no
    times. `until_line`: the last line that was read when the alert ended, None if it never did.
    """

    alert: str
    severity: str
    line: int | None
    text: str = ""
    below: bool = False
    time: float | None = None
    until_line: int | None = None


class Counts(View):
    """How many events were expected and found, and how many alerts fired and were true."""

    recall: float | None = Field(description="None where nothing was expected")
    precision: float | None = Field(description="None where no alert fired")
    expected: int
    found: int
    alerts: int
    true_alerts: int


class EventScore(View):
    """An expected event, and the alert that detected it (None: it was missed).

    `seconds_to_detect` is by the log's own times, None if it has none. `lines_to_detect`: log
    lines from the event to the alert, None if the alert has no line. Missed: all are None.
    """

    kind: str
    severity: str
    line: int
    alert: str | None = None
    alert_line: int | None = None
    seconds_to_detect: float | None = None
    lines_to_detect: int | None = None


class FalseAlarm(View):
    """An alert without a reason in the truth; `benign`: kind of harmless event at its line."""

    alert: str
    severity: str
    line: int | None
    benign: str | None


class LogScore(Counts):
    """Scores of one log; in a healthy one no alert should fire."""

    file: str
    healthy: bool
    expected_events: tuple[EventScore, ...]
    false_alarms: tuple[FalseAlarm, ...]


class Delay(View):
    """The delays of `count` detected events: all in seconds, or all in lines."""

    count: int
    median: float
    longest: float


class Overall(Counts):
    """All logs together, each event and each alert counted once."""

    logs: int
    healthy: int
    healthy_with_false_alarms: int
    seconds_to_detect: Delay | None
    lines_to_detect: Delay | None = Field(description="of logs without times")


class Scores(View):
    """What `replay --truth --format json` writes."""

    overall: Overall
    logs: tuple[LogScore, ...]


def score(truth: Truth, alarms: Sequence[Alarm], times: Mapping[TrueEvent, float]) -> LogScore:
    """Score one log; `times`: when events were logged (Unix seconds), of those with known times."""
    true = [alarm for alarm in alarms if any(_is_due(alarm, e) for e in truth.expected)]
    found = tuple(_find(event, true, times) for event in truth.expected)
    benign = {event.line_number: event.kind for event in truth.events if event.severity == "benign"}
    return LogScore(
        **_counts(found, len(alarms), len(true)),
        file=encodable(truth.file),
        healthy=not truth.expected,
        expected_events=found,
        false_alarms=tuple(
            FalseAlarm(
                alert=each.alert,
                severity=each.severity,
                line=each.line,
                benign=benign.get(each.line or 0),
            )
            for each in alarms
            if each not in true
        ),
    )


def _counts(events: Sequence[EventScore], alerts: int, true: int) -> dict[str, Any]:
    found = sum(event.alert is not None for event in events)
    return {
        "recall": found / len(events) if events else None,
        "precision": true / alerts if alerts else None,
        "expected": len(events),
        "found": found,
        "alerts": alerts,
        "true_alerts": true,
    }


def _is_due(alarm: Alarm, event: TrueEvent) -> bool:
    """Whether the event gives the alarm a reason: it is detected, or the run died of it."""
    follows = alarm.alert in follow_from(event.kind) and _reaches(alarm, event)
    return _detects(alarm, event) or (_fits(alarm, event) and follows)


def _detects(alarm: Alarm, event: TrueEvent) -> bool:
    if alarm.alert in detected_by(event.kind):
        return _fits(alarm, event) and _reaches(alarm, event)
    last = event.last_line or event.line_number
    at_its_lines = alarm.line is not None and event.line_number <= alarm.line <= last
    unnamed = alarm.alert not in KNOWN_ALERTS and alarm.alert not in packaged_alerts()
    return _fits(alarm, event) and unnamed and at_its_lines


def _stands(alarm: Alarm, event: TrueEvent) -> bool:
    """Whether the alarm began before the event, still fires, and is of a kind that detects it."""
    known = alarm.alert in detected_by(event.kind) and _fits(alarm, event)
    ended = alarm.until_line is not None and alarm.until_line < event.line_number
    return known and alarm.line is not None and alarm.line < event.line_number and not ended


def _fits(alarm: Alarm, event: TrueEvent) -> bool:
    return event.severity == "failure" or alarm.severity not in ("error", "critical")


def _reaches(alarm: Alarm, event: TrueEvent) -> bool:
    if alarm.line is None:
        return True
    if alarm.line < event.line_number:
        return alarm.below and bool(event.quote) and event.quote in alarm.text
    return event.last_line is None or alarm.line <= event.last_line


def _find(
    event: TrueEvent, alarms: Iterable[Alarm], times: Mapping[TrueEvent, float]
) -> EventScore:
    missed = EventScore(kind=encodable(event.kind), severity=event.severity, line=event.line_number)
    for alarm in alarms:
        if not (_detects(alarm, event) or _stands(alarm, event)):
            continue
        lines = None if alarm.line is None else max(alarm.line - event.line_number, 0)
        read = times.get(event)
        seconds = None if alarm.time is None or read is None else max(alarm.time - read, 0.0)
        found = {"seconds_to_detect": seconds, "lines_to_detect": lines}
        return missed.model_copy(update={"alert": alarm.alert, "alert_line": alarm.line, **found})
    return missed


def overall(logs: Sequence[LogScore]) -> Scores:
    """The scores of all logs together, and of each."""
    healthy = [log for log in logs if log.healthy]
    events = [event for log in logs for event in log.expected_events]
    seconds = [e.seconds_to_detect for e in events if e.seconds_to_detect is not None]
    lines = [
        event.lines_to_detect
        for event in events
        if event.seconds_to_detect is None and event.lines_to_detect is not None
    ]
    alerts, true = sum(log.alerts for log in logs), sum(log.true_alerts for log in logs)
    total = Overall(
        **_counts(events, alerts, true),
        logs=len(logs),
        healthy=len(healthy),
        healthy_with_false_alarms=sum(bool(log.false_alarms) for log in healthy),
        seconds_to_detect=_delay(seconds),
        lines_to_detect=_delay(lines),
    )
    return Scores(overall=total, logs=tuple(logs))


def _delay(values: Sequence[float]) -> Delay | None:
    if not values:
        return None
    return Delay(count=len(values), median=median(values), longest=max(values))
