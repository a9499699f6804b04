"""Alerts as rules give them and all views and receivers take them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from ldlm_monitor.model.points import Labels
from ldlm_monitor.model.records import Position

State: TypeAlias = Literal["pending", "firing", "resolved", "ended", "unknown"]
"""What a transition leads to; how an alert ended is part of it (contract section 4)."""


@dataclass(frozen=True, slots=True)
class VectorSample:
    """One element of an instant vector; `labels` do not include `__name__`."""

    labels: Labels
    value: float


ExprT = TypeVar("ExprT")
Query: TypeAlias = Callable[[ExprT, float], list[VectorSample]]
"""Gives the instant vector of an expression at a time; a scalar is one sample without labels."""


def alert_key(name: str, labels: Mapping[str, str]) -> str:
    """Names one instance of an alert, whatever happens to it."""
    inner = ",".join(f"{label}={value}" for label, value in sorted(labels.items()))
    return f"{name}{{{inner}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """An alert went from one state to another.

    `time` is None where the log has no times. `active_at` is when the
    expression first held. `reason` is a phrase such as `no data`. `position` is
    the line that made the expression hold, where one line did; `line` is its
    text and `step` the training step it is about. `cause` names the first cause of the
    incident that the alert belongs to (what, rank, host, how sure), where it is known, and
    `incident` is that incident's id (`IncidentView.id`).
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
        """Names the alert instance: the same for all its transitions."""
        return alert_key(self.alert, self.labels)

    @property
    def is_heartbeat(self) -> bool:
        """It fires only to show that alerting works: for a dead man's switch, not for people."""
        return self.labels.get("severity") == "none"
