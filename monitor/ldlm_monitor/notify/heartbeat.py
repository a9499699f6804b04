"""A dead man's switch: it gets a request regularly while the logs are watched, and none after."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final
from urllib.request import Request

from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.notify.http_client import TIMEOUT_SECONDS, deliver
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
