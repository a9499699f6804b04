"""The real daemon and an OTLP receiver: requests are parsed as collectors do, by the protocol's own
message types."""

import gzip
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families

LOG = "train_logs/train_20260129_101500_node0.log"
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


def configure(folder: Path, collector: Collector) -> None:
    (folder / "ldlm-monitor.toml").write_text(
        "stall.floor_seconds = 600\nexternal_labels = {cluster = 'a'}\n"
        f"[otlp]\nendpoint = '{collector.url}'\ninterval_seconds = 1\n"
    )


@pytest.mark.live
def test_metrics_and_incidents_arrive(start, append, bars, tmp_path, collector) -> None:
    """The same families as `/metrics`; an incident is a record at its opening and at its end."""
    append(LOG, bars(1, 20))
    configure(tmp_path, collector)
    daemon = start(LOG).ready()
    append(LOG, CRASH)
    opened = collector.next_record()
    daemon.wait_for_metric('ldlm_run_state{run="train_20260129_101500",state="crashed"} 1')
    ended = collector.next_record()
    names = {pair.key: pair.value.string_value for pair in opened.attributes}
    assert opened.event_name == ended.event_name == "ldlm.incident"
    assert "bad batch" in opened.body.string_value
    assert names["ldlm.run"] == "train_20260129_101500"
    assert names["ldlm.state"] == "open"
    assert opened.severity_text == "critical"
    after = {pair.key: pair.value.string_value for pair in ended.attributes}
    assert after["ldlm.incident"] == names["ldlm.incident"]
    assert (after["ldlm.state"], after["ldlm.reason"]) == ("ended", "run ended")
    while not collector.metrics.empty():
        collector.metrics.get()
    pushed = collector.next_metrics()
    scraped = {
        sample.name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        for family in text_string_to_metric_families(daemon.get("/metrics"))
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
    [durations] = pushed["ldlm_train_step_duration_seconds"].histogram.data_points
    assert len(durations.bucket_counts) == len(durations.explicit_bounds) + 1
    assert sum(durations.bucket_counts) == durations.count > 0
    assert not durations.HasField("min")


@pytest.mark.live
def test_a_refused_incident_is_sent_again(start, append, bars, tmp_path, collector) -> None:
    """A collector that is down delays its own records only, and then gets each once."""
    append(LOG, bars(1, 20))
    configure(tmp_path, collector)
    collector.status = 503
    daemon = start(LOG).ready()
    append(LOG, CRASH)
    daemon.until("TrainingCrashed")
    assert collector.refused.acquire(timeout=PATIENCE)
    daemon.process.kill()
    daemon.process.wait()
    collector.status = 200
    start(LOG).ready()
    records = [collector.next_record(), collector.next_record()]
    states = [
        pair.value.string_value
        for record in records
        for pair in record.attributes
        if pair.key == "ldlm.state"
    ]
    assert states == ["open", "ended"]
    assert collector.logs.empty()
