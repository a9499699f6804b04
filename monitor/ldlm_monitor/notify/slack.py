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

from ldlm_monitor.errors import ConfigError, DeliveryError
from ldlm_monitor.notify.notification import Notification
from ldlm_monitor.notify.post import PERMANENT, is_loopback, post, retry_after
from ldlm_monitor.notify.redact import plain, redact

Block: TypeAlias = dict[str, Any]

HEADER_LIMIT = 150
SECTION_LIMIT = 3000
FIELD_LIMIT = 2000
FALLBACK_LIMIT = 1000
LINE_LIMIT = 2500
"""What is shown of the log line; the file has the rest."""

_SEVERITY_MARKS = {"critical": "🔴", "error": "🟠", "warning": "🟡", "info": "🔵"}
_STATE_MARKS = {"resolved": "✅", "ended": "⏹️", "unknown": "❔", "pending": "⏳"}
_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_IN_CODE = {**_ESCAPED, "`": "ˋ"}
"""A backtick would end the code; its look-alike (U+02CB) does not."""
_IN_HEADER = {"<": "‹", ">": "›"}
"""Plain text is not escaped; without these two it reads as no mention anywhere."""


def slack_message(notification: Notification) -> tuple[str, list[Block]]:
    """(fallback text, blocks): within Slack's limits and without a mention, whatever it says."""
    headline = _headline(notification)
    header = {"type": "plain_text", "text": _cut(headline, HEADER_LIMIT, _IN_HEADER)}
    blocks: list[Block] = [{"type": "header", "text": header}]
    # The headline names the run already.
    summary = _clean(notification.summary).removeprefix(notification.run or "").lstrip(": ")
    for text in (summary, _clean(notification.description)):
        if text:
            blocks.append(_section(_cut(text, SECTION_LIMIT)))
    if cause := _clean(notification.cause or ""):
        blocks.append(_section(f"*First cause*\n{_cut(cause, SECTION_LIMIT - 20)}"))
    if facts := [_mrkdwn(text) for text in _facts(notification)]:
        blocks.append({"type": "section", "fields": facts})
    if line := _clean(notification.line or ""):
        blocks.append(_section(f"```\n{_cut(line, LINE_LIMIT, _IN_CODE)}\n```"))
    action = _clean(notification.action)
    if action and notification.state in ("firing", "pending"):
        blocks.append(_section(f"*What to do*\n{_cut(action, SECTION_LIMIT - 20)}"))
    blocks.append({"type": "context", "elements": [_mrkdwn(_when(notification))]})
    return _cut(f"{headline}: {summary}" if summary else headline, FALLBACK_LIMIT), blocks


def _headline(notification: Notification) -> str:
    state, severity = notification.state, notification.severity
    mark = _STATE_MARKS.get(state) or _SEVERITY_MARKS.get(severity, "⚪")
    rank = f" rank {notification.rank}" if notification.rank else ""
    words = f"{notification.alert} {state} ({severity}): {notification.run}{rank}"
    return f"{mark} {_one_line(words)}"


def _facts(notification: Notification) -> Iterator[str]:
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
        if shown := _one_line(value or ""):
            yield f"*{name}*\n`{_cut(shown, FIELD_LIMIT - 20, _IN_CODE)}`"


def _when(notification: Notification) -> str:
    since = f"since {_utc(notification.started_at)}"
    if notification.state in ("firing", "pending") or notification.at is None:
        return since
    lasted = _spell(notification.duration or 0.0)
    reason = _cut(_one_line(notification.reason), 200)
    return f"{since}, {notification.state} {_utc(notification.at)} after {lasted} ({reason})"


def _utc(moment: float) -> str:
    try:
        return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def _spell(seconds: float) -> str:
    """`1d 2h 3m`, `2m 5s`, `0s`: the way Prometheus spells durations, largest units first."""
    if seconds == float("inf"):
        return "an unknown time"
    left, parts = int(seconds), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:3]) or "0s"


def _clean(text: str) -> str:
    """Redacted before it is bounded: half a secret is not recognised any more."""
    return redact(plain(text)).strip()


def _one_line(text: str) -> str:
    return " ".join(_clean(text).split())


def _cut(text: str, limit: int, escapes: dict[str, str] = _ESCAPED) -> str:
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


def _mrkdwn(text: str) -> Block:
    """`verbatim`: Slack makes no links or mentions of its own out of the text."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _section(text: str) -> Block:
    return {"type": "section", "text": _mrkdwn(text)}


class SlackWebhook:
    """Sends to one incoming webhook. The URL is a secret: it is never logged or shown.

    `timeout` (seconds) bounds each wait for the server. Raises ConfigError for a
    URL that is not https (plain http is taken for loopback addresses).
    """

    def __init__(self, url: str, *, timeout: int = 10, name: str = "slack") -> None:
        self.name = name
        self._client = _Client(
            _checked(url),
            timeout=timeout,
            retry_handlers=[],
            # Its own logger would write the URL at debug level.
            logger=logging.Logger("slack_sdk.silent", logging.CRITICAL + 1),
        )

    def send(self, notification: Notification) -> None:
        """Post it. Raises DeliveryError unless Slack accepted it."""
        text, blocks = slack_message(notification)
        try:
            response = self._client.send(
                text=text, blocks=blocks, unfurl_links=False, unfurl_media=False
            )
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise DeliveryError(f"slack could not be reached: {_short(str(reason))}") from None
        if not 200 <= response.status_code < 300:
            raise DeliveryError(
                f"slack answered {response.status_code}: {_short(response.body)}",
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


def _checked(url: str) -> str:
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


def _short(text: str) -> str:
    shown = _one_line(text)
    return shown if len(shown) <= 200 else shown[:199] + "…"


def how_to_configure() -> str:
    """The line that tells a user without a receiver how to get one."""
    return (
        "no receiver is configured: to have alerts in Slack, set LDLM_SLACK_WEBHOOK_URL"
        " to the URL of an incoming webhook, or slack.webhook_url_file to a file that holds it"
    )
