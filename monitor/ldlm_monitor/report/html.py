"""The report as one page that needs nothing else: no script, no network, every text escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files

from ldlm_monitor.analysis.charts import GUTTER, STYLE, svg
from ldlm_monitor.model.records import Position
from ldlm_monitor.model.view import AlertView, IncidentView, Statistics
from ldlm_monitor.report.alerts import summary_of
from ldlm_monitor.report.document import Report, ReportRun
from ldlm_monitor.report.goodput import Goodput
from ldlm_monitor.report.graphs import graphs
from ldlm_monitor.report.health import amount, quantity_order
from ldlm_monitor.report.incidents import by_count, event_counts
from ldlm_monitor.text.format import duration, utc

_POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)
_TONES = 5
"""Losses of time that have a colour of their own."""


def page(report: Report) -> str:
    """The whole document."""
    names = ", ".join(run.name for run in report.runs) or "no run"
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            _POLICY,
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{report.headline}: {escape(names[:120])}</title>",
            f"<style>{(files(__package__) / 'page.css').read_text('utf-8')}{STYLE}</style>",
            "</head><body><main>",
            *_body(report),
            "</main></body></html>\n",
        )
    )


def _body(report: Report) -> Iterator[str]:
    yield f"<header><h1>Training health report</h1>{_time(report.at)}</header>"
    if len(report.runs) > 1:
        yield '<nav class="overview"><h3>Runs</h3><ul>'
        for index, run in enumerate(report.runs):
            name = f'<a href="#run{index}">{escape(run.name)}</a>'
            yield f"<li>{_badge(run.headline)} {name} <span class=soft>{run.state}</span></li>"
        yield "</ul></nav>"
    for index, run in enumerate(report.runs):
        yield from _run(run, index)
    if not report.runs:
        yield "<section>No training run was found in what was read.</section>"
    if report.alerts:
        yield _section("Firing on the monitor itself", _alerts(report.alerts))
    monitor = report.monitor
    yield (
        f"<footer>ldlm-monitor {escape(report.version)} read {monitor.lines:,} lines, "
        f"{monitor.parse_errors:,} parse errors.</footer>"
    )


def _run(run: ReportRun, index: int) -> Iterator[str]:
    framework = f", {escape(run.framework)}" if run.framework not in {"", "unknown"} else ""
    yield (
        f'<section class="verdict {run.headline}" id="run{index}">{_badge(run.headline)}'
        f"<h2>{escape(run.name)}</h2>"
        f'<div class="soft">{run.state}{framework}</div><p class="said">{escape(run.said)}</p>'
    )
    yield from _progress(run)
    yield f"<dl>{''.join(_pairs(run.facts))}</dl></section>"
    yield _section("Incidents", _incidents(run.incidents))
    yield _section("Firing alerts", _alerts(run.alerts))
    yield _section("What to try", _list(run.recommendations))
    charts = "".join(f"<div>{svg(chart)}</div>" for chart in graphs(run))
    yield _section(
        "Charts",
        [f'<div class="charts" style="--gutter:{GUTTER}px">{charts}</div>'] if charts else [],
    )
    if run.goodput is not None:
        yield _section("Where the time went", _goodput(run.goodput))
    yield _section("Statistics over the last values", _statistics(run.statistics))
    yield _section("Timeline", _timeline(run))
    yield _section("Events", _counts(run.event_counts))
    if run.settings:
        pairs = "".join(_pairs(run.settings))
        yield (
            f"<section><details><summary>Configuration seen ({len(run.settings)})</summary>"
            f"<dl>{pairs}</dl></details></section>"
        )
    yield _section("Files", _list(run.files))


def _progress(run: ReportRun) -> Iterator[str]:
    if run.progress is None:
        if run.step is not None:
            yield f'<div class="soft">step {run.step}</div>'
        return
    share = 100 * min(max(run.progress, 0.0), 1.0)
    of = f" of {run.total_steps}" if run.total_steps else ""
    yield (
        f'<div class="bar"><i class="t3" style="width:{share:.2f}%"></i></div>'
        f'<div class="soft">{share:.1f} %, step {run.step}{of}</div>'
    )


def _goodput(found: Goodput) -> Iterator[str]:
    total = found.total_seconds
    parts = [("steps that counted", found.productive_seconds, 0)]
    parts += [(spent.what, spent.seconds, spent.times) for spent in found.losses]
    yield (f'<p class="said">{found.said}</p>')
    bars = "".join(
        f'<i class="t{min(index, _TONES)}" style="width:{100 * seconds / total:.3f}%"></i>'
        for index, (_, seconds, _) in enumerate(parts)
    )
    yield f'<div class="bar">{bars}</div><ul class="key">'
    for index, (what, seconds, times) in enumerate(parts):
        often = f", {times} times" if times > 1 else ""
        yield (
            f'<li><i class="t{min(index, _TONES)}"></i>{escape(what)}: {duration(seconds)} '
            f'<span class="soft">({100 * seconds / total:.1f} %{often})</span></li>'
        )
    yield "</ul>"


def _incidents(incidents: Sequence[IncidentView]) -> Iterator[str]:
    for incident in reversed(incidents):
        sure = "unknown" if incident.confidence == "none" else incident.confidence
        began = incident.root.at if incident.root.at is not None else incident.opened_at
        yield (
            f'<article><span class="badge critical">{sure}</span> '
            f"<strong>{escape(incident.title)}</strong>"
            f'<div class="soft">began {utc(began)}, {_end(incident, began)}</div>'
        )
        collective = incident.collective
        if collective is not None:
            missing = f", missing {collective.missing}" if collective.missing else ""
            where = f"{collective.op} #{collective.seq}: waiting {collective.waiting}{missing}"
            yield f"<div>collective {escape(where)}</div>"
        yield from _list(incident.root.why)
        for claim in incident.claims:
            if claim.agrees is not True:
                yield f"<p>torchelastic blames rank {claim.rank}: {escape(claim.reason)}</p>"
        if incident.excerpt:
            lines = "\n".join(
                f'{escape(line.text)}\n<span class="soft">{escape(_place(line.position))}</span>'
                for line in incident.excerpt
            )
            yield f"<pre>{lines}</pre>"
        if incident.symptoms:
            yield f'<div class="soft">{escape(event_counts(incident))}</div>'
        if incident.action:
            yield f"<p>→ {escape(incident.action)}</p>"
        yield "</article>"


def _end(incident: IncidentView, began: float) -> str:
    if incident.ended_at is None:
        return escape(incident.state)
    lasted = duration(max(incident.ended_at - began, 0.0))
    return f"{escape(incident.ended_reason)} after {lasted}"


def _alerts(alerts: Iterable[AlertView]) -> Iterator[str]:
    for alert in alerts:
        severity = alert.labels.get("severity", "info")
        rank = f" rank {escape(alert.labels['rank'])}" if "rank" in alert.labels else ""
        yield (
            f'<article><span class="badge {escape(severity)}">{escape(severity)}</span> '
            f"<strong>{escape(alert.name)}{rank}</strong> "
            f'<span class="soft">{utc(alert.fired_at)}</span>'
            f"<div>{escape(summary_of(alert))}</div>"
        )
        if alert.position:
            yield f'<div class="soft">{escape(_place(alert.position))}</div>'
        if action := alert.annotations.get("action"):
            yield f"<p>→ {escape(action)}</p>"
        yield "</article>"


def _statistics(statistics: dict[str, Statistics]) -> Iterator[str]:
    if not statistics:
        return
    titles = ("current", "mean", "min", "max", "not finite")
    head = "".join(f"<th>{title}</th>" for title in titles)
    yield f'<div class="scroll"><table><tr><th>quantity</th>{head}</tr>'
    for name in sorted(statistics, key=quantity_order):
        seen = statistics[name]
        values = (seen.current, seen.mean, seen.minimum, seen.maximum)
        cells = "".join(f"<td>{amount(name, value)}</td>" for value in values)
        yield f"<tr><td>{escape(name)}</td>{cells}<td>{seen.nonfinite}</td></tr>"
    yield "</table></div>"


def _timeline(run: ReportRun) -> Iterator[str]:
    if not run.timeline:
        return
    yield '<ul class="timeline">'
    for entry in run.timeline:
        yield (f'<li class="{escape(entry.severity)}">{_time(entry.time)}{escape(entry.text)}</li>')
    yield "</ul>"


def _counts(counts: dict[str, int]) -> Iterator[str]:
    if counts:
        shown = ", ".join(f"{kind} {count}" for kind, count in by_count(counts))
        yield f"<div>{escape(shown)}</div>"


def _section(title: str, body: Iterable[str]) -> str:
    inner = "".join(body)
    return f"<section><h3>{title}</h3>{inner}</section>" if inner else ""


def _list(items: Sequence[str]) -> Iterator[str]:
    if items:
        yield "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def _pairs(pairs: dict[str, str]) -> Iterator[str]:
    for name, value in pairs.items():
        yield f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def _badge(word: str) -> str:
    return f'<span class="badge {escape(word)}">{escape(word)}</span>'


def _time(at: float | None) -> str:
    if at is None or not math.isfinite(at):
        return ""
    return f'<time datetime="{datetime.fromtimestamp(at, UTC).isoformat()}">{utc(at)}</time>'


def _place(position: Position) -> str:
    return f"{position.path}:{position.line}"
