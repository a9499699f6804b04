"""Slack: a notification as Block Kit, and the incoming webhook that takes it.

Limits of https://docs.slack.dev/reference/block-kit/blocks: header 150 characters,
section 3000, field 2000, 50 blocks. Text is escaped as
https://docs.slack.dev/messaging/formatting-message-text asks, which leaves no way
to write a mention or a link.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from urllib.request import Request

from slack_sdk.webhook import WebhookClient, WebhookResponse

from ldlm_monitor.config.loopback import is_loopback
from ldlm_monitor.model.errors import ConfigError, DeliveryError
from ldlm_monitor.notify.message import Message, Receipt
from ldlm_monitor.notify.notification import Notification
from ldlm_monitor.notify.post import PERMANENT, post, retry_after
from ldlm_monitor.text.redact import redact
from ldlm_monitor.text.sanitize import without_escapes as plain

Block: TypeAlias = dict[str, Any]

HEADER_LIMIT = 150
SECTION_LIMIT = 3000
FIELD_LIMIT = 2000
FALLBACK_LIMIT = 1000
TEXT_LIMIT = 1700
"""What is shown of each text: all blocks of a message together may have some 13,000 characters,
which is not documented (https://github.com/slackapi/bolt-js/issues/2509)."""
FACT_LIMIT = 300
LINE_LIMIT = 1700
"""What is shown of the log line; the file has the rest."""

REFUSED_FORMS = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long"})
SEVERITY_MARKS = {"critical": "🔴", "error": "🟠", "warning": "🟡", "info": "🔵"}
STATE_MARKS = {"resolved": "✅", "ended": "⏹️", "unknown": "❔", "pending": "⏳"}
ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
IN_CODE = {**ESCAPED, "`": "ˋ"}
"""A backtick would end the code; its look-alike (U+02CB) does not."""
_NO_BACKTICK = str.maketrans("`", IN_CODE["`"])
IN_HEADER = {"<": "‹", ">": "›"}
"""Plain text is not escaped; without these two it reads as no mention anywhere."""


def slack_message(notification: Notification) -> tuple[str, list[Block]]:
    """(fallback text, blocks): within Slack's limits and without a mention, whatever it says."""
    title = headline(notification)
    header = {"type": "plain_text", "text": cut(title, HEADER_LIMIT, IN_HEADER)}
    blocks: list[Block] = [{"type": "header", "text": header}]
    # The headline names the run already.
    summary = clean(notification.summary).removeprefix(notification.run or "").lstrip(": ")
    for text in (summary, clean(notification.description)):
        if text:
            blocks.append(section(cut(text, TEXT_LIMIT)))
    if cause := clean(notification.cause or ""):
        blocks.append(section(f"*First cause*\n{cut(cause, TEXT_LIMIT)}"))
    if fields := [mrkdwn(text) for text in facts(notification)]:
        blocks.append({"type": "section", "fields": fields})
    if line := clean(notification.line or ""):
        blocks.append(section(f"```\n{cut(line, LINE_LIMIT, IN_CODE)}\n```"))
    action = clean(notification.action)
    if action and notification.state in ("firing", "pending"):
        blocks.append(section(f"*What to do*\n{cut(action, TEXT_LIMIT)}"))
    blocks.append({"type": "context", "elements": [mrkdwn(when(notification))]})
    return cut(f"{title}: {summary}" if summary else title, FALLBACK_LIMIT), blocks


def headline(notification: Notification) -> str:
    """One line: mark, alert, state, severity, run and rank."""
    state, severity = notification.state, notification.severity
    mark = STATE_MARKS.get(state) or SEVERITY_MARKS.get(severity, "⚪")
    rank = f" rank {notification.rank}" if notification.rank else ""
    words = f"{notification.alert} {state} ({severity}): {notification.run}{rank}"
    return f"{mark} {one_line(words)}"


def facts(notification: Notification) -> Iterator[str]:
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
    for name, value in facts:
        if shown := one_line(value or ""):
            yield f"*{name}*\n`{cut(shown, FACT_LIMIT, IN_CODE)}`"


def when(notification: Notification) -> str:
    """Since when, and how it ended."""
    since = f"since {utc(notification.started_at)}"
    if notification.state in ("firing", "pending") or notification.at is None:
        return since
    lasted = spell(notification.duration or 0.0)
    reason = cut(one_line(notification.reason), 200)
    return f"{since}, {notification.state} {utc(notification.at)} after {lasted} ({reason})"


def utc(moment: float) -> str:
    """A moment (Unix seconds) for people."""
    try:
        return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def spell(seconds: float) -> str:
    """`1d 2h 3m`, `2m 5s`, `0s`: the way Prometheus spells durations, largest units first."""
    if seconds == float("inf"):
        return "an unknown time"
    left, parts = int(seconds), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:3]) or "0s"


def clean(text: str) -> str:
    """Redacted before it is bounded: half a secret is not recognised any more."""
    return redact(plain(text)).strip()


def one_line(text: str) -> str:
    """Redacted, its line ends made spaces."""
    return " ".join(clean(text).split())


def cut(text: str, limit: int, escapes: dict[str, str] = ESCAPED) -> str:
    """`text` escaped, at most `limit` UTF-16 units long and never cut inside an entity."""
    pieces: list[str] = []
    used = 0
    for char in text:
        piece = escapes.get(char, char)
        used += len(piece) + (char > "\uffff")
        pieces.append(piece)
        if used > limit:
            break
    else:
        return "".join(pieces)
    while used > limit - 1:
        piece = pieces.pop()
        used -= len(piece) + (piece > "\uffff")
    return "".join(pieces) + "…"


def as_code(text: str) -> str:
    """An escaped line of which Slack makes no links where no block holds it."""
    return f"`{text.translate(_NO_BACKTICK)}`"


def mrkdwn(text: str) -> Block:
    """`verbatim`: Slack makes no links or mentions of its own out of the text."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def section(text: str) -> Block:
    """A section of that text, which is escaped already."""
    return {"type": "section", "text": mrkdwn(text)}


class SlackWebhook:
    """Sends to one incoming webhook. The URL is a secret: it is never logged or shown.

    `timeout` (seconds) bounds each wait for the server. Raises ConfigError for a
    URL that is not https (plain http is taken for loopback addresses).
    """

    def __init__(self, url: str, *, timeout: int = 10, name: str = "slack") -> None:
        self.name = name
        self._client = _Client(
            checked(url),
            timeout=timeout,
            retry_handlers=[],
            # Its own logger would write the URL at debug level.
            logger=logging.Logger("slack_sdk.silent", logging.CRITICAL + 1),
        )

    def send(self, notification: Notification) -> None:
        """Post it. Raises DeliveryError unless Slack accepted it."""
        self._post(*slack_message(notification))

    def tell(self, message: Message) -> Receipt:
        """Post what is new in a group: nothing that stands there can be changed. Raises as `send`.

        What is there to be brought up to date is told with the next news.
        """
        from ldlm_monitor.notify.slack_groups import news_message

        self._post(*news_message(message))
        return Receipt()

    def _post(self, text: str, blocks: list[Block]) -> None:
        response = self._send(text, blocks)
        if response.status_code == 400 and response.body.strip() in REFUSED_FORMS:
            response = self._send(as_code(text), [])  # better a plain line than nothing
        _check(response)

    def _send(self, text: str, blocks: list[Block]) -> WebhookResponse:
        try:
            return self._client.send(
                text=text, blocks=blocks or None, unfurl_links=False, unfurl_media=False
            )
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise DeliveryError(
                f"slack could not be reached: {short(str(reason))}", unsure=True
            ) from None


def _check(response: WebhookResponse) -> None:
    """Raises DeliveryError unless Slack accepted it."""
    if response.status_code == 200 and response.body.lstrip().startswith("<"):
        raise DeliveryError("slack did not answer: a page of something between came instead")
    if not 200 <= response.status_code < 300:
        raise DeliveryError(
            f"slack answered {response.status_code}: {short(response.body)}",
            retry_after=retry_after(response.headers.get("Retry-After")),
            permanent=response.status_code in PERMANENT,
        )


class _Client(WebhookClient):
    def _perform_http_request_internal(self, url: str, req: Request) -> WebhookResponse:
        answer = post(req, self.timeout)
        return WebhookResponse(
            url=url,
            status_code=answer.status,
            body=answer.body,
            headers={"Retry-After": answer.headers.get("Retry-After")},
        )


def checked(url: str) -> str:
    """`url` if a notification may go there; the message of the error does not repeat it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))
        usable = usable and bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or any(char <= " " or char == "\x7f" for char in url):
        raise ConfigError(
            "is not the https URL of a Slack incoming webhook",
            where="Slack webhook",
            remedy="copy it from your Slack app's page, under Incoming Webhooks",
        )
    return url


def short(text: str) -> str:
    """An answer for a line of the log."""
    shown = one_line(text)
    return shown if len(shown) <= 200 else shown[:199] + "…"


def how_to_configure() -> str:
    """The line that tells a user without a receiver how to get one."""
    return (
        "no receiver is configured: to have alerts in Slack, set LDLM_SLACK_WEBHOOK_URL"
        " to the URL of an incoming webhook, or slack.webhook_url_file to a file that holds it"
    )
