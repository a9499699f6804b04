"""The body of `/metrics`, and a file by which Prometheus finds this monitor.

Each scrape is built from the snapshot alone, so the series of a run that has left it end.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from prometheus_client import ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST

from ldlm_monitor.base import names
from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.histogram import Histogram
from ldlm_monitor.base.points import Point
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.judge.core.exported_metrics import METRICS
from ldlm_monitor.judge.core.self_metrics import core_points, edge_points
from ldlm_monitor.service.serve.protobuf_format import ProtobufBody
from ldlm_monitor.service.serve.text_formats import Body

OPENMETRICS = "application/openmetrics-text"  # media types in the header `Accept`
PROTOBUF = "application/vnd.google.protobuf"
TEXT = "text/plain"
CONTENT_TYPES = {
    OPENMETRICS: CONTENT_TYPE_LATEST,
    PROTOBUF: f"{PROTOBUF}; proto=io.prometheus.client.MetricFamily; encoding=delimited",
    TEXT: CONTENT_TYPE_PLAIN_0_0_4,
}
_PROCESS = ProcessCollector(registry=None)  # CPU, memory and files of this process; Linux alone
_READABLE_BY_ALL = 0o644
"""Mode of the service discovery file: Prometheus runs as another user, and it holds no secret."""


def _metric(name: str) -> names.Metric:
    """The metric of a series' name; a histogram's end in `_bucket`, `_sum` or `_count`, and a
    counter's also in `_created`."""
    if name in METRICS:
        return METRICS[name]
    base = name.rpartition("_")[0]
    if (metric := METRICS.get(base) or METRICS.get(f"{base}_total")) is not None:
        return metric
    words = name.removeprefix(names.DETECT_PREFIX).replace("_", " ")
    return names.Metric(name, f"Computed by a detector: {words}.")


def families(
    snapshot: Snapshot,
    *,
    notifications: Mapping[tuple[str, str], int],
    behind: int,
    free: int | None = None,
    deliveries: Mapping[str, Histogram] = MappingProxyType({}),
) -> Iterator[tuple[names.Metric, list[Point]]]:
    """Each metric that is exported, sorted by name, with its points.

    `notifications` are `Outbox.counts()`, `deliveries` its durations. `behind` (not read yet) and
    `free` (on the state's disk, None if unknown) are bytes.
    """
    core = core_points(snapshot.monitor)
    edge = edge_points(notifications, behind, free, deliveries)
    found: dict[names.Metric, list[Point]] = {}
    of_name: dict[str, list[Point]] = {}
    for point in chain(snapshot.points, core, edge):
        if point.name not in of_name:
            of_name[point.name] = found.setdefault(_metric(point.name), [])
        of_name[point.name].append(point)
    for metric in sorted(found, key=lambda metric: metric.name):
        yield metric, found[metric]
    for family in _PROCESS.collect():
        for sample in family.samples:
            metric = names.Metric(sample.name, family.documentation)
            yield metric, [Point(sample.name, (), sample.value)]


def exposition(
    found: Iterable[tuple[names.Metric, Iterable[Point]]],
    accept: str,
    redact: Callable[[str], str] = str,
) -> tuple[str, bytes]:
    """(content type, body) of a scrape of `families`, in the format that `accept` prefers.

    `redact` is applied to every label's value, as names of runs and quantities come from logs. If
    a series occurs twice, the last value is kept.
    """
    # Prometheus lists the formats by falling weight, so the first known one is preferred.
    listed = f"{accept},{TEXT}".lower()
    wanted = min((kind for kind in CONTENT_TYPES if kind in listed), key=listed.index)
    body = ProtobufBody(redact) if wanted == PROTOBUF else Body(redact, is_open=wanted != TEXT)
    for metric, points in found:
        body.add(metric, points)
    return CONTENT_TYPES[wanted], body.encode()


def target(host: str, port: int, node: str) -> str:
    """HOST:PORT for other machines; if `host` means all addresses of this one, `node`:PORT."""
    host = node if host in ("", "0.0.0.0", "::") else host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def write_target(path: Path, address: str, labels: Mapping[str, str]) -> Callable[[], None]:
    """Write a service discovery file; returns a function that removes it.

    The format is that of `file_sd_configs`
    (https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config).
    Prometheus adds `labels` to every series. It reads each change, so a write is atomic.
    The function spares a file with other content. Raises UsageError if it cannot be written.
    """
    group = {"targets": [address], "labels": dict(sorted(labels.items()))}
    text = json.dumps([group], indent=2) + "\n"
    # Prometheus reads `*.json`, which does not match the name of the half-written file.
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.chmod(_READABLE_BY_ALL)
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise UsageError(
            f"cannot be written ({error.strerror})",
            where=f"file_sd: {path}",
            remedy="make its folder, writable for the monitor's user",
        ) from error

    def remove() -> None:
        with contextlib.suppress(OSError):
            if path.read_bytes() == text.encode():
                path.unlink()

    return remove
