"""What is sent again and again while it holds: alerts to an Alertmanager, and a heartbeat.

A heartbeat is the request of a dead man's switch: it comes regularly while the logs are watched,
and no more after. An Alertmanager gets states, not transitions: an alert that is not sent any more
ends at its `endsAt`. So nothing waits in the outbox, and after a restart an Alertmanager simply
gets what fires then. Times as in Prometheus' rule manager (cmd/prometheus/main.go,
`--rules.alert.resend-delay`; rules/alerting.go, `resolvedRetention`), the body as in
Alertmanager's API v2 (api/v2/openapi.yaml, `postableAlerts`).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import Request

from ldlm_monitor.model.alert import alert_key
from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.model.view import AlertView, Snapshot
from ldlm_monitor.notify.deliveries import pause
from ldlm_monitor.notify.http_client import TIMEOUT_SECONDS, deliver
from ldlm_monitor.notify.message import clean
from ldlm_monitor.notify.outbox import Outbox
from ldlm_monitor.text.format import iso

STILL_SECONDS: Final = 60.0
"""A pump that has ended no turn for so long counts as stuck; a turn takes a second or two."""
AGAIN_SECONDS: Final = 10.0
"""Pause after a request that failed: shorter than the interval, or one lost request would alarm."""
RESEND_SECONDS: Final = 60.0
VALID_SECONDS: Final = 4 * RESEND_SECONDS
RESOLVED_KEPT_SECONDS: Final = 900.0
LOOK_SECONDS: Final = 0.25
"""Between two looks at the snapshot, or at a pump that is stuck: an alert is to be there within a
second."""
BATCH: Final = 64
"""Alerts of one request, as Prometheus' `--alertmanager.notification-batch-size` bounds it."""
TEXT_LIMIT: Final = 4096
"""Characters of a label or annotation: what Slack and mail show of an alert is shorter still."""
LONGEST_PAUSE: Final = 60.0
"""Seconds between two attempts at most: an alert ends there after VALID_SECONDS without an
update."""

log = logging.getLogger(__name__)


class Pulse:
    """Whether the pump turns. `turns` returns how many of its turns have ended."""

    def __init__(self, turns: Callable[[], int]) -> None:
        self._turns = turns
        self._seen = 0
        self._seen_at = float("-inf")

    def beats(self, now: float) -> bool:
        """Whether a turn has ended within STILL_SECONDS; `now` in seconds of any one clock."""
        turns = self._turns()
        if turns != self._seen:
            self._seen, self._seen_at = turns, now
        return now - self._seen_at <= STILL_SECONDS


class Sender(threading.Thread):
    """A thread that sends again and again until it is stopped; `turn` does what is due now.

    Nothing of it waits in the outbox: what is late is not worth sending any more.
    """

    def __init__(self, receiver: str, outbox: Outbox) -> None:
        super().__init__(name=receiver, daemon=True)
        self.receiver = receiver
        self._outbox = outbox
        self._stopping = threading.Event()
        self._failures = 0
        outbox.register(receiver)

    def run(self) -> None:
        """Send until stopped."""
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = self.turn()

    def turn(self) -> float:
        """Send what is due; how many seconds to wait then."""
        raise NotImplementedError

    def stop(self, timeout: float) -> bool:
        """End, within `timeout` seconds; False if the server did not answer in time."""
        self._stopping.set()
        self.join(timeout)
        return not self.is_alive()

    def _attempt(self, send: Callable[[], None]) -> DeliveryError | None:
        """The error with which it failed, if it did; counted, and logged once."""
        try:
            send()
        except DeliveryError as error:
            if not self._failures:
                log.warning("%s: %s; trying again until it is accepted", self.receiver, error)
            self._failures += 1
            self._outbox.count(self.receiver, "failed" if error.permanent else "retried")
            return error
        self._failures = 0
        self._outbox.count(self.receiver, "sent")
        return None


class HeartbeatSender(Sender):
    """Requests one URL every `interval` seconds while the pulse beats.

    The URL is a secret: it is never logged or shown. `timeout` (seconds) bounds each wait for
    the server.
    """

    def __init__(
        self,
        url: str,
        interval: float,
        pulse: Pulse,
        outbox: Outbox,
        *,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        super().__init__("heartbeat", outbox)
        self._url = url
        self._interval = interval
        self._pulse = pulse
        self._timeout = timeout

    def turn(self) -> float:
        """Request once, if the pulse beats."""
        if not self._pulse.beats(time.monotonic()):
            return LOOK_SECONDS
        error = self._attempt(lambda: ping(self._url, self._timeout))
        return min(AGAIN_SECONDS, self._interval) if error else self._interval


def ping(url: str, timeout: float = TIMEOUT_SECONDS) -> None:
    """GET it once. Raises DeliveryError, which does not show the URL, unless that was accepted."""
    request = Request(url, headers={"User-Agent": "ldlm-monitor"})
    deliver(request, timeout, show_body=False)


@dataclass(slots=True)
class SentAlert:
    """An alert, when it was sent last, and since when it is over."""

    alert: AlertView
    sent_at: float | None = None
    resolved_at: float | None = None

    def is_due(self, now: float) -> bool:
        """As Prometheus' `needsSending`."""
        if self.sent_at is None or (self.resolved_at or 0.0) > self.sent_at:
            return True
        return now - self.sent_at >= RESEND_SECONDS


class SentAlerts:
    """The alerts that one Alertmanager has, and which are due to be sent to it."""

    def __init__(self) -> None:
        self._known: dict[str, SentAlert] = {}

    def update(self, alerts: Iterable[AlertView], now: float) -> None:
        """Take over the alerts that are active at `now` (Unix seconds)."""
        active = (alert for alert in alerts if alert.state == "firing")
        firing = {alert_key(alert.name, alert.labels): alert for alert in active}
        for key, sent in self._known.items():
            if key not in firing and sent.resolved_at is None:
                sent.resolved_at = now
        for key, alert in firing.items():
            known = self._known.get(key)
            if known is None or known.resolved_at is not None:
                self._known[key] = SentAlert(alert)
            else:
                known.alert = alert

    def due(self, now: float, *, beats: bool = True) -> list[SentAlert]:
        """What is to be sent, at most as much as fits one request.

        Unless the pump `beats`, the alert that says that alerting works is not sent again.
        """
        self._known = {
            key: sent
            for key, sent in self._known.items()
            if sent.resolved_at is None or now - sent.resolved_at <= RESOLVED_KEPT_SECONDS
        }
        return [
            sent
            for sent in self._known.values()
            if sent.is_due(now) and (beats or sent.alert.labels.get("severity") != "none")
        ][:BATCH]


def body(
    alerts: Iterable[SentAlert],
    now: float,
    generator: str,
    external: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """`postableAlerts`; `generator` is the monitor's own URL.

    An alert's own labels beat `external` ones, as in Prometheus (notifier/notifier.go).
    """
    outer = _texts(external or {})
    return [
        {
            "labels": {**outer, "alertname": each.alert.name, **_texts(each.alert.labels)},
            "annotations": _texts(each.alert.annotations),
            "startsAt": iso(each.alert.fired_at or each.alert.active_at),
            "endsAt": iso(each.resolved_at or now + VALID_SECONDS),
            "generatorURL": generator,
        }
        for each in alerts
    ]


def _texts(pairs: Mapping[str, str]) -> dict[str, str]:
    """Redacted before they are cut; an empty label is left out."""
    shown = {name: clean(text)[:TEXT_LIMIT] for name, text in pairs.items()}
    return {name: text for name, text in shown.items() if text}


class AlertmanagerClient:
    """Posts to one Alertmanager.

    `url` as in Prometheus' `alertmanagers`, a path prefix included. `authorization` is
    the header of that name. `timeout` (seconds) bounds each wait for the server.
    """

    def __init__(
        self, url: str, *, authorization: str | None = None, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        self.name = f"alertmanager {urlsplit(url).netloc}"
        self._url = f"{url.rstrip('/')}/api/v2/alerts"
        self._headers = {"Content-Type": "application/json", "User-Agent": "ldlm-monitor"}
        if authorization:
            self._headers["Authorization"] = authorization
        self._timeout = timeout

    def send(self, alerts: list[dict[str, Any]]) -> None:
        """POST them. Raises DeliveryError unless they were accepted."""
        data = json.dumps(alerts).encode()
        deliver(Request(self._url, data, self._headers, method="POST"), self._timeout)


class AlertmanagerSender(Sender):
    """Keeps one Alertmanager up to date with the snapshot's alerts.

    `pulse` says whether that snapshot still follows the logs. `clock` returns Unix seconds.
    """

    def __init__(
        self,
        client: AlertmanagerClient,
        snapshot: Callable[[], Snapshot],
        outbox: Outbox,
        *,
        pulse: Pulse,
        generator: str = "",
        external_labels: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(client.name, outbox)
        self._client = client
        self._snapshot = snapshot
        self._pulse = pulse
        self._generator = generator
        self._external = external_labels
        self._clock = clock
        self._alerts = SentAlerts()
        self._seen: Snapshot | None = None

    def turn(self) -> float:
        """Send all that is due; how many seconds to wait then."""
        now = self._clock()
        snapshot = self._snapshot()
        if snapshot is not self._seen:
            self._alerts.update(snapshot.alerts, now)
            self._seen = snapshot
        beats = self._pulse.beats(now)
        while (due := self._alerts.due(now, beats=beats)) and not self._stopping.is_set():
            posted = body(due, now, self._generator, self._external)
            if error := self._attempt(partial(self._client.send, posted)):
                wait = pause(self._failures - 1, error.retry_after)
                return min(wait, LONGEST_PAUSE)
            for sent in due:
                sent.sent_at = now
        return LOOK_SECONDS
