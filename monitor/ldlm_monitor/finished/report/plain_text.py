"""The report as text, 80 columns wide, and as Markdown (CommonMark with tables)."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from ldlm_monitor.base.snapshot import MonitorView, Snapshot
from ldlm_monitor.base.text.format import byte_size, counted, utc
from ldlm_monitor.base.text.sanitize import shorten, shorten_path
from ldlm_monitor.finished.report.contents import (
    NO_BREAK,
    Block,
    Item,
    Table,
    brief_sections,
    closing,
    overview,
    runs_counted,
    sections,
    steps_said,
    unread,
)
from ldlm_monitor.finished.report.document import Report, ReportRun, report

WIDTH = 80
"""Columns of a line: the default of terminals, and usual in mail."""
_BAR = 30  # characters of the progress bar: percentage and steps fit the line beside it
_LIMIT = 12
"""Items and rows of a section at most: a choice; more fill a screen. The JSON has all."""
_SECTIONS = (
    "Statistics over the last values",
    "Incidents",
    "Firing",
    "Fired at its end",
    "Over",
    "Recent issues",
    "Where the time went",
    "Events",
    "Not checked",
    "Recommendations",
)
"""The sections of the text in order. Recommendations come last, just above the prompt."""
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#+|~!&-])")  # characters with a meaning in Markdown
_FENCES = re.compile(r"`{3,}")  # CommonMark: code ends at as many backticks as it began with


def health_report(snapshot: Snapshot, price: float | None = None, *, ends: bool = False) -> str:
    """The report of every run as text, with a newline at its end. Log texts are redacted.

    `price` is that of a GPU for an hour; `ends` as in `report`.
    """
    without = snapshot.model_copy(update={"curves": {}})  # text has no charts
    found = report(without, price, ends=ends)
    lines = [*_between("ldlm-monitor health report", utc(found.at)), "=" * WIDTH]
    is_alone = len(found.runs) == 1
    if len(found.runs) > 1:
        lines += [runs_counted(found), "", *_overview(found.runs)]
    for run in found.runs:
        if is_alone or run.health not in ("HEALTHY", "READING"):
            lines += ["", *_run(run, is_alone=is_alone)]
    for title, blocks in closing(found).items():
        lines += _section(title, blocks)
    lines += ["", "-" * WIDTH]
    if len(found.runs) > 1:  # at the end, too, where the eye is when all has been printed
        lines += _wrapped(f"{runs_counted(found)}. The report of one log alone has everything.")
    return "\n".join([*lines, *_wrapped(_monitor(found.monitor))]) + "\n"


def _overview(runs: Iterable[ReportRun]) -> Iterator[str]:
    for run in runs:
        where = ", ".join(filter(None, (run.state, steps_said(run))))
        yield from _between(f"{run.health:<10}{run.name}", where, indent=10)  # UNHEALTHY, a space
        if run.health != "HEALTHY" or run.unseen:
            yield from _wrapped(run.said, indent=10)


def _run(run: ReportRun, *, is_alone: bool) -> Iterator[str]:
    known = run.framework not in {"", "unknown"}
    state = run.state + (f" ({shorten(run.framework, 24)})" if known else "")
    yield from _between(f"{run.health}  {run.name}", state)
    yield "-" * WIDTH
    if run.health != "HEALTHY" and is_alone:  # of several runs, the table above has it
        yield from _wrapped(f"{'Why':<13}{run.said}", hanging=13)
    if progress := _progress(run):
        yield f"{'Progress':<13}{progress}"  # 13: the longest name of a fact, and a gap
    for name, value in run.facts.items():
        yield from _wrapped(f"{name:<13}{value}", hanging=13)
    for index, path in enumerate(run.files):
        yield f"{'' if index else 'Files':<13}{shorten_path(path, WIDTH - 13)}"
    found = sections(run) if is_alone else brief_sections(run)
    for title in filter(found.get, _SECTIONS):
        yield from _section(title, found[title])


def _progress(run: ReportRun) -> str:
    if run.progress is None:
        return steps_said(run)
    share = min(max(run.progress, 0.0), 1.0)
    done = int(share * _BAR)
    bar = "#" * done + "." * (_BAR - done)
    return f"[{bar}] {100 * share:5.1f} %  {steps_said(run)}".rstrip()


def _section(title: str, blocks: Sequence[Block]) -> Iterator[str]:
    yield from ("", title)
    wide = max((len(block.badge) for block in blocks if isinstance(block, Item)), default=0)
    for block in blocks[:_LIMIT]:
        match block:
            case Item():
                yield from _item(block, max(wide, len("critical")) + 3)
            case Table():
                yield from _table(block)
            case tuple():
                for sentence in block:
                    yield from _wrapped(f"- {sentence}", indent=2, hanging=2)
            case str():
                yield from (line.replace(NO_BREAK, " ") for line in _wrapped(block, indent=2))
    yield from _more(len(blocks))


def _item(item: Item, indent: int) -> Iterator[str]:
    first = f"  {item.badge:<{indent - 2}}"
    yield from _between(item.title, item.at, indent, first)
    for note in item.notes:
        yield from _wrapped(note, indent=indent)
    if item.place:
        yield " " * indent + shorten_path(item.place, WIDTH - indent)
    for reason in item.reasons:
        yield from _wrapped(f"- {reason}", indent=indent, hanging=2)
    for text, place in item.excerpt:
        yield f"{'':<{indent}}| {shorten(text, WIDTH - indent - 2)}"
        if place:
            yield f"{'':<{indent}}    {shorten_path(place, WIDTH - indent - 4)}"
    if item.action:
        yield from _wrapped(f"-> {item.action}", indent=indent, hanging=3)


def _table(table: Table) -> Iterator[str]:
    widths = [max(11, len(title) + 2) for title in table.titles[1:]]  # 2 + 22 + 5 x 11 fit `WIDTH`
    for first, *cells in (table.titles, *table.rows[:_LIMIT]):
        row = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        yield f"  {shorten(first, 21):<22}{row}"
    yield from _more(len(table.rows))


def _more(count: int) -> Iterator[str]:
    if count > _LIMIT:
        yield f"  and {count - _LIMIT} more"


def _monitor(monitor: MonitorView) -> str:
    parts = [
        f"Read {counted(monitor.lines, 'line')} ({byte_size(monitor.bytes)})",
        f"{counted(sum(monitor.records.values()), 'record')}",
        f"{counted(monitor.parse_errors, 'parse error')}",
        f"{counted(monitor.evaluations, 'evaluation')} of the rules",
    ]
    if monitor.unread:
        parts.append(unread(monitor))
    parts += [f"dropped {count} ({why})" for why, count in monitor.dropped.items() if count]
    return ", ".join(parts) + "."


def _between(left: str, right: str, indent: int = 2, first: str = "") -> list[str]:
    """Lines of `left`, as `_wrapped` makes them, and `right` at the end of the last, or below."""
    *lines, last = _wrapped(left, hanging=indent, first=first) or [first]
    if right and len(last) + 1 + len(right) > WIDTH:
        lines, last = [*lines, last], ""
    return [*lines, f"{last}{right:>{WIDTH - len(last)}}".rstrip()]


def _wrapped(text: str, *, indent: int = 0, hanging: int = 0, first: str = "") -> list[str]:
    """Lines of at most WIDTH; `first` is text in place of the first line's indent."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first or " " * indent,
        subsequent_indent=" " * (indent + hanging),
        break_on_hyphens=False,
    )


def markdown(report: Report) -> str:
    """The whole report as Markdown."""
    lines = ["# Training health report", "", f"{utc(report.at)}, {runs_counted(report)}"]
    is_alone = len(report.runs) == 1
    if len(report.runs) > 1:
        lines += _md_blocks([overview(report.runs)])
    for run in report.runs:
        if is_alone or run.health not in ("HEALTHY", "READING"):
            lines += ["", *_md_run(run, is_alone=is_alone)]
    for title, blocks in closing(report).items():
        lines += ["", f"## {title}", *_md_blocks(blocks)]
    monitor = report.monitor
    counts = f"read {monitor.lines:,} lines, {monitor.parse_errors:,} parse errors"
    counts += f", {unread(monitor)}" if monitor.unread else ""
    return "\n".join([*lines, "", f"ldlm-monitor {report.version} {counts}."]) + "\n"


def _md_run(run: ReportRun, *, is_alone: bool) -> Iterator[str]:
    yield from (f"## {run.health}: {_escaped(run.name)}", "", f"**{_escaped(run.said)}**", "")
    yield ", ".join(filter(None, (_escaped(run.state), steps_said(run))))
    yield from ("", "### Facts", *_md_blocks([Table(("fact", "value"), tuple(run.facts.items()))]))
    for title, blocks in (sections(run) if is_alone else brief_sections(run)).items():
        yield from ("", f"### {title}", *_md_blocks(blocks))


def _md_blocks(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        yield ""
        match block:
            case Item():
                yield from _md_item(block)
            case Table():
                yield f"| {' | '.join(block.titles)} |"
                yield f"| {' | '.join('---' for _ in block.titles)} |"
                for row in block.rows:
                    yield f"| {' | '.join(map(_escaped, row))} |"
            case tuple():
                yield from _md_list(block)
            case str():
                yield _escaped(block)


def _md_item(item: Item) -> Iterator[str]:
    yield from (f"#### {_escaped(item.title)} ({_escaped(item.badge)})", "")
    yield from _md_list(tuple(filter(None, (item.at, *item.notes, item.place, *item.reasons))))
    if item.excerpt:
        body = [part for text, place in item.excerpt for part in (text, f"    {place}")]
        longest = max((len(run) for text in body for run in _FENCES.findall(text)), default=2)
        fence = "`" * (longest + 1)
        yield from ("", f"{fence}text", *body, fence)
    if item.action:
        yield from ("", f"→ {_escaped(item.action)}")


def _md_list(items: Sequence[str]) -> Iterator[str]:
    yield from (f"- {_escaped(item)}" for item in items)


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)
