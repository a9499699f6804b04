import http.client
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from ldlm_monitor.base.histogram import Histogram
from ldlm_monitor.base.names import RUN_STATES
from ldlm_monitor.base.points import Point, make_labels
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import AlertView, MonitorView, RunView, Snapshot, Statistics
from ldlm_monitor.judge.core.exported_metrics import METRICS
from ldlm_monitor.service.cli.health_report import run_page
from ldlm_monitor.service.serve import Server, Site
from ldlm_monitor.service.serve.metrics import families

DETECTED = (
    "loss_zscore",
    "loss_trend_ratio",
    "grad_norm_zscore",
    "throughput_ratio",
    "throughput_variation_ratio",
    "rank_lag_steps",
    "rank_slowdown_ratio",
)
EXTRA_LABELS = {
    "severity": "critical",
    "state": "running",
    "alertstate": "firing",
    "alertname": "NonFiniteLoss",
    "world_size": "8",
}


def a_run(name: str) -> RunView:
    loss = Statistics(
        current=float("nan"), mean=2.5, minimum=2.0, maximum=3.0, count=40, nonfinite=1
    )
    return RunView(
        name=name,
        framework="mm-ldlm",
        world_size=8,
        state="running",
        health="CRITICAL",
        step=120,
        total_steps=1000,
        epoch=0.5,
        progress=0.12,
        eta_seconds=900.0,
        started_at=1_700_000_000.0,
        last_progress_at=1_700_000_100.0,
        stall_limit_seconds=30.0,
        ended_at=None,
        files=("train_logs/a.log",),
        statistics={"loss": loss},
        event_counts={"nonfinite_metric": 1},
        skipped_steps=0,
        settings={"LEARNING_RATE": "1e-4"},
        failed_rank=None,
    )


def full_points(run: str) -> tuple[Point, ...]:
    """A point of every training metric of the contract, and of every detector."""
    points = [
        Point(
            name,
            make_labels(run=run, rank="3", **{k: EXTRA_LABELS.get(k, k) for k in metric.labels}),
            float(number),
        )
        for number, (name, metric) in enumerate(METRICS.items())
        if not name.startswith(("ldlm_monitor_", "ldlm_run_state", "ldlm_build_info"))
        and metric.kind != "histogram"
    ]
    durations = Histogram((0.1, 1.0))
    durations.observe((0.05, 0.5, 0.7, 2.0))
    points += durations.points("ldlm_train_step_duration_seconds", make_labels(run=run))
    points += Histogram((0.1,)).points("ldlm_monitor_evaluation_duration_seconds")
    points += [
        Point("ldlm_run_state", make_labels(run=run, state=state), float(state == "running"))
        for state in RUN_STATES
    ]
    points += [
        *(Point(f"ldlm_detect_{name}", make_labels(run=run), 0.5) for name in DETECTED),
        Point("ldlm_train_metric", make_labels(run=run, name="entropy"), float("-inf")),
        Point("ldlm_train_metric", make_labels(run=run, name="kl"), float("nan")),
        Point("ldlm_train_metric", make_labels(run=run, name="tiny"), 5e-324),
    ]
    return tuple(points)


@pytest.fixture
def make_snapshot() -> Callable[..., Snapshot]:
    """A snapshot of one run, with every metric unless `points` are given."""

    def make(run: str = "r1", message: str = "loss is nan", **changes: object) -> Snapshot:
        where = Position("train_logs/a.log", 17, 2048)
        alert = AlertView(
            name="NonFiniteLoss",
            state="firing",
            labels={"run": run, "severity": "critical"},
            annotations={"summary": message},
            value=float("nan"),
            active_at=1_700_000_099.0,
            fired_at=1_700_000_099.0,
            position=where,
        )
        event = Event(
            kind="nonfinite_metric", severity="critical", run=run, message=message, position=where
        )
        monitor = MonitorView(
            lines=1000,
            bytes=65536,
            parse_errors=2,
            evaluations=7,
            evaluation_seconds=0.25,
            records={"sample": 40},
            dropped={"line too long": 1},
        )
        fields = {
            "version": 5,
            "at": 1_700_000_100.0,
            "runs": (a_run(run),),
            "alerts": (alert,),
            "events": (event,),
            "monitor": monitor,
            "points": full_points(run),
        }
        return Snapshot(**{**fields, **changes})

    return make


@dataclass
class Response:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


@dataclass
class Running:
    """A server on a real port; its attributes are what it shows, and may be replaced."""

    snapshot: Snapshot
    ready: bool = True
    port: int = 0

    def ask(
        self,
        path: str,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return Response(answer.status, answer.headers, answer.read())
        finally:
            connection.close()


@pytest.fixture
def running(make_snapshot: Callable[..., Snapshot]) -> Iterator[Running]:
    state = Running(make_snapshot())
    server = Server(
        "127.0.0.1",
        0,
        Site(
            snapshot=lambda: state.snapshot,
            families=lambda: families(
                state.snapshot,
                notifications={("slack", "sent"): 3, ("slack", "pending"): 1},
                behind=512,
            ),
            ready=lambda: state.ready,
            page=run_page,
            redact=lambda text: text.replace("hunter2", "[redacted]"),
        ),
    )
    state.port = server.port
    server.start()
    yield state
    server.stop()
