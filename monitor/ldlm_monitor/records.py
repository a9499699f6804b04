"""The typed records that a log is turned into (contract section 2).

One definition each, immutable. Times are Unix seconds (UTC), sizes bytes, rates
per second; numbers may be NaN or infinite and stay so. `time` is None where the
line itself carries no time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Severity: TypeAlias = Literal["info", "warning", "error", "critical"]
Scalar: TypeAlias = str | int | float | bool | None
FieldValue: TypeAlias = Scalar | list[Scalar] | list[dict[str, Scalar]] | dict[str, Scalar]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a record's text begins: `line` is 1-based and counts `\\n`, `offset` is bytes."""

    path: str
    line: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Numbers that one line reports about one step, under canonical names."""

    type: Literal["sample"] = "sample"
    run: str
    rank: int | None = None
    step: int | None = None
    epoch: float | None = None
    time: float | None = None
    values: dict[str, float]
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that a line, or a block of lines, says happened."""

    type: Literal["event"] = "event"
    kind: str
    severity: Severity
    run: str
    rank: int | None = None
    node: str | None = None
    time: float | None = None
    message: str
    fields: dict[str, FieldValue] = field(default_factory=dict)
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A sign of life that a rank wrote on purpose."""

    type: Literal["heartbeat"] = "heartbeat"
    run: str
    rank: int
    host: str
    pid: int
    step: int
    phase: str
    time: float
    position: Position


Record: TypeAlias = Sample | Event | Heartbeat


@cache
def adapter() -> TypeAdapter[Record]:
    """Validates records and serialises them, non-finite numbers as strings."""
    from pydantic import ConfigDict, Field, TypeAdapter

    return TypeAdapter(
        Annotated[Record, Field(discriminator="type")],
        config=ConfigDict(ser_json_inf_nan="strings"),
    )


def to_json(record: Record) -> bytes:
    """One JSON object, valid everywhere: NaN and infinities become strings."""
    return adapter().dump_json(record)


def from_json(text: bytes | str) -> Record:
    """The record that `to_json` wrote. Raises `pydantic.ValidationError`."""
    return adapter().validate_json(text)
