"""Alertmanagers: each gets the alerts that fire, again and again.

An Alertmanager gets states, not transitions: an alert that is not sent any more ends at its
`endsAt`. So nothing waits in the outbox, and after a restart it gets the alerts that fire then.
Alerts are sent at the times of Prometheus' rule manager (`--rules.alert.resend-delay` in
cmd/prometheus/main.go; rules/alerting.go), the body is that of Alertmanager's API v2
(`postableAlerts` in api/v2/openapi.yaml).
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pydantic import Field

from ldlm_monitor.base.setting_types import Urls, UserPath
from ldlm_monitor.base.text.format import iso
from ldlm_monitor.service.notify.receiver import Receiver, ReceiverSettings
from ldlm_monitor.service.notify.states import LOOK_SECONDS, Pulse, StateSender
from ldlm_monitor.service.state.secret_files import secret_of

if TYPE_CHECKING:
    from ldlm_monitor.base.snapshot import AlertView, Snapshot
    from ldlm_monitor.service.notify.courier import Sender
    from ldlm_monitor.service.notify.outbox import Outbox
    from ldlm_monitor.service.notify.receiver import DaemonParts, TrialAlert

RESEND_SECONDS: Final = 60.0  # until a firing alert is sent again: Prometheus' default
VALID_SECONDS: Final = 4 * RESEND_SECONDS  # rules/alerting.go: `endsAt` is 4 resend delays ahead
RESOLVED_KEPT_SECONDS: Final = 900.0  # for which an ended alert is sent: `resolvedRetention` there
BATCH: Final = 64
"""Most alerts of one request. A choice: a quarter of Prometheus' 256, as our texts are longer."""
LONGEST_PAUSE: Final = 60.0
"""Seconds at most between two attempts: a quarter of VALID_SECONDS, after which alerts end."""
TEST_SECONDS: Final = 60.0
"""Seconds after which the alert of a test ends. A choice: time to see it, soon gone."""

log = logging.getLogger(__name__)


class Alertmanager(ReceiverSettings):
    """Alertmanagers that get every alert that fires."""

    table = "alertmanager"
    how = "alertmanager.urls"

    # `repr`: no error shows a wrong one, which may hold a password.
    urls: Urls = Field(default=(), examples=[["http://127.0.0.1:9093"]], repr=False)
    """Alertmanagers (API v2); each gets every alert."""
    authorization_file: UserPath | None = Field(default=None, examples=["alertmanager.auth"])
    """A file that holds the `Authorization` header, such as `Bearer ...`."""

    def authorization(self) -> str | None:
        """The header's value; None if none is set. Raises ConfigError if the file is unusable."""
        return secret_of(
            self.authorization_file, "alertmanager.authorization_file", "the header's value"
        )

    def receivers(self) -> Iterator[Receiver]:
        """A receiver for each URL."""
        authorization = self.authorization()
        for url in self.urls:
            yield AlertmanagerClient(url, authorization=authorization)


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
    from ldlm_monitor.service.notify.message import page_of

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
    from ldlm_monitor.service.notify.message import fit

    shown = {name: fit(text) for name, text in pairs.items()}
    return {name: text for name, text in shown.items() if text}


class AlertmanagerClient(Receiver):
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
        self._server = url
        self._authorization = authorization
        self.name = f"alertmanager {urlsplit(url).netloc}"
        self._url = f"{url.rstrip('/')}/api/v2/alerts"
        self._headers = {"Content-Type": "application/json", "User-Agent": "ldlm-monitor"}
        if authorization:
            self._headers["Authorization"] = authorization

    def send(self, alerts: Iterable[SentAlert], now: float) -> None:
        """POST the alerts at `now` (Unix seconds). Raises DeliveryError unless it is accepted."""
        from urllib.request import Request

        from ldlm_monitor.service.notify.http_client import deliver

        data = json.dumps(self._render(alerts, now)).encode()
        deliver(Request(self._url, data, self._headers, method="POST"))

    def send_test(self, trial: TrialAlert) -> str:
        """Send the alert of the trial, which ends by itself."""
        self.send([SentAlert(trial.alert, resolved_at=trial.now + TEST_SECONDS)], trial.now)
        return ""

    def senders(self, daemon: DaemonParts) -> Iterator[Sender]:
        """The one that keeps this Alertmanager up to date."""
        log.info("%s gets the firing alerts", self.name)
        client = AlertmanagerClient(
            self._server,
            authorization=self._authorization,
            generator=daemon.url,
            external=daemon.labels,
        )
        pulse = Pulse(daemon.turns)
        yield AlertmanagerSender(client, daemon.snapshot, daemon.outbox, pulse=pulse)


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
        from ldlm_monitor.service.notify.deliveries import pause

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
