"""Alerts and their transitions: what rules produce, and what views and receivers are given."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from ldlm_monitor.model.points import Labels
from ldlm_monitor.model.records import Position

State: TypeAlias = Literal["pending", "firing", "resolved", "ended", "unknown"]
"""The state after a transition. A firing alert ends because its condition is false (`resolved`),
its run is over (`ended`), or its series are gone (`unknown`)."""


@dataclass(frozen=True, slots=True)
class VectorSample:
    """One element of an instant vector; `labels` do not include `__name__`."""

    labels: Labels
    value: float


ExprT = TypeVar("ExprT")
Query: TypeAlias = Callable[[ExprT, float], list[VectorSample]]
"""Returns an expression's instant vector at a time (Unix seconds); a scalar has no labels."""


def alert_key(name: str, labels: Mapping[str, str]) -> str:
    """The identity of one alert instance, the same in all its states: `name{label=value,...}`."""
    inner = ",".join(f"{label}={value}" for label, value in sorted(labels.items()))
    return f"{name}{{{inner}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """An alert went from one state to another.

    Times are Unix seconds; `time` is None if the log has no times. `active_at` is when the
    expression first held. `reason` is a phrase such as `no data`. If a single log line made
    the expression hold, `position`, `line` and `step` are its place, text and training step.
    If the alert belongs to an incident, `incident` is its id (`IncidentView.id`) and `cause`
    its first cause as text (kind, rank, host, confidence).
    """

    time: float | None
    alert: str
    state: State
    previous: Literal["inactive", "pending", "firing"]
    reason: str
    labels: dict[str, str]
    annotations: dict[str, str] = field(default_factory=dict)
    value: float
    position: Position | None = None
    active_at: float
    step: int | None = None
    line: str | None = None
    cause: str | None = None
    incident: str | None = None

    @property
    def key(self) -> str:
        """The identity of the alert instance, the same for all its transitions."""
        return alert_key(self.alert, self.labels)

    @property
    def is_heartbeat(self) -> bool:
        """Whether the alert fires only to prove that alerting works (for a dead man's switch)."""
        return self.labels.get("severity") == "none"
