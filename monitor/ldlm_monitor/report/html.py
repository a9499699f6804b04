"""The report as one self-contained HTML page: no script, no network, every text escaped."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files

from ldlm_monitor.analysis.charts import GUTTER, STYLE, Figure, FigureMark, Line, svg
from ldlm_monitor.report.contents import Block, Item, Table, closing, sections, steps_said, unread
from ldlm_monitor.report.document import Curve, Report, ReportRun
from ldlm_monitor.report.goodput import Goodput
from ldlm_monitor.text.format import utc

_POLICY = (  # the page contains log text: nothing in it may load or run anything
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)
_URGENT = ("Incidents", "Firing", "Recommendations")
"""Sections above the charts, as they ask for action; all others are below the charts."""
GIB = 2.0**30  # bytes
LINES = 5
"""Curves of one chart at most: chart.css has five colours."""
_CHARTS = (
    ("loss", "", r"(?:eval_)?loss"),
    ("loss components", "", r"loss_(?!scale$)(.+)"),
    ("accuracy", "", r"accuracy(?:_(.+))?"),
    ("gradient norm", "", r"grad_norm"),
    ("learning rate", "", r"learning_rate"),
    ("loss scale", "", r"loss_scale"),
    ("memory", "GiB", r"(memory_(?:allocated|reserved))_bytes"),
)
"""Title, unit, and a pattern of quantities, whose group (if any) is the name of a line."""
_PACE = (
    ("throughput", "samples/s", "samples_per_second"),
    ("throughput", "tokens/s", "tokens_per_second"),
    ("step time", "s", "step_seconds"),
    ("throughput", "it/s", "steps_per_second"),
)
"""Candidates for the chart of the pace, the best first: title, unit and quantity."""
_TONES = 5
"""Number of the last colour of a bar in page.css (0: productive time); further losses share it."""


def page(report: Report) -> str:
    """The whole report as HTML."""
    names = ", ".join(run.name for run in report.runs) or "no run"
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            _POLICY,
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{report.health}: {escape(names[:120])}</title>",  # more than a tab shows
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
            yield f"<li>{_badge(run.health)} {name} <span class=soft>{run.state}</span></li>"
        yield "</ul></nav>"
    for index, run in enumerate(report.runs):
        yield from _run(run, index)
    for title, blocks in closing(report).items():
        yield _section(title, _blocks(blocks))
    monitor = report.monitor
    rest = f", {unread(monitor)}" if monitor.unread else ""
    yield (
        f"<footer>ldlm-monitor {escape(report.version)} read {monitor.lines:,} lines, "
        f"{monitor.parse_errors:,} parse errors{rest}.</footer>"
    )


def _run(run: ReportRun, index: int) -> Iterator[str]:
    framework = f", {escape(run.framework)}" if run.framework not in {"", "unknown"} else ""
    yield (
        f'<section class="verdict {run.health}" id="run{index}">{_badge(run.health)}'
        f"<h2>{escape(run.name)}</h2>"
        f'<div class="soft">{run.state}{framework}</div><p class="said">{escape(run.said)}</p>'
    )
    yield from _progress(run)
    yield f"{_pairs(run.facts.items())}</section>"
    found = sections(run)
    for title in _URGENT:
        yield _section(title, _blocks(found.pop(title, [])))
    yield _section("Charts", _charts(run))
    for title, blocks in found.items():
        if title == "Configuration seen":
            yield f"<section><details><summary>{title} ({len(run.settings)})</summary>"
            yield f"{_pairs(run.settings.items())}</details></section>"
        elif title == "Timeline":
            yield _section(title, _timeline(run))
        elif title == "Where the time went" and run.goodput is not None:
            yield _section(title, (_spent(run.goodput), *_blocks(blocks)))
        else:
            yield _section(title, _blocks(blocks))


def _charts(run: ReportRun) -> Iterator[str]:
    charts = "".join(f"<div>{svg(chart)}</div>" for chart in _graphs(run))
    if charts:
        yield f'<div class="charts" style="--gutter:{GUTTER}px">{charts}</div>'


def _graphs(run: ReportRun) -> Iterator[Figure]:
    """The charts of _CHARTS and of the pace; charts of one step alone are left out."""
    marks = tuple(_marks(run))
    pace = [chart for chart in _PACE if chart[2] in run.curves]
    for title, unit, names in (*_CHARTS, *pace[:1]):
        scale = GIB if unit == "GiB" else 1.0
        matches = (re.fullmatch(names, name) for name in sorted(run.curves))
        lines = [
            _line(match[match.lastindex or 0], run.curves[match[0]], scale, color)
            for color, match in enumerate(filter(None, matches))
        ]
        if any(len(line.xs) > 1 for line in lines):
            yield Figure(title=title, unit=unit, lines=lines[:LINES], marks=marks)


def _line(name: str, curve: Curve, scale: float, color: int) -> Line:
    """The curve as a line in units of `scale`, with a gap wherever the step decreases."""
    points: list[tuple[float, ...]] = []
    for step, *values in zip(curve.steps, curve.means, curve.lows, curve.highs, strict=True):
        if points and step < points[-1][0]:
            points.append((step, math.nan, math.nan, math.nan))
        points.append((step, *(math.nan if each is None else each / scale for each in values)))
    bad = [step for step, count in zip(curve.steps, curve.nonfinite, strict=True) if count]
    xs, means, lows, highs = zip(*points, strict=True) if points else [()] * 4
    return Line(name=name, xs=xs, means=means, lows=lows, highs=highs, nonfinite=bad, color=color)


def _marks(run: ReportRun) -> Iterator[FigureMark]:
    for incident in run.incidents:
        if incident.last_step is not None:
            yield FigureMark(incident.last_step, incident.title, "bad")
    for step in run.resumed_at:
        yield FigureMark(step, f"resumed at step {step}", "resume")


def _progress(run: ReportRun) -> Iterator[str]:
    said = steps_said(run)
    if run.progress is not None:
        share = min(max(run.progress, 0.0), 1.0)
        yield _bar([("t3", share)])
        said = f"{100 * share:.1f} %, {said}"
    if said:
        yield f'<div class="soft">{said}</div>'


def _spent(found: Goodput) -> str:
    parts = (found.productive_seconds, *(loss.seconds for loss in found.losses))
    return _bar((f"t{min(n, _TONES)}", part / found.total_seconds) for n, part in enumerate(parts))


def _bar(parts: Iterable[tuple[str, float]]) -> str:
    """A bar; `parts` are (class in page.css, share 0..1)."""
    inner = "".join(
        f'<i class="{tone}" style="width:{100 * share:.3f}%"></i>' for tone, share in parts
    )
    return f'<div class="bar">{inner}</div>'


def _timeline(run: ReportRun) -> Iterator[str]:
    yield '<ul class="timeline">'
    for entry in run.timeline:
        yield f'<li class="{escape(entry.severity)}">{_time(entry.time)}{escape(entry.text)}</li>'
    yield "</ul>"


def _section(title: str, body: Iterable[str]) -> str:
    inner = "".join(body)
    return f"<section><h3>{title}</h3>{inner}</section>" if inner else ""


def _blocks(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case Item():
                yield from _item(block)
            case Table():
                yield f'<div class="scroll"><table>{_row("th", block.titles)}'
                yield from (_row("td", row) for row in block.rows)
                yield "</table></div>"
            case tuple():
                yield _list(block)
            case str():
                yield f"<div>{escape(block)}</div>"


def _item(item: Item) -> Iterator[str]:
    at = "" if item.at is None else f' <span class="soft">{utc(item.at)}</span>'
    badge = _badge(item.badge, item.severity)
    yield f"<article>{badge} <strong>{escape(item.title)}</strong>{at}"
    yield from (f"<div>{escape(note)}</div>" for note in item.notes)
    if item.place:
        yield f'<div class="soft">{escape(item.place)}</div>'
    yield _list(item.reasons)
    if item.excerpt:
        lines = "\n".join(
            f'{escape(text)}\n<span class="soft">{escape(place)}</span>'
            for text, place in item.excerpt
        )
        yield f"<pre>{lines}</pre>"
    if item.action:
        yield f"<p>→ {escape(item.action)}</p>"
    yield "</article>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>" if items else ""


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    inner = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs
    )
    return f"<dl>{inner}</dl>"


def _badge(word: str, tone: str = "") -> str:
    return f'<span class="badge {escape(tone or word)}">{escape(word)}</span>'


def _time(at: float | None) -> str:
    if at is None or not math.isfinite(at):
        return ""
    return f'<time datetime="{datetime.fromtimestamp(at, UTC).isoformat()}">{utc(at)}</time>'
