"""Scores as text."""

from collections.abc import Iterator, Mapping

from ldlm_monitor.analysis.backtest.score import EventScore, FalseAlarm, LogScore, Overall, Scores
from ldlm_monitor.analysis.backtest.truth import detected_by
from ldlm_monitor.text.format import counted, duration, number
from ldlm_monitor.text.sanitize import plain


def score_text(scores: Scores) -> str:
    """Log by log what was missed, found and false, then the figures of all."""
    lines = [line for one in scores.logs for line in _log_lines(one)]
    return "\n".join([*lines, *([""] if lines else []), *_overall_lines(scores.overall)]) + "\n"


def _log_lines(one: LogScore) -> Iterator[str]:
    file = plain(one.file)
    parts = [file, "healthy" if one.healthy else f"{one.found} of {one.expected} found"]
    if one.alerts:
        parts.append(f"{len(one.false_alarms)} of {one.alerts} alerts false")
    parts += [
        f"{name} {_percent(ratio)}"
        for name, ratio in (("recall", one.recall), ("precision", one.precision))
        if ratio is not None
    ]
    yield "  ".join(parts)
    for event in one.expected_events:
        yield f"    {_event(file, event)}"
    for alarm in one.false_alarms:
        yield f"    {_false_alarm(file, alarm)}"


def _event(file: str, event: EventScore) -> str:
    what = f"{event.severity} {plain(event.kind)} at {file}:{event.line}"
    if event.alert is None:
        return f"MISSED  {what}: no {' or '.join(map(plain, detected_by(event.kind)))}"
    after = ""
    if event.seconds_to_detect is not None:
        after = f" after {duration(event.seconds_to_detect)}"
    elif event.lines_to_detect is not None:
        after = f" after {counted(event.lines_to_detect, 'line')}"
    return f"found   {what} by {plain(event.alert)}{after}"


def _false_alarm(file: str, alarm: FalseAlarm) -> str:
    place = file if alarm.line is None else f"{file}:{alarm.line}"
    note = f" ({plain(alarm.benign)}, which is benign)" if alarm.benign else ""
    return f"FALSE   {plain(alarm.severity)} {plain(alarm.alert)} at {place}{note}"


def _overall_lines(total: Overall) -> Iterator[str]:
    yield (
        f"{counted(total.logs, 'log')}, {total.healthy} of them healthy, "
        f"{total.healthy_with_false_alarms} of those with a false alarm"
    )
    kinds = (f"{name} {_of(each)}" for name, each in total.by_severity.items())
    parts = ", ".join(kinds)
    found = f"{total.found} of {total.expected} found" + (f": {parts}" if parts else "")
    true = f"{total.true_alerts} of {total.alerts} alerts true"
    yield f"recall          {_percent(total.recall):<8}{found}"
    yield f"precision       {_percent(total.precision):<8}{true}"
    yield f"time to detect  {'; '.join(_delays(total)) or '-'}"
    for kind, each in total.by_kind.items():
        yield f"    {plain(kind):<20}{_of(each)}"


def _of(share: Mapping[str, int]) -> str:
    return f"{share['found']} of {share['expected']}"


def _delays(total: Overall) -> Iterator[str]:
    if (seconds := total.seconds_to_detect) is not None:
        yield (
            f"median {duration(seconds.median)}, longest {duration(seconds.longest)} "
            f"({seconds.count} found by the log's own time)"
        )
    if (lines := total.lines_to_detect) is not None:
        yield (
            f"median {number(lines.median)}, longest {number(lines.longest)} lines "
            f"({lines.count} found in logs without times)"
        )


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio * 100:.3g} %"
