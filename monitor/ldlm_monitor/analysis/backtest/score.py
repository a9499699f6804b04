"""Alerts of a log held against its truth: found, missed, false; and how long it took.

An alert detects an event if its name is among those of the event's kind, and its line
is the event's or a later one (not after `last_line`). For a record of several lines,
such as a traceback, an alert names the first line; it counts if the alert's text contains
the event's quote. An alert that is not in the default pack counts for the event's own
lines only. A true alert that still fires at a later event of its kinds detects that event
too. An alert of severity error or above is false for an event of severity warning.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ldlm_monitor.analysis.backtest.truth import (
    KNOWN_ALERTS,
    TrueEvent,
    Truth,
    detected_by,
    follow_from,
)
from ldlm_monitor.model import names

QUIET = frozenset({"", "info", "none"})
"""Severities that raise no alarm."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alert that fired, of severity warning or above.

    `line` and `text` are those that made it fire (None: no line did); `below`: the text
    stands below that line, in the same record. `time` is in Unix seconds, None where the
    log has no times. `until_line` is the last line read when it ended, None if it never did.
    """

    alert: str
    severity: str
    line: int | None
    text: str = ""
    below: bool = False
    time: float | None = None
    until_line: int | None = None


@dataclass(frozen=True, slots=True)
class EventResult:
    """An expected event, and the alarm that detected it (None: it was missed).

    Time to detect: `seconds` of the log's own time where it has times, and `lines`
    (None where the alarm has no line).
    """

    event: TrueEvent
    alarm: Alarm | None = None
    seconds: float | None = None
    lines: int | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Expected events and those found of them; alarms and those true of them."""

    expected: int
    found: int
    alarms: int
    true_alarms: int

    @property
    def recall(self) -> float | None:
        """Share of what was expected that was found; None where nothing was expected."""
        return self.found / self.expected if self.expected else None

    @property
    def precision(self) -> float | None:
        """Share of the alarms that were true; None where none fired."""
        return self.true_alarms / self.alarms if self.alarms else None


@dataclass(frozen=True, slots=True)
class LogScore:
    """One log. `benign`: by line, the kind of the harmless event that raised a false alarm."""

    file: str
    findings: tuple[EventResult, ...]
    alarms: int
    false_alarms: tuple[Alarm, ...]
    benign: Mapping[int, str]

    @property
    def healthy(self) -> bool:
        """Whether no alarm should fire."""
        return not self.findings

    @property
    def counts(self) -> Counts:
        """The log's figures."""
        found = sum(finding.alarm is not None for finding in self.findings)
        true = self.alarms - len(self.false_alarms)
        return Counts(len(self.findings), found, self.alarms, true)


@dataclass(frozen=True, slots=True)
class Delay:
    """Time to detect over several findings."""

    count: int
    median: float
    longest: float


@dataclass(frozen=True, slots=True)
class Overall:
    """All logs together; `by_kind` and `by_severity` hold what was found and expected of each."""

    logs: int
    healthy: int
    healthy_with_false_alarms: int
    counts: Counts
    by_severity: Mapping[str, tuple[int, int]]
    by_kind: Mapping[str, tuple[int, int]]
    seconds: Delay | None
    lines: Delay | None


def score(truth: Truth, alarms: Sequence[Alarm], times: Mapping[TrueEvent, float]) -> LogScore:
    """Judge one log; `times` (Unix seconds) when its events were read, for logs with times."""
    true = [alarm for alarm in alarms if any(_is_due(alarm, e) for e in truth.expected)]
    false = tuple(alarm for alarm in alarms if alarm not in true)
    findings = tuple(_find(event, true, times) for event in truth.expected)
    benign = {event.line_number: event.kind for event in truth.events if event.severity == "benign"}
    return LogScore(truth.file, findings, len(alarms), false, benign)


def _is_due(alarm: Alarm, event: TrueEvent) -> bool:
    """Whether the event gives the alarm a reason."""
    if _detects(alarm, event):
        return True
    return alarm.alert in follow_from(event.kind) and _reaches(alarm, event) and _fits(alarm, event)


def _detects(alarm: Alarm, event: TrueEvent) -> bool:
    """Whether the alarm, having begun with the event or after it, detects it."""
    if not _fits(alarm, event):
        return False
    if alarm.alert in detected_by(event.kind):
        return _reaches(alarm, event)
    unnamed = alarm.alert not in KNOWN_ALERTS and alarm.alert not in names.ALERTS
    return unnamed and alarm.line is not None and _is_at(alarm.line, event)


def _stands(alarm: Alarm, event: TrueEvent) -> bool:
    """Whether the alarm, having begun before the event, still fires and would detect it."""
    if alarm.alert not in detected_by(event.kind) or not _fits(alarm, event) or alarm.line is None:
        return False
    ended = alarm.until_line is not None and alarm.until_line < event.line_number
    return alarm.line < event.line_number and not ended


def _fits(alarm: Alarm, event: TrueEvent) -> bool:
    return event.severity == "failure" or alarm.severity not in ("error", "critical")


def _reaches(alarm: Alarm, event: TrueEvent) -> bool:
    if alarm.line is None:
        return True
    if alarm.line < event.line_number:
        return alarm.below and bool(event.quote) and event.quote in alarm.text
    return event.last_line is None or alarm.line <= event.last_line


def _is_at(line: int, event: TrueEvent) -> bool:
    return event.line_number <= line <= (event.last_line or event.line_number)


def _find(
    event: TrueEvent, alarms: Iterable[Alarm], times: Mapping[TrueEvent, float]
) -> EventResult:
    for alarm in alarms:
        if not (_detects(alarm, event) or _stands(alarm, event)):
            continue
        lines = None if alarm.line is None else max(alarm.line - event.line_number, 0)
        read = times.get(event)
        seconds = None if alarm.time is None or read is None else max(alarm.time - read, 0.0)
        return EventResult(event, alarm, seconds, lines)
    return EventResult(event)


def overall(scores: Sequence[LogScore]) -> Overall:
    """The figures of all logs, each event and each alarm counted once."""
    healthy = [one for one in scores if one.healthy]
    findings = [finding for one in scores for finding in one.findings]
    timed = [finding.seconds for finding in findings if finding.seconds is not None]
    untimed = [f.lines for f in findings if f.seconds is None and f.lines is not None]
    counts = [one.counts for one in scores]
    return Overall(
        logs=len(scores),
        healthy=len(healthy),
        healthy_with_false_alarms=sum(bool(one.false_alarms) for one in healthy),
        counts=Counts(
            sum(each.expected for each in counts),
            sum(each.found for each in counts),
            sum(each.alarms for each in counts),
            sum(each.true_alarms for each in counts),
        ),
        by_severity=_shares((f.event.severity, f.alarm) for f in findings),
        by_kind=_shares((f.event.kind, f.alarm) for f in findings),
        seconds=_delay(timed),
        lines=_delay(untimed),
    )


def _shares(results: Iterable[tuple[str, Alarm | None]]) -> dict[str, tuple[int, int]]:
    shares: dict[str, tuple[int, int]] = {}
    for name, alarm in results:
        found, expected = shares.get(name, (0, 0))
        shares[name] = found + (alarm is not None), expected + 1
    return dict(sorted(shares.items()))


def _delay(values: Sequence[float]) -> Delay | None:
    return Delay(len(values), median(values), max(values)) if values else None
