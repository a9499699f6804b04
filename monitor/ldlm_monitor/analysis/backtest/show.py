"""Scores as text for people and as JSON for programs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ldlm_monitor.analysis.backtest.score import Alarm, Counts, EventResult, LogScore, Overall
from ldlm_monitor.analysis.backtest.truth import detected_by
from ldlm_monitor.text.format import counted, duration, number
from ldlm_monitor.text.sanitize import encodable, plain


def score_text(scores: Sequence[LogScore], total: Overall) -> str:
    """Log by log what was missed, found and false, then the figures of all."""
    lines = [line for one in scores for line in _log_lines(one)]
    return "\n".join([*lines, *([""] if lines else []), *_overall_lines(total)]) + "\n"


def _log_lines(one: LogScore) -> Iterator[str]:
    counts = one.counts
    state = "healthy" if one.healthy else f"{counts.found} of {counts.expected} found"
    alarms = f"{len(one.false_alarms)} of {counts.alarms} alerts false" if counts.alarms else ""
    recall = "" if one.healthy else f"recall {_share(counts.recall)}"
    precision = f"precision {_share(counts.precision)}" if counts.alarms else ""
    yield "  ".join(part for part in (plain(one.file), state, alarms, recall, precision) if part)
    for finding in one.findings:
        yield f"    {_finding(one.file, finding)}"
    for alarm in one.false_alarms:
        yield f"    {_false_alarm(one, alarm)}"


def _finding(file: str, finding: EventResult) -> str:
    event = finding.event
    what = f"{event.severity} {plain(event.kind)} at {plain(file)}:{event.line_number}"
    if finding.alarm is None:
        return f"MISSED  {what}: no {' or '.join(map(plain, detected_by(event.kind)))}"
    return f"found   {what} by {plain(finding.alarm.alert)}{_after(finding)}"


def _after(finding: EventResult) -> str:
    if finding.seconds is not None:
        return f" after {duration(finding.seconds)}"
    return "" if finding.lines is None else f" after {counted(finding.lines, 'line')}"


def _false_alarm(one: LogScore, alarm: Alarm) -> str:
    place = plain(one.file) if alarm.line is None else f"{plain(one.file)}:{alarm.line}"
    harmless = one.benign.get(alarm.line or 0)
    note = f" ({plain(harmless)}, which is benign)" if harmless else ""
    return f"FALSE   {plain(alarm.severity)} {plain(alarm.alert)} at {place}{note}"


def _overall_lines(total: Overall) -> Iterator[str]:
    counts = total.counts
    yield (
        f"{counted(total.logs, 'log')}, {total.healthy} of them healthy, "
        f"{total.healthy_with_false_alarms} of those with a false alarm"
    )
    parts = ", ".join(f"{kind} {_of(found)}" for kind, found in total.by_severity.items())
    yield (
        f"recall          {_share(counts.recall):<8}{_of((counts.found, counts.expected))} found"
        + (f": {parts}" if parts else "")
    )
    true = _of((counts.true_alarms, counts.alarms))
    yield f"precision       {_share(counts.precision):<8}{true} alerts true"
    yield f"time to detect  {_delays(total)}"
    for kind, found in total.by_kind.items():
        yield f"    {plain(kind):<20}{_of(found)}"


def _delays(total: Overall) -> str:
    parts: list[str] = []
    if (seconds := total.seconds) is not None:
        parts.append(
            f"median {duration(seconds.median)}, longest {duration(seconds.longest)} "
            f"({seconds.count} found by the log's own time)"
        )
    if (lines := total.lines) is not None:
        parts.append(
            f"median {number(lines.median)}, longest {number(lines.longest)} lines "
            f"({lines.count} found in logs without times)"
        )
    return "; ".join(parts) or "-"


def _of(share: tuple[int, int]) -> str:
    return f"{share[0]} of {share[1]}"


def _share(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio * 100:.3g} %"


def score_json(scores: Sequence[LogScore], total: Overall) -> str:
    """One indented object, `overall` and `logs`; what is not known is null."""
    shown = {"overall": _overall(total), "logs": [_log(one) for one in scores]}
    return encodable(json.dumps(shown, ensure_ascii=False, allow_nan=False, indent=2)) + "\n"


def _overall(total: Overall) -> dict[str, Any]:
    return {
        "logs": total.logs,
        "healthy": total.healthy,
        "healthy_with_false_alarms": total.healthy_with_false_alarms,
        **_counts(total.counts),
        "by_severity": _table(total.by_severity),
        "by_kind": _table(total.by_kind),
        "seconds_to_detect": total.seconds and asdict(total.seconds),
        "lines_to_detect": total.lines and asdict(total.lines),
    }


def _log(one: LogScore) -> dict[str, Any]:
    return {
        "file": one.file,
        "healthy": one.healthy,
        **_counts(one.counts),
        "expected_events": [
            {
                "kind": finding.event.kind,
                "severity": finding.event.severity,
                "line": finding.event.line_number,
                "alert": finding.alarm and finding.alarm.alert,
                "alert_line": finding.alarm and finding.alarm.line,
                "seconds_to_detect": finding.seconds,
                "lines_to_detect": finding.lines,
            }
            for finding in one.findings
        ],
        "false_alarms": [
            {
                "alert": alarm.alert,
                "severity": alarm.severity,
                "line": alarm.line,
                "benign": one.benign.get(alarm.line or 0),
            }
            for alarm in one.false_alarms
        ],
    }


def _counts(counts: Counts) -> dict[str, Any]:
    return {
        "recall": counts.recall,
        "precision": counts.precision,
        "expected": counts.expected,
        "found": counts.found,
        "alerts": counts.alarms,
        "true_alerts": counts.true_alarms,
    }


def _table(shares: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    return {name: {"found": found, "expected": all_} for name, (found, all_) in shares.items()}
