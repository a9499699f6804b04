"""Replays each log as a run of its own, scores its alerts, and shows the scores as text."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.errors import TruthError
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.base.text.format import counted, duration, number
from ldlm_monitor.base.text.sanitize import plain
from ldlm_monitor.finished.backtest.score import (
    QUIET,
    Alarm,
    EventScore,
    FalseAlarm,
    LogScore,
    Overall,
    Scores,
    score,
)
from ldlm_monitor.finished.backtest.truth import (
    TrueEvent,
    Truth,
    check_lines,
    detected_by,
    load_truth,
    match_logs,
)
from ldlm_monitor.finished.playback.log_replay import Replay, ReplaySettings
from ldlm_monitor.judge.core.assemble import rules_of
from ldlm_monitor.logs.source.input_patterns import resolve


def score_text(scores: Scores) -> str:
    """Missed and found events and false alerts of each log, then the scores of all."""
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
    true = f"{total.true_alerts} of {total.alerts} alerts true"
    yield f"recall          {_percent(total.recall):<8}{total.found} of {total.expected} found"
    yield f"precision       {_percent(total.precision):<8}{true}"
    yield f"time to detect  {'; '.join(_delays(total)) or '-'}"


def _delays(total: Overall) -> Iterator[str]:
    for delay, form, unit, how in (
        (total.seconds_to_detect, duration, "", "by the log's own time"),
        (total.lines_to_detect, number, " lines", "in logs without times"),
    ):
        if delay is not None:
            middle, longest = form(delay.median), form(delay.longest)
            yield f"median {middle}, longest {longest}{unit} ({delay.count} found {how})"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio * 100:.3g} %"


FINE_SECONDS = 0.2
"""Seconds that rows judged together may span: a choice; less is slower, more blurs delays."""


def backtest(settings: ReplaySettings, truth: Path) -> Iterator[tuple[LogScore, Snapshot]]:
    """Each log's score and state at its end, in the order of the truth file.

    Companions are left out: the truth file describes the log alone. Raises TruthError before the
    first log is played if the truth file and the logs do not match, and errors as `Replay` does.
    """
    names = {rule.name for rule in rules_of(settings).alerts}
    entries = load_truth(truth, names)
    pairs = match_logs(truth, entries, _logs(settings, truth))
    for entry, log in pairs:
        check_lines(truth, entry, _lines(log, {event.line_number for event in entry.events}))
    for entry, log in pairs:
        yield _play(entry, log, settings)


def _logs(settings: ReplaySettings, truth: Path) -> list[Path]:
    """The given logs, without the truth file, which may be in a folder of logs."""
    patterns = resolve(settings.files, base=Path())
    if patterns.standard_input or patterns.pipes():
        raise TruthError(
            "the truth of a log is found by its name, and a pipe has none",
            where="--truth",
            remedy="write the log to a file",
        )
    found = dict.fromkeys(patterns.present())
    return [log for log in found if not log.samefile(truth)]


def _play(truth: Truth, log: Path, settings: ReplaySettings) -> tuple[LogScore, Snapshot]:
    times: dict[TrueEvent, float] = {}
    alarms: dict[str, list[Alarm]] = {}
    read = 0
    replay = Replay(settings, alone=log, apart=FINE_SECONDS)
    for when, chunk, transitions in replay.played():
        if chunk is not None:
            read = chunk.line + chunk.newlines
            if when is not None:
                times = dict.fromkeys(_events_in(chunk, truth.expected), when) | times
        for transition in transitions:
            _note(transition, alarms, read, str(log))
    rung = [alarm for same in alarms.values() for alarm in same]
    rung.sort(key=lambda alarm: (alarm.time or 0.0, alarm.line or 0))
    texts = _lines(log, {alarm.line for alarm in rung if alarm.line is not None})
    for alarm in rung:
        alarm.below = alarm.line is not None and alarm.text not in texts[alarm.line]
    return score(truth, rung, times), replay.snapshot()


def _events_in(chunk: Chunk, events: Sequence[TrueEvent]) -> Iterator[TrueEvent]:
    """The events whose line and quote are in this chunk: bars of one line fill many chunks."""
    for event in events:
        index = event.line_number - chunk.line
        if 0 <= index <= chunk.newlines:
            line = chunk.data.split(b"\n", index + 1)[index]
            if line and event.quote.encode() in line:
                yield event


def _note(transition: Transition, alarms: dict[str, list[Alarm]], read: int, log: str) -> None:
    severity = transition.labels.get("severity", "")
    if severity in QUIET:
        return
    same = alarms.setdefault(transition.key, [])
    if transition.state == "firing":
        position = transition.position
        line = position.line if position is not None and position.path == log else None
        text = transition.line or ""
        same.append(Alarm(transition.alert, severity, line, text, time=transition.time))
    elif transition.state != "pending" and same and same[-1].until_line is None:
        same[-1].until_line = read


def _lines(log: Path, wanted: Collection[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    last = max(wanted, default=0)
    with log.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number > last:
                break
            if number in wanted:
                found[number] = line.decode("utf-8", "replace")
    return found
