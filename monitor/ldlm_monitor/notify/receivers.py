"""The receivers that the settings name, and the policy of each; for Alertmanager, see there."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ldlm_monitor.config import Settings
from ldlm_monitor.config.policy import StreamPolicy
from ldlm_monitor.model.errors import ConfigError
from ldlm_monitor.notify.apprise import apprise_services
from ldlm_monitor.notify.courier import Receiver
from ldlm_monitor.notify.loss_picture import Curves, picture_of
from ldlm_monitor.notify.slack import SlackWebhook
from ldlm_monitor.notify.slack_bot import SlackBot
from ldlm_monitor.notify.webhook import WebhookSender

SLACK_CHANNEL = "slack:"
"""`slack:C0123456789` is the receiver of one more channel of the bot."""


def receivers(settings: Settings) -> Iterator[Receiver]:
    """Each receiver of messages. Raises ConfigError for one that cannot be used."""
    if token := settings.slack.token():
        yield from _bots(settings, token)
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


def _bots(settings: Settings, token: str) -> Iterator[SlackBot]:
    channels = {"slack": settings.slack.channel}
    channels |= {f"{SLACK_CHANNEL}{channel}": channel for channel in settings.slack.channels}
    for name, channel in channels.items():
        yield SlackBot(token, channel, api_url=settings.slack.api_url, name=name)


def policy_of(settings: Settings, receiver: Receiver) -> StreamPolicy:
    """A receiver's policy."""
    if isinstance(receiver, WebhookSender):
        return settings.webhook
    if receiver.name.startswith(SLACK_CHANNEL):
        return settings.slack.channels[receiver.name.removeprefix(SLACK_CHANNEL)]
    return settings.slack if receiver.name == "slack" else settings.apprise


def draw_from(curves: Curves, known: Collection[Receiver]) -> None:
    """Receivers that accept pictures draw them from `curves`."""
    for receiver in known:
        if isinstance(receiver, SlackBot):
            receiver.draw = picture_of(curves)
