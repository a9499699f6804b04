"""Slack, by an incoming webhook, or by a bot's token in one channel or several."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, SecretStr

from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.base.setting_types import SecretUrl, Url, UserPath, from_text, parse_json
from ldlm_monitor.service.notify.policy import Policy
from ldlm_monitor.service.notify.receiver import MessageReceiver, ReceiverSettings
from ldlm_monitor.service.state.secret_files import URL, secret_of


class Slack(ReceiverSettings, Policy):
    """Where a Slack message goes: an incoming webhook, or a channel by a bot's token."""

    table = "slack"
    how = (
        "LDLM_SLACK_WEBHOOK_URL to the URL of an incoming webhook of Slack, or"
        " slack.webhook_url_file to a file that holds it"
    )

    webhook_url: SecretUrl | None = Field(
        default=None, examples=["https://hooks.slack.com/services/..."]
    )
    """The incoming webhook. A secret: refused in the configuration file."""
    webhook_url_file: UserPath | None = Field(default=None, examples=["slack-webhook.url"])
    """A file that holds the webhook's URL."""
    bot_token: SecretStr | None = Field(default=None, examples=["xoxb-..."])
    """The token of a Slack app's bot. A secret: refused in the configuration file."""
    bot_token_file: UserPath | None = Field(default=None, examples=["slack-bot.token"])
    """A file that holds the bot's token."""
    channel: str = Field(default="", examples=["C0123456789"])
    """The channel that the bot writes to, by its id."""
    # `repr`: no error shows a wrong one, which may hold a password.
    api_url: Url = Field(default="https://slack.com/api/", repr=False)
    """Base URL of Slack's API; `https://slack-gov.com/api/` is GovSlack's."""
    channels: Annotated[dict[str, Policy], from_text(parse_json)] = Field(
        default={}, examples=[{"C0ONCALL": {"min_severity": "critical"}}]
    )
    """More channels of the bot, by their ids, each with a policy of its own (`matchers`,
    `min_severity`, ...); in a variable, as JSON."""

    def secret(self) -> str | None:
        """The webhook's URL; None if none is set. Raises ConfigError if its file is unusable."""
        return secret_of(self.webhook_url_file, "slack.webhook_url_file", URL, self.webhook_url)

    def token(self) -> str | None:
        """The bot's token; None if none is set.

        Raises ConfigError if its file is unusable, if no channel is named, or if a webhook is set
        as well, because everything would be sent twice.
        """
        token = secret_of(self.bot_token_file, "slack.bot_token_file", "the token", self.bot_token)
        if not token:
            return None
        if not self.channel:
            raise ConfigError(
                "is not set, and the bot's token needs it",
                where="slack.channel",
                remedy='name the channel\'s id, as channel = "C0123456789" below [slack]',
            )
        if self.webhook_url is not None or self.webhook_url_file is not None:
            raise ConfigError(
                "a webhook and a bot's token are both set",
                where="slack",
                remedy="leave out one of them, or everything would be sent twice",
            )
        return token

    def receivers(self) -> Iterator[MessageReceiver]:
        """The webhook, or each channel of the bot; `slack` is the one that the table names."""
        from ldlm_monitor.service.notify.slack_bot import SlackBot
        from ldlm_monitor.service.notify.slack_message import SlackWebhook

        if token := self.token():
            yield SlackBot(token, self.channel, api_url=self.api_url).under(self)
            for channel, policy in self.channels.items():
                bot = SlackBot(token, channel, api_url=self.api_url, name=f"slack:{channel}")
                yield bot.under(policy)
        elif self.channels:
            raise ConfigError(
                "more channels need a bot",
                where="slack.channels",
                remedy="set slack.bot_token_file and slack.channel;"
                " a webhook writes to one channel",
            )
        elif url := self.secret():
            yield SlackWebhook(url).under(self)
