"""Senders of states, of which nothing waits in the outbox, and the pulse of what they send."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ldlm_monitor.base.errors import DeliveryError
from ldlm_monitor.service.notify.courier import Sender

if TYPE_CHECKING:
    pass

STILL_SECONDS: Final = 60.0
"""Seconds without a turn after which the pump, the thread that reads the logs, counts as stuck. A
choice: a turn takes 1 or 2; fewer would take a slow disk for it, more would delay the alarm."""
LOOK_SECONDS: Final = 0.25
"""Seconds between two looks at the snapshot, or at a stuck pump. A choice: more would delay each
alert to an Alertmanager, fewer would use CPU for looks that find nothing."""

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
