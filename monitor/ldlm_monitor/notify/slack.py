"""Slack: its form of a message, an incoming webhook, and the Web API that a bot calls.

A message is escaped, bounded, and without a mention, whatever its text is. Limits of
https://docs.slack.dev/reference/block-kit/blocks: header 150 characters, section 3000, field 2000,
50 blocks. Text is escaped as https://docs.slack.dev/messaging/formatting-message-text requires, so
that nothing in a log becomes a mention or a link. At a webhook nothing can be edited.
Codes of errors: https://docs.slack.dev/reference/methods/chat.postMessage#errors and those of
the other methods that a bot calls.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from itertools import accumulate
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode
from urllib.request import Request

from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.notify.content import Content, news_of
from ldlm_monitor.notify.http_client import (
    TIMEOUT_SECONDS,
    HttpAnswer,
    check_accepted,
    checked_url,
    post,
)
from ldlm_monitor.notify.message import Message, Receipt
from ldlm_monitor.text.sanitize import plain

Block: TypeAlias = dict[str, Any]

HEADER_LIMIT: Final = 150
FALLBACK_LIMIT: Final = 1000
"""Characters of the text that notifications and screen readers show instead of the blocks."""
TEXT_LIMIT: Final = 1700
"""Characters of each text, the log line included: all blocks of a message together may have some
13,000, which is not documented (https://github.com/slackapi/bolt-js/issues/2509)."""
LIST_LIMIT: Final = 2600
"""Of the list of alerts, which is bounded already, but for what escapes add."""
FACT_LIMIT: Final = 300
ESCAPED: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
IN_CODE: Final = {**ESCAPED, "`": "ˋ"}
"""A backtick would end the code; its look-alike (U+02CB) does not."""
IN_HEADER: Final = {"<": "‹", ">": "›"}
"""Plain text is not escaped; without these two it is a mention nowhere."""
REFUSED_FORMS: Final = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long"})
_HEADERS: Final = {"Content-Type": "application/json;charset=utf-8", "User-Agent": "ldlm-monitor"}
_ANSWER_LIMIT = 4 << 20
"""Bytes of an answer: 200 messages of a channel with their blocks are some hundred KiB."""

_LIMITED = frozenset({"ratelimited", "rate_limited"})
_GONE = frozenset({"message_not_found", "thread_not_found", "cant_update_message"})
_OF_THE_MESSAGE = frozenset(
    {
        *("invalid_blocks", "invalid_blocks_format", "invalid_arguments", "msg_blocks_too_long"),
        *("invalid_metadata_format", "metadata_too_large", "msg_too_long", "no_text"),
    }
)
_OF_THE_SERVER = frozenset(
    {"fatal_error", "internal_error", "request_timeout", "service_unavailable"}
)


def drawn(content: Content) -> tuple[str, list[Block]]:
    """(fallback text, blocks)."""
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
    notes = (mrkdwn(cut(note, TEXT_LIMIT)) for note in content.notes)
    blocks += ({"type": "context", "elements": [note]} for note in notes)
    fallback = title if content.alerts else ": ".join((title, *content.summary[:1]))
    return cut(fallback, FALLBACK_LIMIT), blocks


def _headed(title: str, text: str) -> list[Block]:
    return [section(f"*{title}*\n{cut(text, TEXT_LIMIT)}")] if text else []


def section(text: str) -> Block:
    """A section of that text, which is escaped already."""
    return {"type": "section", "text": mrkdwn(text)}


def mrkdwn(text: str) -> Block:
    """`verbatim`: Slack adds no links or mentions of its own."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def as_code(text: str) -> str:
    """An escaped line in which Slack makes no links where no block contains it."""
    return f"`{text.replace('`', IN_CODE['`'])}`"


def cut(text: str, limit: int, escapes: dict[str, str] = ESCAPED) -> str:
    """`text` escaped, at most `limit` UTF-16 units long and never cut inside an entity."""
    pieces = [escapes.get(char, char) for char in text[: limit + 1]]
    ends = [*accumulate(len(piece) + (piece > "\uffff") for piece in pieces)]
    if not ends or ends[-1] <= limit:
        return "".join(pieces)
    return "".join(pieces[: bisect_right(ends, limit - 1)]) + "…"


class SlackWebhook:
    """Sends to one incoming webhook. The URL is a secret: it is never logged or shown.

    `timeout` (seconds) bounds each wait for the server. Raises ConfigError for a
    URL that is not https (plain http is accepted for loopback addresses).
    """

    name = "slack"

    def __init__(self, url: str, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self._url = checked_url(
            url,
            "Slack webhook",
            what="the https URL of a Slack incoming webhook",
            remedy="copy it from your Slack app's page, under Incoming Webhooks",
        )
        self._timeout = timeout

    def send(self, message: Message) -> Receipt:
        """Post what is new in a group. Raises DeliveryError unless Slack accepted it.

        What an edit would change comes with the next news.
        """
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
        return post(request, self._timeout, "slack ", unsure=True)


class GoneError(Exception):
    """The message, or its thread, does not exist any more."""


class RefusedError(Exception):
    """Slack refuses the form of a message."""


class MendableError(DeliveryError):
    """A wrong token, scope or channel: it waits until a person corrects that."""


class SlackApi:
    """Calls methods of the Web API with a bot's token, which is never logged or shown.

    `scopes` are those that the token has, by the last answer; empty where it did not name them.
    """

    def __init__(self, url: str, token: str, timeout: float) -> None:
        self.scopes: frozenset[str] = frozenset()
        self._url = url.rstrip("/") + "/"
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "ldlm-monitor"}
        self._timeout = timeout

    def call(self, method: str, **fields: object) -> dict[str, Any]:
        """The fields of the answer. Raises DeliveryError, `GoneError` and `RefusedError`."""
        form = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in fields.items()
        }
        request = Request(self._url + method, urlencode(form).encode(), self._headers)
        answer = post(request, self._timeout, "slack ", limit=_ANSWER_LIMIT, unsure=True)
        try:
            given = json.loads(answer.body)
        except ValueError:
            given = None
        if not isinstance(given, dict) or not given.get("ok"):
            code = str(given.get("error") or "") if isinstance(given, dict) else ""
            raise _meaning(answer, plain(code, 200))
        scopes = answer.headers.get("x-oauth-scopes", "").split(",")
        self.scopes = frozenset(scope.strip() for scope in scopes if scope.strip())
        return given


def _meaning(answer: HttpAnswer, code: str) -> Exception:
    """The error that an answer means for the message."""
    wait = answer.retry_after
    if answer.status == 429 or code in _LIMITED:
        return DeliveryError("slack limits the rate", retry_after=wait)
    if code in _GONE:
        return GoneError(code)
    if code in _OF_THE_MESSAGE:
        return RefusedError(f"slack refused it: {code}")
    if not code or code in _OF_THE_SERVER or answer.status >= 500:
        what = f": {code}" if code else ""
        return DeliveryError(f"slack answered {answer.status}{what}", retry_after=wait, unsure=True)
    return MendableError(f"slack refused it: {code}; check the bot's token and channel")


def how_to_configure() -> str:
    """The log line for a user without a receiver."""
    return (
        "no receiver is configured: to have alerts in Slack, set LDLM_SLACK_WEBHOOK_URL"
        " to the URL of an incoming webhook, or slack.webhook_url_file to a file that holds it"
    )
