"""What every reader of the monitor may see: one frozen picture, and its JSON is the API."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ldlm_monitor.points import Point
from ldlm_monitor.records import Event, Position

Health = Literal["HEALTHY", "WARNING", "UNHEALTHY", "CRITICAL"]
"""By the worst firing severity: none or info, warning, error, critical."""


class View(BaseModel):
    """Frozen, and serialised with non-finite numbers as strings."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")


class Statistics(View):
    """One quantity over the window of samples that is kept (`count` of them).

    `mean`, `minimum` and `maximum` are over the finite values; None where there
    is none. `nonfinite` counts NaN and infinities of the whole run.
    """

    current: float
    mean: float | None
    minimum: float | None
    maximum: float | None
    count: int
    nonfinite: int


class VerdictView(View):
    """What became of a run that takes no step, and what says so."""

    word: Literal["hung", "killed", "crashed", "finished", "silent"]
    reasons: tuple[str, ...]


class RunView(View):
    """One run as it stands."""

    name: str
    framework: str
    world_size: int | None
    state: str
    health: Health
    step: int | None
    total_steps: int | None
    epoch: float | None
    progress: float | None = Field(description="0..1")
    eta_seconds: float | None
    started_at: float | None
    last_progress_at: float | None
    stall_limit_seconds: float | None
    ended_at: float | None
    files: tuple[str, ...]
    statistics: dict[str, Statistics]
    event_counts: dict[str, int]
    skipped_steps: int
    settings: dict[str, str] = Field(description="what the log says of its configuration")
    failed_rank: int | None
    verdict: VerdictView | None = None


class AlertView(View):
    """One pending or firing alert."""

    name: str
    state: Literal["pending", "firing"]
    labels: dict[str, str]
    annotations: dict[str, str]
    value: float
    active_at: float
    fired_at: float | None
    position: Position | None


class MonitorView(View):
    """What the monitor tells about itself; counts since its start."""

    lines: int
    bytes: int
    parse_errors: int
    evaluations: int
    evaluation_seconds: float
    records: dict[str, int]
    dropped: dict[str, int]


class Snapshot(View):
    """Everything, at one moment (`at`, Unix seconds). Self-contained: nothing reaches back.

    `version` changes when anything did. `points` are what `/metrics` exports of
    the runs and their alerts.
    """

    version: int
    at: float
    runs: tuple[RunView, ...]
    alerts: tuple[AlertView, ...]
    events: tuple[Event, ...] = Field(description="the newest last, bounded")
    monitor: MonitorView
    points: tuple[Point, ...] = Field(exclude=True)
