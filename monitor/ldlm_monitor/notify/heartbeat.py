"""A dead man's switch: it gets a request regularly while the logs are watched, and none after."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final
from urllib.request import Request

from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.notify.http_client import TIMEOUT_SECONDS, Sender, deliver
from ldlm_monitor.notify.outbox import Outbox

STILL_SECONDS: Final = 60.0
"""A pump that has ended no turn for so long counts as stuck; a turn takes a second or two."""
LOOK_SECONDS: Final = 0.5
"""Between two looks at a pump that is stuck."""
AGAIN_SECONDS: Final = 10.0
"""Pause after a request that failed: shorter than the interval, or one lost request would alarm."""

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


class HeartbeatSender(Sender):
    """Requests one URL every `interval` seconds while the pulse beats.

    The URL is a secret: it is never logged or shown. `timeout` (seconds) bounds each wait for
    the server.
    """

    receiver = "heartbeat"

    def __init__(
        self,
        url: str,
        interval: float,
        pulse: Pulse,
        outbox: Outbox,
        *,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        super().__init__(self.receiver)
        self._url = url
        self._interval = interval
        self._pulse = pulse
        self._outbox = outbox
        self._timeout = timeout
        self._failing = False
        outbox.register(self.receiver)

    def run(self) -> None:
        """Request until stopped."""
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = self.turn() if self._pulse.beats(time.monotonic()) else LOOK_SECONDS

    def turn(self) -> float:
        """Request once; how many seconds to wait then."""
        try:
            ping(self._url, self._timeout)
        except DeliveryError as problem:
            if not self._failing:
                log.warning("%s: %s; trying again", self.receiver, problem)
            self._failing = True
            self._outbox.count(self.receiver, "retried")
            return min(AGAIN_SECONDS, self._interval)
        self._failing = False
        self._outbox.count(self.receiver, "sent")
        return self._interval


def ping(url: str, timeout: float = TIMEOUT_SECONDS) -> None:
    """GET it once. Raises DeliveryError, which does not show the URL, unless that was accepted."""
    request = Request(url, headers={"User-Agent": "ldlm-monitor"})
    deliver(request, timeout, show_body=False)
