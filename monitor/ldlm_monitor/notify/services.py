"""Other services through Apprise: each by its URL (https://github.com/caronc/apprise/wiki)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import re2

from ldlm_monitor.errors import ConfigError, DeliveryError
from ldlm_monitor.notify.notification import Notification

if TYPE_CHECKING:
    from apprise import Apprise, NotifyType

TEXT_LIMIT = 1500
"""Characters of the log line and of each text; Discord takes 2000 in all."""


_ACTING = (
    (re2.compile(r"(^|[^A-Za-z0-9_.+-])@"), lambda found: f"{found.group(1)}＠"),
    (re2.compile(r"<([@!#&/A-Za-z])"), lambda found: f"‹{found.group(1)}"),
    (re2.compile(r"\]\("), lambda found: "] ("),
)
"""Look-alikes do nothing; an address as in mail stays."""


class AppriseService:
    """Sends to one service. Its URL is a secret: it is never logged or shown."""

    def __init__(self, service: Apprise, name: str) -> None:
        self.name = name
        self._service = service

    def send(self, notification: Notification) -> None:
        """Raises DeliveryError unless the service accepted it."""
        accepted = self._service.notify(
            title=title(notification),
            body=text(notification),
            notify_type=_type(notification),
            body_format="text",
        )
        if not accepted:
            raise DeliveryError(f"{self.name} did not take it")


def apprise_services(urls: Iterable[str]) -> Iterator[AppriseService]:
    """A receiver for each URL. Raises ConfigError for one that Apprise does not know."""
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
    # Its own messages show URLs.
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
    seen: Counter[str] = Counter()
    for number, url in enumerate(urls, 1):
        service = apprise.Apprise(
            asset=apprise.AppriseAsset(async_mode=False, service_timeout=0, http_redirects=False)
        )
        if not service.add(url):
            raise ConfigError(
                f"URL {number} is none that Apprise knows",
                where="apprise.urls_file",
                remedy="see https://github.com/caronc/apprise/wiki for its form",
            )
        if any(each.redirects or not each.verify_certificate for each in service):
            raise ConfigError(
                f"URL {number} would follow redirects, or believe any certificate",
                where="apprise.urls_file",
                remedy="leave out redirect= and verify=; trust an authority of your own by"
                " REQUESTS_CA_BUNDLE",
            )
        scheme = url.partition(":")[0]
        seen[scheme] += 1
        count = f" {seen[scheme]}" if seen[scheme] > 1 else ""
        yield AppriseService(service, f"apprise {scheme}{count}")


def title(notification: Notification) -> str:
    """One line: what happened to which run."""
    rank = f" rank {notification.rank}" if notification.rank else ""
    severity, state = notification.severity, notification.state
    return _line(f"{notification.alert} {state} ({severity}): {notification.run}{rank}", 200)


def text(notification: Notification) -> str:
    """What is known of it, in plain lines."""
    place = notification.path
    if place and notification.line_number is not None:
        place = f"{place}:{notification.line_number}"
    parts = [
        notification.summary,
        notification.description,
        f"Step {notification.step}" if notification.step is not None else "",
        *((place, notification.line) if place and notification.line else ()),
    ]
    if notification.state in ("firing", "pending") and notification.action:
        parts.append(f"What to do: {notification.action}")
    return "\n".join(_line(part, TEXT_LIMIT) for part in parts if part)


def _line(words: str, limit: int) -> str:
    """One line in which services find no mention, link or tag to act on; Discord and Mattermost
    take what an Apprise text holds for Markdown.
    """
    shown = " ".join(words.split())
    for acting, shown_instead in _ACTING:
        shown = acting.sub(shown_instead, shown)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _type(notification: Notification) -> NotifyType:
    from apprise import NotifyType

    if notification.state != "firing":
        return NotifyType.SUCCESS if notification.state == "resolved" else NotifyType.INFO
    severities = {"critical": NotifyType.FAILURE, "error": NotifyType.FAILURE}
    return severities.get(notification.severity, NotifyType.WARNING)
