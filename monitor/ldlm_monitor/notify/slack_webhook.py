"""Slack's incoming webhook. It cannot edit what it has sent."""

import json
from typing import Final
from urllib.request import Request

from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.notify.content import news_of
from ldlm_monitor.notify.http_client import HttpAnswer, check_accepted, checked_url, post
from ldlm_monitor.notify.message import Message, Receipt
from ldlm_monitor.notify.slack_api import REFUSED_FORMS
from ldlm_monitor.notify.slack_message import as_code, drawn

HOW_TO_CONFIGURE: Final = (  # the log line for a user who has configured no receiver
    "nobody will be notified, as no receiver is configured: for Slack, set LDLM_SLACK_WEBHOOK_URL"
    " to the URL of an incoming webhook, or slack.webhook_url_file to a file that holds it"
)
# Slack recommends a charset for JSON (its warning `missing_charset`).
_HEADERS: Final = {"Content-Type": "application/json;charset=utf-8", "User-Agent": "ldlm-monitor"}


class SlackWebhook:
    """Sends to one incoming webhook. The URL is a secret: it is never logged or shown.

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
