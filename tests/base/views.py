"""Parts of a snapshot for tests, with what a test does not name left at what is usual."""

from ldlm_monitor.base.incident_view import DecisionView, IncidentView, RootView
from ldlm_monitor.base.snapshot import MonitorView, RunView, Snapshot

ROOT = RootView(
    tier="hardware",
    kind="gpu_xid",
    message="fell off the bus",
    rank=3,
    ranks="3",
    node="n1",
    host=None,
    local_rank=None,
    pid=None,
    at=990.0,
    position=None,
    why=("logged by the kernel",),
)
INCIDENT = IncidentView(
    id="gpt-1",
    run="gpt",
    state="open",
    ended_reason="",
    title="GPU of rank 3 failed",
    confidence="probable",
    opened_at=1000.0,
    updated_at=1001.0,
    ended_at=None,
    root=ROOT,
    collective=None,
    symptoms=(),
    events=1,
    claims=(),
    excerpt=(),
    action="Replace the GPU.",
    last_step=40,
    alerts=(),
)
DECISION = DecisionView(
    decision="RESTART",
    confidence="probable",
    reasons=("the GPU failed", "no other did"),
    rule="hardware",
    if_wrong="an hour",
)
RUN = RunView(
    name="gpt",
    framework="megatron",
    world_size=8,
    state="running",
    health="HEALTHY",
    step=None,
    total_steps=None,
    epoch=None,
    progress=None,
    eta_seconds=None,
    started_at=None,
    last_progress_at=None,
    stall_limit_seconds=None,
    ended_at=None,
    files=("train.log",),
    statistics={},
    event_counts={},
    skipped_steps=0,
    settings={},
)


def snapshot(*runs: RunView) -> Snapshot:
    return Snapshot(
        version=1,
        at=1000.0,
        runs=runs,
        alerts=(),
        events=(),
        monitor=MonitorView.fresh(),
        points=(),
    )
