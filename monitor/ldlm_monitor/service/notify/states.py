"""Repeated requests: the firing alerts to an Alertmanager, and a heartbeat.

The heartbeat feeds a dead man's switch: it is sent regularly as long as the logs are watched. An
Alertmanager gets states, not transitions: an alert that is not sent any more ends at its `endsAt`.
So nothing waits in the outbox, and after a restart an Alertmanager gets the alerts that fire then.
Alerts are sent at the times of Prometheus' rule manager (`--rules.alert.resend-delay` in
cmd/prometheus/main.go; rules/alerting.go), the body is that of Alertmanager's API v2
(`postableAlerts` in api/v2/openapi.yaml).
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import Request

from ldlm_monitor.base.errors import DeliveryError
from ldlm_monitor.base.snapshot import AlertView, Snapshot
from ldlm_monitor.base.text.format import iso
from ldlm_monitor.service.notify.courier import AGAIN_SECONDS, Sender
from ldlm_monitor.service.notify.deliveries import pause
from ldlm_monitor.service.notify.http_client import deliver
from ldlm_monitor.service.notify.message import fit, page_of
from ldlm_monitor.service.notify.outbox import Outbox

STILL_SECONDS: Final = 60.0
"""Seconds without a turn after which the pump, the thread that reads the logs, counts as stuck. A
choice: a turn takes 1 or 2; fewer would take a slow disk for it, more would delay the alarm."""
RESEND_SECONDS: Final = 60.0  # until a firing alert is sent again: Prometheus' default
VALID_SECONDS: Final = 4 * RESEND_SECONDS  # rules/alerting.go: `endsAt` is 4 resend delays ahead
RESOLVED_KEPT_SECONDS: Final = 900.0  # for which an ended alert is sent: `resolvedRetention` there
LOOK_SECONDS: Final = 0.25
"""Seconds between two looks at the snapshot, or at a stuck pump. A choice: more would delay each
alert to an Alertmanager, fewer would use CPU for looks that find nothing."""
BATCH: Final = 64
"""Most alerts of one request. A choice: a quarter of Prometheus' 256, as our texts are longer."""
LONGEST_PAUSE: Final = 60.0
"""Seconds at most between two attempts: a quarter of VALID_SECONDS, after which alerts end."""

log = logging.getLogger(__name__)


class Pulse:
    """Shows whether the pump is stuck. `turns` returns how many turns it has completed."""

    def __init__(self, turns: Callable[[], int]) -> None:
        self._turns = turns
        self._seen = 0
        self._seen_at = float("-inf")

    def beats(self, now: float) -> bool:
        """Whether a turn was completed within STILL_SECONDS; `now`: seconds of any one clock."""
        turns = self._turns()
        if turns != self._seen:
            self._seen, self._seen_at = turns, now
        return now - self._seen_at <= STILL_SECONDS


class StateSender(Sender):
    """A sender whose requests do not wait in the outbox: a late one would be of no use."""

    _failures = 0

    def _attempt(self, send: Callable[[], None]) -> DeliveryError | None:
        """The error of `send`, if any. Counts the outcome, and logs the first failure in a row."""
        try:
            send()
        except DeliveryError as error:
            if not self._failures:
                log.warning("%s: %s; trying again", self.receiver, error)
            self._failures += 1
            self._outbox.count(self.receiver, "failed" if error.permanent else "retried")
            return error
        self._failures = 0
        self._outbox.count(self.receiver, "sent")
        return None


class HeartbeatSender(StateSender):
    """Requests one URL every `interval` seconds while the pulse beats.

    The URL is a secret: it is never logged or shown.
    """

    def __init__(self, url: str, interval: float, pulse: Pulse, outbox: Outbox) -> None:
        super().__init__("heartbeat", outbox)
        self._url = url
        self._interval = interval
        self._pulse = pulse

    def turn(self) -> float:
        """Send the request if the pulse beats; returns the seconds until the next turn."""
        if self._stopping.is_set() or not self._pulse.beats(time.monotonic()):
            return LOOK_SECONDS
        error = self._attempt(lambda: ping(self._url))
        return min(AGAIN_SECONDS, self._interval) if error else self._interval


def ping(url: str) -> None:
    """GET `url` once. Raises DeliveryError, without the URL, if the answer is no success."""
    request = Request(url, headers={"User-Agent": "ldlm-monitor"})
    deliver(request, show_body=False)


@dataclass(slots=True)
class SentAlert:
    """An alert; when it was last sent (-inf: never) and ended (None: it fires), Unix seconds."""

    alert: AlertView
    sent_at: float = -math.inf
    resolved_at: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether to send it now: the rule of Prometheus' rules/alerting.go, `needsSending`."""
        # A last sending in the future was before the clock was set back: it delays nothing.
        is_recent = 0 <= now - self.sent_at < RESEND_SECONDS
        return (self.resolved_at or 0.0) > self.sent_at or not is_recent


class SentAlerts:
    """The alerts for one Alertmanager, firing or ended lately, and when each was sent to it."""

    def __init__(self) -> None:
        self._known: dict[str, SentAlert] = {}

    def update(self, alerts: Iterable[AlertView], now: float) -> None:
        """Take over those of `alerts` that fire at `now` (Unix seconds); the rest has ended."""
        active = (alert for alert in alerts if alert.state == "firing")
        firing = {alert.key: alert for alert in active}
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
        """The alerts to send at `now` (Unix seconds), at most BATCH.

        If `beats` is false, the pump is stuck, and alerts of severity `none` are left out: the
        Watchdog, by whose absence others notice that alerting is broken.
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
    generator: str = "",
    external: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """A request's body (`postableAlerts`) at `now` (Unix seconds); `generator`: our URL, or "".

    An alert's own labels override `external` ones, as in Prometheus (notifier/notifier.go).
    """
    outer = _texts(external)
    return [
        {
            "labels": {**outer, "alertname": each.alert.name, **_texts(each.alert.labels)},
            "annotations": _texts(each.alert.annotations),
            "startsAt": iso(each.alert.fired_at or each.alert.active_at),
            "endsAt": iso(each.resolved_at or now + VALID_SECONDS),
            "generatorURL": page_of(each.alert.labels, generator),
        }
        for each in alerts
    ]


def _texts(pairs: Mapping[str, str]) -> dict[str, str]:
    shown = {name: fit(text) for name, text in pairs.items()}
    return {name: text for name, text in shown.items() if text}


class AlertmanagerClient:
    """Posts to one Alertmanager.

    `url` is its base URL, a path prefix included. `authorization` is the value of the header
    `Authorization`; None: it is left out. `generator` and `external` are those of `body`.
    """

    def __init__(
        self,
        url: str,
        *,
        authorization: str | None = None,
        generator: str = "",
        external: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._render = partial(body, generator=generator, external=external)
        self.name = f"alertmanager {urlsplit(url).netloc}"
        self._url = f"{url.rstrip('/')}/api/v2/alerts"
        self._headers = {"Content-Type": "application/json", "User-Agent": "ldlm-monitor"}
        if authorization:
            self._headers["Authorization"] = authorization

    def send(self, alerts: Iterable[SentAlert], now: float) -> None:
        """POST the alerts at `now` (Unix seconds). Raises DeliveryError unless it is accepted."""
        data = json.dumps(self._render(alerts, now)).encode()
        deliver(Request(self._url, data, self._headers, method="POST"))


class AlertmanagerSender(StateSender):
    """Keeps one Alertmanager up to date with the alerts of the last `snapshot`.

    `pulse` shows whether the pump still replaces the snapshot. `clock` returns Unix seconds.
    """

    def __init__(
        self,
        client: AlertmanagerClient,
        snapshot: Callable[[], Snapshot],
        outbox: Outbox,
        *,
        pulse: Pulse,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(client.name, outbox)
        self._client = client
        self._snapshot = snapshot
        self._pulse = pulse
        self._clock = clock
        self._alerts = SentAlerts()
        self._seen: Snapshot | None = None

    def turn(self) -> float:
        """Send all alerts that are due; returns the seconds until the next turn."""
        now = self._clock()
        snapshot = self._snapshot()
        if snapshot is not self._seen:
            self._alerts.update(snapshot.alerts, now)
            self._seen = snapshot
        beats = self._pulse.beats(now)
        while (due := self._alerts.due(now, beats=beats)) and not self._stopping.is_set():
            if error := self._attempt(partial(self._client.send, due, now)):
                return min(LONGEST_PAUSE, pause(self._failures - 1, error.retry_after))
            for sent in due:
                sent.sent_at = now
        return LOOK_SECONDS
