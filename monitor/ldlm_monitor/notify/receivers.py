"""The receivers that the settings name; an Alertmanager is none of them, see `alertmanager`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ldlm_monitor.config import Settings
from ldlm_monitor.notify.courier import GroupReceiver, Receiver
from ldlm_monitor.notify.loss_picture import Curves, picture_of
from ldlm_monitor.notify.routing import Routing, channels
from ldlm_monitor.notify.services import apprise_services
from ldlm_monitor.notify.slack import SlackWebhook
from ldlm_monitor.notify.slack_bot import SlackBot
from ldlm_monitor.notify.webhook import Webhook

SLACK_CHANNEL = "slack:"
"""`slack:C0123456789` is the receiver of a route that names another channel."""


def receivers(settings: Settings) -> Iterator[Receiver]:
    """Each receiver of messages. Raises ConfigError for one that cannot be used."""
    if token := settings.slack.token():
        yield from _bots(settings, token)
    elif url := settings.slack.secret():
        yield SlackWebhook(url)
    if url := settings.webhook.target():
        yield Webhook(url, secret=settings.webhook.secret())
    yield from apprise_services(settings.apprise.urls())


def _bots(settings: Settings, token: str) -> Iterator[SlackBot]:
    """One for the channel of the settings, and one for each that a route names."""
    named = [name for name in channels(settings.route) if name.startswith(SLACK_CHANNEL)]
    for name in ["slack", *named]:
        yield SlackBot(
            token,
            name.removeprefix(SLACK_CHANNEL) if name in named else settings.slack.channel,
            api_url=settings.slack.api_url,
            name=name,
        )


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


def draw_from(curves: Curves, known: Collection[Receiver]) -> None:
    """Those who take pictures draw them from `curves`."""
    for receiver in known:
        if isinstance(receiver, SlackBot):
            receiver.draw = picture_of(curves)
