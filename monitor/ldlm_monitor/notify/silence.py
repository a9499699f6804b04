"""Silences as Alertmanager's API v2 spells them, and acknowledgements of single alerts."""

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

MAX_MATCHERS: Final = 20
MAX_LABELS: Final = 100
"""More than any alert has labels; a request is bounded, as anybody on this machine can send one."""
_EXAMPLE: Final = {
    "Silence": '{"matchers": [{"name": "alertname", "value": "LossSpike"}],'
    ' "endsAt": "2026-01-30T06:00:00Z", "createdBy": "me", "comment": "known"}',
    "Acknowledgement": '{"alert": "LossSpike", "labels": {...}, "by": "me", "comment": "known"}',
}


def _is_a_date(value: object) -> object:
    """pydantic would read a bare number as seconds or as milliseconds, by its size."""
    if isinstance(value, datetime) or (isinstance(value, str) and "-" in value[1:]):
        return value
    raise ValueError("should be a time of RFC 3339, such as 2026-01-30T06:00:00Z")


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Moment = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_is_a_date)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class Silence(_Request):
    """Alerts whose labels satisfy every matcher are not sent from `startsAt` to `endsAt`.

    `alertname` is a label. Without `startsAt` it begins when it is added.
    """

    matchers: tuple[LabelMatcher, ...] = Field(min_length=1, max_length=MAX_MATCHERS, strict=False)
    starts_at: Moment | None = Field(None, alias="startsAt")
    ends_at: Moment = Field(alias="endsAt")
    by: Name = Field(alias="createdBy")
    comment: Value

    @model_validator(mode="after")
    def _selects_something(self) -> Silence:
        if self.starts_at is not None and self.ends_at <= self.starts_at:
            raise ValueError("endsAt must lie after startsAt")
        if all(matcher.holds({}) for matcher in self.matchers):
            raise ValueError("at least one matcher must ask for a label that is not empty")
        return self

    def matches(self, alertname: str, labels: Mapping[str, str]) -> bool:
        """Whether its matchers hold for the alert, whatever the time."""
        named = {**labels, "alertname": alertname}
        return all(matcher.holds(named) for matcher in self.matchers)

    def state(self, now: float) -> str:
        """`pending`, `active` or `expired` at `now` (Unix seconds)."""
        if now >= self.ends_at.timestamp():
            return "expired"
        started = self.starts_at is None or self.starts_at.timestamp() <= now
        return "active" if started else "pending"


class Acknowledgement(_Request):
    """Somebody is working on exactly this alert: it is not sent until it has ended."""

    alert: Name
    labels: dict[Name, Value] = Field(max_length=MAX_LABELS)
    by: Name
    comment: Value = ""


Request = TypeVar("Request", Silence, Acknowledgement)


def from_json(kind: type[Request], body: bytes) -> Request:
    """Parses a client's request. Raises `UsageError`, one line for the first thing wrong."""
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


def to_json(request: Silence | Acknowledgement) -> dict[str, Any]:
    """The spelling of the API, as plain values."""
    return request.model_dump(mode="json", by_alias=True)


def moment(time: float) -> datetime:
    """Unix seconds as a time with its zone."""
    return datetime.fromtimestamp(time, UTC)
