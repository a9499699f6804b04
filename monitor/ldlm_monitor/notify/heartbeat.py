"""A dead man's switch is told while the logs are watched, and hears no more when they are not."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from http.client import HTTPException
from urllib.request import Request

from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.notify.outbox import Outbox
from ldlm_monitor.notify.post import post
from ldlm_monitor.notify.stoppable import Stoppable
from ldlm_monitor.text.redact import redact
from ldlm_monitor.text.sanitize import without_escapes as plain

STILL_SECONDS = 60.0
"""A pump that has ended no turn for so long is taken for stuck; one takes a second or two."""
LOOK_SECONDS = 0.5
AGAIN_SECONDS = 10.0
"""After a request that failed the next follows sooner than the interval."""

log = logging.getLogger(__name__)


class Pulse:
    """Whether the pump turns. `turns` is how many of its turns have ended."""

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


class Heartbeat(Stoppable):
    """Asks for one URL every `interval` seconds while the pulse beats.

    The URL is a secret: it is never logged or shown. `timeout` (seconds) bounds each wait for
    the server.
    """

    receiver = "heartbeat"

    def __init__(
        self, url: str, interval: float, pulse: Pulse, outbox: Outbox, *, timeout: float = 10.0
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
        """Ask until stopped."""
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = self.turn() if self._pulse.beats(time.monotonic()) else LOOK_SECONDS

    def turn(self) -> float:
        """Ask once; how many seconds to wait then."""
        try:
            ask(self._url, self._timeout)
        except DeliveryError as problem:
            if not self._failing:
                log.warning("%s: %s; trying again", self.receiver, problem)
            self._failing = True
            self._outbox.count(self.receiver, "retried")
            return min(AGAIN_SECONDS, self._interval)
        self._failing = False
        self._outbox.count(self.receiver, "sent")
        return self._interval


def ask(url: str, timeout: float = 10.0) -> None:
    """GET it, once. Raises DeliveryError, which does not show the URL, unless that was accepted."""
    try:
        answer = post(Request(url, headers={"User-Agent": "ldlm-monitor"}), timeout)
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise DeliveryError(f"could not be reached: {redact(plain(str(reason)))[:200]}") from None
    if not 200 <= answer.status < 300:
        raise DeliveryError(f"answered {answer.status}")
