"""Snapshots made by hand, in the form that the monitor gives them."""

from collections.abc import Callable
from typing import Any

import pytest

from ldlm_monitor.base.incident_view import IncidentView, RootView
from ldlm_monitor.base.points import Point
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import AlertView, MonitorView, RunView, Snapshot, Statistics

NOW = 1769681700.0
"""2026-01-29 10:15:00 UTC"""
POSITION = Position("train_logs/train_20260129_101500_node0.log", 250, 9000)


@pytest.fixture(scope="session")
def make_run() -> Callable[..., RunView]:
    def make(**changes: Any) -> RunView:
        facts: dict[str, Any] = {
            "name": "train_20260129_101500",
            "framework": "mm-ldlm",
            "world_size": 2,
            "state": "running",
            "health": "HEALTHY",
            "step": 250,
            "total_steps": 1000,
            "epoch": 0.0,
            "progress": 0.25,
            "eta_seconds": 252.0,
            "started_at": NOW - 100,
            "last_progress_at": NOW - 12,
            "stall_limit_seconds": 35.0,
            "ended_at": None,
            "files": (POSITION.path,),
            "statistics": {},
            "event_counts": {},
            "skipped_steps": 0,
            "settings": {},
            "failed_rank": None,
        }
        return RunView(**(facts | changes))

    return make


@pytest.fixture(scope="session")
def make_statistics() -> Callable[..., Statistics]:
    def make(current: float, **changes: Any) -> Statistics:
        facts: dict[str, Any] = {
            "mean": current,
            "minimum": current,
            "maximum": current,
            "count": 10,
            "nonfinite": 0,
        }
        return Statistics(current=current, **(facts | changes))

    return make


@pytest.fixture(scope="session")
def make_alert() -> Callable[..., AlertView]:
    def make(name: str = "NonFiniteLoss", severity: str = "critical", **changes: Any) -> AlertView:
        facts: dict[str, Any] = {
            "name": name,
            "state": "firing",
            "labels": {"severity": severity, "run": "train_20260129_101500"},
            "annotations": {"summary": "The loss is NaN.", "action": "Go back to a checkpoint."},
            "value": float("nan"),
            "active_at": NOW - 30,
            "fired_at": NOW - 30,
            "position": POSITION,
        }
        return AlertView(**(facts | changes))

    return make


@pytest.fixture(scope="session")
def make_event() -> Callable[..., Event]:
    def make(kind: str = "python_exception", **changes: Any) -> Event:
        facts: dict[str, Any] = {
            "kind": kind,
            "severity": "error",
            "run": "train_20260129_101500",
            "time": NOW - 20,
            "message": "IndexError: list index out of range",
            "position": POSITION,
        }
        return Event(**(facts | changes))

    return make


@pytest.fixture(scope="session")
def make_incident() -> Callable[..., IncidentView]:
    def make(**changes: Any) -> IncidentView:
        root = RootView(
            tier="local",
            kind="python_exception",
            message="IndexError",
            rank=1,
            ranks="1",
            node=None,
            host=None,
            local_rank=None,
            pid=None,
            at=NOW - 20,
            position=POSITION,
            why=("rank 1 logged an error of its own",),
        )
        facts: dict[str, Any] = {
            "id": "1",
            "run": "train_20260129_101500",
            "state": "open",
            "ended_reason": "",
            "title": "IndexError on rank 1",
            "confidence": "probable",
            "opened_at": NOW - 20,
            "updated_at": NOW - 20,
            "ended_at": None,
            "root": root,
            "collective": None,
            "symptoms": (),
            "events": 0,
            "claims": (),
            "excerpt": (),
            "action": "Mend it.",
            "last_step": 250,
            "alerts": (),
        }
        return IncidentView(**(facts | changes))

    return make


@pytest.fixture(scope="session")
def make_snapshot() -> Callable[..., Snapshot]:
    def make(
        *runs: RunView,
        alerts: tuple[AlertView, ...] = (),
        events: tuple[Event, ...] = (),
        points: tuple[Point, ...] = (),
    ) -> Snapshot:
        monitor = MonitorView(
            lines=1200,
            bytes=3 * 1024 * 1024,
            parse_errors=1,
            evaluations=7,
            evaluation_seconds=0.001,
            records={"sample": 400, "event": 4},
            dropped={"truncated": 0, "label_limit": 2},
        )
        return Snapshot(
            version=1,
            at=NOW,
            runs=runs,
            alerts=alerts,
            events=events,
            monitor=monitor,
            points=points,
        )

    return make
