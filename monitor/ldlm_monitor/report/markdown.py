"""The report as Markdown (CommonMark with tables); what logs say in it is no markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ldlm_monitor.model.view import AlertView, IncidentView
from ldlm_monitor.report.alerts import summary_of
from ldlm_monitor.report.document import Report, ReportRun
from ldlm_monitor.report.goodput import Goodput
from ldlm_monitor.report.health import amount, quantity_order
from ldlm_monitor.text.format import duration, utc

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#+|~!&-])")
_FENCES = re.compile(r"`{3,}")


def markdown(report: Report) -> str:
    """The whole document."""
    lines = ["# Training health report", "", f"{utc(report.at)}, {report.headline}"]
    for run in report.runs:
        lines += ["", *_run(run)]
    if not report.runs:
        lines += ["", "No training run was found in what was read."]
    lines += _section("Firing on the monitor itself", _alerts(report.alerts), level=2)
    monitor = report.monitor
    counts = f"read {monitor.lines:,} lines, {monitor.parse_errors:,} parse errors"
    return "\n".join([*lines, "", f"ldlm-monitor {report.version} {counts}."]) + "\n"


def _run(run: ReportRun) -> Iterator[str]:
    yield f"## {run.headline}: {_text(run.name)}"
    yield ""
    yield f"**{_text(run.said)}**"
    yield ""
    step = f"{_text(run.state)}" + (f", step {run.step}" if run.step is not None else "")
    yield step + (f" of {run.total_steps}" if run.total_steps and run.step is not None else "")
    yield from _section("Facts", _table(("fact", "value"), run.facts.items()))
    yield from _section("Incidents", _incidents(run.incidents))
    yield from _section("Firing alerts", _alerts(run.alerts))
    yield from _section("What to try", _list(run.recommendations))
    if run.goodput is not None:
        yield from _section("Where the time went", _goodput(run.goodput))
    yield from _section("Statistics over the last values", _statistics(run))
    entries = (f"{utc(entry.time)} {entry.text}" for entry in run.timeline)
    yield from _section("Timeline", _list(tuple(entries)))
    yield from _section("Configuration seen", _table(("name", "value"), run.settings.items()))
    yield from _section("Files", _list(run.files))


def _goodput(found: Goodput) -> Iterator[str]:
    total = found.total_seconds
    yield found.said
    yield ""
    yield from _table(
        ("lost to", "time", "share", "times"),
        (
            (
                each.what,
                duration(each.seconds),
                f"{100 * each.seconds / total:.1f} %",
                f"{each.times}",
            )
            for each in found.losses
        ),
    )


def _statistics(run: ReportRun) -> Iterator[str]:
    rows = []
    for name in sorted(run.statistics, key=quantity_order):
        seen = run.statistics[name]
        values = (seen.current, seen.mean, seen.minimum, seen.maximum)
        rows.append((name, *(amount(name, value) for value in values), str(seen.nonfinite)))
    yield from _table(("quantity", "current", "mean", "min", "max", "not finite"), rows)


def _incidents(incidents: Sequence[IncidentView]) -> Iterator[str]:
    for incident in reversed(incidents):
        sure = "unknown" if incident.confidence == "none" else incident.confidence
        began = incident.root.at if incident.root.at is not None else incident.opened_at
        yield f"#### {_text(incident.title)} ({sure})"
        yield ""
        yield f"Began {utc(began)}, {_text(incident.ended_reason or incident.state)}."
        yield ""
        yield from _list(incident.root.why)
        if incident.excerpt:
            body = [
                text
                for line in incident.excerpt
                for text in (line.text, f"    {line.position.path}:{line.position.line}")
            ]
            longest = max((len(run) for text in body for run in _FENCES.findall(text)), default=2)
            fence = "`" * (longest + 1)
            yield from ("", f"{fence}text", *body, fence)
        if incident.action:
            yield from ("", f"→ {_text(incident.action)}")
        yield ""


def _alerts(alerts: Iterable[AlertView]) -> Iterator[str]:
    for alert in alerts:
        labels, place = alert.labels, alert.position
        rank = f", rank {_text(labels['rank'])}" if "rank" in labels else ""
        summary = _text(summary_of(alert))
        where = f" `{_code(place.path)}:{place.line}`" if place else ""
        text = f"({_text(labels.get('severity', ''))}{rank}): {summary}{where}"
        yield f"- **{_text(alert.name)}** {text}"


def _section(title: str, body: Iterable[str], level: int = 3) -> list[str]:
    lines = list(body)
    return ["", f"{'#' * level} {title}", "", *lines] if lines else []


def _list(items: Sequence[str]) -> Iterator[str]:
    yield from (f"- {_text(item)}" for item in items)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    body = [f"| {' | '.join(_text(cell) for cell in row)} |" for row in rows]
    if body:
        yield f"| {' | '.join(titles)} |"
        yield f"| {' | '.join('---' for _ in titles)} |"
        yield from body


def _text(text: str) -> str:
    """Escaped: it stands for itself."""
    return _MARKUP.sub(r"\\\1", text)


def _code(text: str) -> str:
    return text.replace("`", "'")
