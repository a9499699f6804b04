"""One transition of one alert, as receivers get it."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ldlm_monitor.model.alert import State, Transition
from ldlm_monitor.text.sanitize import sanitized

MAX_TEXT = 4000
"""Characters kept of the log line and of each annotation; a receiver may show fewer."""
MAX_LABEL = 256
MAX_ID = 256
"""A label's value and an incident's id are names: longer ones are dumps that no receiver shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One transition in text that may leave the machine. Times are Unix seconds.

    `key` names the alert instance and is the same for all its transitions; with `state` and
    `started_at` it identifies the notification. `at` is None where the log has no time.
    `line` is the log line that made the condition hold, at `path`, `line_number` (1-based) and
    `offset` (bytes). `cause` is the first cause of the alert's incident, where it is known, and
    `incident` that incident's id. `reason` is that of the transition.
    """

    __pydantic_config__: ClassVar = ConfigDict(ser_json_inf_nan="strings")

    key: str
    alert: str
    state: State
    severity: str
    reason: str
    run: str
    rank: str | None
    step: int | None
    line: str | None
    path: str | None
    line_number: int | None
    offset: int | None = None
    summary: str
    description: str
    action: str
    labels: dict[str, str]
    value: float
    started_at: float
    at: float | None
    cause: str | None = None
    incident: str | None = None

    @property
    def duration(self) -> float | None:
        """Seconds from the start of the alert to this transition, where both are known."""
        return None if self.at is None else max(0.0, self.at - self.started_at)


def from_transition(transition: Transition) -> Notification:
    """The notification of a transition: its texts cleaned, redacted and then bounded."""
    labels = {name: fit(value, MAX_LABEL) for name, value in transition.labels.items()}
    annotations = transition.annotations
    position = transition.position
    return Notification(
        key=fit(transition.key),
        alert=transition.alert,
        state=transition.state,
        severity=labels.get("severity", "none"),
        reason=transition.reason,
        run=labels.get("run", ""),
        rank=labels.get("rank"),
        step=transition.step,
        line=None if transition.line is None else fit(transition.line),
        path=None if position is None else fit(position.path),
        line_number=None if position is None else position.line,
        offset=None if position is None else position.offset,
        summary=fit(annotations.get("summary", "")),
        description=fit(annotations.get("description", "")),
        action=fit(annotations.get("action", "")),
        labels=labels,
        value=transition.value,
        started_at=transition.active_at,
        at=transition.time,
        cause=None if transition.cause is None else fit(transition.cause),
        incident=None if transition.incident is None else fit(transition.incident, MAX_ID),
    )


def fit(text: str, limit: int = MAX_TEXT) -> str:
    """Redacted before it is cut: half a secret is not recognised any more."""
    shown = clean(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def clean(text: str) -> str:
    """`text` without escape sequences and secrets; its lines stay."""
    return sanitized(text).strip()


@cache
def _adapter() -> TypeAdapter[Notification]:
    return TypeAdapter(Notification)


def to_json(notification: Notification) -> str:
    """One JSON object, non-finite numbers as strings."""
    return _adapter().dump_json(notification).decode()


def from_json(text: str) -> Notification:
    """The notification that `to_json` wrote. Raises `pydantic.ValidationError`."""
    return _adapter().validate_json(text)


def readable(body: str) -> Notification | None:
    """The notification of a stored row; None where another version wrote it."""
    try:
        return from_json(body)
    except ValidationError:
        return None
