"""An OpenTelemetry collector, which gets metrics and incidents."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.base.setting_types import BaseUrl
from ldlm_monitor.service.notify.receiver import Receiver, ReceiverSettings

if TYPE_CHECKING:
    from ldlm_monitor.service.notify.courier import Sender
    from ldlm_monitor.service.notify.receiver import DaemonParts, TrialAlert

LOGS = "otlp logs"  # the receiver's name
log = logging.getLogger(__name__)


class Otlp(ReceiverSettings):
    """An OpenTelemetry collector that gets the metrics, and incidents as logs (extra `otlp`).

    Headers, certificates and compression: the environment's `OTEL_EXPORTER_OTLP_*`.
    """

    table = "otlp"
    how = "otlp.endpoint"

    endpoint: BaseUrl | None = Field(default=None, examples=["http://127.0.0.1:4318"])
    """The base URL of OTLP over HTTP; `/v1/metrics` and `/v1/logs` are appended."""
    # OpenTelemetry's own default (`OTEL_METRIC_EXPORT_INTERVAL`).
    interval_seconds: float = Field(default=60, ge=1, le=86400, allow_inf_nan=False)
    """Seconds between two pushes of the metrics."""

    def receivers(self) -> Iterator[Receiver]:
        """The one collector, if it is set. Raises ConfigError without the SDK."""
        if self.endpoint is None:
            return
        try:
            from ldlm_monitor.service.notify import otlp  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "needs the OpenTelemetry SDK",
                where="otlp.endpoint",
                remedy="pip install 'ldlm-monitor[otlp]'",
            ) from error
        yield Collector(self.endpoint, self.interval_seconds)


class Collector(Receiver):
    """A collector at `endpoint`, which gets the metrics every `interval` seconds."""

    name = LOGS
    gets_alerts = False
    gets_incidents = True

    def __init__(self, endpoint: str, interval: float) -> None:
        self._endpoint = endpoint
        self._interval = interval

    def send_test(self, trial: TrialAlert) -> str:
        """Send a record."""
        from ldlm_monitor.service.notify.otlp import OtlpLogs, resource_of

        OtlpLogs(self._endpoint, resource_of(trial.url, trial.labels)).send(trial.message)
        return ""

    def senders(self, daemon: DaemonParts) -> Iterator[Sender]:
        """One of the incidents, and one of the metrics."""
        from ldlm_monitor.service.notify.courier import Courier
        from ldlm_monitor.service.notify.otlp import OtlpLogs, OtlpMetrics, resource_of

        log.info("the collector at %s gets metrics and incidents", self._endpoint)
        logs = OtlpLogs(self._endpoint, resource_of(daemon.url, daemon.labels))
        yield Courier(logs, daemon.outbox)
        yield OtlpMetrics(logs, self._interval, daemon.exported, daemon.outbox)
