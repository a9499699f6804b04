"""`/metrics`: the families of one snapshot, built for each scrape.

Nothing is kept between scrapes, so nothing remains of a run that ended.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from ldlm_monitor.core.self_metrics import core_points, edge_points
from ldlm_monitor.model import names
from ldlm_monitor.model.points import Labels
from ldlm_monitor.model.view import Snapshot

OPENMETRICS = "application/openmetrics-text"
TEXT = "text/plain"
_encode_openmetrics: Callable[[Collector], bytes] = openmetrics.generate_latest
_UNEXPORTABLE = {code: "\ufffd" for code in range(0x20) if code != ord("\n")}
"""Control characters: a NUL ends a whole scrape in Prometheus' lexer."""


class _SnapshotCollector(Collector):
    """Series by metric name, one family each, in alphabetical order."""

    def __init__(self, series: dict[str, dict[Labels, float]], redact: Callable[[str], str]):
        self._series = series
        self._redact = redact

    def collect(self) -> Iterator[Family]:
        for name in sorted(self._series):
            yield self._family(name, self._series[name])

    def _family(self, name: str, series: Mapping[Labels, float]) -> Family:
        metric = names.METRICS.get(name) or _detected(name)
        # The library adds `_total` to a counter's family where the format requires it.
        counter = metric.kind == "counter"
        family = Family(name.removesuffix("_total") if counter else name, metric.help, metric.kind)
        # Redaction may make two series equal: the last one counts.
        shown = {
            tuple((label, _exportable(self._redact(text))) for label, text in labels): value
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
    collector = _SnapshotCollector(series, redact)
    if _prefers_openmetrics(accept):
        return openmetrics.CONTENT_TYPE_LATEST, _encode_openmetrics(collector)
    return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(collector)


def _detected(name: str) -> names.Metric:
    words = name.removeprefix(names.DETECT_PREFIX).replace("_", " ")
    return names.Metric(name, "gauge", f"Computed by a detector: {words}.")


def _exportable(value: str) -> str:
    whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.translate(_UNEXPORTABLE)


def _prefers_openmetrics(accept: str) -> bool:
    """Whether `Accept` (RFC 9110, 12.5.1) asks for OpenMetrics at least as much as for text."""
    weights = {OPENMETRICS: 0.0, TEXT: 0.0}
    for part in accept.split(","):
        media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if media_type in weights:
            weights[media_type] = max(weights[media_type], _weight(parameters))
    return weights[OPENMETRICS] > 0 and weights[OPENMETRICS] >= weights[TEXT]


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
