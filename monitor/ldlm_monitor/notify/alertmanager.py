"""Alertmanager: told what fires again and again, as Prometheus tells it.

An Alertmanager is told states, not news: an alert that it does not hear of any more is
over by its `endsAt`. So nothing waits in the outbox for it, and after a restart it is
simply told what fires then. Times as in Prometheus' rule manager (cmd/prometheus/main.go,
`--rules.alert.resend-delay`; rules/alerting.go, `resolvedRetention`), the body as in
Alertmanager's API v2 (api/v2/openapi.yaml, `postableAlerts`).
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request

from ldlm_monitor.model.alert import alert_key
from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.model.view import AlertView, Snapshot
from ldlm_monitor.notify.heartbeat import Pulse
from ldlm_monitor.notify.outbox import Outbox
from ldlm_monitor.notify.post import PERMANENT, post
from ldlm_monitor.notify.stoppable import Stoppable
from ldlm_monitor.text.redact import redact
from ldlm_monitor.text.sanitize import without_escapes as plain

RESEND_SECONDS = 60.0
VALID_SECONDS = 4 * RESEND_SECONDS
RESOLVED_KEPT_SECONDS = 900.0
LOOK_SECONDS = 0.25
"""How often it is looked whether anything changed."""
BATCH = 64
TEXT_LIMIT = 4096
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Told:
    """An alert, when it was told last, and since when it is over."""

    alert: AlertView
    told_at: float | None = None
    resolved_at: float | None = None

    def is_due(self, now: float) -> bool:
        """As Prometheus' `needsSending`."""
        if self.told_at is None or (self.resolved_at or 0.0) > self.told_at:
            return True
        return now - self.told_at >= RESEND_SECONDS


class Standing:
    """What one Alertmanager knows of, and what is due to be said to it."""

    def __init__(self) -> None:
        self._known: dict[str, Told] = {}

    def look_at(self, alerts: Iterable[AlertView], now: float) -> None:
        """These are active at `now` (Unix seconds)."""
        firing = {
            alert_key(alert.name, alert.labels): alert
            for alert in alerts
            if alert.state == "firing"
        }
        for key, told in self._known.items():
            if key not in firing and told.resolved_at is None:
                told.resolved_at = now
        for key, alert in firing.items():
            known = self._known.get(key)
            if known is None or known.resolved_at is not None:
                self._known[key] = Told(alert)
            else:
                known.alert = alert

    def due(self, now: float, *, beats: bool = True) -> list[Told]:
        """What should be told, at most as much as fits one request.

        Unless the pump `beats`, the alert that says that alerting works is not told again.
        """
        self._known = {
            key: told
            for key, told in self._known.items()
            if told.resolved_at is None or now - told.resolved_at <= RESOLVED_KEPT_SECONDS
        }
        return [
            told
            for told in self._known.values()
            if told.is_due(now) and (beats or told.alert.labels.get("severity") != "none")
        ][:BATCH]


def body(
    told: Iterable[Told], now: float, generator: str, external: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """`postableAlerts`; `generator` is the monitor's own URL.

    `external` labels give way to an alert's own, as Prometheus' do (notifier/notifier.go).
    """
    outer = _texts(external or {})
    return [
        {
            "labels": {**outer, "alertname": each.alert.name, **_texts(each.alert.labels)},
            "annotations": _texts(each.alert.annotations),
            "startsAt": _rfc3339(each.alert.fired_at or each.alert.active_at),
            "endsAt": _rfc3339(each.resolved_at or now + VALID_SECONDS),
            "generatorURL": generator,
        }
        for each in told
    ]


def _texts(pairs: Mapping[str, str]) -> dict[str, str]:
    """Redacted before they are bounded; an empty label is none."""
    shown = {name: redact(plain(text))[:TEXT_LIMIT] for name, text in pairs.items()}
    return {name: text for name, text in shown.items() if text}


def _rfc3339(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


class AlertmanagerClient:
    """Posts to one Alertmanager.

    `url` as Prometheus' `alertmanagers` have it, a path prefix included. `authorization` is
    the header of that name. `timeout` (seconds) bounds each wait for the server.
    """

    def __init__(
        self, url: str, *, authorization: str | None = None, timeout: float = 10.0
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
        try:
            answer = post(Request(self._url, data, self._headers, method="POST"), self._timeout)
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise DeliveryError(f"could not be reached: {redact(plain(str(reason)))}") from None
        if not 200 <= answer.status < 300:
            raise DeliveryError(
                f"answered {answer.status}: {redact(plain(answer.body))[:200]}",
                retry_after=answer.retry_after,
                permanent=answer.status in PERMANENT,
            )


class Alertmanager(Stoppable):
    """Keeps one Alertmanager told of the snapshot's alerts, in a thread of its own.

    `pulse` tells whether that snapshot still follows the logs.
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
        self.receiver = client.name
        super().__init__(self.receiver)
        self._client = client
        self._snapshot = snapshot
        self._outbox = outbox
        self._pulse = pulse
        self._generator = generator
        self._external = dict(external_labels or {})
        self._clock = clock
        self._standing = Standing()
        self._failures = 0
        self._seen: Snapshot | None = None
        outbox.register(self.receiver)

    def run(self) -> None:
        """Tell until stopped."""
        while not self._stopping.is_set():
            self._stopping.wait(self.turn(self._clock()) or LOOK_SECONDS)

    def turn(self, now: float) -> float:
        """Say all that is due; how many seconds to wait after an attempt that failed, else 0."""
        snapshot = self._snapshot()
        if snapshot is not self._seen:
            self._standing.look_at(snapshot.alerts, now)
            self._seen = snapshot
        beats = self._pulse.beats(now)
        while (due := self._standing.due(now, beats=beats)) and not self._stopping.is_set():
            try:
                self._client.send(body(due, now, self._generator, self._external))
            except DeliveryError as error:
                return self._note_failure(error)
            self._failures = 0
            self._outbox.count(self.receiver, "sent")
            for told in due:
                told.told_at = now
        return 0.0

    def _note_failure(self, error: DeliveryError) -> float:
        if not self._failures:
            log.warning("%s: %s; trying again until it is accepted", self.receiver, error)
        self._failures += 1
        self._outbox.count(self.receiver, "failed" if error.permanent else "retried")
        doubled = min(FIRST_PAUSE * 2.0 ** min(self._failures - 1, 10), LONGEST_PAUSE)
        wished = doubled if error.retry_after is None else error.retry_after
        pause = min(max(wished, FIRST_PAUSE), LONGEST_PAUSE)
        return pause * random.uniform(0.5, 1.0) if error.retry_after is None else pause
