"""What Prometheus gets: `/metrics`, and a file by which it finds this monitor.

The families of one snapshot are built for each scrape: nothing remains of a run that ended.
"""

import contextlib
import ipaddress
import json
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from ldlm_monitor.core.self_metrics import core_points, edge_points
from ldlm_monitor.model import names
from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.model.points import Labels
from ldlm_monitor.model.view import Snapshot
from ldlm_monitor.text.sanitize import encodable

OPENMETRICS = "application/openmetrics-text"
TEXT = "text/plain"
_encode_openmetrics: Callable[[Collector], bytes] = openmetrics.generate_latest
_UNEXPORTABLE = {code: "\ufffd" for code in range(0x20) if code != ord("\n")}
"""Control characters: a NUL ends a whole scrape in Prometheus' lexer."""
_READABLE_BY_ALL = 0o644
"""Prometheus is another user; the file of service discovery holds no secret."""


class _Families(list[Family], Collector):
    """Families as the library asks for them."""

    def collect(self) -> Iterator[Family]:
        return iter(self)


def _family(name: str, series: Mapping[Labels, float], redact: Callable[[str], str]) -> Family:
    words = name.removeprefix(names.DETECT_PREFIX).replace("_", " ")
    detected = names.Metric(name, f"Computed by a detector: {words}.")
    metric = names.METRICS.get(name, detected)
    # The library adds `_total` to a counter's family where the format requires it.
    counter = metric.kind == "counter"
    family = Family(name.removesuffix("_total") if counter else name, metric.help, metric.kind)
    # Redaction may make two series equal: the last one counts.
    shown = {
        tuple(
            (label, encodable(redact(text)).translate(_UNEXPORTABLE)) for label, text in labels
        ): value
        for labels, value in series.items()
    }
    for labels, value in shown.items():
        family.add_sample(name, dict(labels), value)
    return family


def exposition(
    snapshot: Snapshot,
    *,
    notifications: Mapping[tuple[str, str], int],
    behind: int,
    free: int | None = None,
    redact: Callable[[str], str] = str,
    accept: str,
) -> tuple[str, bytes]:
    """(content type, body) of a scrape, in the format that the `Accept` header asks for.

    `notifications` are `Outbox.counts()`; `behind` and `free` (of the state's disk) are bytes.
    `redact` is applied to every label's value: names of runs and quantities come from logs. Of a
    series that comes twice, the last value counts.
    """
    series: dict[str, dict[Labels, float]] = {}
    core = core_points(snapshot.monitor)
    for point in chain(snapshot.points, core, edge_points(notifications, behind, free)):
        series.setdefault(point.name, {})[point.labels] = point.value
    families = _Families(_family(name, series[name], redact) for name in sorted(series))
    # Prometheus lists the formats by their weights, so the first that is named counts.
    if OPENMETRICS in accept.lower().partition(TEXT)[0]:
        return openmetrics.CONTENT_TYPE_LATEST, _encode_openmetrics(families)
    return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(families)


def target(host: str, port: int, node: str) -> str:
    """HOST:PORT for others: `node` where `host` stands for every address of this machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"{host or node}:{port}"
    if address.is_unspecified:
        return f"{node}:{port}"
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def write_target(path: Path, address: str, labels: Mapping[str, str]) -> Callable[[], None]:
    """Write a file of service discovery; returns how to remove it. Raises UsageError.

    The format is that of `file_sd_configs`
    (https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config).
    Prometheus adds the labels to every series. It reads the file whenever it changes, so it is
    replaced atomically; removing it spares a file that another monitor has written since.
    """
    group = {"targets": [address], "labels": dict(sorted(labels.items()))}
    text = json.dumps([group], indent=2) + "\n"
    # Prometheus reads `*.json`: this name does not match while it is half written.
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
            if path.read_text(encoding="utf-8") == text:
                path.unlink()

    return remove
