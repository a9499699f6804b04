"""How numbers of a run are said in a few cells."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime

from ldlm_monitor.model.view import AlertView, RunView

_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SPEEDS = (
    ("tokens_per_second", "tok/s"),
    ("samples_per_second", "smp/s"),
    ("steps_per_second", "step/s"),
)


def number(value: float | None, digits: int = 4) -> str:
    """A few significant digits; non-finite values by name; `-` where there is none."""
    if value is None:
        return "-"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return f"{value:.{digits}g}"


def large(value: float | None) -> str:
    """Three digits and a decimal prefix (SI)."""
    if value is None or not math.isfinite(value):
        return number(value)
    for size, prefix in _LARGE:
        if abs(value) >= size:
            return f"{value / size:.3g}{prefix}"
    return f"{value:.3g}"


def size(value: float | None) -> str:
    """Bytes, by IEC's prefixes."""
    if value is None or not math.isfinite(value):
        return number(value)
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.0f}B"


def span(seconds: float | None) -> str:
    """`42s`, `3m10s`, `2h05m`, `3d04h`; `-` where it is not known."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    rest = max(round(seconds), 0)
    if rest < 60:
        return f"{rest}s"
    if rest < 3600:
        return f"{rest // 60}m{rest % 60:02d}s"
    if rest < 86400:
        return f"{rest // 3600}h{rest % 3600 // 60:02d}m"
    return f"{rest // 86400}d{rest % 86400 // 3600:02d}h"


def clock(time: float | None) -> str:
    """Local date and time to the second, `-` where it is not known."""
    if time is None or not math.isfinite(time) or time <= 0:
        return "-"
    return datetime.fromtimestamp(time).astimezone().strftime("%m-%d %H:%M:%S")


def speed(run: RunView) -> tuple[float | None, str]:
    """The run's throughput in the unit that its log tells, and that unit."""
    for name, unit in SPEEDS:
        if known := run.statistics.get(name):
            return known.current, unit
    if known := run.statistics.get("step_seconds"):
        return (1 / known.current if known.current else None), "step/s"
    return None, ""


def baseline(run: RunView) -> str:
    """The present pace over the run's usual one."""
    ratio = run.detected.get("throughput_ratio")
    return "" if ratio is None or not math.isfinite(ratio) else f"{ratio * 100:.0f}%"


def current(run: RunView, quantity: str) -> float | None:
    """The last value of a quantity."""
    known = run.statistics.get(quantity)
    return known.current if known else None


def age(run: RunView, now: float) -> tuple[str, str]:
    """Seconds since the last step against the limit, and the style of how bad that is."""
    if run.ended_at is not None:
        return f"ended {span(now - run.ended_at)} ago", "dim"
    if run.last_progress_at is None:
        return "-", "dim"
    waited = now - run.last_progress_at
    if run.stall_limit_seconds is None:
        return span(waited), ""
    share = waited / run.stall_limit_seconds
    style = "critical" if share >= 1 else "warning" if share >= 0.5 else ""
    return f"{span(waited)}/{span(run.stall_limit_seconds)}", style


def alerts_of(run: str, alerts: Iterable[AlertView]) -> list[AlertView]:
    """The firing alerts of a run, the worst first."""
    order = {"critical": 0, "error": 1, "warning": 2, "info": 3}
    found = [
        alert
        for alert in alerts
        if alert.state == "firing" and alert.labels.get("run") == run and is_told(alert)
    ]
    return sorted(found, key=lambda alert: order.get(alert.labels.get("severity", ""), 4))


def is_told(alert: AlertView) -> bool:
    """Whether it is for people: a watchdog only shows that alerting works."""
    return alert.labels.get("severity") != "none"
