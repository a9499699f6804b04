"""A webhook of the user's own: each transition as JSON, signed by the Standard Webhooks rules.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md:
`webhook-id` is the same at every attempt, `webhook-timestamp` its time (Unix seconds), and
`webhook-signature` is `v1,` and the base64 of HMAC-SHA256 over "id.timestamp.body".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from ldlm_monitor.base.alert import State
from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.base.records import Position
from ldlm_monitor.base.setting_types import SecretUrl, UserPath
from ldlm_monitor.service.notify.policy import StreamPolicy
from ldlm_monitor.service.notify.receiver import MessageReceiver, ReceiverSettings
from ldlm_monitor.service.state.secret_files import URL, secret_of

if TYPE_CHECKING:
    from ldlm_monitor.service.notify.message import Message, Notification, Receipt

SECRET_PREFIX = "whsec_"  # of secrets that are base64, by the Standard Webhooks rules
LEAST_SECRET_BYTES = 16
"""A choice: 128 bits cannot be guessed. Standard Webhooks' 24 bytes would refuse usable keys."""


class Webhook(ReceiverSettings, StreamPolicy):
    """A URL of the user's own that gets each transition as JSON."""

    table = "webhook"
    how = "webhook.url_file"

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

    def receivers(self) -> Iterator[MessageReceiver]:
        """The one URL, if it is set."""
        if url := self.target():
            yield WebhookSender(url, secret=self.secret()).under(self)


class WebhookBody(BaseModel):
    """One transition of one alert, as a webhook gets it."""

    model_config = ConfigDict(ser_json_inf_nan="strings", defer_build=True)  # few commands need it

    text: str = Field(default="", description="What happened, in one line.")
    time: float | None = Field(description="Unix seconds; null where the log has no time.")
    alert: str
    state: State
    reason: str = Field(description="Why the state changed.")
    labels: dict[str, str] = Field(description="Such as `severity`, `run` and, if known, `rank`.")
    annotations: dict[str, str] = Field(description="`summary`, `description`, `action`, if any.")
    value: float | str = Field(description='The rule\'s: a number, "NaN", "Infinity", "-Infinity".')
    position: Position | None = Field(description="Log line that made the condition hold, or null.")
    link: str = Field(default="", description="The run's page; absent without `external_url`.")


def webhook_body(notification: Notification) -> bytes:
    """The JSON of a `WebhookBody`, redacted and bounded as the notification is."""
    texts = {name: getattr(notification, name) for name in ("summary", "description", "action")}
    position = None
    if notification.path is not None and notification.line_number is not None:
        position = Position(notification.path, notification.line_number, notification.offset or 0)
    body = WebhookBody(
        text=notification.headline,
        time=notification.at,
        alert=notification.alert,
        state=notification.state,
        reason=notification.reason,
        labels=notification.labels,
        annotations={name: text for name, text in texts.items() if text},
        value=notification.value,
        position=position,
        link=notification.link,
    )
    return body.model_dump_json(exclude=None if body.link else {"link"}).encode()


class WebhookSender(MessageReceiver):
    """Sends to one URL. The URL and the secret are never logged or shown.

    `secret` is any text, or `whsec_` and base64, of 16 bytes or more; None: no request is signed.
    `clock` returns Unix seconds. Raises ConfigError for a URL that is not https (plain http is
    accepted for loopback addresses), and for a secret that is short or has invalid base64.
    """

    name = "webhook"

    def __init__(
        self, url: str, *, secret: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        from ldlm_monitor.service.notify.http_client import checked_url

        self._url = checked_url(
            url, "webhook", "give the receiver's URL; plain http is accepted for this machine alone"
        )
        self._key = None if secret is None else signing_key(secret)
        self._clock = clock

    def send(self, message: Message) -> Receipt:
        """Post the message's news one by one. Raises DeliveryError unless all are accepted."""
        from ldlm_monitor.service.notify.message import Receipt

        for each in message.news:
            self._post(each)
        return Receipt()

    def _post(self, notification: Notification) -> None:
        from urllib.request import Request

        from ldlm_monitor.service.notify.http_client import deliver

        body = webhook_body(notification)
        named = f"{notification.key}\n{notification.state}\n{notification.started_at!r}"
        digest = hashlib.sha256(named.encode()).hexdigest()[:32]  # 128 bits: no two are equal
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "ldlm-monitor",
            "webhook-id": f"msg_{digest}",
            "webhook-timestamp": str(int(self._clock())),
        }
        if self._key is not None:
            signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
            code = base64.b64encode(hmac.digest(self._key, signed, "sha256"))
            headers["webhook-signature"] = f"v1,{code.decode()}"
        deliver(Request(self._url, body, headers, method="POST"), "webhook ")


def signing_key(secret: str) -> bytes:
    """The bytes that `secret` means. Raises ConfigError if too few, or if its base64 is invalid."""
    key = secret.encode()
    if secret.startswith(SECRET_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error:
            key = b""
    if len(key) < LEAST_SECRET_BYTES:
        raise ConfigError(
            "is too short, or is not base64 after whsec_",
            where="webhook secret",
            remedy="write 16 or more random characters, such as those of `openssl rand -hex 32`",
        )
    return key
