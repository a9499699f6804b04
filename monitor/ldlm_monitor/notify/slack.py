"""Slack by an incoming webhook: every message is new, as nothing can be edited there."""

from __future__ import annotations

import logging
from http.client import HTTPException
from urllib.request import Request

from slack_sdk.webhook import WebhookClient, WebhookResponse

from ldlm_monitor.model.errors import ConfigError, DeliveryError
from ldlm_monitor.notify.http_client import (
    PERMANENT,
    TIMEOUT_SECONDS,
    is_private,
    post,
    retry_after,
    unreachable,
)
from ldlm_monitor.notify.message import Message, Receipt
from ldlm_monitor.notify.notification import Notification
from ldlm_monitor.notify.slack_blocks import Block, as_code, news_message, slack_message
from ldlm_monitor.text.sanitize import plain

REFUSED_FORMS = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long"})
SILENT = logging.Logger("slack_sdk.silent", logging.CRITICAL + 1)
"""The SDK's own logger would write URLs, tokens and what is sent at debug level."""


class SlackWebhook:
    """Sends to one incoming webhook. The URL is a secret: it is never logged or shown.

    `timeout` (seconds) bounds each wait for the server. Raises ConfigError for a
    URL that is not https (plain http is accepted for loopback addresses).
    """

    def __init__(self, url: str, *, timeout: int = TIMEOUT_SECONDS, name: str = "slack") -> None:
        if not is_private(url):
            raise ConfigError(
                "is not the https URL of a Slack incoming webhook",
                where="Slack webhook",
                remedy="copy it from your Slack app's page, under Incoming Webhooks",
            )
        self.name = name
        self._client = _Client(url, timeout=timeout, retry_handlers=[], logger=SILENT)

    def send(self, notification: Notification) -> None:
        """Post it. Raises DeliveryError unless Slack accepted it."""
        self._post(*slack_message(notification))

    def send_group(self, message: Message) -> Receipt:
        """Post what is new in a group. Raises as `send`.

        What an edit would change comes with the next news.
        """
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
            raise unreachable(error, "slack ", unsure=True) from None


def _check(response: WebhookResponse) -> None:
    """Raises DeliveryError unless Slack accepted it."""
    if response.status_code == 200 and response.body.lstrip().startswith("<"):
        raise DeliveryError("slack did not answer: received an HTML page, probably from a proxy")
    if not 200 <= response.status_code < 300:
        raise DeliveryError(
            f"slack answered {response.status_code}: {plain(response.body, 200)}",
            retry_after=retry_after(response.headers.get("Retry-After")),
            permanent=response.status_code in PERMANENT,
        )


class _Client(WebhookClient):
    """Follows no redirect, and bounds what it reads."""

    def _perform_http_request_internal(self, url: str, req: Request) -> WebhookResponse:
        answer = post(req, self.timeout)
        return WebhookResponse(
            url=url,
            status_code=answer.status,
            body=answer.body,
            headers={"Retry-After": answer.headers.get("Retry-After")},
        )


def how_to_configure() -> str:
    """The log line for a user without a receiver."""
    return (
        "no receiver is configured: to have alerts in Slack, set LDLM_SLACK_WEBHOOK_URL"
        " to the URL of an incoming webhook, or slack.webhook_url_file to a file that holds it"
    )
