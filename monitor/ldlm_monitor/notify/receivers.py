"""The receivers that the settings name; an Alertmanager is none of them, see `alertmanager`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ldlm_monitor.config import Settings
from ldlm_monitor.notify.courier import GroupReceiver, Receiver
from ldlm_monitor.notify.routing import Routing
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


def routing(settings: Settings, known: Collection[Receiver]) -> Routing:
    """Who of the known is told of what. Raises ConfigError for a route to anybody else."""
    return Routing(
        [receiver.name for receiver in known],
        settings.route,
        settings.inhibit_rules,
        settings.time_intervals,
    )


def grouped(known: Collection[Receiver]) -> list[str]:
    """The names of those who are told of groups."""
    return [receiver.name for receiver in known if isinstance(receiver, GroupReceiver)]
