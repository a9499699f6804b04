"""The tables of the configuration that name others to talk to, and their secrets."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from ldlm_monitor.model.errors import ConfigError

UserPath: TypeAlias = Annotated[Path, AfterValidator(Path.expanduser)]


class Section(BaseModel):
    """A table of the configuration file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _checked_secret_url(value: SecretStr) -> SecretStr:
    if not value.get_secret_value().startswith(("https://", "http://")):
        raise ValueError("should be a URL that begins with https://")
    return value


def _split_commas(value: object) -> object:
    """URLs hold colons, so a variable parts them by commas."""
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.split(",") if part.strip()]


def _checked_server(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("should be a URL that begins with http:// or https://")
    if parts.username or parts.password:
        raise ValueError("should hold no password: name a file in authorization_file")
    return value


SecretUrl: TypeAlias = Annotated[SecretStr, AfterValidator(_checked_secret_url)]
Urls: TypeAlias = Annotated[
    tuple[Annotated[str, AfterValidator(_checked_server)], ...], BeforeValidator(_split_commas)
]


def _checked_api(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise ValueError("should be a URL that begins with https://")
    return value


class Slack(Section):
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
    api_url: Annotated[str, AfterValidator(_checked_api)] = Field(
        default="https://slack.com/api/",
        description="Slack's API; `https://slack-gov.com/api/` is GovSlack's.",
        examples=["https://slack-gov.com/api/"],
    )

    def secret(self) -> str | None:
        """The webhook's URL, from the environment or the file; None where neither is set.

        Raises ConfigError where the file cannot be read or holds no URL.
        """
        return _url(self.webhook_url, self.webhook_url_file, "slack.webhook_url_file")

    def token(self) -> str | None:
        """The bot's token, None where none is set.

        Raises ConfigError where its file is of no use, where no channel is named, and where a
        webhook is set as well: everything would be told twice.
        """
        if self.bot_token is not None:
            token = self.bot_token.get_secret_value()
        else:
            token = _line(self.bot_token_file, "slack.bot_token_file", "the token") or ""
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
                remedy="leave out one of them, or all would be told twice",
            )
        return token


class Alertmanager(Section):
    """Alertmanagers that are told what fires."""

    urls: Urls = Field(
        default=(),
        description="Alertmanagers (API v2); each is told of every alert.",
        examples=[["http://127.0.0.1:9093"]],
    )
    authorization_file: UserPath | None = Field(
        default=None,
        description="A file that holds the `Authorization` header, such as `Bearer ...`.",
        examples=["alertmanager.auth"],
    )

    def authorization(self) -> str | None:
        """The header, None where none is set. Raises ConfigError where the file is of no use."""
        return _line(
            self.authorization_file, "alertmanager.authorization_file", "the header's value"
        )


class Webhook(Section):
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
        description="A file that holds what its requests are signed with.",
        examples=["webhook.secret"],
    )

    def target(self) -> str | None:
        """The URL, None where none is set. Raises ConfigError as `Slack.secret` does."""
        return _url(self.url, self.url_file, "webhook.url_file")

    def secret(self) -> str | None:
        """What signs. Raises ConfigError where the file is of no use."""
        return _line(self.secret_file, "webhook.secret_file", "the secret")


class Apprise(Section):
    """Other services, by their Apprise URLs."""

    urls_file: UserPath | None = Field(
        default=None,
        description="A file of Apprise URLs (Discord, Teams, Telegram, ntfy, mail, PagerDuty, "
        "...), one a line.",
        examples=["apprise.urls"],
    )

    def urls(self) -> tuple[str, ...]:
        """The URLs, without comments. Raises ConfigError where the file is of no use."""
        if self.urls_file is None:
            return ()
        lines = (line.strip() for line in _read(self.urls_file, "apprise.urls_file").splitlines())
        return tuple(line for line in lines if line and not line.startswith("#"))


class Heartbeat(Section):
    """A dead man's switch that is told, again and again, that the monitor works."""

    url: SecretUrl | None = Field(
        default=None,
        description="A URL that is asked for again and again while logs are watched: a dead man's "
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
        return _url(self.url, self.url_file, "heartbeat.url_file")


class Attach(Section):
    """How `attach` proves who it is, and whom it believes."""

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
        description="Certificates (PEM) that `attach` believes, instead of the system's.",
        examples=["ca.pem"],
    )
    cert_file: UserPath | None = Field(
        default=None,
        description="The certificate (PEM) that `attach` shows where the monitor asks for one.",
        examples=["client.pem"],
    )
    key_file: UserPath | None = Field(
        default=None, description="The key of that certificate.", examples=["client.key"]
    )

    def bearer(self) -> str | None:
        """The token. Raises ConfigError where its file is of no use."""
        if self.token is not None:
            return self.token.get_secret_value()
        return _line(self.token_file, "attach.token_file", "the token")

    def password(self) -> str | None:
        """The user's password. Raises ConfigError where its file is of no use."""
        return _line(self.password_file, "attach.password_file", "the password")


def _url(given: SecretStr | None, file: Path | None, key: str) -> str | None:
    if given is not None:
        return given.get_secret_value()
    if file is None:
        return None
    text = _read(file, key).strip()
    if not text.startswith(("https://", "http://")) or len(text.split()) != 1:
        raise ConfigError(
            "holds no URL", where=f"{key}: {file}", remedy="write the URL as the file's one line"
        )
    return text


def _line(file: Path | None, key: str, what: str) -> str | None:
    if file is None:
        return None
    text = _read(file, key).strip()
    if len(text.splitlines()) != 1:
        raise ConfigError(
            f"holds not {what} alone",
            where=f"{key}: {file}",
            remedy=f"write {what} as the file's one line",
        )
    return text


def _read(file: Path, key: str) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            check_mode(os.fstat(opened.fileno()), file, key)
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise ConfigError(
            f"cannot be read ({reason})",
            where=f"{key}: {file}",
            remedy="write it, and let its reader read it",
        ) from error


def check_mode(status: os.stat_result, file: Path, key: str) -> None:
    """Raises ConfigError where others may read a file of secrets.

    Of a file that is not ours, such as a mounted secret of root's, the group may read: there is
    no other way for us to. libpq takes keys by a like rule
    (https://www.postgresql.org/docs/current/libpq-ssl.html).
    """
    ours = status.st_uid == os.geteuid()
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & (0o077 if ours else 0o027):
        return
    raise ConfigError(
        f"is a secret that others may read (mode {stat.S_IMODE(status.st_mode):04o})",
        where=f"{key}: {file}",
        remedy=f"chmod {'600' if ours else 'o-rwx,g-w'} {file}",
    )
