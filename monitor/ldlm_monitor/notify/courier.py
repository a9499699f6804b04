"""Sends the messages of the outbox to one receiver, in a thread of its own."""

import logging
import sqlite3
import threading
import time
from typing import Protocol

from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.notify.group_messages import Pending
from ldlm_monitor.notify.message import Message, Receipt
from ldlm_monitor.notify.outbox import Outbox
from ldlm_monitor.text.sanitize import plain

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Seconds at most between two looks at the outbox, by which follow-ups, retries and alerts that
quiet hours held may be late: no thread is woken for them. Measured with 2000 alerts, a look takes
0.5 ms if all were sent, and 55 ms (5 % of a core) if a silence or quiet hours hold all."""


class Receiver(Protocol):
    """A destination of messages, which may get one twice; `name` is that of its outbox queue."""

    name: str

    def send(self, message: Message) -> Receipt:
        """Send a message; return once it is accepted. Raises DeliveryError if it is not."""


class Courier(threading.Thread):
    """A thread that sends one receiver's messages; a receiver that is down stalls no other.

    Call `wake` after `Outbox.add`; otherwise the message waits for up to LOOK_SECONDS. `pace` is
    the least number of seconds between two messages.
    """

    def __init__(self, receiver: Receiver, outbox: Outbox, *, pace: float = 0.0) -> None:
        super().__init__(name=f"courier-{receiver.name}", daemon=True)
        self._receiver = receiver
        self._outbox = outbox
        self._pace = pace
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._abandoned = threading.Event()
        outbox.register(receiver.name)

    def wake(self) -> None:
        """Look at the outbox now, because something was added to it."""
        self._wake.set()

    def stop(self, timeout: float) -> bool:
        """Send what is due, then end the thread; False if it still runs after `timeout` seconds.

        In that case a message is on its way, and the thread ends with its answer or with the
        process. If its answer comes too late for the outbox, a restart sends the message again.
        """
        self._stopping.set()
        self._wake.set()
        self.join(timeout)
        self._abandoned.set()
        return not self.is_alive()

    def run(self) -> None:
        """Deliver until stopped."""
        try:
            self._drain()
        except sqlite3.ProgrammingError:
            # Once `stop` gave up waiting, the outbox may be closed while this thread uses it.
            if not self._abandoned.is_set():
                raise

    def _drain(self) -> None:
        while not self._abandoned.is_set():
            self._wake.clear()
            stopping = self._stopping.is_set()  # read first, so that one `due` follows `stop`
            pending = self._outbox.due(self._receiver.name, time.time(), last=stopping)
            if pending is not None:
                self._deliver(pending)
                self._abandoned.wait(self._pace)
            elif stopping:
                return
            else:
                self._wake.wait(LOOK_SECONDS)

    def _deliver(self, pending: Pending) -> None:
        begun = time.monotonic()
        try:
            receipt = self._receiver.send(pending.message)
        except DeliveryError as error:
            self._record_failure(pending, error)
        except Exception:  # a message that triggers a bug must not end the thread
            log.exception("%s: a bug of the monitor while sending", pending.receiver)
            self._record_failure(pending, DeliveryError("a bug of the monitor", permanent=True))
        else:
            self._outbox.accepted(pending, time.time(), receipt)
            self._add(receipt)
        self._outbox.durations[self._receiver.name].observe((time.monotonic() - begun,))

    def _add(self, receipt: Receipt) -> None:
        """Add the receipt's picture. It is optional, so a failure is only logged."""
        try:
            if receipt.then is not None:
                receipt.then()
        except Exception as error:  # noqa: BLE001 # whatever fails, the message has arrived
            log.warning("%s: a picture was left out: %s", self._receiver.name, plain(str(error)))

    def _record_failure(self, pending: Pending, error: DeliveryError) -> None:
        self._outbox.failed(pending, error, time.time())
        if error.permanent:
            about = pending.message.lead.key
            log.error("%s: a message on %s was given up: %s", pending.receiver, about, error)
        elif pending.attempts == 0:
            log.warning("%s: %s; trying again", pending.receiver, error)
