"""Other services through Apprise: each by its URL (https://github.com/caronc/apprise/wiki)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from ldlm_monitor.base.errors import ConfigError, DeliveryError
from ldlm_monitor.base.headline import FINISHED_MARK
from ldlm_monitor.base.setting_types import UserPath
from ldlm_monitor.service.notify.policy import Policy
from ldlm_monitor.service.notify.receiver import MessageReceiver, ReceiverSettings
from ldlm_monitor.service.state.secret_files import secret_text

if TYPE_CHECKING:
    import apprise

    from ldlm_monitor.service.notify.message import Message, Notification, Receipt


class Apprise(ReceiverSettings, Policy):
    """Other services, by their Apprise URLs."""

    table = "apprise"
    how = "apprise.urls_file"

    urls_file: UserPath | None = Field(default=None, examples=["apprise.urls"])
    """A file of Apprise URLs (Discord, Teams, Telegram, ntfy, mail, PagerDuty, ...), one a line."""

    def urls(self) -> tuple[str, ...]:
        """The URLs, none if no file is set. Raises ConfigError if the file is unusable."""
        if self.urls_file is None:
            return ()
        lines = map(str.strip, secret_text(self.urls_file, "apprise.urls_file").splitlines())
        return tuple(line for line in lines if line and not line.startswith("#"))

    def receivers(self) -> Iterator[MessageReceiver]:
        """A receiver for each URL."""
        for service in apprise_services(self.urls()):
            yield service.under(self)


class AppriseService(MessageReceiver):
    """Sends to one service, shown as `name`. Its URL is a secret: it is never logged or shown."""

    def __init__(self, service: apprise.Apprise, name: str) -> None:
        self.name = name
        self._service = service

    def send(self, message: Message) -> Receipt:
        """Send the news, else what still fires. Raises DeliveryError unless it was accepted."""
        from ldlm_monitor.service.notify.content import news_of, plain_text
        from ldlm_monitor.service.notify.message import Receipt, weight

        kind = _type(min(message.news or message.firing, key=weight))
        title, body = plain_text(news_of(message))
        if not self._service.notify(title=title, body=body, notify_type=kind, body_format="text"):
            raise DeliveryError(f"{self.name} did not accept the message")
        return Receipt()


def apprise_services(urls: Iterable[str]) -> Iterator[AppriseService]:
    """A receiver for each URL. Raises ConfigError without Apprise, or if one is wrong or unsafe."""
    if not (urls := list(urls)):
        return
    try:
        import apprise
    except ImportError as error:
        raise ConfigError(
            "Apprise is not installed",
            where="apprise.urls_file",
            remedy="pip install 'ldlm-monitor[apprise]'",
        ) from error
    # Apprise's own log shows URLs, which are secrets. `service_timeout=0` means none: each request
    # of Apprise has a timeout, and a courier that waits stalls no other receiver.
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
    seen: Counter[str] = Counter()
    for number, url in enumerate(urls, 1):
        service = apprise.Apprise(
            asset=apprise.AppriseAsset(async_mode=False, service_timeout=0, http_redirects=False)
        )
        if not service.add(url):
            raise ConfigError(
                f"URL {number} is not one that Apprise supports",
                where="apprise.urls_file",
                remedy="see https://github.com/caronc/apprise/wiki for its form",
            )
        if any(each.redirects or not each.verify_certificate for each in service):
            raise ConfigError(
                f"URL {number} would follow redirects, or trust any certificate",
                where="apprise.urls_file",
                remedy="leave out redirect= and verify=; trust an authority of your own by"
                " REQUESTS_CA_BUNDLE",
            )
        scheme = url.partition(":")[0]
        seen[scheme] += 1
        count = f" {seen[scheme]}" if seen[scheme] > 1 else ""
        yield AppriseService(service, f"apprise {scheme}{count}")


def _type(notification: Notification) -> apprise.NotifyType:
    from apprise import NotifyType

    if notification.state == "resolved" or notification.headline.startswith(FINISHED_MARK):
        return NotifyType.SUCCESS
    if notification.state != "firing":
        return NotifyType.INFO
    severities = {
        "critical": NotifyType.FAILURE,
        "error": NotifyType.FAILURE,
        "info": NotifyType.INFO,
    }
    return severities.get(notification.severity, NotifyType.WARNING)
