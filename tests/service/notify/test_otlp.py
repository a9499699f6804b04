"""The whole daemon and an OTLP receiver: requests are parsed as collectors do, by the protocol's
own message types."""

import gzip
import queue
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ldlm_monitor.base.names import Metric
from ldlm_monitor.base.points import Point, make_labels
from tests.service.daemon.running import RUN, Running, run

pytest.importorskip("opentelemetry.sdk", reason="the extra otlp is not installed")
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.sdk.resources import Resource

__all__ = ["run"]  # a fixture
Run = Callable[..., Running]
PATIENCE = 30.0
CRASH = """
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise ValueError("bad batch")
ValueError: bad batch
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-29_10:15:21
  host      : node0
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 3002)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
"""The launcher's table says that the run has ended; after a traceback alone, silence must."""


class Collector:
    """An HTTP server that accepts OTLP, while `status` is 200, and keeps what it got."""

    def __init__(self) -> None:
        self.status = 200
        self.refused = threading.Semaphore(0)
        self.metrics: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.logs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        kinds = {
            "/v1/metrics": (ExportMetricsServiceRequest, self.metrics),
            "/v1/logs": (ExportLogsServiceRequest, self.logs),
        }
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                kind, kept = kinds[self.path]
                assert self.headers["Content-Type"] == "application/x-protobuf"
                if collector.status == 200:
                    kept.put(kind.FromString(body))
                else:
                    collector.refused.release()
                self.send_response(collector.status)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def next_metrics(self) -> dict[str, Any]:
        """The metrics of the next request, by name."""
        [resource] = self.metrics.get(timeout=PATIENCE).resource_metrics
        attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
        assert (attributes["service.name"], attributes["cluster"]) == ("ldlm-monitor", "a")
        return {metric.name: metric for metric in resource.scope_metrics[0].metrics}

    def next_record(self) -> Any:
        """The one log record of the next request."""
        [record] = self.logs.get(timeout=PATIENCE).resource_logs[0].scope_logs[0].log_records
        return record

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    yield server
    server.close()


@pytest.fixture
def followed(
    collector: Collector, run: Run, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Running]:
    """Starts a daemon that sends to the collector each second, and gives up an attempt as soon."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    otlp = {"endpoint": collector.url, "interval_seconds": 1}
    return lambda: run(external_labels={"cluster": "a"}, otlp=otlp)


def text_of(record: Any, name: str) -> str:
    """An attribute of a log record."""
    return next(pair.value.string_value for pair in record.attributes if pair.key == name)


def test_metrics_and_incidents_arrive(
    followed: Callable[[], Running], collector: Collector
) -> None:
    """The same families as `/metrics`; an incident is a record at its opening and at its end."""
    daemon = followed()
    daemon.append(CRASH)
    opened, ended = collector.next_record(), collector.next_record()
    assert opened.event_name == ended.event_name == "ldlm.incident"
    assert "bad batch" in opened.body.string_value
    assert text_of(opened, "ldlm.run") == RUN
    assert text_of(opened, "ldlm.state") == "open"
    assert text_of(opened, "log.file.path").endswith("_node0.log")
    assert (opened.severity_text, opened.severity_number) == ("critical", 21)
    assert text_of(ended, "ldlm.incident") == text_of(opened, "ldlm.incident")
    assert (text_of(ended, "ldlm.state"), text_of(ended, "ldlm.reason")) == ("ended", "run ended")
    assert (ended.severity_number, opened.time_unix_nano <= ended.time_unix_nano) == (9, True)
    daemon.until_metric(f'ldlm_run_state{{run="{RUN}",state="crashed"}} 1')
    while not collector.metrics.empty():
        collector.metrics.get()
    pushed = collector.next_metrics()
    scraped = {
        sample.name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        for family in text_string_to_metric_families(daemon.ask("/metrics"))
        for sample in family.samples
    }
    assert set(pushed) == scraped
    assert pushed["ldlm_train_step"].gauge.data_points[0].as_double == 19
    [crashes] = [
        point
        for point in pushed["ldlm_events_total"].sum.data_points
        if any(pair.value.string_value == "python_exception" for pair in point.attributes)
    ]
    assert pushed["ldlm_events_total"].sum.is_monotonic
    assert crashes.as_double == 1
    assert 0 < crashes.start_time_unix_nano <= crashes.time_unix_nano


def sent(name: str, *points: Point) -> Any:
    """The data of a metric's points at second 100."""
    from ldlm_monitor.service.notify.otlp import metrics_data

    metric = Metric(name, "what it counts")
    data = metrics_data([(metric, points)], Resource.create({}), 100 * 10**9)
    (found,) = data.resource_metrics[0].scope_metrics[0].metrics
    assert (found.name, found.description, found.unit) == (name, "what it counts", "")
    return found.data


def test_a_histogram_has_a_count_for_each_bucket() -> None:
    name, labels = "step_duration_seconds", {"run": "r"}
    below = {"1.0": 3.0, "2.0": 5.0, "+Inf": 6.0}
    (found,) = sent(
        name,
        *(Point(f"{name}_bucket", make_labels(**labels, le=le), n) for le, n in below.items()),
        Point(f"{name}_count", make_labels(**labels), 6.0),
        Point(f"{name}_sum", make_labels(**labels), 9.5),
    ).data_points
    assert (found.attributes, found.time_unix_nano) == (labels, 100 * 10**9)
    assert ([*found.explicit_bounds], [*found.bucket_counts]) == ([1.0, 2.0], [3, 2, 1])
    assert (found.count, found.sum, found.min, found.max) == (6, 9.5, None, None)


def test_a_counter_has_its_start_where_it_is_known() -> None:
    a, b = make_labels(run="a"), make_labels(run="b")
    created = Point("events_created", a, 40.0)
    found = sent(
        "events_total", Point("events_total", a, 7.0), created, Point("events_total", b, 2.0)
    )
    starts = {each.attributes["run"]: each.start_time_unix_nano for each in found.data_points}
    assert starts == {"a": 40 * 10**9, "b": 0}
    assert [each.value for each in found.data_points] == [7.0, 2.0]


def test_series_that_differ_by_a_secret_alone_become_one() -> None:
    token = "hf_" + "a1B2c3D4e5" * 3 + "f6G7"
    points = [Point("loss", make_labels(run=f"r {token}{end}"), 2.0) for end in "xy"]
    (found,) = sent("loss", *points).data_points
    assert token not in found.attributes["run"]


def test_a_refused_incident_is_sent_again(
    followed: Callable[[], Running], collector: Collector
) -> None:
    """A collector that is down delays its own records only, and then gets each once."""
    collector.status = 503
    daemon = followed()
    daemon.append(CRASH)
    daemon.until_metric(f'ldlm_run_state{{run="{RUN}",state="crashed"}} 1')
    assert collector.refused.acquire(timeout=PATIENCE)
    daemon.close()
    collector.status = 200
    followed()
    states = [text_of(collector.next_record(), "ldlm.state") for _ in range(2)]
    assert states == ["open", "ended"]
    assert collector.logs.empty()
