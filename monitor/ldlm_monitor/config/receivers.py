"""The tables of receivers and servers, and reading the files of their secrets.

A secret's file contains one line (that of Apprise one URL a line); others must not read it.
"""

import os
import stat
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from ldlm_monitor.config.fields import (
    BaseUrl,
    SecretUrl,
    Section,
    Url,
    Urls,
    UserPath,
    from_text,
    parse_json,
)
from ldlm_monitor.config.policy import Policy, StreamPolicy
from ldlm_monitor.model.errors import ConfigError

_URL = "the URL"  # what errors call a secret that must be a URL


def _secret(file: Path | None, key: str, what: str, given: SecretStr | None = None) -> str | None:
    """The secret `given`, otherwise the file's one line; None if neither is set.

    `key`: the setting that names the file. `what`: the secret's name in errors. Raises
    ConfigError if the file is unusable.
    """
    if given is not None:
        return given.get_secret_value()
    if file is None:
        return None
    text = secret_text(file, key).strip()
    if what == _URL:
        fits = text.startswith(("https://", "http://")) and len(text.split()) == 1
    else:
        fits = len(text.splitlines()) == 1
    if not fits:
        raise ConfigError(
            "holds no URL, or a URL and more" if what == _URL else f"should hold {what} alone",
            where=f"{key}: {file}",
            remedy=f"write {what} as the file's one line",
        )
    return text


def secret_text(file: Path, key: str) -> str:
    """The text of a secret's file. Raises ConfigError if it is unreadable or open to others."""
    try:
        with file.open(encoding="utf-8") as opened:
            check_mode(os.fstat(opened.fileno()), file, key)
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"cannot be read ({reason})",
            where=f"{key}: {file}",
            remedy="create it as text that the monitor's user may read",
        ) from error


def check_mode(status: os.stat_result, file: Path, key: str) -> None:
    """Raise ConfigError if others may read or write a regular file of secrets.

    A file of another owner, such as root's mounted secret, may be readable by its group, because
    the monitor could not read it otherwise. libpq has a similar rule for keys
    (https://www.postgresql.org/docs/current/libpq-ssl.html).
    """
    ours = status.st_uid == os.geteuid()  # then no rights but the owner's; else group may read
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & (0o077 if ours else 0o027):
        return
    raise ConfigError(
        f"is a secret that others may read (mode {stat.S_IMODE(status.st_mode):04o})",
        where=f"{key}: {file}",
        remedy=f"chmod {'600' if ours else 'o-rwx,g-w'} {file}",
    )


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
        return _secret(self.webhook_url_file, "slack.webhook_url_file", _URL, self.webhook_url)

    def token(self) -> str | None:
        """The bot's token; None if none is set.

        Raises ConfigError if its file is unusable, if no channel is named, or if a webhook is set
        as well, because everything would be sent twice.
        """
        token = _secret(self.bot_token_file, "slack.bot_token_file", "the token", self.bot_token)
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
        return _secret(
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
        return _secret(self.url_file, "webhook.url_file", _URL, self.url)

    def secret(self) -> str | None:
        """The signing secret; None if none is set. Raises ConfigError if the file is unusable."""
        return _secret(self.secret_file, "webhook.secret_file", "the secret")


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
        return _secret(self.url_file, "heartbeat.url_file", _URL, self.url)


class OtlpSettings(Section):
    """An OpenTelemetry collector that gets the metrics, and incidents as logs (extra `otlp`).

    Headers, certificates and compression: the environment's `OTEL_EXPORTER_OTLP_*`.
    """

    endpoint: BaseUrl | None = Field(default=None, examples=["http://127.0.0.1:4318"])
    """The base URL of OTLP over HTTP; `/v1/metrics` and `/v1/logs` are appended."""
    # OpenTelemetry's own default (`OTEL_METRIC_EXPORT_INTERVAL`).
    interval_seconds: float = Field(default=60, ge=1, le=86400, allow_inf_nan=False)
    """Seconds between two pushes of the metrics."""


class Attach(Section):
    """How `attach` authenticates itself, and which servers it trusts."""

    token: SecretStr | None = Field(default=None, examples=["..."])
    """The bearer token for `attach`. A secret: refused in the configuration file."""
    token_file: UserPath | None = Field(default=None, examples=["attach.token"])
    """A file that holds the bearer token for `attach`."""
    username: str | None = Field(default=None, examples=["ada"])
    """The user for `attach`, with a password."""
    password_file: UserPath | None = Field(default=None, examples=["attach.password"])
    """A file that holds that user's password."""
    ca_file: UserPath | None = Field(default=None, examples=["ca.pem"])
    """Certificates (PEM) that `attach` trusts, instead of the system's."""
    cert_file: UserPath | None = Field(default=None, examples=["client.pem"])
    """The certificate (PEM) that `attach` presents where the monitor requires one."""
    key_file: UserPath | None = Field(default=None, examples=["client.key"])
    """The key of that certificate."""

    def bearer(self) -> str | None:
        """The token; None if none is set. Raises ConfigError if its file is unusable."""
        return _secret(self.token_file, "attach.token_file", "the token", self.token)

    def password(self) -> str | None:
        """The password; None if none is set. Raises ConfigError if its file is unusable."""
        return _secret(self.password_file, "attach.password_file", "the password")
