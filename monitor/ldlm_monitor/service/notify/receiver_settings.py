"""The tables of receivers and servers in the settings."""

from typing import Annotated

from pydantic import Field, SecretStr

from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.base.setting_types import (
    BaseUrl,
    SecretUrl,
    Section,
    Url,
    Urls,
    UserPath,
    from_text,
    parse_json,
)
from ldlm_monitor.service.notify.policy import Policy, StreamPolicy
from ldlm_monitor.service.state.secret_files import URL, secret_of, secret_text


class Slack(Policy):
    """Where a Slack message goes: an incoming webhook, or a channel by a bot's token."""

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
    api_url: Url = "https://slack.com/api/"
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


class AlertmanagerSettings(Section):
    """Alertmanagers that get every alert that fires."""

    urls: Urls = Field(default=(), examples=[["http://127.0.0.1:9093"]])
    """Alertmanagers (API v2); each gets every alert."""
    authorization_file: UserPath | None = Field(default=None, examples=["alertmanager.auth"])
    """A file that holds the `Authorization` header, such as `Bearer ...`."""

    def authorization(self) -> str | None:
        """The header's value; None if none is set. Raises ConfigError if the file is unusable."""
        return secret_of(
            self.authorization_file, "alertmanager.authorization_file", "the header's value"
        )


class WebhookSettings(StreamPolicy):
    """A URL of the user's own that gets each transition as JSON."""

    url: SecretUrl | None = Field(default=None, examples=["https://example.org/alerts"])
    """A URL that each transition is posted to as JSON. A secret: refused in the configuration
    file."""
    url_file: UserPath | None = Field(default=None, examples=["webhook.url"])
    """A file that holds that URL."""
    secret_file: UserPath | None = Field(default=None, examples=["webhook.secret"])
    """A file that holds the secret by which requests to the webhook are signed."""

    def target(self) -> str | None:
        """The URL; None if none is set. Raises ConfigError if its file is unusable."""
        return secret_of(self.url_file, "webhook.url_file", URL, self.url)

    def secret(self) -> str | None:
        """The signing secret; None if none is set. Raises ConfigError if the file is unusable."""
        return secret_of(self.secret_file, "webhook.secret_file", "the secret")


class Apprise(Policy):
    """Other services, by their Apprise URLs."""

    urls_file: UserPath | None = Field(default=None, examples=["apprise.urls"])
    """A file of Apprise URLs (Discord, Teams, Telegram, ntfy, mail, PagerDuty, ...), one a line."""

    def urls(self) -> tuple[str, ...]:
        """The URLs, none if no file is set. Raises ConfigError if the file is unusable."""
        if self.urls_file is None:
            return ()
        lines = map(str.strip, secret_text(self.urls_file, "apprise.urls_file").splitlines())
        return tuple(line for line in lines if line and not line.startswith("#"))


class HeartbeatSettings(Section):
    """A dead man's switch that is pinged while the monitor works."""

    url: SecretUrl | None = Field(default=None, examples=["https://hc-ping.com/..."])
    """A URL that is requested regularly while logs are watched: a dead man's switch, such as a
    check of healthchecks.io. A secret: refused in the configuration file."""
    url_file: UserPath | None = Field(default=None, examples=["heartbeat.url"])
    """A file that holds that URL."""
    # 60 is the shortest period of healthchecks.io. Below 1 s is mere load; over a day is too late.
    interval_seconds: float = Field(default=60, ge=1, le=86400, allow_inf_nan=False)
    """Seconds between two requests."""

    def target(self) -> str | None:
        """The URL; None if none is set. Raises ConfigError if its file is unusable."""
        return secret_of(self.url_file, "heartbeat.url_file", URL, self.url)


class OtlpSettings(Section):
    """An OpenTelemetry collector that gets the metrics, and incidents as logs (extra `otlp`).

    Headers, certificates and compression: the environment's `OTEL_EXPORTER_OTLP_*`.
    """

    endpoint: BaseUrl | None = Field(default=None, examples=["http://127.0.0.1:4318"])
    """The base URL of OTLP over HTTP; `/v1/metrics` and `/v1/logs` are appended."""
    # OpenTelemetry's own default (`OTEL_METRIC_EXPORT_INTERVAL`).
    interval_seconds: float = Field(default=60, ge=1, le=86400, allow_inf_nan=False)
    """Seconds between two pushes of the metrics."""
