"""Slack's form of a message (a title for notifications, and blocks), and the incoming webhook.

Slack's limits (https://docs.slack.dev/reference/block-kit/blocks): header 150 characters, section
3000, field 2000, 50 blocks. Text is escaped as
https://docs.slack.dev/messaging/formatting-message-text requires, so that nothing in a log becomes
a mention or a link.
"""

import json
from bisect import bisect_right
from itertools import accumulate
from typing import Any, Final, TypeAlias
from urllib.request import Request

from ldlm_monitor.base.errors import DeliveryError
from ldlm_monitor.service.notify.content import Content, news_of
from ldlm_monitor.service.notify.http_client import HttpAnswer, check_accepted, checked_url, post
from ldlm_monitor.service.notify.message import Message, Receipt
from ldlm_monitor.service.notify.receiver import MessageReceiver

Block: TypeAlias = dict[str, Any]

HEADER_LIMIT: Final = 150  # characters, Slack's limit
FALLBACK_LIMIT: Final = 1000  # characters of `text` in `drawn`: a choice, more than a phone shows
TEXT_LIMIT: Final = 1700
"""Characters of each text. A choice: two of a summary, cause, log, action, facts and list fit the
13,000 of all blocks (not documented: https://github.com/slackapi/bolt-js/issues/2509)."""
LIST_LIMIT: Final = 2600
"""Characters of the list of alerts: its 15 lines of 160 characters, and some room for escapes."""
FACT_LIMIT: Final = 300  # characters of a fact: a choice; a long path fits, few lines on a phone
ESCAPED: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}  # Slack's escapes of its own characters
IN_CODE: Final = {**ESCAPED, "`": "ˋ"}
"""Escapes within code, which a backtick would end; its look-alike (U+02CB) does not."""
IN_HEADER: Final = {"<": "‹", ">": "›"}
"""A header is plain text without escapes; with these look-alikes no client finds a mention."""


def drawn(content: Content) -> tuple[str, list[Block]]:
    """Slack's fields `text`, a line for notifications and screen readers, and `blocks`."""
    title = f"{content.mark} {content.title}"
    text = {"type": "plain_text", "text": cut(title, HEADER_LIMIT, IN_HEADER)}
    blocks: list[Block] = [{"type": "header", "text": text}]
    blocks += (section(cut(text, TEXT_LIMIT)) for text in content.summary)
    blocks += _headed("First cause", content.cause)
    fields = [
        mrkdwn(f"*{name}*\n`{cut(value, FACT_LIMIT, IN_CODE)}`") for name, value in content.facts
    ]
    blocks += [{"type": "section", "fields": fields}] if fields else []
    blocks += [section(cut("\n".join(content.alerts), LIST_LIMIT))] if content.alerts else []
    if content.log:
        blocks.append(section(f"```\n{cut(content.log, TEXT_LIMIT, IN_CODE)}\n```"))
    blocks += _headed("What to do", content.action)
    if content.link:  # made of the settings' URL and a quoted name: no character of Slack's own
        blocks.append(section(f"<{content.link}|Open the page of this run>"))
    notes = (mrkdwn(cut(note, TEXT_LIMIT)) for note in content.notes)
    blocks += ({"type": "context", "elements": [note]} for note in notes)
    return cut(title, FALLBACK_LIMIT), blocks


def _headed(title: str, text: str) -> list[Block]:
    return [section(f"*{title}*\n{cut(text, TEXT_LIMIT)}")] if text else []


def section(text: str) -> Block:
    """A section block; `text` must be escaped already."""
    return {"type": "section", "text": mrkdwn(text)}


def mrkdwn(text: str) -> Block:
    """A text object; `text` must be escaped already. `verbatim`: Slack adds no links to it."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def as_code(text: str) -> str:
    """`text`, a line escaped already, as code: outside of blocks Slack adds links to other text."""
    return f"`{text.replace('`', IN_CODE['`'])}`"


def cut(text: str, limit: int, escapes: dict[str, str] = ESCAPED) -> str:
    """`text` with `escapes` applied, at most `limit` UTF-16 units; none of the escapes is cut."""
    pieces = [escapes.get(char, char) for char in text[: limit + 1]]
    ends = [*accumulate(len(piece) + (piece > "\uffff") for piece in pieces)]
    if not ends or ends[-1] <= limit:
        return "".join(pieces)
    return "".join(pieces[: bisect_right(ends, limit - 1)]) + "…"


REFUSED_FORMS = frozenset(  # Slack refuses the blocks, but may accept the text alone
    {
        *("invalid_blocks", "invalid_blocks_format", "invalid_arguments", "msg_blocks_too_long"),
        *("invalid_metadata_format", "metadata_too_large", "msg_too_long", "no_text"),
    }
)
# Slack recommends a charset for JSON (its warning `missing_charset`).
_HEADERS: Final = {"Content-Type": "application/json;charset=utf-8", "User-Agent": "ldlm-monitor"}


class SlackWebhook(MessageReceiver):
    """Sends to one incoming webhook, which cannot edit. The URL is never logged or shown.

    Raises ConfigError for a URL that is not https (plain http is accepted for loopback addresses).
    """

    name = "slack"

    def __init__(self, url: str) -> None:
        self._url = checked_url(
            url, "Slack webhook", "copy it from your Slack app's page, under Incoming Webhooks"
        )

    def send(self, message: Message) -> Receipt:
        """Post what is new in a group. Raises DeliveryError unless Slack accepted it."""
        text, blocks = drawn(news_of(message))
        answer = self._send({"text": text, "blocks": blocks})
        if answer.status == 400 and answer.body.strip() in REFUSED_FORMS:
            answer = self._send({"text": as_code(text)})  # better a plain line than nothing
        if answer.status == 200 and answer.body.lstrip().startswith("<"):
            raise DeliveryError(
                "slack did not answer: received an HTML page, probably from a proxy"
            )
        check_accepted(answer, "slack ")
        return Receipt()

    def _send(self, content: dict[str, object]) -> HttpAnswer:
        body = json.dumps({**content, "unfurl_links": False, "unfurl_media": False}).encode()
        request = Request(self._url, body, _HEADERS, method="POST")
        return post(request, "slack ", unsure=True)
