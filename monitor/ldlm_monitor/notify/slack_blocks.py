"""Slack's Block Kit: one notification, a group of alerts as it is now, or what is new in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from ldlm_monitor.config.policy import severity_rank
from ldlm_monitor.notify.message import Message, Story, weight
from ldlm_monitor.notify.notification import Notification, clean
from ldlm_monitor.notify.slack_text import (
    FALLBACK_LIMIT,
    IN_CODE,
    TEXT_LIMIT,
    Block,
    code,
    context,
    cut,
    header,
    mrkdwn,
    one_line,
    section,
)
from ldlm_monitor.text.format import compressed, duration, utc

Content: TypeAlias = tuple[str, list[Block]]
"""(fallback text, blocks)."""

FACT_LIMIT: Final = 300
LIST_LIMIT: Final = 2400
"""Characters of a list of alerts, so that a section's 3000 hold it with its heading and count."""
LINE_LIMIT: Final = 350
LINES_SHOWN: Final = 4
"""Log lines of a message about several alerts, and characters of each: they fit TEXT_LIMIT."""
ALERTS_SHOWN: Final = 25
"""Kinds of alerts that are listed by name; more are counted, as nobody reads them in a channel."""

SEVERITY_MARKS: Final = {"critical": "🔴", "error": "🟠", "warning": "🟡", "info": "🔵"}
STATE_MARKS: Final = {"resolved": "✅", "ended": "⏹️", "unknown": "❔", "pending": "⏳"}


def slack_message(notification: Notification) -> Content:
    """One notification, within Slack's limits and without a mention, whatever its text is."""
    title = headline(notification)
    # The headline has the run's name already.
    summary = clean(notification.summary).removeprefix(notification.run or "").lstrip(": ")
    blocks = [header(title)]
    for text in (summary, clean(notification.description)):
        if text:
            blocks.append(section(cut(text, TEXT_LIMIT)))
    blocks += _cause(None, notification)
    blocks += _facts(notification)
    blocks += code(clean(notification.line or ""))
    if notification.state in ("firing", "pending"):
        blocks += _action(notification.action)
    blocks.append(context(when(notification)))
    return cut(f"{title}: {summary}" if summary else title, FALLBACK_LIMIT), blocks


def group_message(message: Message) -> Content:
    """A group as it is now, for the one message that is edited."""
    lead, story = message.lead, message.story
    if len(message.alerts) == 1 and story is None:
        text, blocks = slack_message(lead)
        return text, [*blocks, *_flapping(message)]
    title = _title(message)
    blocks = [header(title)]
    titled = clean(story.title) if story is not None else ""
    if summary := titled or clean(lead.summary) or clean(lead.description):
        blocks.append(section(cut(summary, TEXT_LIMIT)))
    blocks += _cause(story, lead)
    blocks += _facts(lead)
    excerpt = story.excerpt if story else ()
    lines = "\n".join(f"{one_line(place)}\n  {one_line(text)}" for place, text in excerpt)
    blocks += code(lines or clean(lead.line or ""))
    if len(message.alerts) > 1:
        blocks.append(section(_listed("Alerts", message.alerts)))
    if message.firing:
        blocks += _action(story.action if story is not None and story.action else lead.action)
    blocks += _flapping(message)
    blocks.append(context(_times(message)))
    return cut(title, FALLBACK_LIMIT), blocks


def news_message(message: Message) -> Content:
    """What is new in a group, or, without news, what still fires."""
    shown = message.news or message.firing
    if len(shown) == 1 and message.news:
        text, blocks = slack_message(shown[0])
        return text, [*blocks, *_flapping(message)]
    title = _counted(shown) if message.news else _repeated(message)
    blocks = [header(title), section(_listed("", shown))]
    if message.news:
        lead = min(shown, key=weight)
        blocks += _lines(shown)
        blocks += _action(lead.action) if lead.state == "firing" else []
    blocks += _flapping(message)
    blocks.append(context(_times(message)))
    return cut(title, FALLBACK_LIMIT), blocks


def headline(notification: Notification) -> str:
    """One line: mark, alert, state, severity, run and rank."""
    state, severity = notification.state, notification.severity
    rank = f" rank {notification.rank}" if notification.rank else ""
    words = f"{notification.alert} {state} ({severity}): {notification.run}{rank}"
    return f"{_mark(state, severity)} {one_line(words)}"


def when(notification: Notification) -> str:
    """Since when, and how it ended."""
    since = f"since {_moment(notification.started_at)}"
    if notification.state in ("firing", "pending") or notification.at is None:
        return since
    lasted = duration(notification.duration)
    reason = cut(one_line(notification.reason), 200)
    return f"{since}, {notification.state} {_moment(notification.at)} after {lasted} ({reason})"


def _title(message: Message) -> str:
    lead = message.lead
    more = _and_more(len(message.alerts))
    if message.firing:
        return f"{headline(lead)}{more}"
    run = f": {lead.run}" if lead.run else ""
    lasted = _lasted(message)
    after = f" after {lasted}" if lasted else ""
    return f"{_mark(lead.state, '')} {one_line(f'{lead.alert} {lead.state}{run}')}{more}{after}"


def _counted(shown: Sequence[Notification]) -> str:
    states = Counter(each.state for each in shown)
    runs = {each.run for each in shown if each.run}
    worst = min(shown, key=weight)
    of = f": {one_line(next(iter(runs)))}" if len(runs) == 1 else f" of {len(runs)} runs"
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    mark = _mark(worst.state, worst.severity)
    return f"{mark} {len(shown)} alerts ({counts}){of if runs else ''}"


def _repeated(message: Message) -> str:
    lead = message.lead
    words = one_line(f"still firing: {lead.alert} ({lead.severity}): {lead.run}")
    return f"{_mark(lead.state, lead.severity)} {words}{_and_more(len(message.firing))}"


def _and_more(count: int) -> str:
    return f" and {count - 1} more" if count > 1 else ""


def _mark(state: str, severity: str) -> str:
    return STATE_MARKS.get(state) or SEVERITY_MARKS.get(severity, "⚪")


def _cause(story: Story | None, lead: Notification) -> list[Block]:
    if story is not None and (cause := one_line(story.cause)):
        why = "".join(f"\n• {one_line(text)}" for text in story.why)
        text = f"{cause} ({one_line(story.confidence)}){why}"
    else:
        text = clean(lead.cause or "")
    return [section(f"*First cause*\n{cut(text, TEXT_LIMIT)}")] if text else []


def _facts(notification: Notification) -> list[Block]:
    """Run, rank, step and place in the log, as far as they are known."""
    place = notification.path
    if place and notification.line_number is not None:
        place = f"{place}:{notification.line_number}"
    facts = (
        ("Run", notification.run),
        ("Rank", notification.rank),
        ("Step", None if notification.step is None else str(notification.step)),
        ("Log", place),
    )
    shown = [(name, one_line(value or "")) for name, value in facts]
    fields = [
        mrkdwn(f"*{name}*\n`{cut(value, FACT_LIMIT, IN_CODE)}`") for name, value in shown if value
    ]
    return [{"type": "section", "fields": fields}] if fields else []


def _lines(shown: Iterable[Notification]) -> list[Block]:
    """The log lines behind several alerts, the worst first."""
    lines = {
        f"{one_line(each.path or '')}:{each.line_number}": one_line(each.line)
        for each in sorted(shown, key=weight)
        if each.line
    }
    first = [*lines.items()][:LINES_SHOWN]
    return code("\n".join(f"{place}\n  {cut(line, LINE_LIMIT, {})}" for place, line in first))


def _action(action: str) -> list[Block]:
    text = clean(action)
    return [section(f"*What to do*\n{cut(text, TEXT_LIMIT)}")] if text else []


def _flapping(message: Message) -> list[Block]:
    if not message.is_flapping:
        return []
    text = f"fired {message.flaps} times within an hour: sent less often until it settles"
    return [context(text)]


def _times(message: Message) -> str:
    if message.firing:
        return when(message.lead)
    begin = min((each.started_at for each in message.alerts), default=message.opened_at)
    since = f"since {_moment(begin)}"
    ends = [each.at for each in message.alerts if each.at is not None]
    if not ends:
        return since
    return f"{since}, over {_moment(max(ends))} after {_lasted(message)}"


def _lasted(message: Message) -> str:
    ends = [each.at for each in message.alerts if each.at is not None]
    if not ends:
        return ""
    return duration(max(0.0, max(ends) - min(each.started_at for each in message.alerts)))


def _moment(time: float) -> str:
    """A log may contain any number: beyond a calendar's range it is no time."""
    try:
        return utc(time)
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def _listed(title: str, alerts: Iterable[Notification]) -> str:
    """Every alert, those of one kind in one line; bounded, and the rest is counted."""
    kinds: dict[tuple[str, str, str, str], list[Notification]] = {}
    for each in alerts:
        kinds.setdefault((each.state, each.severity, each.alert, each.run), []).append(each)
    ordered = sorted(
        kinds.items(), key=lambda item: (item[0][0] != "firing", severity_rank(item[0][1]))
    )
    head = f"*{title}*\n" if title else ""
    shown, used = [], len(head)
    for number, (kind, members) in enumerate(ordered):
        line = cut(_kind(kind, members), 300)
        used += len(line.encode("utf-16-le")) // 2 + 1
        if number >= ALERTS_SHOWN or used > LIST_LIMIT:
            rest = sum(len(each) for _, each in ordered[number:])
            shown.append(f"… and {rest} more")
            break
        shown.append(line)
    return head + "\n".join(shown)


def _kind(kind: tuple[str, str, str, str], members: Sequence[Notification]) -> str:
    state, severity, alert, run = kind
    times = f" ×{len(members)}" if len(members) > 1 else ""
    ranks = compressed(int(each.rank) for each in members if each.rank and each.rank.isdecimal())
    of = f" rank{'s' if len(members) > 1 else ''} {ranks}" if ranks else ""
    return f"{_mark(state, severity)} {one_line(f'{alert} {state}{times}: {run}{of}')}"
