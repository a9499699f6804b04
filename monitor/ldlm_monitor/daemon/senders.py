"""Threads that send: couriers, Alertmanagers, a dead man's switch."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence

from ldlm_monitor.config import Settings
from ldlm_monitor.config.policy import Policy
from ldlm_monitor.daemon.pump import Pump
from ldlm_monitor.model.view import CurveView
from ldlm_monitor.notify import (
    AlertmanagerClient,
    AlertmanagerSender,
    Courier,
    HeartbeatSender,
    Outbox,
    Pulse,
    Receiver,
)
from ldlm_monitor.notify.receivers import policy_of

log = logging.getLogger(__name__)


class CurvesWhenReady:
    """The curves that pictures are drawn from. Blocks until the pump exists."""

    def __init__(self) -> None:
        self._known = threading.Event()
        self._pump: Pump | None = None

    def of(self, pump: Pump) -> None:
        """There is a pump."""
        self._pump = pump
        self._known.set()

    def close(self) -> None:
        """There will be none."""
        self._known.set()

    def __call__(self) -> Mapping[str, Mapping[str, CurveView]]:
        """The curves as they stand now, by run and quantity."""
        self._known.wait()
        return self._pump.snapshot.curves if self._pump is not None else {}


def couriers(
    settings: Settings, outbox: Outbox, receivers: Sequence[Receiver]
) -> Iterator[Courier]:
    """One a receiver. They need nothing but the outbox: what waits in it goes out at once."""
    for receiver in receivers:
        is_for_people = isinstance(policy_of(settings, receiver), Policy)
        pace = settings.post_interval_seconds if is_for_people else 0.0
        yield Courier(receiver, outbox, pace=pace)


def senders(
    settings: Settings, pump: Pump, outbox: Outbox, url: str
) -> Iterator[AlertmanagerSender | HeartbeatSender]:
    """One for each AlertmanagerSender, which gets the firing alerts, and the dead man's switch."""
    authorization = settings.alertmanager.authorization()
    for server in settings.alertmanager.urls:
        client = AlertmanagerClient(server, authorization=authorization)
        log.info("%s gets what fires", client.name)
        yield AlertmanagerSender(
            client,
            lambda: pump.snapshot,
            outbox,
            pulse=Pulse(lambda: pump.turns),
            generator=url,
            external_labels=settings.external_labels,
        )
    if switch := settings.heartbeat.target():
        interval = settings.heartbeat.interval_seconds
        log.info("a dead man's switch is called every %g s", interval)
        yield HeartbeatSender(switch, interval, Pulse(lambda: pump.turns), outbox)
