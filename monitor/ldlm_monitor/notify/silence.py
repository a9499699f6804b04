"""What people ask not to be told: silences as Alertmanager's API v2 spells them, and acks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.model.matchers import MAX_NAME, MAX_VALUE, LabelMatcher, Value

MAX_MATCHERS = 20
_EXAMPLE: Final = {
    "Silence": '{"matchers": [{"name": "alertname", "value": "LossSpike"}],'
    ' "endsAt": "2026-01-30T06:00:00Z", "createdBy": "me", "comment": "known"}',
    "Acknowledgement": '{"alert": "LossSpike", "labels": {...}, "by": "me", "comment": "known"}',
}


def _is_a_date(value: object) -> object:
    """A bare number would be taken for seconds or milliseconds, by its size."""
    if isinstance(value, datetime) or (isinstance(value, str) and "-" in value[1:]):
        return value
    raise ValueError("should be a time of RFC 3339, such as 2026-01-30T06:00:00Z")


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Moment = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_is_a_date)]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class Silence(_Asked):
    """Alerts whose labels satisfy every matcher are not told from `startsAt` to `endsAt`.

    `alertname` is a label. Without `startsAt` it holds from when it is added.
    """

    matchers: tuple[LabelMatcher, ...] = Field(min_length=1, max_length=MAX_MATCHERS, strict=False)
    starts_at: Moment | None = Field(None, alias="startsAt")
    ends_at: Moment = Field(alias="endsAt")
    by: Name = Field(alias="createdBy")
    comment: Value

    @model_validator(mode="after")
    def _says_something(self) -> Silence:
        if self.starts_at is not None and self.ends_at <= self.starts_at:
            raise ValueError("endsAt must lie after startsAt")
        if all(matcher.holds({}) for matcher in self.matchers):
            raise ValueError("at least one matcher must ask for a label that is not empty")
        return self

    def holds(self, alertname: str, labels: Mapping[str, str]) -> bool:
        """Whether the alert is one of those meant, whatever the time."""
        told = {**labels, "alertname": alertname}
        return all(matcher.holds(told) for matcher in self.matchers)

    def state(self, now: float) -> str:
        """`pending`, `active` or `expired` at `now` (Unix seconds)."""
        if now >= self.ends_at.timestamp():
            return "expired"
        started = self.starts_at is None or self.starts_at.timestamp() <= now
        return "active" if started else "pending"


class Acknowledgement(_Asked):
    """Somebody looks after exactly this alert: it is not told until it has ended."""

    alert: Name
    labels: dict[Name, Value] = Field(max_length=100)
    by: Name
    comment: Value = ""


Asked = TypeVar("Asked", Silence, Acknowledgement)


def from_json(kind: type[Asked], body: bytes) -> Asked:
    """What a client asks for. Raises `UsageError`, one line for the first thing wrong."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:MAX_NAME]
        what = first["msg"].removeprefix("Value error, ")
        what = "unknown key" if first["type"] == "extra_forbidden" else what
        raise UsageError(
            what[:MAX_VALUE], where=where, remedy=f"for example {_EXAMPLE[kind.__name__]}"
        ) from None


def to_json(asked: Silence | Acknowledgement) -> dict[str, Any]:
    """The spelling of the API, as plain values."""
    return asked.model_dump(mode="json", by_alias=True)


def moment(time: float) -> datetime:
    """Unix seconds as a time with its zone."""
    return datetime.fromtimestamp(time, UTC)
