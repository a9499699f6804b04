"""Other services through Apprise: each by its URL (https://github.com/caronc/apprise/wiki)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import re2

from ldlm_monitor.model.errors import ConfigError, DeliveryError
from ldlm_monitor.notify.message import Message, Receipt
from ldlm_monitor.notify.notification import Notification

if TYPE_CHECKING:
    from apprise import Apprise, NotifyType

TEXT_LIMIT = 1500
"""Characters of the log line and of each text: Discord accepts 2000 in all."""

_ACTIVE = (
    (re2.compile(r"(^|[^A-Za-z0-9_.+-])@"), lambda found: f"{found.group(1)}＠"),
    (re2.compile(r"<([@!#&/A-Za-z])"), lambda found: f"‹{found.group(1)}"),
    (re2.compile(r"\]\("), lambda found: "] ("),
)
"""Look-alikes are inert; a mail address stays as it is."""
GROUP_LINES = 15
"""Kinds of alerts that a message lists, as many as a phone's screen shows; the rest is counted."""


class AppriseService:
    """Sends to one service. Its URL is a secret: it is never logged or shown."""

    def __init__(self, service: Apprise, name: str) -> None:
        self.name = name
        self._service = service

    def send(self, notification: Notification) -> None:
        """Raises DeliveryError unless the service accepted it."""
        self._notify(title(notification), text(notification), notification)

    def send_group(self, message: Message) -> Receipt:
        """Send what is new in a group, or still fires. Raises as `send`."""
        alerts = message.news or message.firing
        if len(alerts) == 1:
            self.send(alerts[0])
        else:
            self._notify(*group_text(alerts), message.lead)
        return Receipt()

    def _notify(self, heading: str, body: str, lead: Notification) -> None:
        accepted = self._service.notify(
            title=heading, body=body, notify_type=_type(lead), body_format="text"
        )
        if not accepted:
            raise DeliveryError(f"{self.name} did not accept it")


def apprise_services(urls: Iterable[str]) -> Iterator[AppriseService]:
    """A receiver for each URL. Raises ConfigError for one that Apprise does not support."""
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
    # Apprise's own log shows URLs, which are secrets.
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


def title(notification: Notification) -> str:
    """One line: what happened to which run."""
    rank = f" rank {notification.rank}" if notification.rank else ""
    severity, state = notification.severity, notification.state
    return _line(f"{notification.alert} {state} ({severity}): {notification.run}{rank}", 200)


def text(notification: Notification) -> str:
    """Summary, description, step, log line and action, one plain line each."""
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


def group_text(alerts: Sequence[Notification]) -> tuple[str, str]:
    """Heading and lines of several; those of one kind and run are counted in one line."""
    kinds = Counter((each.state, each.severity, each.alert, each.run) for each in alerts)
    counts = Counter(each.state for each in alerts)
    spelled = ", ".join(f"{count} {state}" for state, count in counts.items())
    lines = [
        _line(f"{alert} {state} ({severity}) x{count}: {run}", 200)
        for (state, severity, alert, run), count in kinds.most_common(GROUP_LINES)
    ]
    rest = sum(kinds.values()) - sum(count for _, count in kinds.most_common(GROUP_LINES))
    more = [f"and {rest} more"] if rest else []
    return f"{len(alerts)} alerts ({spelled})", "\n".join([*lines, *more])


def _line(words: str, limit: int) -> str:
    """One line without anything that services would act on: mentions, links, tags.

    Discord and Mattermost render the text of an Apprise message as Markdown.
    """
    shown = " ".join(words.split())
    for active, replacement in _ACTIVE:
        shown = active.sub(replacement, shown)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _type(notification: Notification) -> NotifyType:
    from apprise import NotifyType

    if notification.state != "firing":
        return NotifyType.SUCCESS if notification.state == "resolved" else NotifyType.INFO
    severities = {"critical": NotifyType.FAILURE, "error": NotifyType.FAILURE}
    return severities.get(notification.severity, NotifyType.WARNING)
