"""The monitor's metrics about itself, as points."""

from collections.abc import Iterator, Mapping

from ldlm_monitor.model.points import Point, make_labels
from ldlm_monitor.model.view import MonitorView

_RECORD_TYPES = ("sample", "event", "heartbeat")


def core_points(monitor: MonitorView) -> Iterator[Point]:
    """What the core knows of itself."""
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
    notifications: Mapping[tuple[str, str], int], behind: int, free: int | None
) -> Iterator[Point]:
    """What only the edge knows: `Outbox.counts()`, the bytes not read yet, the disk's room."""
    yield Point("ldlm_monitor_behind_bytes", (), behind)
    if free is not None:
        yield Point("ldlm_monitor_state_free_bytes", (), free)
    for (receiver, outcome), count in notifications.items():
        if outcome != "pending":  # it falls again, which a counter may not
            labels = make_labels(receiver=receiver, outcome=outcome)
            yield Point("ldlm_monitor_notifications_total", labels, count)
