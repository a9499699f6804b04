"""Threads that send, and the one that sends a receiver's messages of the outbox."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ldlm_monitor.base.errors import DeliveryError
from ldlm_monitor.base.text.sanitize import plain

if TYPE_CHECKING:
    from ldlm_monitor.service.notify.group_messages import Pending
    from ldlm_monitor.service.notify.message import Receipt
    from ldlm_monitor.service.notify.outbox import Outbox
    from ldlm_monitor.service.notify.receiver import MessageReceiver

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Seconds at most between two looks at the outbox, by which follow-ups, retries and alerts that
quiet hours held may be late: no thread is woken for them. Measured with 2000 alerts, a look takes
0.5 ms if all were sent, and 55 ms (5 % of a core) if a silence or quiet hours hold all."""


AGAIN_SECONDS = 10.0
"""Seconds until a failed heartbeat is sent again, or a sender goes on after a bug. A choice: after
a whole interval the switch would alert; a shorter time loads a server that is down."""


class Sender(threading.Thread):
    """A thread that calls `turn`, which sends what is due, again and again until it is stopped.

    `receiver` names the thread, and its counts in `outbox`.
    """

    def __init__(self, receiver: str, outbox: Outbox) -> None:
        super().__init__(name=receiver, daemon=True)
        self.receiver = receiver
        self._outbox = outbox
        self._bell = threading.Event()
        self._stopping = threading.Event()
        self._abandoned = threading.Event()
        outbox.register(receiver)

    def turn(self) -> float:
        """Send what is due; returns the seconds until the next turn, 0 if more may be due."""
        raise NotImplementedError

    def wake(self) -> None:
        """Begin the next turn now, because something was added to the outbox."""
        self._bell.set()

    def end(self) -> None:
        """Ask the thread to send what is due and to end, without waiting for it."""
        self._stopping.set()
        self._bell.set()

    def stop(self, timeout: float) -> bool:
        """Send what is due, then end the thread; False if it still runs after `timeout` seconds.

        In that case a message is on its way, and the thread ends with its answer or with the
        process. If its answer comes too late for the outbox, a restart sends the message again.
        """
        self.end()
        self.join(timeout)
        self._abandoned.set()
        return not self.is_alive()

    def run(self) -> None:
        """Send until stopped."""
        import sqlite3

        while not self._abandoned.is_set():
            self._bell.clear()
            stopping = self._stopping.is_set()  # read first, so that one turn follows `stop`
            try:
                pause = self.turn()
            except sqlite3.ProgrammingError:
                # Once `stop` gave up waiting, the outbox may be closed while this thread uses it.
                if not self._abandoned.is_set():
                    raise
                return
            except Exception:  # a bug must not end the thread, and all that it sends
                log.exception("%s: a bug of the monitor while sending", self.receiver)
                pause = AGAIN_SECONDS
            if stopping and pause:
                return
            self._bell.wait(pause)


def stop_all(senders: Sequence[Sender], timeout: float) -> bool:
    """Stop all at once, within `timeout` seconds in all; False if one still runs."""
    for each in senders:
        each.end()
    until = time.monotonic() + timeout
    ended = [each.stop(max(until - time.monotonic(), 0.0)) for each in senders]
    return all(ended)


class Courier(Sender):
    """Sends one receiver's messages; a receiver that is down stalls no other.

    Call `wake` after `Outbox.add`; otherwise the message waits for up to LOOK_SECONDS. `pace` is
    the least number of seconds between two messages, until the courier is to end.
    """

    def __init__(self, receiver: MessageReceiver, outbox: Outbox, *, pace: float = 0.0) -> None:
        super().__init__(receiver.name, outbox)
        self._destination = receiver
        self._pace = pace

    def turn(self) -> float:
        """Deliver the next message, if one is due."""
        pending = self._outbox.due(self.receiver, time.time(), last=self._stopping.is_set())
        if pending is None:
            return LOOK_SECONDS
        self._deliver(pending)
        self._stopping.wait(self._pace)  # at the end there is no time for pauses
        return 0.0

    def _deliver(self, pending: Pending) -> None:
        begun = time.monotonic()
        try:
            receipt = self._destination.send(pending.message)
        except DeliveryError as error:
            self._record_failure(pending, error)
        except Exception:  # a message that triggers a bug must not end the thread
            log.exception("%s: a bug of the monitor while sending", pending.receiver)
            self._record_failure(pending, DeliveryError("a bug of the monitor", permanent=True))
        else:
            self._outbox.accepted(pending, time.time(), receipt)
            self._add(receipt)
        self._outbox.durations[pending.receiver].observe((time.monotonic() - begun,))

    def _add(self, receipt: Receipt) -> None:
        """Add the receipt's picture. It is optional, so a failure is only logged."""
        try:
            if receipt.then is not None:
                receipt.then()
        except Exception as error:  # noqa: BLE001 # whatever fails, the message has arrived
            log.warning("%s: a picture was left out: %s", self.receiver, plain(str(error)))

    def _record_failure(self, pending: Pending, error: DeliveryError) -> None:
        self._outbox.failed(pending, error, time.time())
        if error.permanent:
            about = pending.message.lead.key
            log.error("%s: a message on %s was given up: %s", pending.receiver, about, error)
        elif pending.attempts == 0:
            log.warning("%s: %s; trying again", pending.receiver, error)
