"""Slack by an incoming webhook: every message is new, as nothing can be edited there."""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import Final
from urllib.request import Request

from ldlm_monitor.model.errors import ConfigError, DeliveryError
from ldlm_monitor.notify.content import news_of
from ldlm_monitor.notify.http_client import (
    TIMEOUT_SECONDS,
    HttpAnswer,
    check_accepted,
    is_private,
    post,
    unreachable,
)
from ldlm_monitor.notify.message import Message, Receipt
from ldlm_monitor.notify.slack_blocks import as_code, drawn

REFUSED_FORMS: Final = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long"})
_HEADERS: Final = {"Content-Type": "application/json;charset=utf-8", "User-Agent": "ldlm-monitor"}


class SlackWebhook:
    """Sends to one incoming webhook. The URL is a secret: it is never logged or shown.

    `timeout` (seconds) bounds each wait for the server. Raises ConfigError for a
    URL that is not https (plain http is accepted for loopback addresses).
    """

    def __init__(self, url: str, *, timeout: float = TIMEOUT_SECONDS, name: str = "slack") -> None:
        if not is_private(url):
            raise ConfigError(
                "is not the https URL of a Slack incoming webhook",
                where="Slack webhook",
                remedy="copy it from your Slack app's page, under Incoming Webhooks",
            )
        self.name = name
        self._url = url
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
        try:
            return post(Request(self._url, body, _HEADERS, method="POST"), self._timeout)
        except (OSError, HTTPException) as error:
            raise unreachable(error, "slack ", unsure=True) from None


def how_to_configure() -> str:
    """The log line for a user without a receiver."""
    return (
        "no receiver is configured: to have alerts in Slack, set LDLM_SLACK_WEBHOOK_URL"
        " to the URL of an incoming webhook, or slack.webhook_url_file to a file that holds it"
    )
