"""The health report as data, from which text, page, Markdown and JSON are made."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, get_args

from pydantic import Field

from ldlm_monitor import __version__
from ldlm_monitor.base.goodput import Goodput
from ldlm_monitor.base.incident_view import IncidentView, View
from ldlm_monitor.base.names import RATES, RUN_FINISHED, SEVERITIES, EndReason
from ldlm_monitor.base.points import make_labels
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import AlertView, CurveView, Health, MonitorView, RunView, Snapshot
from ldlm_monitor.base.text.format import counted, duration, number, utc
from ldlm_monitor.base.text.sanitize import jsonable, plain, shorten, summary_of
from ldlm_monitor.finished.report.alert_advice import firing, recommendations
from ldlm_monitor.judge.core.headlines import headline_of
from ldlm_monitor.logs.parse.meanings import meaning_of

END_SHOWN: Mapping[EndReason, str] = {
    "total": "its last step",
    "epochs": "its last epoch",
    "words": "words of its log",
    "exit_code": "its exit code",
    "exception": "an exception",
    "signal": "a signal",
    "writer_gone": "nobody writes its log any more",
}
"""What shows that a run is over, in words."""
TIMELINE = 200
"""Newest entries kept of a run's timeline: a choice; more fill screens, fewer drop some."""
ISSUES = 8
"""Issues kept, one for each kind and rank: a choice; more fill a screen. `parse` has all events."""
ISSUE_TEXT = 200  # characters of an issue's message: a choice; more than three lines bury others
_LEVELS: tuple[Health, ...] = get_args(Health)
_TEXT = 2000
"""Characters kept of a text: a choice above any summary or action, so that no dump fills a page."""


class Entry(View):
    """An alert that fired or ended, an incident, or an event. `time`: Unix s (None: unknown)."""

    time: float | None
    kind: Literal["alert", "incident", "event"]
    severity: str
    text: str
    position: Position | None = Field(default=None, description="of an issue's newest line")


class Curve(View):
    """One quantity in buckets: first step, and mean, minimum, maximum (None: no finite value)."""

    steps: tuple[int, ...]
    means: tuple[float | None, ...]
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]
    nonfinite: tuple[int, ...] = Field(description="how many values were NaN or infinite")


class ReportRun(RunView):
    """One run with its incidents, alerts and curves; `said` is its verdict in one sentence."""

    said: str
    facts: dict[str, str]
    incidents: tuple[IncidentView, ...]
    alerts: tuple[AlertView, ...] = Field(description="firing, the worst first")
    issues: tuple[Entry, ...] = Field(description="warnings and errors, root causes first")
    timeline: tuple[Entry, ...]
    recommendations: tuple[str, ...]
    curves: dict[str, Curve]


class Report(View):
    """The report at the time `at` (Unix seconds); `alerts` are those about the monitor itself.

    `runs` are ordered by health, the worst first; of the same health, the latest first.
    """

    # The number rises with an incompatible change.
    schema_: Literal["ldlm.report/1"] = Field(default="ldlm.report/1", alias="schema")
    version: str = Field(description="of the monitor")
    at: float
    health: Health
    runs: tuple[ReportRun, ...]
    alerts: tuple[AlertView, ...]
    monitor: MonitorView


def report(
    snapshot: Snapshot, price: float | None = None, *, ends: bool = False, ticks: bool = False
) -> Report:
    """The report of a snapshot; `ends`: of logs that were read to their ends, which is its time.

    `ticks`: ages are shown beside it, as they grow; in its texts they would stand still. `price` is
    that of a GPU for an hour. Texts from logs are redacted, but not escaped for HTML or Markdown.
    """
    owned = {run.name for run in snapshot.runs}
    ordered = sorted(snapshot.runs, key=lambda run: (_LEVELS.index(run.health), _seen_at(run)))
    found = {
        "version": __version__,
        "at": snapshot.at,
        "health": max((run.health for run in ordered), key=_LEVELS.index, default="HEALTHY"),
        "runs": [_run(run, snapshot, price, ends=ends, ticks=ticks) for run in reversed(ordered)],
        "alerts": [alert for alert in firing(snapshot) if alert.labels.get("run") not in owned],
        "monitor": snapshot.monitor,
    }
    return Report.model_validate(jsonable(Report.model_validate(found).model_dump(), _clean_text))


def _seen_at(run: RunView) -> float:
    return max(run.ended_at or 0.0, run.last_progress_at or 0.0, run.started_at or 0.0)


def _run(
    run: RunView, snapshot: Snapshot, price: float | None, *, ends: bool, ticks: bool
) -> dict[str, Any]:
    alerts = [alert for alert in firing(snapshot) if alert.labels.get("run") == run.name]
    incidents = [each for each in snapshot.incidents if each.run == run.name]
    curves = snapshot.curves.get(run.name, {})
    return {
        **run.model_dump(),
        "settings": _settings(run.settings),
        "said": _said(run, incidents),
        "facts": _facts(run, snapshot, ends=ends, ticks=ticks),
        "incidents": incidents,
        "alerts": alerts,
        "issues": list(_issues(run, snapshot.events)),
        "goodput": _priced(run.goodput, price),
        "timeline": _timeline(run, snapshot, incidents),
        "recommendations": recommendations(
            (alert.name for alert in alerts), run.settings, run.framework
        ),
        "curves": {name: _curve(curve) for name, curve in curves.items()},
    }


def _priced(found: Goodput | None, price: float | None) -> Goodput | None:
    if found is None or found.gpu_hours is None or price is None:
        return found
    return found.model_copy(update={"cost": found.gpu_hours * price})


def _settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings, each redacted together with its name, which is how a secret is recognised."""
    shown = {name: plain(f"{name}={value}") for name, value in settings.items()}
    return {name: text.removeprefix(f"{plain(name)}=") for name, text in shown.items()}


def _said(run: RunView, incidents: Sequence[IncidentView]) -> str:
    over = [each for each in incidents if each.state != "open" and each.ended_reason != "run ended"]
    past = f"; {counted(len(over), 'earlier incident')}: {plain(over[-1].title)}" if over else ""
    found = headline_of(run, (), incidents) if run.reasons else None
    why = "" if found is None else f"{found.what}{found.where}{run.others}"
    unjudged = "; ".join(filter(None, (run.unjudged(), plain(why))))
    if unjudged:
        return unjudged + past
    unseen = f"; {run.unseen}" if run.unseen else ""
    if run.step is None:
        return f"{run.state}; no step logged{unseen}{past}"
    of = f" of {run.total_steps}" if run.total_steps else ""
    seen = "nothing is wrong in what was checked" if unseen else "nothing is wrong"
    return f"{seen}: {run.state}, step {run.step}{of}{unseen}{past}"


def _facts(run: RunView, snapshot: Snapshot, *, ends: bool, ticks: bool) -> dict[str, str]:
    """Names and values; `ends` and `ticks` as in `report`."""
    goes_on, last = run.ended_at is None, run.last_progress_at
    ago = ""
    if goes_on and last is not None and run.health != "READING" and not ticks:
        at = snapshot.at if run.judged_to is None else run.judged_to
        since = " before the log's end" if ends else " ago"
        if run.host is not None:
            at, since = max(run.host.at, at), " ago"
        ago = f" ({run.about(last)}{duration(at - last)}{since})"
    spent = run.goodput
    facts = {
        "Goodput": "" if spent is None else _goodput(spent, run.about(run.started_at)),
        "Pace": ", ".join(_pace(run, snapshot)),
        "Time left": duration(run.eta_seconds) if goes_on else "",
        "Started": marked_utc(run, run.started_at),
        "Last step": f"{marked_utc(run, last)}{ago}",
        "Stall limit": duration(run.stall_limit_seconds) if goes_on else "",
        "Ended": marked_utc(run, run.ended_at),
        "End shown by": _end(run),
        "Times": "" if run.guess is None else f"≈: {run.guess.why}",
        "Failed rank": number(run.failed_rank),
        "Ranks": str(run.world_size or ""),
        "Skipped": counted(run.skipped_steps, "step") if run.skipped_steps else "",
        "Verdict": str(run.verdict or ""),
    }
    return {name: fact for name, fact in facts.items() if fact not in ("", "-")}  # "-": unknown


def _end(run: RunView) -> str:
    if run.end_reason is None:
        return ""
    said = END_SHOWN[run.end_reason]
    return f"{said} ({place_text(run.end_position)})" if run.end_position is not None else said


def marked_utc(run: RunView, at: float | None) -> str:
    """A time of a run in UTC, behind `≈` if it is a guess; `-` if it is unknown."""
    return run.about(at) + utc(at)


def place_text(position: Position | None) -> str:
    """A position as path and line; "" without one."""
    return f"{position.path}:{position.line}" if position is not None and position.path else ""


def _goodput(spent: Goodput, about: str) -> str:
    share, ettr = 100 * spent.share, 100 * spent.ettr
    return f"{share:.1f} % of {about}{duration(spent.total_seconds)}, ETTR {ettr:.1f} %"


def _pace(run: RunView, snapshot: Snapshot) -> Iterator[str]:
    """Time of a step, as logged or otherwise as the monitor exports it, and throughputs."""
    labels = make_labels(run=run.name)
    exported = (
        point.value
        for point in snapshot.points
        if point.name == "ldlm_train_step_seconds" and point.labels == labels
    )
    step = run.statistics.get("step_seconds")
    seconds = next(exported, None) if step is None else step.mean or step.current
    if seconds is not None:
        yield f"{duration(seconds)} a step"
    for name in RATES[:2]:
        if rate := run.statistics.get(name):
            yield f"{number(rate.current)} {name.replace('_per_second', '/s')}"


def _issues(run: RunView, events: Sequence[Event]) -> Iterator[Entry]:
    """Root causes first, then the newest; one entry, with a count, for each kind and rank."""
    found: dict[tuple[str, int | None], list[Event]] = {}
    for event in reversed(events):
        if event.run == run.name and event.severity in SEVERITIES[1:]:
            found.setdefault((event.kind, event.rank), []).append(event)
    ordered = sorted(found.values(), key=lambda same: same[0].fields.get("role") != "root")
    for newest, *others in ordered[:ISSUES]:
        rank = "" if newest.rank is None else f" rank {newest.rank}"
        times = f", {1 + len(others)} times" if others else ""
        yield Entry(
            time=newest.time,
            kind="event",
            severity=newest.severity,
            text=f"{newest.kind}{rank}{times}: {shorten(newest.message, ISSUE_TEXT)}",
            position=newest.position,
        )


def _timeline(run: RunView, snapshot: Snapshot, incidents: Sequence[IncidentView]) -> list[Entry]:
    """The newest entries by time; an event without a time follows the event read before it."""
    found = [(entry.time or -math.inf, 0, entry) for entry in _news(run, snapshot, incidents)]
    last = -math.inf
    for rank, entry in _turns(run, snapshot):
        last = last if entry.time is None else entry.time
        found.append((last, rank, entry))
    return [entry for *_, entry in sorted(found, key=lambda each: each[:2])][-TIMELINE:]


def _news(run: RunView, snapshot: Snapshot, incidents: Sequence[IncidentView]) -> Iterator[Entry]:
    for incident in incidents:
        at, text = incident.began_at, incident.title
        yield Entry(time=at, kind="incident", severity="critical", text=text)
    for transition in snapshot.transitions:
        if transition.labels.get("run") != run.name or transition.state == "pending":
            continue
        if transition.alert == RUN_FINISHED:  # its end is an entry of its own
            continue
        severity = transition.labels.get("severity", "info")
        summary = summary_of(transition.annotations, run.name)
        text = f"{transition.alert} {transition.state}" + (
            f": {summary}" if transition.state == "firing" else ""
        )
        kept = severity if severity in SEVERITIES and transition.state == "firing" else "info"
        yield Entry(time=transition.time, kind="alert", severity=kept, text=text)


def _turns(run: RunView, snapshot: Snapshot) -> Iterator[tuple[int, Entry]]:
    """Events that change the run's course; of the same time, a start is first, an end is last.

    The end of a run that reached its last step without a word is one, too.
    """
    is_said = False
    for event in snapshot.events:
        meaning = meaning_of(event)
        if event.run != run.name or "course" not in meaning.words:
            continue
        rank = -1 if meaning.begins_run else 1 if meaning.ends == "finished" else 0
        bound = {-1: run.started_at, 1: run.ended_at}.get(rank)
        when = bound if event.time is None else event.time
        is_said = is_said or rank == 1
        text = f"{event.kind.replace('_', ' ')}: {event.message}"
        yield rank, Entry(time=when, kind="event", severity=event.severity, text=text)
    if run.state == "finished" and not is_said:
        at = run.end_position
        yield (
            1,
            Entry(
                time=run.ended_at, kind="event", severity="info", text="run finished", position=at
            ),
        )


def _curve(curve: CurveView) -> Curve:
    means, lows, highs = (
        tuple(None if math.isnan(value) else value for value in column)
        for column in (curve.means, curve.lows, curve.highs)
    )
    steps, nonfinite = tuple(curve.steps), tuple(curve.nonfinite)
    return Curve(steps=steps, means=means, lows=lows, highs=highs, nonfinite=nonfinite)


@lru_cache(maxsize=4096)  # texts: a choice; fewer clean a name twice, more take memory
def _clean_text(text: str) -> str:
    """`text` without secrets and control characters."""
    return plain(text, _TEXT)
