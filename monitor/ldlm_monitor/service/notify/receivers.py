"""Makes the receivers that are configured, and the threads that send to them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.service.notify.apprise import apprise_services
from ldlm_monitor.service.notify.courier import Courier, Receiver, Sender
from ldlm_monitor.service.notify.incident_log import LOGS, IncidentLog
from ldlm_monitor.service.notify.loss_picture import picture_of
from ldlm_monitor.service.notify.policy import Policy, StreamPolicy
from ldlm_monitor.service.notify.slack_bot import SlackBot
from ldlm_monitor.service.notify.slack_message import SlackWebhook
from ldlm_monitor.service.notify.states import (
    AlertmanagerClient,
    AlertmanagerSender,
    HeartbeatSender,
    Pulse,
)
from ldlm_monitor.service.notify.webhook import WebhookSender

if TYPE_CHECKING:
    from ldlm_monitor.base.snapshot import Snapshot
    from ldlm_monitor.service.notify.loss_picture import Curves
    from ldlm_monitor.service.notify.otlp import Families, OtlpLogs
    from ldlm_monitor.service.notify.outbox import Outbox
    from ldlm_monitor.service.notify.receiver_settings import (
        AlertmanagerSettings,
        Apprise,
        HeartbeatSettings,
        OtlpSettings,
        Slack,
        WebhookSettings,
    )

log = logging.getLogger(__name__)

SLACK_CHANNEL = "slack:"
"""Prefix of the receiver's name of a further channel of the Slack bot; the rest is the channel."""


class NotifySettings(Protocol):
    """The settings of sending, as the documentation of the configuration describes each."""

    slack: Slack
    webhook: WebhookSettings
    apprise: Apprise
    alertmanager: AlertmanagerSettings
    heartbeat: HeartbeatSettings
    otlp: OtlpSettings
    post_interval_seconds: float
    external_labels: dict[str, str]
    external_url: str | None


def receivers_of(settings: NotifySettings) -> Iterator[Receiver]:
    """The receivers of messages that are configured. Raises ConfigError for an unusable one."""
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


def policy_of(settings: NotifySettings, receiver: Receiver) -> StreamPolicy:
    """The settings of a receiver that decide which alerts it gets, and when."""
    if isinstance(receiver, WebhookSender):
        return settings.webhook
    if receiver.name.startswith(SLACK_CHANNEL):
        return settings.slack.channels[receiver.name.removeprefix(SLACK_CHANNEL)]
    return settings.slack if receiver.name == "slack" else settings.apprise


def draw_from(curves: Curves, receivers: Collection[Receiver]) -> None:
    """Let the receivers that accept pictures draw loss curves."""
    for receiver in receivers:
        if isinstance(receiver, SlackBot):
            receiver.draw = picture_of(curves)


def couriers(
    settings: NotifySettings, outbox: Outbox, receivers: Sequence[Receiver]
) -> Iterator[Courier]:
    """One courier per receiver. They need only the outbox, so they start before the pump."""
    for receiver in receivers:
        is_for_people = isinstance(policy_of(settings, receiver), Policy)
        pace = settings.post_interval_seconds if is_for_people else 0.0
        yield Courier(receiver, outbox, pace=pace)


def incident_log(settings: NotifySettings, outbox: Outbox) -> IncidentLog | None:
    """Queues incidents for the collector, if one is configured."""
    if settings.otlp.endpoint is None:
        return None
    return IncidentLog(outbox, LOGS, settings.external_url)


def senders(
    settings: NotifySettings,
    outbox: Outbox,
    *,
    url: str,
    snapshot: Callable[[], Snapshot],
    turns: Callable[[], int],
    exported: Families,
) -> Iterator[Sender]:
    """Senders for each Alertmanager, the dead man's switch and the collector, as configured.

    `url`: the monitor's. `turns`: how many rounds it has ended. `exported`: what `/metrics`
    exports. Raises ConfigError.
    """
    authorization = settings.alertmanager.authorization()
    for server in settings.alertmanager.urls:
        client = AlertmanagerClient(
            server,
            authorization=authorization,
            generator=url,
            external=settings.external_labels,
        )
        log.info("%s gets the firing alerts", client.name)
        pulse = Pulse(turns)
        yield AlertmanagerSender(client, snapshot, outbox, pulse=pulse)
    if switch := settings.heartbeat.target():
        interval = settings.heartbeat.interval_seconds
        log.info("a dead man's switch is called every %g s", interval)
        yield HeartbeatSender(switch, interval, Pulse(turns), outbox)
    if logs := otlp_logs(settings, url):
        from ldlm_monitor.service.notify.otlp import OtlpMetrics

        log.info("the collector at %s gets metrics and incidents", settings.otlp.endpoint)
        yield Courier(logs, outbox)
        yield OtlpMetrics(logs, settings.otlp.interval_seconds, exported, outbox)


def otlp_logs(settings: NotifySettings, url: str) -> OtlpLogs | None:
    """The receiver of incidents, if a collector is configured. Raises ConfigError without SDK."""
    if settings.otlp.endpoint is None:
        return None
    try:
        from ldlm_monitor.service.notify.otlp import OtlpLogs, resource_of
    except ImportError as error:
        raise ConfigError(
            "needs the OpenTelemetry SDK",
            where="otlp.endpoint",
            remedy="pip install 'ldlm-monitor[otlp]'",
        ) from error
    return OtlpLogs(settings.otlp.endpoint, resource_of(url, settings.external_labels))
