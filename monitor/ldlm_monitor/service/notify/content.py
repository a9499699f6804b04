"""The content of a message, from which each receiver builds its own form.

Texts are cleaned and redacted here; each receiver escapes the special characters of its form. One
that sends plain text has it of `plain_text`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import re2

from ldlm_monitor.base.headline import LINE, SEVERITY_MARKS, STATE_MARKS
from ldlm_monitor.base.names import RUN_FINISHED, severity_rank
from ldlm_monitor.base.text.format import compressed, utc
from ldlm_monitor.base.text.sanitize import shorten
from ldlm_monitor.judge.core.headlines import headline_of_many
from ldlm_monitor.service.notify.message import (
    FLAPPING,
    Message,
    Notification,
    Story,
    clean,
    weight,
)

ALERTS_SHOWN: Final = 15
"""Kinds of alerts that a message lists: as many as a phone's screen shows. Others are counted."""
ALERT_LIMIT: Final = 160
"""Characters of each line of the list of alerts: 15 such lines fit one section of Slack (3000)."""
LINES_SHOWN, LINE_LIMIT = 4, 350
"""Log lines of a message about several alerts, and characters of each: a choice. With their paths
they fit the 1700 characters that `slack_message` allows a text."""

TITLE_LIMIT, TEXT_LIMIT = 200, 1500
"""Characters of a plain title, and of each line of a plain text: a title and one full line, 1700,
fit a message on Discord, which may have 2000."""

_ACTIVE = (
    (re2.compile(r"([^A-Za-z0-9]|^)(@+)"), lambda found: found[1] + "＠" * len(found[2])),
    (re2.compile(r"(?i)@(everyone|here|channel|all\b)"), lambda found: f"＠{found[1]}"),
    (re2.compile(r"<([@!#&/A-Za-z])"), lambda found: f"‹{found[1]}"),
    (re2.compile(r"\]\("), lambda found: "] ("),
)
"""Patterns of mentions, tags and Markdown links, which Discord and Mattermost find in any text, and
the look-alike of each, on which no service acts. The first pattern spares mail addresses. The
second does not: Discord finds the mention of a whole channel within a word too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The parts of a message in the order in which they are shown; empty ones are left out.

    `mark` is an emoji for state and severity. `facts` are (name, value), `alerts` has one line
    for each kind of alert, `log` holds log lines, `notes` are shown small. `link`: a page's URL.
    """

    mark: str
    title: str
    summary: tuple[str, ...] = ()
    cause: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    alerts: tuple[str, ...] = ()
    log: str = ""
    action: str = ""
    notes: tuple[str, ...] = ()
    link: str = ""


def news_of(message: Message) -> Content:
    """The content of a group's news or correction; otherwise, of the alerts that still fire."""
    if message.step == "correction":
        return _renamed(whole_of(message), "correction: ")
    shown = message.news or message.firing
    if len(message.news) == 1 and not message.is_of_many:
        return _alone(message, shown[0])
    lead = min(shown, key=weight)
    log = _lines(shown) if message.news else ""
    mark, title = _first_line(message, shown)
    content = Content(
        mark=mark,
        title=title,
        alerts=_listed(shown),
        log=log,
        action=_advice(message, lead) if message.news and lead.state == "firing" else "",
        notes=(_times(message.alerts), *_flapping(message)),
        link=lead.link,
    )
    return content if message.news else _renamed(content, "still: ")


def whole_of(message: Message) -> Content:
    """The content of a whole group as it is now: of its first message, and of each edit."""
    lead, story = message.lead, message.story
    if len(message.alerts) == 1 and story is None:
        return _alone(message, lead)
    excerpt = story.excerpt if story else ()
    log = "\n".join(f"{one_line(place)}\n  {one_line(text)}" for place, text in excerpt)
    summary = clean(story.title) if story else ""
    summary = summary or clean(lead.summary) or clean(lead.description)
    mark, title = _first_line(message, message.alerts)
    return Content(
        mark=mark,
        title=title,
        summary=() if message.is_of_many else tuple(filter(None, [summary])),
        cause="" if message.is_of_many else _cause(story, lead),
        facts=() if message.is_of_many else _facts(lead, story),
        alerts=_listed(message.alerts) if len(message.alerts) > 1 else (),
        log=log or clean(lead.line or ""),
        action=clean((story.action if story else "") or lead.action) if message.firing else "",
        notes=(_times(message.alerts), *_flapping(message)),
        link=lead.link,
    )


def _renamed(content: Content, prefix: str) -> Content:
    return replace(content, title=f"{prefix}{content.title}")


def _alone(message: Message, each: Notification) -> Content:
    story = message.story if message.story and message.story.id == each.incident else None
    mark, title = _first_line(message, [each])
    holds = each.state in ("firing", "pending")  # its texts are of then
    said = [_summary(each), clean(each.description)] if holds else []
    return Content(
        mark=mark,
        title=title,
        summary=tuple(filter(None, said)),
        cause=_cause(story, each) if each.state == "firing" else "",
        facts=_facts(each, message.story),
        log=clean(each.line or ""),
        action=_advice(message, each) if holds else "",
        notes=(_times([each]), *_flapping(message)),
        link=each.link,
    )


def _first_line(message: Message, shown: Sequence[Notification]) -> tuple[str, str]:
    """Mark and title: the line of the worst of the alerts, and the names of others that fire."""
    if message.is_of_many:
        line = _of_many(message.alerts, message.shared)
    else:
        lead = min(shown, key=weight)
        line = _line(lead, message.story)
        others = {each.alert for each in shown if each.state == lead.state}
        others -= {lead.alert, RUN_FINISHED}  # no trouble
        named = f" +{len(others)}: {', '.join(sorted(others))}"
        if others:
            is_short = len(line) + len(named) <= LINE
            line += named if is_short else f" +{len(others)}"
    mark, _, title = line.partition(" ")
    return mark, title


def _line(each: Notification, story: Story | None) -> str:
    """The alert's own line; of a failure that goes on, what is known of it now."""
    is_of_it = story is not None and story.id == each.incident and story.headline
    if story is not None and is_of_it and each.state == "firing" and _is_failure(each):
        return story.headline
    named = f"{_mark(each)} {one_line(each.run)}: {one_line(each.alert)} {each.state}"
    return each.headline or named


def _is_failure(each: Notification) -> bool:
    return severity_rank(each.severity) >= severity_rank("error")


def _of_many(alerts: Sequence[Notification], cause: str) -> str:
    """The line of an alert of several runs: those in which it fires, otherwise that it is over."""
    lead = min(alerts, key=weight)
    severity = lead.severity if lead.state == "firing" else ""
    own = [each for each in alerts if each.alert == lead.alert]
    runs = dict.fromkeys(one_line(each.run) for each in own if each.state == lead.state)
    starts = [each.started_at for each in own]
    total = len({each.run for each in own})
    within = max(starts) - min(starts)
    known = cause or next((each.verdict for each in own if each.verdict not in ("", "silent")), "")
    found = headline_of_many(lead.alert, severity, [*runs], of=total, within=within, cause=known)
    return found.line()


def _summary(each: Notification) -> str:
    """The summary without the run's name, which stands before it already."""
    return clean(each.summary).removeprefix(each.run or "").lstrip(": ")


def _advice(message: Message, each: Notification) -> str:
    """The decision on the alert's incident, or without one what its rule advises."""
    story = message.story
    is_of_it = story is not None and story.id == each.incident
    return clean((story.action if story is not None and is_of_it else "") or each.action)


def plain_text(content: Content) -> tuple[str, str]:
    """(title, text) of a message: each part, and each log line, is a line in which nothing acts.

    No mention, tag or link of a chat is left in them; HTML and Markdown need more.
    """
    parts = [
        *content.summary,
        f"First cause: {content.cause}" if content.cause else "",
        ", ".join(f"{name} {value}" for name, value in content.facts),
        *content.alerts,
        *content.log.splitlines(),
        f"What to do: {content.action}" if content.action else "",
        f"Page of the run: {content.link}" if content.link else "",
        *content.notes,
    ]
    title = f"{content.mark} {content.title}"
    return _inert(title, TITLE_LIMIT), "\n".join(_inert(part) for part in parts if part)


def _inert(words: str, limit: int = TEXT_LIMIT) -> str:
    shown = " ".join(words.split())
    for active, replacement in _ACTIVE:
        shown = active.sub(replacement, shown)
    return shorten(shown, limit)


def one_line(text: str) -> str:
    """`text` redacted, with every run of white space replaced by one space."""
    return " ".join(clean(text).split())


def _rank(each: Notification, story: Story | None) -> str | None:
    """The rank of an alert: its series' own, otherwise the one that the incident names now."""
    return story.rank if each.named and story else each.rank


def _mark(each: Notification) -> str:
    return STATE_MARKS.get(each.state) or SEVERITY_MARKS.get(each.severity, "⚪")


def _cause(story: Story | None, lead: Notification) -> str:
    if story is None or not story.cause:
        return clean(lead.cause or "")
    why = "".join(f"\n• {one_line(text)}" for text in story.why)
    return f"{one_line(story.cause)} ({one_line(story.confidence)}){why}"


def _facts(each: Notification, story: Story | None) -> tuple[tuple[str, str], ...]:
    place = each.path
    if place and each.line_number is not None:
        place = f"{place}:{each.line_number}"
    step = None if each.step is None else str(each.step)
    rank, health = _rank(each, story), each.health
    alert = f"{each.alert} {each.state} ({each.severity})"
    facts = {"Alert": alert, "Run": each.run, "Health": health, "Rank": rank, "Step": step}
    facts["Log"] = place
    shown = ((name, one_line(value or "")) for name, value in facts.items())
    return tuple((name, value) for name, value in shown if value)


def _lines(shown: Iterable[Notification]) -> str:
    lines = {
        f"{one_line(each.path or '')}:{each.line_number}": one_line(each.line)
        for each in sorted(shown, key=weight)
        if each.line
    }
    first = [*lines.items()][:LINES_SHOWN]
    return "\n".join(f"{place}\n  {shorten(line, LINE_LIMIT)}" for place, line in first)


def _flapping(message: Message) -> tuple[str, ...]:
    if message.flaps <= FLAPPING:
        return ()
    return (f"fired {message.flaps} times within an hour: sent less often until it settles",)


def _times(alerts: Sequence[Notification]) -> str:
    """When the alerts began; if the lead has ended, also when all had, and why.

    For how long is in the first line, which counts a stall from the last step.
    """
    lead = min(alerts, key=weight)
    ends = [each.at for each in alerts if each.at is not None]
    if lead.state in ("firing", "pending"):
        return f"since {_moment(lead.started_at)}"
    since = f"since {_moment(min(each.started_at for each in alerts))}"
    how = one_line(lead.reason)
    return f"{since}, {lead.state} {_moment(max(ends))} ({how})" if ends else since


def _moment(time: float) -> str:
    """`time` (Unix seconds) in UTC. Logs may contain numbers outside the calendar's range."""
    try:
        return utc(time)
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def _listed(alerts: Iterable[Notification]) -> tuple[str, ...]:
    """A line for alerts of one state, severity, name, run and kind, worst first; then a count."""
    kinds: dict[tuple[str | None, ...], list[Notification]] = {}
    for each in alerts:
        kind = (each.state, each.severity, each.alert, each.run, each.labels.get("kind"))
        kinds.setdefault(kind, []).append(each)
    ordered = sorted(kinds.values(), key=lambda kind: weight(kind[0])[:2])
    rest = sum(map(len, ordered[ALERTS_SHOWN:]))
    more = (f"… and {rest} more",) if rest else ()
    return (*map(_kind, ordered[:ALERTS_SHOWN]), *more)


def _kind(members: Sequence[Notification]) -> str:
    first = members[0]
    times = f" ×{len(members)}" if len(members) > 1 else ""
    ranks = compressed(int(each.rank) for each in members if each.rank and each.rank.isdecimal())
    of = f" rank{'s' if len(members) > 1 else ''} {ranks}" if ranks else ""
    what = f": {_summary(first)}" if "kind" in first.labels else ""
    line = one_line(f"{first.alert} {first.state}{times}: {first.run}{of}{what}")
    return f"{_mark(first)} {shorten(line, ALERT_LIMIT)}"
