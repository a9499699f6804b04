"""The report as one self-contained HTML page without network: every text is escaped.

The page is for printing and forwarding, so it is whole without its script, which reads values from
the charts and enlarges them. The content security policy allows this one script, by its hash.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files

from ldlm_monitor.base.goodput import Goodput
from ldlm_monitor.base.text.format import counted, utc
from ldlm_monitor.finished.charts import GUTTER, STYLE, svg
from ldlm_monitor.finished.live_script import age, live_script, script_policy
from ldlm_monitor.finished.report.contents import (
    Block,
    Item,
    Table,
    closing,
    overview,
    runs_counted,
    sections,
    steps_said,
    unread,
    what_to_do,
)
from ldlm_monitor.finished.report.document import Report, ReportRun
from ldlm_monitor.finished.report.figures import figures, plotted

_URGENT = ("Incidents", "Firing", "Fired at its end", "Not checked")
"""Sections that are always open: the evidence, and its gaps. Others open by a click or key."""
EVERY_SECONDS = 5.0
"""Between two fetches by a page that a daemon serves. A choice: a page is made in some 20 ms."""
_TONES = 5
"""Number of the last colour of a bar in page.css (0: productive time); further losses share it."""


@cache
def _asset(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")


@cache
def policy(*, live: bool = False) -> str:
    """The page's content security policy: it has log text, so only its own scripts may run."""
    scripts = (_asset("page.js"), *([live_script()] if live else []))
    return script_policy(*scripts, connects=live)


def page(report: Report, now: float | None = None) -> str:
    """The whole report as HTML.

    `now` (Unix seconds): it is served by a daemon, below `/runs/`, and keeps itself up to date.
    """
    is_live = now is not None
    names = ", ".join(run.name for run in report.runs) or "no run"
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy(live=is_live)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{report.health}: {escape(names[:120])}</title>",  # more than a tab shows
            f"<style>{_asset('page.css')}{STYLE}</style>",
            f"</head><body>{_connection(is_live)}<main{_live_data(now)}>",
            *_body(report, now),
            f"</main><script>{_asset('page.js')}</script>",
            f"<script>{live_script()}</script>" if is_live else "",
            "</body></html>\n",
        )
    )


def _connection(is_live: bool) -> str:
    if not is_live:
        return ""
    return '<nav><a href="../">all runs</a> <span id="live" role="status"></span></nav>'


def _live_data(now: float | None) -> str:
    if now is None:
        return ""
    stream = "../api/v1/stream"
    return f' data-now="{now:.3f}" data-every="{EVERY_SECONDS:g}" data-stream="{stream}"'


def _body(report: Report, now: float | None) -> Iterator[str]:
    at = (
        _time(report.at) if now is None else f"<span>as of {_time(now)}, {age(now, now)} ago</span>"
    )
    yield f"<header><h1>Training health report</h1>{at}</header>"
    if len(report.runs) > 1:
        yield f'<section class="overview">{_overview(report)}</section>'
    for index, run in enumerate(report.runs):
        yield from _run(run, index, now, is_alone=len(report.runs) == 1)
    for title, blocks in closing(report).items():
        yield _section(title, _blocks(blocks), level=2)
    monitor = report.monitor
    rest = f", {unread(monitor)}" if monitor.unread else ""
    yield (
        f"<footer>ldlm-monitor {escape(report.version)} read {counted(monitor.lines, 'line')}, "
        f"{counted(monitor.parse_errors, 'parse error')}{rest}.</footer>"
    )


def _overview(report: Report) -> str:
    table = overview(report.runs)
    rows = "".join(
        f'<tr><td>{_badge(health)}</td><th scope="row"><a href="#run{index}">{escape(name)}</a>'
        f"</th><td>{escape(why)}</td><td>{escape(state)}</td><td>{escape(step)}</td></tr>"
        for index, (health, name, why, state, step) in enumerate(table.rows)
    )
    return _scroll(f"{runs_counted(report)}, the worst first", table.titles, rows)


def _run(run: ReportRun, index: int, now: float | None, *, is_alone: bool) -> Iterator[str]:
    """A run; a healthy one among several is a line that opens."""
    is_folded = run.health == "HEALTHY" and not is_alone
    heading = f"{_badge(run.health)} <h2>{escape(run.name)}</h2>"
    if is_folded:
        yield f'<details class="run"><summary>{heading} {escape(run.state)}</summary>'
        heading = ""
    yield f'<section class="verdict {run.health}" id="run{index}">{heading}'
    yield from _verdict(run, now)
    yield "</section>"
    found = sections(run)
    done = what_to_do(run)
    for title in _URGENT:
        yield _section(title, _blocks(found.pop(title, []), done))
    yield _folded("More charts", "".join(_charts(run, slice(1, None))), is_open=is_alone)
    found.pop("Recommendations", None)
    for title, blocks in found.items():
        body: Iterable[str] = _blocks(blocks, caption=title)
        if title == "Timeline":
            body = _timeline(run)
        elif title == "Where the time went" and run.goodput is not None:
            body = (_spent(run.goodput), *body)
        yield _folded(title, "".join(body))
    yield "</details>" if is_folded else ""


def _verdict(run: ReportRun, now: float | None) -> Iterator[str]:
    """What is wrong, the chart that shows it, and what to do."""
    yield f'<p class="said">{escape(run.said)}</p>'
    framework = f", {escape(run.framework)}" if run.framework not in {"", "unknown"} else ""
    yield f'<p class="soft">{escape(run.state)}{framework}{_progress(run)}{_ticking(run, now)}</p>'
    yield from _charts(run, slice(1))
    if done := what_to_do(run):
        yield f"<h3>What to do</h3>{_list(done, 'ol')}"
    yield _pairs(run.facts.items())


def _charts(run: ReportRun, which: slice) -> Iterator[str]:
    charts = "".join(
        f'<div data-plot="{plotted(each)}">{svg(each)}</div>' for each in list(figures(run))[which]
    )
    if charts:
        yield f'<div class="charts" style="--gutter:{GUTTER}px">{charts}</div>'


def _ticking(run: ReportRun, now: float | None) -> str:
    """Since when the run has ended, or taken no step, on a page that is kept up to date."""
    at = run.last_progress_at if run.ended_at is None else run.ended_at
    if now is None or at is None or run.health == "READING":
        return ""
    what = "last step" if run.ended_at is None else "ended"
    return f", {what} {run.about(at)}{age(at, now)} ago"


def _progress(run: ReportRun) -> str:
    said = steps_said(run)
    if run.progress is not None:
        share = min(max(run.progress, 0.0), 1.0)
        said = f"{100 * share:.1f} %, {said}"
    return f", {said}" if said else ""


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


def _section(title: str, body: Iterable[str], level: int = 3) -> str:
    inner = "".join(body)
    return f"<section><h{level}>{title}</h{level}>{inner}</section>" if inner else ""


def _folded(title: str, inner: str, *, is_open: bool = False) -> str:
    """A section that a click or key opens, and that printing leaves as it is."""
    shown = " open" if is_open else ""
    summary = f"<summary><h3>{title}</h3></summary>"
    return f"<details class=part{shown}>{summary}{inner}</details>" if inner else ""


def _blocks(blocks: Iterable[Block], done: Sequence[str] = (), caption: str = "") -> Iterator[str]:
    """`done`: actions that stand elsewhere; `caption`: of tables."""
    for block in blocks:
        match block:
            case Item():
                yield from _item(block, done)
            case Table():
                yield _table(block, caption)
            case tuple():
                yield _list(block)
            case str():
                yield f"<p>{escape(block)}</p>"


def _item(item: Item, done: Sequence[str]) -> Iterator[str]:
    at = f' <span class="soft">{item.at}</span>' if item.at else ""
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
    if item.action and item.action not in done:
        yield f"<p>→ {escape(item.action)}</p>"
    yield "</article>"


def _table(table: Table, caption: str) -> str:
    rows = (
        f'<tr><th scope="row">{escape(first)}</th>'
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for first, *cells in table.rows
    )
    return _scroll(caption, table.titles, "".join(rows))


def _scroll(caption: str, titles: Iterable[str], rows: str) -> str:
    """A table that scrolls sideways by keys, too, where it is wider than its place."""
    head = "".join(f'<th scope="col">{escape(title) or "quantity"}</th>' for title in titles)
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _list(items: Sequence[str], tag: str = "ul") -> str:
    inner = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<{tag}>{inner}</{tag}>" if items else ""


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
