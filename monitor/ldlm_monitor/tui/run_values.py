"""Values of a run and its alerts, as several pages show them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ldlm_monitor.config.policy import severity_rank
from ldlm_monitor.model.view import AlertView, RunView
from ldlm_monitor.text.format import duration

SPEEDS = (
    ("tokens_per_second", "tok/s"),
    ("samples_per_second", "smp/s"),
    ("steps_per_second", "step/s"),
)


def speed(run: RunView) -> tuple[float | None, str]:
    """The run's throughput in the unit of its log, and that unit."""
    for name, unit in SPEEDS:
        if known := run.statistics.get(name):
            return known.current, unit
    if known := run.statistics.get("step_seconds"):
        return (1 / known.current if known.current else None), "step/s"
    return None, ""


def baseline(run: RunView) -> str:
    """The present throughput as a share of the run's usual one."""
    ratio = run.detected.get("throughput_ratio")
    return "" if ratio is None or not math.isfinite(ratio) else f"{ratio * 100:.0f}%"


def current(run: RunView, quantity: str) -> float | None:
    """The last value of a quantity."""
    known = run.statistics.get(quantity)
    return known.current if known else None


def age(run: RunView, now: float) -> tuple[str, str]:
    """Time since the last step against the stall limit, and a style by how close that is."""
    if run.ended_at is not None:
        return f"ended {whole_duration(now - run.ended_at)} ago", "dim"
    if run.last_progress_at is None:
        return "-", "dim"
    waited = now - run.last_progress_at
    if run.stall_limit_seconds is None:
        return whole_duration(waited), ""
    share = waited / run.stall_limit_seconds
    style = "critical" if share >= 1 else "warning" if share >= 0.5 else ""
    return f"{whole_duration(waited)}/{whole_duration(run.stall_limit_seconds)}", style


def whole_duration(seconds: float | None) -> str:
    """A duration without fractions of a second: they would change with each look at the screen."""
    return duration(round(seconds) if seconds is not None and math.isfinite(seconds) else None)


def alerts_of(run: str, alerts: Iterable[AlertView]) -> list[AlertView]:
    """The firing alerts of a run, the worst first."""
    found = [
        alert
        for alert in alerts
        if alert.state == "firing" and alert.labels.get("run") == run and is_for_people(alert)
    ]
    return sorted(found, key=lambda alert: severity_rank(severity_of(alert)))


def severity_of(alert: AlertView) -> str:
    """Empty if it has none."""
    return alert.labels.get("severity", "")


def is_for_people(alert: AlertView) -> bool:
    """False for a watchdog: it fires always, to show that alerting works."""
    return severity_of(alert) != "none"
