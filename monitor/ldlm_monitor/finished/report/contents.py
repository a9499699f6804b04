"""The sections of a run's report, as blocks that text, Markdown and HTML render each in its way."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ldlm_monitor.base.goodput import Goodput
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.snapshot import AlertView, MonitorView, OverBy, PastView, Statistics
from ldlm_monitor.base.text.format import byte_size, counted, duration, number, utc
from ldlm_monitor.base.text.sanitize import summary_of
from ldlm_monitor.finished.report.document import Entry, Report, ReportRun, marked_utc, place_text
from ldlm_monitor.judge.core.run_health import decided_on, what_now

NO_BREAK = "\u00a0"
"""A space between a name and its count, so that no line ends between them."""
_SYMPTOMS = 8
"""Kinds of symptoms listed, the most frequent first: a choice; more than two lines bury others."""
_FIRST_QUANTITIES = ("loss", "eval_loss", "grad_norm", "learning_rate", "step_seconds")
"""Quantities at the top of the table, as people check them first; the others follow by name."""

_BRIEF = 3
"""Earlier incidents, and recommendations, of a run among several: a choice; these fit a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An incident, an alert or an issue.

    `badge`: its severity, or the confidence in its cause. `at`: its time, "" if unknown.
    `notes`: lines below the title. `place`: path and line. `reasons`: why the cause is named.
    `excerpt`: pairs of a log line and its place. `action`: what to do. An empty one is left out.
    """

    severity: str
    badge: str
    title: str
    at: str = ""
    notes: tuple[str, ...] = ()
    place: str = ""
    reasons: tuple[str, ...] = ()
    excerpt: tuple[tuple[str, str], ...] = ()
    action: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts; the first cell names the row."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.rows)


Block: TypeAlias = Item | Table | tuple[str, ...] | str
"""A tuple is a list of sentences, a string a paragraph."""


def sections(run: ReportRun) -> dict[str, list[Block]]:
    """The blocks of each section of a run, by title; empty sections are left out."""
    spent, about = run.goodput, run.about(run.started_at)
    found: dict[str, list[Block]] = {
        "Incidents": [_incident(incident, run) for incident in reversed(run.incidents)],
        alerts_title(run): [_alert(alert, run) for alert in run.alerts],
        "Over": _over(run),
        "Not checked": [_unchecked(run)],
        "Recommendations": [run.recommendations],
        "Where the time went": [] if spent is None else [spent_said(spent, about), _losses(spent)],
        "Statistics over the last values": [_statistics(run.statistics)],
        "Recent issues": [_issue(issue) for issue in run.issues],
        "Timeline": [
            tuple(f"{marked_utc(run, entry.time)} {entry.text}" for entry in run.timeline)
        ],
        "Events": [", ".join(f"{kind}{NO_BREAK}{n}" for kind, n in _by_count(run.event_counts))],
        "Configuration seen": [Table(("name", "value"), tuple(run.settings.items()))],
        "Files": [run.files],
    }
    return _filled(found)


def _filled(found: Mapping[str, list[Block]]) -> dict[str, list[Block]]:
    kept = {title: [block for block in blocks if block] for title, blocks in found.items()}
    return {title: blocks for title, blocks in kept.items() if blocks}


def brief_sections(run: ReportRun) -> dict[str, list[Block]]:
    """As `sections`, for one of several runs: its newest incident, what fires, what to do."""
    *earlier, newest = run.incidents or (None,)
    past = tuple(f"{each.title}: {next(_story(each, run))}" for each in reversed(earlier) if each)
    found: dict[str, list[Block]] = {
        "Incidents": [_incident(newest, run), _first(past)] if newest is not None else [],
        alerts_title(run): [_alert(alert, run) for alert in run.alerts],
        "Over": _over(run)[:_BRIEF],
        "Not checked": [_first(_unchecked(run))],
        "Recommendations": [_first(run.recommendations)],
    }
    return _filled(found)


def alerts_title(run: ReportRun) -> str:
    """The title above the alerts: those of a run that is over fire no more."""
    return "Firing" if run.ended_at is None else "Fired at its end"


_OVER_BY: Mapping[OverBy, str] = {
    "recovered": "it recovered",
    "restart": "the run was started again",
    "run_end": "the run ended",
}


def _over(run: ReportRun) -> list[Block]:
    """What is over, the newest first; incidents stand in a section of their own, with their ends.

    Alerts of one name that were over for the same reason are one item, with their number.
    """
    same: dict[tuple[str, str], list[PastView]] = {}
    for each in reversed(run.past):
        if each.kind == "alert":
            same.setdefault((each.name, each.over_by), []).append(each)
    return [_past(newest, 1 + len(others), run) for newest, *others in same.values()]


def _past(past: PastView, times: int, run: ReportRun) -> Item:
    lasted = run.about(past.begin) + duration(max(past.end - past.begin, 0.0))
    often = f", {times} times; the last" if times > 1 else ""
    return Item(
        severity="info",
        badge=past.severity,
        title=f"{past.name}{often}",
        at=marked_utc(run, past.begin),
        notes=(past.text, f"over after {lasted}: {_OVER_BY[past.over_by]}"),
    )


def _unchecked(run: ReportRun) -> tuple[str, ...]:
    return tuple(f"{each} (log {each.log})" for each in run.not_checked)


def _first(sentences: Sequence[str]) -> tuple[str, ...]:
    more = (f"and {len(sentences) - _BRIEF} more",) if len(sentences) > _BRIEF else ()
    return (*sentences[:_BRIEF], *more)


def what_to_do(run: ReportRun) -> tuple[str, ...]:
    """What now, what else to try about the newest incident, and advice on settings."""
    now = what_now(run, run.alerts)
    newest = run.incidents[-1] if run.incidents and now else None
    tries = newest.action if newest is not None and newest.is_to_mend else ""
    return tuple(dict.fromkeys(filter(None, (now, tries, *run.recommendations))))


def closing(report: Report) -> dict[str, list[Block]]:
    """The sections after those of the runs, by title."""
    none: list[Block] = [] if report.runs else ["No training run was found in the logs."]
    own: list[Block] = [_alert(alert, None) for alert in report.alerts]
    return _filled({"Runs": none, "Firing on the monitor itself": own})


def runs_counted(report: Report) -> str:
    """The number of runs of each health, such as `3 runs: 2 CRITICAL, 1 HEALTHY`."""
    counts = Counter(run.health for run in report.runs)
    each = ", ".join(f"{count} {health}" for health, count in counts.items())
    return f"{counted(len(report.runs), 'run')}: {each}"


def overview(runs: Iterable[ReportRun]) -> Table:
    """A row for each run: its health, why (empty if nothing happened), and how far it came."""
    rows = (
        (
            *(run.health, run.name, run.said if run.reasons or run.incidents or run.unseen else ""),
            *(run.state, steps_said(run).removeprefix("step ")),
        )
        for run in runs
    )
    return Table(("health", "run", "why", "state", "step"), tuple(rows))


def steps_said(run: ReportRun) -> str:
    """The step and, if known, the total number of steps; empty if no step is known."""
    if run.step is None:
        return ""
    return f"step {run.step}" + (f" of {run.total_steps}" if run.total_steps else "")


def _alert(alert: AlertView, run: ReportRun | None) -> Item:
    """A firing alert, with its own advice unless the run's decision answers it."""
    is_decided = run is not None and bool(decided_on(run, alert.name))
    rank = f"  rank {alert.rank}" if alert.rank else ""
    severity = alert.labels.get("severity", "info")
    return Item(
        severity=severity,
        badge=severity,
        title=f"{alert.name}{rank}",
        at=utc(alert.fired_at) if run is None else marked_utc(run, alert.fired_at),
        notes=(summary_of(alert.annotations, alert.labels.get("run", "")),),
        place=place_text(alert.position),
        action="" if is_decided else alert.annotations.get("action", ""),
    )


def _issue(issue: Entry) -> Item:
    return Item(
        severity=issue.severity,
        badge=issue.severity,
        title=issue.text,
        place=place_text(issue.position),
    )


def _incident(incident: IncidentView, run: ReportRun) -> Item:
    claims = (
        f"torchelastic blames rank {claim.rank}: {claim.reason}"
        for claim in incident.claims
        if claim.agrees is not True
    )
    return Item(
        severity="critical",
        badge="unknown" if incident.confidence == "none" else incident.confidence,
        title=incident.title,
        notes=(*_story(incident, run), *_cost(incident, run.goodput)),
        reasons=(*incident.root.why, *claims),
        excerpt=tuple((line.text, place_text(line.position)) for line in incident.excerpt),
        action=incident.advice,
    )


def _story(incident: IncidentView, run: ReportRun) -> Iterator[str]:
    began = incident.began_at
    end: str = incident.state
    if incident.ended_at is not None:
        lasted = run.about(began) + duration(max(incident.ended_at - began, 0.0))
        end = f"{incident.ended_reason} after {lasted}"
    yield f"began {marked_utc(run, began)}, {end}"
    if (collective := incident.collective) is not None:
        missing = f", missing {collective.missing}" if collective.missing else ""
        name = f"{collective.op} #{collective.seq}"
        yield f"collective {name}: waiting {collective.waiting}{missing}"
    if incident.events:
        yield f"{counted(incident.events, 'event')}: {_symptoms(incident)}"


def _cost(incident: IncidentView, spent: Goodput | None) -> Iterator[str]:
    """What an incident took of the run's time, and its share of GPU-hours and money."""
    lost = incident.lost_seconds
    if not lost or spent is None:
        return
    hours, cost = spent.part(lost)
    held = f", {hours:.2f} GPU-hours" if hours is not None else ""
    money = f", which cost {cost:.2f}" if cost is not None else ""
    yield f"lost {duration(lost)}{held}{money}"


def _symptoms(incident: IncidentView) -> str:
    counts: dict[str, int] = {}
    ranks: dict[str, list[str]] = {}
    for symptom in incident.symptoms:
        counts[symptom.kind] = counts.get(symptom.kind, 0) + symptom.count
        if symptom.ranks:
            ranks.setdefault(symptom.kind, []).append(symptom.ranks)
    shown = [
        f"{kind} {count}" + (f" (ranks {','.join(ranks[kind])})" if kind in ranks else "")
        for kind, count in _by_count(counts)
    ]
    return ", ".join(shown[:_SYMPTOMS] + ["…"] * (len(shown) > _SYMPTOMS))


def spent_said(spent: Goodput, about: str) -> str:
    """The share, the usual time of a step and the blind spot, as sentences; `about`: `≈` or ""."""
    least = spent.least_pause_seconds
    blind = f"; pauses below {duration(least)} are not seen" if least else ""
    failed = (
        f" ETTR {100 * spent.ettr:.1f} %, MTTF {duration(spent.mttf_seconds)}."
        if spent.mttf_seconds is not None
        else ""
    )
    cost = f" {spent.gpu_hours:.2f} GPU-hours cost {spent.cost:.2f}." if spent.cost else ""
    return (
        f"{100 * spent.share:.1f} % of {about}{duration(spent.total_seconds)} brought the training "
        f"forward, at {duration(spent.step_seconds)} a step{blind}.{failed}{cost}"
    )


def _losses(spent: Goodput) -> Table:
    rows = []
    for loss in spent.losses:
        share = f"{100 * loss.seconds / spent.total_seconds:.1f} %"
        rows.append((loss.what, duration(loss.seconds), share, str(loss.times)))
    return Table(("lost to", "time", "share", "times"), tuple(rows))


def _statistics(statistics: Mapping[str, Statistics]) -> Table:
    rows = []
    first = [name for name in _FIRST_QUANTITIES if name in statistics]
    for name in dict.fromkeys((*first, *sorted(statistics))):
        seen = statistics[name]
        values = (seen.current, seen.mean, seen.minimum, seen.maximum)
        rows.append((name, *(_amount(name, value) for value in values), str(seen.nonfinite)))
    return Table(("", "current", "mean", "min", "max", "non-finite"), tuple(rows))


def _amount(quantity: str, value: float | None) -> str:
    if value is None or not quantity.endswith("_bytes") or not math.isfinite(value):
        return number(value)
    return byte_size(value)


def _by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def unread(monitor: MonitorView) -> str:
    """How many lines look like metrics but gave none."""
    were = "was" if monitor.unread == 1 else "were"
    return f"{counted(monitor.unread, 'metric-like line')} {were} not understood"
