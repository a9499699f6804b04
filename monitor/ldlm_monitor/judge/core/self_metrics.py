"""The monitor's counters of its own work, and their metrics."""

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ldlm_monitor import __version__
from ldlm_monitor.base.histogram import Histogram
from ldlm_monitor.base.names import BASE_METRICS, DELIVERY_DURATION, EVALUATION_DURATION
from ldlm_monitor.base.native import library
from ldlm_monitor.base.points import Point, make_labels
from ldlm_monitor.base.snapshot import HostView, MonitorView
from ldlm_monitor.judge.run.fleet import Fleet
from ldlm_monitor.judge.run.quantity import exported_name, labels_of
from ldlm_monitor.logs.parse import Parser

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # bounds of buckets of evaluations. A choice
NO_HOSTS: Final[Mapping[str, HostView]] = MappingProxyType({})
_RECORD_TYPES = ("sample", "event", "heartbeat")  # exported from 0 on, as Prometheus advises


class SelfCounts:
    """Counters of the monitor's work since its first start; restarts continue them.

    `dropped`: by reason, how much was dropped or could not be read. `evaluations`: how often all
    rules were evaluated; the last took `evaluation_seconds`. `edge`: the daemon's points. `hosts`:
    what it saw of runs on its own host.
    """

    def __init__(self, parser: Parser, runs: Fleet) -> None:
        self._parser = parser
        self._runs = runs
        self.dropped = Counter(
            {"label_limit": 0, "truncated": 0, "internal_error": 0, "unreadable": 0}
        )
        self.evaluations = 0
        self.evaluation_seconds = 0.0
        self._evaluations = Histogram(_SECONDS)
        self._durations: list[Point] = []
        self.edge: list[Point] = []
        self.hosts: Mapping[str, HostView] = NO_HOSTS

    def evaluated(self, seconds: float | None) -> None:
        """Count an evaluation that took so long; None: it was not timed."""
        self.evaluations += 1
        self.evaluation_seconds = seconds or 0.0
        if seconds is not None:
            self._evaluations.observe((seconds,))
            self._durations = []

    def durations(self) -> list[Point]:
        """The points of how long evaluations took; the same object until one was timed."""
        if not self._durations:
            self._durations = [*self._evaluations.points(EVALUATION_DURATION)]
        return self._durations

    def restore(self, counts: MonitorView) -> None:
        """Continue counting from the counters of before a restart."""
        counters = self._parser.counters
        counters.lines, counters.bytes = counts.lines, counts.bytes
        counters.parse_errors, counters.unread = counts.parse_errors, counts.unread
        counters.singly = counts.singly
        counters.records |= counts.records
        for reason, count in counts.dropped.items():
            if reason != "label_limit":  # counted anew from the runs, whose logs are read again
                self.dropped[reason] += count
        self.evaluations = counts.evaluations

    def note(self, edge: list[Point], hosts: Mapping[str, HostView]) -> bool:
        """Set `edge` and `hosts`; returns whether they have changed."""
        before = self.edge, self.hosts
        self.edge, self.hosts = edge, hosts
        return before != (edge, hosts)

    def host_points(self, at: float) -> list[Point]:
        """The points of runs' GPUs, and of the disks of their checkpoints, at `at`."""
        return [
            point
            for run, host in self.hosts.items()
            if not self._runs.has_ended(run)
            for point in _points_of(run, host, at)
        ]

    def view(self) -> MonitorView:
        """The counters for views."""
        counters = self._parser.counters
        labels = sum(run.values.dropped for run in self._runs)
        return MonitorView(
            lines=counters.lines,
            bytes=counters.bytes,
            parse_errors=counters.parse_errors,
            unread=counters.unread,
            singly=counters.singly,
            evaluations=self.evaluations,
            evaluation_seconds=self.evaluation_seconds,
            records=dict(counters.records),
            dropped={
                **self.dropped,
                "label_limit": self.dropped["label_limit"] + labels,
                "internal_error": self.dropped["internal_error"] + counters.faults,
            },
        )


def _points_of(run: str, host: HostView, at: float) -> Iterator[Point]:
    if host.disk is not None and host.disk.full_at is not None:
        left = max(host.disk.full_at - at, 0.0)
        yield Point("ldlm_detect_checkpoint_disk_full_seconds", make_labels(run=run), left)
    for gpu in host.gpus:
        for quantity, value in gpu.values.items():
            metric, labels = exported_name(quantity, int(gpu.gpu))
            if metric in BASE_METRICS and metric.startswith("ldlm_gpu_"):
                yield Point(metric, labels_of(run, None, labels), value)


def core_points(monitor: MonitorView) -> Iterator[Point]:
    """The points of the core's own counters."""
    native = str(int(library() is not None))
    yield Point("ldlm_build_info", make_labels(native=native, version=__version__), 1)
    yield Point("ldlm_monitor_lines_total", (), monitor.lines)
    yield Point("ldlm_monitor_bytes_total", (), monitor.bytes)
    yield Point("ldlm_monitor_parse_errors_total", (), monitor.parse_errors)
    yield Point("ldlm_monitor_evaluations_total", (), monitor.evaluations)
    yield Point("ldlm_monitor_evaluation_seconds", (), monitor.evaluation_seconds)
    for record, count in {**dict.fromkeys(_RECORD_TYPES, 0), **monitor.records}.items():
        yield Point("ldlm_monitor_records_total", make_labels(record=record), count)
    for reason, count in monitor.dropped.items():
        yield Point("ldlm_monitor_dropped_total", make_labels(reason=reason), count)


def edge_points(
    notifications: Mapping[tuple[str, str], int],
    behind: int,
    free: int | None,
    deliveries: Mapping[str, Histogram] = MappingProxyType({}),
) -> Iterator[Point]:
    """Points of the daemon. `notifications`: counts by (receiver, outcome). `behind`: unread bytes.
    `free`: free bytes of the state folder's disk, None if unknown. `deliveries`: durations of
    attempts by receiver."""
    for receiver, durations in deliveries.items():
        yield from durations.points(DELIVERY_DURATION, make_labels(receiver=receiver))
    yield Point("ldlm_monitor_behind_bytes", (), behind)
    if free is not None:
        yield Point("ldlm_monitor_state_free_bytes", (), free)
    for (receiver, outcome), count in notifications.items():
        if outcome != "pending":  # the number pending falls again, which a counter must not
            labels = make_labels(receiver=receiver, outcome=outcome)
            yield Point("ldlm_monitor_notifications_total", labels, count)
