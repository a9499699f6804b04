"""Sends the metrics, and each incident as log records, to an OpenTelemetry collector.

OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp/). Headers, certificates, compression and
the longest time of an attempt (10 s) are those of the environment, `OTEL_EXPORTER_OTLP_*`, which
the SDK's exporters read. Metrics keep Prometheus' names and have no unit, so that a collector
which writes them for Prometheus adds nothing to a name
(https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/).
"""

import logging
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from requests import Response, Session

from ldlm_monitor import __version__
from ldlm_monitor.base.errors import DeliveryError
from ldlm_monitor.base.names import Metric
from ldlm_monitor.base.points import Labels, Point
from ldlm_monitor.base.text.sanitize import encodable, redact
from ldlm_monitor.service.notify.collector import LOGS
from ldlm_monitor.service.notify.courier import LOOK_SECONDS
from ldlm_monitor.service.notify.http_client import PERMANENT
from ldlm_monitor.service.notify.message import Message, Notification, Receipt
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.notify.receiver import Families, MessageReceiver
from ldlm_monitor.service.notify.states import StateSender

_Data: TypeAlias = sdk.Gauge | sdk.Histogram | sdk.Sum
METRICS = "otlp metrics"  # the sender's name, and that of its counts
BATCH: Final = 5000
"""Most data points of a request: about 1 MB, where a collector accepts 20 MiB by default. A choice:
fewer cost more requests, more would lose more with one that fails."""
_SCOPE = InstrumentationScope("ldlm_monitor", __version__)
_SEVERITIES = {
    "critical": SeverityNumber.FATAL,
    "error": SeverityNumber.ERROR,
    "warning": SeverityNumber.WARN,
}
# The exporters log each of their attempts; the sender's own message, once for a row, is enough.
logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL + 1)


def resource_of(url: str, labels: Mapping[str, str]) -> Resource:
    """This monitor, which people reach under `url`, with `labels` of the settings."""
    own = {"service.name": "ldlm-monitor", "service.version": __version__}
    where = {"service.instance.id": url, "host.name": socket.gethostname()}
    return Resource.create({**own, **where, **labels})


class _Answers(Session):
    """Keeps the status of the last answer: the exporters report no more than a failure."""

    def __init__(self) -> None:
        super().__init__()
        self.status: int | None = None
        self.hooks["response"].append(self._note)

    def _note(self, answer: Response, *_: Any, **__: Any) -> None:
        self.status = answer.status_code

    def error(self) -> DeliveryError:
        """Why the last request failed; permanent where the same one would fail again."""
        reason = "could not be reached" if self.status is None else f"answered {self.status}"
        return DeliveryError(f"the collector {reason}", permanent=self.status in PERMANENT)


class OtlpLogs(MessageReceiver):
    """A receiver of incidents: a log record for each one's opening, and for its end."""

    name = LOGS

    def __init__(self, endpoint: str, resource: Resource) -> None:
        self._answers = _Answers()
        self._exporter = OTLPLogExporter(f"{endpoint}/v1/logs", session=self._answers)
        self.endpoint, self.resource = endpoint, resource

    def send(self, message: Message) -> Receipt:
        """Send the news in one request. Raises DeliveryError unless it was accepted."""
        self._answers.status = None
        now = time.time_ns()
        records = (_record(each, now) for each in message.news)
        batch = [ReadableLogRecord(record, self.resource, _SCOPE) for record in records]
        if self._exporter.export(batch) is not LogRecordExportResult.SUCCESS:
            raise self._answers.error()
        return Receipt()


def _record(each: Notification, now: int) -> LogRecord:
    number = _SEVERITIES.get(each.severity) if each.state == "firing" else SeverityNumber.INFO
    same = ("reason", "run", "rank", "step", "incident", "cause", "action", "line", "link")
    texts = {name: getattr(each, name) for name in same} | {"why": each.description} | each.labels
    texts["state"] = "open" if each.state == "firing" else each.state
    attributes: dict[str, Any] = {f"ldlm.{name}": text for name, text in texts.items() if text}
    if each.path is not None:
        attributes |= {"log.file.path": each.path, "log.file.line": each.line_number}
    return LogRecord(
        timestamp=_nanoseconds(each.started_at if each.at is None else each.at),
        observed_timestamp=now,
        severity_number=number or SeverityNumber.INFO,
        severity_text=each.severity,
        body=each.summary,
        attributes=attributes,
        event_name="ldlm.incident",
    )


class OtlpMetrics(StateSender):
    """Sends what `/metrics` exports every `interval` seconds to the collector of `logs`.

    What failed is not sent again: the next push has the same counters and newer gauges.
    """

    def __init__(self, logs: OtlpLogs, interval: float, families: Families, outbox: Outbox) -> None:
        super().__init__(METRICS, outbox)
        self._answers = _Answers()
        self._exporter = OTLPMetricExporter(
            f"{logs.endpoint}/v1/metrics", session=self._answers, max_export_batch_size=BATCH
        )
        self._interval = interval
        self._resource = logs.resource
        self._families = families
        self._next_at = 0.0

    def turn(self) -> float:
        """Send if it is due, and once more at the end; returns the seconds until the next turn."""
        now = time.monotonic()
        if now >= self._next_at or self._stopping.is_set():
            self._next_at = now + self._interval
            self._attempt(self._send)
        return LOOK_SECONDS

    def _send(self) -> None:
        self._answers.status = None
        data = metrics_data(self._families(), self._resource, time.time_ns())
        if self._exporter.export(data) is not sdk.MetricExportResult.SUCCESS:
            raise self._answers.error()


def metrics_data(
    families: Iterable[tuple[Metric, Iterable[Point]]], resource: Resource, now: int
) -> sdk.MetricsData:
    """The families as OTLP's data model has them at `now` (Unix nanoseconds).

    A counter's `_created` is its start; where there is none, the start is unknown (0). Names of
    runs and quantities come from logs, so labels are redacted.
    """
    made: dict[str, Callable[[Sequence[Point], int], _Data]]
    made = {"counter": _sum, "histogram": _histogram, "gauge": _gauge}
    known: dict[Labels, Labels] = {}
    metrics = []
    for metric, points in families:
        shown: dict[tuple[str, Labels], Point] = {}  # redaction may make two series equal
        for point in points:
            if (labels := known.get(point.labels)) is None:
                safe = ((name, encodable(redact(text))) for name, text in point.labels)
                labels = known[point.labels] = tuple(safe)
            shown[point.name, labels] = Point(point.name, labels, point.value)
        data = made[metric.kind]([*shown.values()], now)
        metrics.append(sdk.Metric(metric.name, metric.help, "", data))
    scope = sdk.ScopeMetrics(_SCOPE, metrics, "")
    return sdk.MetricsData([sdk.ResourceMetrics(resource, [scope], "")])


def _numbers(points: Iterable[Point], starts: Mapping[Labels, int], now: int) -> list[Any]:
    return [
        sdk.NumberDataPoint(dict(each.labels), starts.get(each.labels, 0), now, float(each.value))
        for each in points
    ]


def _gauge(points: Sequence[Point], now: int) -> sdk.Gauge:
    return sdk.Gauge(_numbers(points, {}, now))


def _sum(points: Sequence[Point], now: int) -> sdk.Sum:
    created = [point for point in points if point.name.endswith("_created")]
    starts = {point.labels: _nanoseconds(point.value) for point in created}
    counts = (point for point in points if not point.name.endswith("_created"))
    return sdk.Sum(_numbers(counts, starts, now), sdk.AggregationTemporality.CUMULATIVE, True)


def _histogram(points: Sequence[Point], now: int) -> sdk.Histogram:
    buckets: dict[Labels, list[tuple[float, float]]] = {}
    sums: dict[Labels, float] = {}
    for point in points:
        bound = dict(point.labels).get("le")
        labels = tuple(pair for pair in point.labels if pair[0] != "le")
        if bound is not None:
            buckets.setdefault(labels, []).append((float(bound), point.value))
        elif point.name.endswith("_sum"):
            sums[labels] = point.value
    found = []
    for labels, below in buckets.items():
        bounds, totals = zip(*below, strict=True)
        counts = [int(one - before) for one, before in zip(totals, (0, *totals), strict=False)]
        found.append(
            sdk.HistogramDataPoint(
                dict(labels), 0, now, int(totals[-1]), sums[labels], counts, bounds[:-1],
                None, None,  # type: ignore[arg-type] # the least and the greatest are not known
            )
        )  # fmt: skip
    return sdk.Histogram(found, sdk.AggregationTemporality.CUMULATIVE)


def _nanoseconds(seconds: float) -> int:
    return max(0, int(seconds * 1e9))
