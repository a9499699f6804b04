"""The tables of the configuration that name receivers and servers, and their secrets."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from ldlm_monitor.config.fields import SecretUrl, Section, Url, Urls, UserPath, from_json
from ldlm_monitor.config.policy import Policy, StreamPolicy
from ldlm_monitor.config.secret_files import secret_line, secret_text, secret_url
from ldlm_monitor.model.errors import ConfigError


class Slack(Policy):
    """Where a Slack message goes: an incoming webhook, or a channel by a bot's token."""

    webhook_url: SecretUrl | None = Field(
        default=None,
        description="The incoming webhook. A secret: refused in the configuration file.",
        examples=["https://hooks.slack.com/services/..."],
    )
    webhook_url_file: UserPath | None = Field(
        default=None,
        description="A file that holds the webhook's URL.",
        examples=["slack-webhook.url"],
    )
    bot_token: SecretStr | None = Field(
        default=None,
        description="The token of a Slack app's bot. A secret: refused in the configuration file.",
        examples=["xoxb-..."],
    )
    bot_token_file: UserPath | None = Field(
        default=None,
        description="A file that holds the bot's token.",
        examples=["slack-bot.token"],
    )
    channel: str = Field(
        default="",
        description="The channel that the bot writes to, by its id.",
        examples=["C0123456789"],
    )
    api_url: Url = Field(
        default="https://slack.com/api/",
        description="Slack's API; `https://slack-gov.com/api/` is GovSlack's.",
        examples=["https://slack-gov.com/api/"],
    )
    channels: Annotated[dict[str, Policy], BeforeValidator(from_json)] = Field(
        default={},
        description="More channels of the bot, by their ids, each with a policy of its own "
        "(`matchers`, `min_severity`, ...); in a variable, as JSON.",
        examples=[{"C0ONCALL": {"min_severity": "critical"}}],
    )

    def secret(self) -> str | None:
        """The webhook's URL, from the environment or the file; None where neither is set.

        Raises ConfigError where the file cannot be read or holds no URL.
        """
        return secret_url(self.webhook_url, self.webhook_url_file, "slack.webhook_url_file")

    def token(self) -> str | None:
        """The bot's token, None where none is set.

        Raises ConfigError where its file is unusable, where no channel is named, and where a
        webhook is set as well: everything would be sent twice.
        """
        if self.bot_token is not None:
            token = self.bot_token.get_secret_value()
        else:
            token = secret_line(self.bot_token_file, "slack.bot_token_file", "the token") or ""
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


class AlertmanagerSettings(Section):
    """Alertmanagers that get every alert that fires."""

    urls: Urls = Field(
        default=(),
        description="Alertmanagers (API v2); each gets every alert.",
        examples=[["http://127.0.0.1:9093"]],
    )
    authorization_file: UserPath | None = Field(
        default=None,
        description="A file that holds the `Authorization` header, such as `Bearer ...`.",
        examples=["alertmanager.auth"],
    )

    def authorization(self) -> str | None:
        """The header, None where none is set. Raises ConfigError where the file is unusable."""
        return secret_line(
            self.authorization_file, "alertmanager.authorization_file", "the header's value"
        )


class WebhookSettings(StreamPolicy):
    """A webhook of the user's own."""

    url: SecretUrl | None = Field(
        default=None,
        description="A URL that each transition is posted to as JSON. A secret: refused in the "
        "configuration file.",
        examples=["https://example.org/alerts"],
    )
    url_file: UserPath | None = Field(
        default=None, description="A file that holds that URL.", examples=["webhook.url"]
    )
    secret_file: UserPath | None = Field(
        default=None,
        description="A file that holds the secret which signs its requests.",
        examples=["webhook.secret"],
    )

    def target(self) -> str | None:
        """The URL, None where none is set. Raises ConfigError as `Slack.secret` does."""
        return secret_url(self.url, self.url_file, "webhook.url_file")

    def secret(self) -> str | None:
        """The signing secret. Raises ConfigError where the file is unusable."""
        return secret_line(self.secret_file, "webhook.secret_file", "the secret")


class Apprise(Policy):
    """Other services, by their Apprise URLs."""

    urls_file: UserPath | None = Field(
        default=None,
        description="A file of Apprise URLs (Discord, Teams, Telegram, ntfy, mail, PagerDuty, "
        "...), one a line.",
        examples=["apprise.urls"],
    )

    def urls(self) -> tuple[str, ...]:
        """The URLs, without comments. Raises ConfigError where the file is unusable."""
        if self.urls_file is None:
            return ()
        lines = (
            line.strip() for line in secret_text(self.urls_file, "apprise.urls_file").splitlines()
        )
        return tuple(line for line in lines if line and not line.startswith("#"))


class HeartbeatSettings(Section):
    """A dead man's switch that is pinged while the monitor works."""

    url: SecretUrl | None = Field(
        default=None,
        description="A URL that is requested regularly while logs are watched: a dead man's "
        "switch, such as a check of healthchecks.io. A secret: refused in the configuration file.",
        examples=["https://hc-ping.com/..."],
    )
    url_file: UserPath | None = Field(
        default=None, description="A file that holds that URL.", examples=["heartbeat.url"]
    )
    interval_seconds: float = Field(
        default=60,
        ge=1,
        le=86400,
        allow_inf_nan=False,
        description="Seconds between two requests.",
        examples=[60],
    )

    def target(self) -> str | None:
        """The URL, None where none is set. Raises ConfigError as `Slack.secret` does."""
        return secret_url(self.url, self.url_file, "heartbeat.url_file")


class Attach(Section):
    """How `attach` proves its identity, and which servers it trusts."""

    token: SecretStr | None = Field(
        default=None,
        description="The bearer token for `attach`. A secret: refused in the configuration file.",
        examples=["..."],
    )
    token_file: UserPath | None = Field(
        default=None,
        description="A file that holds the bearer token for `attach`.",
        examples=["attach.token"],
    )
    username: str | None = Field(
        default=None, description="The user for `attach`, with a password.", examples=["ada"]
    )
    password_file: UserPath | None = Field(
        default=None,
        description="A file that holds that user's password.",
        examples=["attach.password"],
    )
    ca_file: UserPath | None = Field(
        default=None,
        description="Certificates (PEM) that `attach` trusts, instead of the system's.",
        examples=["ca.pem"],
    )
    cert_file: UserPath | None = Field(
        default=None,
        description="The certificate (PEM) that `attach` presents where the monitor requires one.",
        examples=["client.pem"],
    )
    key_file: UserPath | None = Field(
        default=None, description="The key of that certificate.", examples=["client.key"]
    )

    def bearer(self) -> str | None:
        """The token. Raises ConfigError where its file is unusable."""
        if self.token is not None:
            return self.token.get_secret_value()
        return secret_line(self.token_file, "attach.token_file", "the token")

    def password(self) -> str | None:
        """The user's password. Raises ConfigError where its file is unusable."""
        return secret_line(self.password_file, "attach.password_file", "the password")
