"""The report as Markdown (CommonMark with tables); what logs say in it is no markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ldlm_monitor.report.contents import Block, Item, Table, closing, sections, steps_said
from ldlm_monitor.report.document import Report, ReportRun
from ldlm_monitor.text.format import utc

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#+|~!&-])")
_FENCES = re.compile(r"`{3,}")


def markdown(report: Report) -> str:
    """The whole document."""
    lines = ["# Training health report", "", f"{utc(report.at)}, {report.headline}"]
    for run in report.runs:
        lines += ["", *_run(run)]
    for title, blocks in closing(report).items():
        lines += ["", f"## {title}", *_blocks(blocks)]
    monitor = report.monitor
    counts = f"read {monitor.lines:,} lines, {monitor.parse_errors:,} parse errors"
    return "\n".join([*lines, "", f"ldlm-monitor {report.version} {counts}."]) + "\n"


def _run(run: ReportRun) -> Iterator[str]:
    yield from (f"## {run.headline}: {_text(run.name)}", "", f"**{_text(run.said)}**", "")
    yield ", ".join(filter(None, (_text(run.state), steps_said(run))))
    yield from ("", "### Facts", *_blocks([Table(("fact", "value"), tuple(run.facts.items()))]))
    for title, blocks in sections(run).items():
        yield from ("", f"### {title}", *_blocks(blocks))


def _blocks(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        yield ""
        match block:
            case Item():
                yield from _item(block)
            case Table():
                yield f"| {' | '.join(block.titles)} |"
                yield f"| {' | '.join('---' for _ in block.titles)} |"
                for row in block.rows:
                    yield f"| {' | '.join(map(_text, row))} |"
            case tuple():
                yield from _list(block)
            case str():
                yield _text(block)


def _item(item: Item) -> Iterator[str]:
    yield from (f"#### {_text(item.title)} ({_text(item.badge)})", "")
    at = (utc(item.at),) if item.at is not None else ()
    yield from _list(tuple(filter(None, (*at, *item.notes, item.place, *item.reasons))))
    if item.excerpt:
        body = [part for text, place in item.excerpt for part in (text, f"    {place}")]
        longest = max((len(run) for text in body for run in _FENCES.findall(text)), default=2)
        fence = "`" * (longest + 1)
        yield from ("", f"{fence}text", *body, fence)
    if item.action:
        yield from ("", f"→ {_text(item.action)}")


def _list(items: Sequence[str]) -> Iterator[str]:
    yield from (f"- {_text(item)}" for item in items)


def _text(text: str) -> str:
    """Escaped: it stands for itself."""
    return _MARKUP.sub(r"\\\1", text)
