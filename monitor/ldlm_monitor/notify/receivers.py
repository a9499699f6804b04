"""The receivers that the settings name; an Alertmanager is none of them, see `alertmanager`."""

from __future__ import annotations

from collections.abc import Iterator

from ldlm_monitor.config import Settings
from ldlm_monitor.notify.courier import Receiver
from ldlm_monitor.notify.services import apprise_services
from ldlm_monitor.notify.slack import SlackWebhook
from ldlm_monitor.notify.webhook import Webhook


def receivers(settings: Settings) -> Iterator[Receiver]:
    """Each receiver of messages. Raises ConfigError for one that cannot be used."""
    if url := settings.slack.secret():
        yield SlackWebhook(url)
    if url := settings.webhook.target():
        yield Webhook(url, secret=settings.webhook.secret())
    yield from apprise_services(settings.apprise.urls())
