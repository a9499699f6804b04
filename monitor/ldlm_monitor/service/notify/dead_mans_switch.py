"""A heartbeat, which feeds a dead man's switch: it is sent as long as the logs are watched."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from ldlm_monitor.base.setting_types import SecretUrl, UserPath
from ldlm_monitor.service.notify.courier import AGAIN_SECONDS
from ldlm_monitor.service.notify.receiver import Receiver, ReceiverSettings
from ldlm_monitor.service.notify.states import LOOK_SECONDS, Pulse, StateSender
from ldlm_monitor.service.state.secret_files import URL, secret_of

if TYPE_CHECKING:
    from ldlm_monitor.service.notify.courier import Sender
    from ldlm_monitor.service.notify.outbox import Outbox
    from ldlm_monitor.service.notify.receiver import DaemonParts, TrialAlert

log = logging.getLogger(__name__)


class DeadMansSwitch(ReceiverSettings):
    """A dead man's switch that is pinged while the monitor works."""

    table = "heartbeat"
    how = "heartbeat.url_file"

    url: SecretUrl | None = Field(default=None, examples=["https://hc-ping.com/..."])
    """A URL that is requested regularly while logs are watched: a dead man's switch, such as a
    check of healthchecks.io. A secret: refused in the configuration file."""
    url_file: UserPath | None = Field(default=None, examples=["heartbeat.url"])
    """A file that holds that URL."""
    # 60 is the shortest period of healthchecks.io. Below 1 s is mere load; over a day is too late.
    interval_seconds: float = Field(default=60, ge=1, le=86400, allow_inf_nan=False)
    """Seconds between two requests."""

    def target(self) -> str | None:
        """The URL; None if none is set. Raises ConfigError if its file is unusable."""
        return secret_of(self.url_file, "heartbeat.url_file", URL, self.url)

    def receivers(self) -> Iterator[Receiver]:
        """The one switch, if it is set."""
        if url := self.target():
            yield HeartbeatReceiver(url, self.interval_seconds)


class HeartbeatReceiver(Receiver):
    """What is at one URL, which is to be requested every `interval` seconds."""

    name = "heartbeat"
    gets_alerts = False

    def __init__(self, url: str, interval: float) -> None:
        self._url = url
        self._interval = interval

    def send_test(self, trial: TrialAlert) -> str:
        """Request the URL once."""
        ping(self._url)
        return ""

    def senders(self, daemon: DaemonParts) -> Iterator[Sender]:
        """The one that requests the URL."""
        log.info("a dead man's switch is called every %g s", self._interval)
        yield HeartbeatSender(self._url, self._interval, Pulse(daemon.turns), daemon.outbox)


class HeartbeatSender(StateSender):
    """Requests one URL every `interval` seconds while the pulse beats.

    The URL is a secret: it is never logged or shown.
    """

    def __init__(self, url: str, interval: float, pulse: Pulse, outbox: Outbox) -> None:
        super().__init__(HeartbeatReceiver.name, outbox)
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
    from urllib.request import Request

    from ldlm_monitor.service.notify.http_client import deliver

    request = Request(url, headers={"User-Agent": "ldlm-monitor"})
    deliver(request, show_body=False)
