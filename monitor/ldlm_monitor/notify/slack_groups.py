"""Slack: a group of alerts as Block Kit, as a message that stands there or as news in its thread.

Within the limits that slack.py names, and as harmless as what it makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ldlm_monitor.notify.message import Message, Story, rank
from ldlm_monitor.notify.notification import Notification
from ldlm_monitor.notify.slack import (
    FALLBACK_LIMIT,
    HEADER_LIMIT,
    IN_CODE,
    IN_HEADER,
    LINE_LIMIT,
    SEVERITY_MARKS,
    STATE_MARKS,
    TEXT_LIMIT,
    Block,
    clean,
    cut,
    facts,
    headline,
    mrkdwn,
    one_line,
    section,
    slack_message,
    spell,
    utc,
    when,
)

LIST_LIMIT = 2400
LINES_SHOWN = 4
ALERTS_SHOWN = 25
"""Kinds of alerts that are listed by name; what is beyond is counted."""


def standing_message(message: Message) -> tuple[str, list[Block]]:
    """(fallback text, blocks) of a group as it stands now."""
    if len(message.standing) == 1 and message.story is None:
        text, blocks = slack_message(message.lead)
        return text, [*blocks, *_flapping(message)]
    lead = message.lead
    title = _title(message)
    blocks = [_header(title)]
    story = message.story
    titled = clean(story.title) if story is not None else ""
    if summary := titled or clean(lead.summary) or clean(lead.description):
        blocks.append(section(cut(summary, TEXT_LIMIT)))
    blocks += _cause(story, lead)
    if fields := [mrkdwn(text) for text in facts(lead)]:
        blocks.append({"type": "section", "fields": fields[:10]})
    blocks += _excerpt(story, lead)
    if len(message.standing) > 1:
        blocks.append(section(_listed("Alerts", message.standing)))
    blocks += _action(story, lead) if message.firing else []
    blocks += _flapping(message)
    blocks.append({"type": "context", "elements": [mrkdwn(_times(message))]})
    return cut(title, FALLBACK_LIMIT), blocks


def news_message(message: Message) -> tuple[str, list[Block]]:
    """(fallback text, blocks) of what is new in a group, or of what fires still."""
    told = message.news or message.firing
    if len(told) == 1 and message.news:
        text, blocks = slack_message(told[0])
        return text, [*blocks, *_flapping(message)]
    title = _repeated(message) if not message.news else _counted(told)
    lead = min(told, key=lambda each: (each.state != "firing", rank(each.severity)))
    blocks = [_header(title), section(_listed("", told))]
    if message.news:
        blocks += _lines(told)
        blocks += _action(None, lead) if lead.state == "firing" else []
    blocks += _flapping(message)
    blocks.append({"type": "context", "elements": [mrkdwn(_times(message))]})
    return cut(title, FALLBACK_LIMIT), blocks


def _title(message: Message) -> str:
    lead = message.lead
    others = len(message.standing) - 1
    more = f" and {others} more" if others > 0 else ""
    if message.firing:
        return f"{headline(lead)}{more}"
    run = f": {lead.run}" if lead.run else ""
    lasted = _lasted(message)
    after = f" after {lasted}" if lasted else ""
    mark = STATE_MARKS.get(lead.state, "✅")
    return f"{mark} {one_line(f'{lead.alert} {lead.state}{run}')}{more}{after}"


def _counted(told: Sequence[Notification]) -> str:
    states = Counter(each.state for each in told)
    runs = {each.run for each in told if each.run}
    worst = min(told, key=lambda each: (each.state != "firing", rank(each.severity)))
    mark = STATE_MARKS.get(worst.state) or SEVERITY_MARKS.get(worst.severity, "⚪")
    of = f": {one_line(next(iter(runs)))}" if len(runs) == 1 else f" of {len(runs)} runs"
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"{mark} {len(told)} alerts ({counts}){of if runs else ''}"


def _repeated(message: Message) -> str:
    lead = message.lead
    mark = SEVERITY_MARKS.get(lead.severity, "⚪")
    others = len(message.firing) - 1
    more = f" and {others} more" if others > 0 else ""
    return f"{mark} {one_line(f'still firing: {lead.alert} ({lead.severity}): {lead.run}')}{more}"


def _header(title: str) -> Block:
    return {
        "type": "header",
        "text": {"type": "plain_text", "text": cut(title, HEADER_LIMIT, IN_HEADER)},
    }


def _cause(story: Story | None, lead: Notification) -> list[Block]:
    if story is not None and (cause := one_line(story.cause)):
        why = "".join(f"\n• {one_line(text)}" for text in story.why)
        text = f"{cause} ({one_line(story.confidence)}){why}"
    else:
        text = clean(lead.cause or "")
    return [section(f"*First cause*\n{cut(text, TEXT_LIMIT)}")] if text else []


def _excerpt(story: Story | None, lead: Notification) -> list[Block]:
    lines = (
        [f"{one_line(place)}\n  {one_line(text)}" for place, text in story.excerpt] if story else []
    )
    text = "\n".join(lines) or clean(lead.line or "")
    return [section(f"```\n{cut(text, LINE_LIMIT, IN_CODE)}\n```")] if text else []


def _lines(told: Sequence[Notification]) -> list[Block]:
    """The lines of the log behind several alerts, the worst first."""
    ordered = sorted(told, key=lambda each: (each.state != "firing", rank(each.severity)))
    lines = {
        f"{one_line(each.path or '')}:{each.line_number}": one_line(each.line)
        for each in ordered
        if each.line
    }
    shown = [f"{place}\n  {cut(line, 350, {})}" for place, line in [*lines.items()][:LINES_SHOWN]]
    text = cut("\n".join(shown), LINE_LIMIT, IN_CODE)
    return [section(f"```\n{text}\n```")] if text else []


def _action(story: Story | None, lead: Notification) -> list[Block]:
    text = clean(story.action if story is not None and story.action else lead.action)
    return [section(f"*What to do*\n{cut(text, TEXT_LIMIT)}")] if text else []


def _flapping(message: Message) -> list[Block]:
    if not message.is_flapping:
        return []
    told = f"fired {message.flaps} times within an hour: told less often until it settles"
    return [{"type": "context", "elements": [mrkdwn(told)]}]


def _times(message: Message) -> str:
    if message.firing or not message.standing:
        return when(message.lead) if message.standing else f"since {utc(message.opened_at)}"
    begun = min(each.started_at for each in message.standing)
    ended = [each.at for each in message.standing if each.at is not None]
    if not ended:
        return f"since {utc(begun)}"
    return f"since {utc(begun)}, over {utc(max(ended))} after {_lasted(message)}"


def _lasted(message: Message) -> str:
    ended = [each.at for each in message.standing if each.at is not None]
    if not ended:
        return ""
    return spell(max(0.0, max(ended) - min(each.started_at for each in message.standing)))


def _listed(title: str, told: Iterable[Notification]) -> str:
    """Every alert, those of one kind in one line; bounded, and what is cut is counted."""
    kinds: dict[tuple[str, str, str, str], list[Notification]] = {}
    for each in told:
        kinds.setdefault((each.state, each.severity, each.alert, each.run), []).append(each)
    ordered = sorted(kinds.items(), key=lambda item: (item[0][0] != "firing", rank(item[0][1])))
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
    mark = STATE_MARKS.get(state) or SEVERITY_MARKS.get(severity, "⚪")
    times = f" ×{len(members)}" if len(members) > 1 else ""
    ranks = compressed(each.rank for each in members if each.rank)
    of = f" rank{'s' if len(members) > 1 else ''} {ranks}" if ranks else ""
    return f"{mark} {one_line(f'{alert} {state}{times}: {run}{of}')}"


def compressed(ranks: Iterable[str]) -> str:
    """`0-3,7`; what is no number stands behind."""
    known = set(ranks)
    numbers = sorted(int(each) for each in known if each.isdecimal())
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    told = [f"{low}-{high}" if high > low else f"{low}" for low, high in spans]
    return ",".join([*told, *sorted(each for each in known if not each.isdecimal())])
