"""The receivers that the settings name, their policies, and the threads that send to them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ldlm_monitor.config import Settings
from ldlm_monitor.config.policy import Policy, StreamPolicy
from ldlm_monitor.model.errors import ConfigError
from ldlm_monitor.notify import (
    AlertmanagerClient,
    AlertmanagerSender,
    Courier,
    HeartbeatSender,
    Outbox,
    Pulse,
    Receiver,
    SlackWebhook,
)
from ldlm_monitor.notify.apprise import apprise_services
from ldlm_monitor.notify.loss_picture import picture_of
from ldlm_monitor.notify.slack_bot import SlackBot
from ldlm_monitor.notify.webhook import WebhookSender

if TYPE_CHECKING:
    from ldlm_monitor.daemon.pump import Pump

log = logging.getLogger(__name__)

SLACK_CHANNEL = "slack:"
"""`slack:C0123456789` is the receiver of one more channel of the bot."""


def receivers_of(settings: Settings) -> Iterator[Receiver]:
    """Each receiver of messages. Raises ConfigError for one that cannot be used."""
    if token := settings.slack.token():
        channels = {"slack": settings.slack.channel}
        channels |= {f"{SLACK_CHANNEL}{channel}": channel for channel in settings.slack.channels}
        for name, channel in channels.items():
            yield SlackBot(token, channel, api_url=settings.slack.api_url, name=name)
    elif settings.slack.channels:
        raise ConfigError(
            "more channels need a bot",
            where="slack.channels",
            remedy="set slack.bot_token_file and slack.channel; a webhook writes to one channel",
        )
    elif url := settings.slack.secret():
        yield SlackWebhook(url)
    if url := settings.webhook.target():
        yield WebhookSender(url, secret=settings.webhook.secret())
    yield from apprise_services(settings.apprise.urls())


def policy_of(settings: Settings, receiver: Receiver) -> StreamPolicy:
    """A receiver's policy."""
    if isinstance(receiver, WebhookSender):
        return settings.webhook
    if receiver.name.startswith(SLACK_CHANNEL):
        return settings.slack.channels[receiver.name.removeprefix(SLACK_CHANNEL)]
    return settings.slack if receiver.name == "slack" else settings.apprise


def draw_from(pump: Pump, receivers: Collection[Receiver]) -> None:
    """Receivers that accept pictures draw them from the pump's curves."""
    for receiver in receivers:
        if isinstance(receiver, SlackBot):
            receiver.draw = picture_of(lambda: pump.snapshot.curves)


def couriers(
    settings: Settings, outbox: Outbox, receivers: Sequence[Receiver]
) -> Iterator[Courier]:
    """One a receiver. They need nothing but the outbox: what waits in it goes out at once."""
    for receiver in receivers:
        is_for_people = isinstance(policy_of(settings, receiver), Policy)
        pace = settings.post_interval_seconds if is_for_people else 0.0
        yield Courier(receiver, outbox, pace=pace)


def senders(
    settings: Settings, pump: Pump, outbox: Outbox, url: str
) -> Iterator[AlertmanagerSender | HeartbeatSender]:
    """One for each Alertmanager, which gets the firing alerts, and the dead man's switch."""
    authorization = settings.alertmanager.authorization()
    for server in settings.alertmanager.urls:
        client = AlertmanagerClient(server, authorization=authorization)
        log.info("%s gets what fires", client.name)
        yield AlertmanagerSender(
            client,
            lambda: pump.snapshot,
            outbox,
            pulse=Pulse(lambda: pump.turns),
            generator=url,
            external_labels=settings.external_labels,
        )
    if switch := settings.heartbeat.target():
        interval = settings.heartbeat.interval_seconds
        log.info("a dead man's switch is called every %g s", interval)
        yield HeartbeatSender(switch, interval, Pulse(lambda: pump.turns), outbox)
