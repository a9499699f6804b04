"""Silences as Alertmanager's API v2 spells them, and acknowledgements of single alerts.

The outbox holds back the alerts that match. Both kinds are stored and survive a restart.
"""

import json
import sqlite3
import threading
import uuid
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeAlias, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from ldlm_monitor.base.alert import MAX_NAME, LabelMatcher, Value
from ldlm_monitor.base.errors import UsageError, first_problem
from ldlm_monitor.base.snapshot import AlertView
from ldlm_monitor.base.text.sanitize import redact
from ldlm_monitor.service.notify.message import MAX_LABEL, Notification, fit
from ldlm_monitor.service.state.database import Database

MAX_MATCHERS: Final = 20  # of a silence: a choice; usual ones have three, and each costs time
MAX_LABELS: Final = 100  # of an acknowledgement: a choice; alerts have fewer, and each costs memory
MAX_KEPT: Final = 1000
"""Silences and acknowledgements at most: a choice; people need fewer, each costs time per alert."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS silence (
    id TEXT PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;
"""
_EXAMPLE: Final = {  # shown with an error, by the class of the request
    "Silence": '{"matchers": [{"name": "alertname", "value": "LossSpike"}],'
    ' "endsAt": "2026-01-30T06:00:00Z", "createdBy": "me", "comment": "known"}',
    "Acknowledgement": '{"alert": "LossSpike", "labels": {...}, "by": "me", "comment": "known"}',
}


def _is_a_date(value: object) -> object:
    """`value`; ValueError for a number, which pydantic reads as seconds or as milliseconds."""
    if isinstance(value, datetime) or (isinstance(value, str) and "-" in value[1:]):
        return value
    raise ValueError("should be a time of RFC 3339, such as 2026-01-30T06:00:00Z")


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]  # an alert's, label's or person's
Moment = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_is_a_date)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class Silence(_Request):
    """Firing alerts whose labels satisfy every matcher are held from `startsAt` to `endsAt`.

    The alert's name is the label `alertname`. Without `startsAt`, the silence begins at once.
    """

    matchers: tuple[LabelMatcher, ...] = Field(min_length=1, max_length=MAX_MATCHERS, strict=False)
    starts_at: Moment | None = Field(None, alias="startsAt")
    ends_at: Moment = Field(alias="endsAt")
    by: Name = Field(alias="createdBy")
    comment: Value

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if self.starts_at is not None and self.ends_at <= self.starts_at:
            raise ValueError("endsAt must lie after startsAt")
        if all(matcher.holds({}) for matcher in self.matchers):
            raise ValueError("at least one matcher must require a label that is not empty")
        return self

    def matches(self, each: Notification) -> bool:
        """Whether all its matchers hold for the alert; the time is not considered."""
        named = {**each.labels, "alertname": each.alert}
        return all(matcher.holds(named) for matcher in self.matchers)

    def state(self, now: float) -> str:
        """`pending`, `active` or `expired` at `now` (Unix seconds)."""
        if now >= self.ends_at.timestamp():
            return "expired"
        started = self.starts_at is None or self.starts_at.timestamp() <= now
        return "active" if started else "pending"


class Acknowledgement(_Request):
    """A person, `by`, works on exactly this alert: while it fires, it is not sent."""

    alert: Name
    labels: dict[Name, Value] = Field(max_length=MAX_LABELS)
    by: Name
    comment: Value = ""

    def state(self, now: float) -> str:
        """Always `active`: an acknowledgement is deleted when its alert ends."""
        return "active"


Request: TypeAlias = Silence | Acknowledgement
Asked = TypeVar("Asked", Silence, Acknowledgement)


def read_request(kind: type[Asked], body: bytes) -> Asked:
    """The request in a client's JSON. Raises UsageError, a line about the first invalid field."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as problem:
        where, what = first_problem(problem)
        remedy = f"for example {_EXAMPLE[kind.__name__]}"
        raise UsageError(what, where=where[:MAX_NAME], remedy=remedy) from None


class Silences:
    """All silences and acknowledgements, in one SQLite file; safe to use from several threads.

    Only one process writes the file, so it is read once. Times are Unix seconds. `bodies`: the
    models of requests, by path below `/api/v1`.
    """

    bodies: Mapping[str, type[BaseModel]] = {"/silences": Silence, "/acks": Acknowledgement}

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA)
        self._lock = threading.Lock()
        # By id: the key of the acknowledged alert ("" for a silence), and the request. Other
        # threads read it without the lock, so each change builds a new dictionary.
        self._kept: dict[str, tuple[str, Request]] = self._database.load(_read)

    @property
    def any(self) -> bool:
        """Whether any silence or acknowledgement is stored."""
        return bool(self._kept)

    def silenced(self, each: Notification, now: float) -> Request | None:
        """The silence or acknowledgement that holds this alert back now, if any."""
        for key, request in self._kept.values():
            if request.state(now) == "active" and (
                request.matches(each) if isinstance(request, Silence) else key == each.key
            ):
                return request
        return None

    def take_silence(self, body: bytes, now: float) -> str:
        """Store a silence, given as JSON; committed on return. Returns its id.

        Raises `UsageError` if it is invalid or over already, or if MAX_KEPT are stored.
        """
        silence = read_request(Silence, body)
        if silence.state(now) == "expired":
            raise UsageError("endsAt is in the past", where="endsAt", remedy="choose a later time")
        # Alerts are matched in their redacted form, so values to match are redacted too.
        shown = tuple(
            each if each.is_regex else each.model_copy(update={"value": fit(each.value, MAX_LABEL)})
            for each in silence.matchers
        )
        starts_at = silence.starts_at or datetime.fromtimestamp(now, UTC)
        silence = silence.model_copy(update={"matchers": shown, "starts_at": starts_at})
        return self._keep("", silence, now)

    def take_ack(self, body: bytes, alerts: Iterable[AlertView], now: float) -> str:
        """Store an acknowledgement of one of `alerts`; committed on return. Returns its id.

        A second one of the same alert replaces the first. Raises `LookupError` if no such alert
        is active, and `UsageError` if it is invalid or MAX_KEPT are stored.
        """
        ack = read_request(Acknowledgement, body)
        for alert in alerts:
            # The API shows labels without their secrets.
            shown = {redact(name): redact(value) for name, value in alert.labels.items()}
            if alert.name == ack.alert and ack.labels in (alert.labels, shown):
                key = fit(alert.key)
                return self._keep(key, ack.model_copy(update={"labels": shown}), now)
        raise LookupError("no alert of this name with exactly these labels is active")

    def expire(self, number: str, now: float) -> bool:
        """Delete a silence or an acknowledgement by its id; False if none has this id."""
        with self._lock:
            self._forget_expired(now)
            known = number in self._kept
            self._drop([number] if known else [])
            return known

    def end_acknowledgements(self, ended: Collection[str], active: Collection[str]) -> None:
        """Drop acknowledgements whose alert's key is in `ended`, or is not in `active`."""
        if not any(key for key, _ in self._kept.values()):
            return
        over, alive = set(map(fit, ended)), set(map(fit, active))
        with self._lock:
            acks = [(number, key) for number, (key, _) in self._kept.items() if key]
            self._drop([number for number, key in acks if key in over or key not in alive])

    def listing(self, now: float) -> dict[str, list[dict[str, Any]]]:
        """`silences` that are not over, in the fields of Alertmanager's API v2, and all `acks`."""
        silences, acks = [], []
        for number, (_, request) in self._kept.items():
            spelled = {"id": number, **request.model_dump(mode="json", by_alias=True)}
            if isinstance(request, Acknowledgement):
                acks.append(spelled)
            elif (state := request.state(now)) != "expired":
                silences.append({**spelled, "status": {"state": state}})
        return {"silences": silences, "acks": acks}

    def close(self) -> None:
        """Release the file."""
        self._database.close()

    def _keep(self, key: str, request: Request, now: float) -> str:
        with self._lock:
            self._forget_expired(now)
            replaced = [number for number, (known, _) in self._kept.items() if known == key != ""]
            if len(self._kept) - len(replaced) >= MAX_KEPT:
                raise UsageError(
                    f"{MAX_KEPT} silences and acknowledgements exist", remedy="delete some first"
                )
            self._drop(replaced)
            number = str(uuid.uuid4())
            fields = request.model_dump(mode="json", by_alias=True)
            row = (number, json.dumps({"ack": key, **fields}))
            self._database.run(lambda db: db.execute("INSERT INTO silence VALUES (?, ?)", row))
            self._kept = {**self._kept, number: (key, request)}
            return number

    def _forget_expired(self, now: float) -> None:
        kept = self._kept.items()
        self._drop(number for number, (_, each) in kept if each.state(now) == "expired")

    def _drop(self, numbers: Iterable[str]) -> None:
        if over := set(numbers):
            rows = [(number,) for number in over]
            self._database.run(lambda db: db.executemany("DELETE FROM silence WHERE id = ?", rows))
            self._kept = {n: kept for n, kept in self._kept.items() if n not in over}


def _read(db: sqlite3.Connection) -> dict[str, tuple[str, Request]]:
    """The file's rows by their ids, without rows that another version wrote."""
    kept: dict[str, tuple[str, Request]] = {}
    for number, body in db.execute("SELECT id, body FROM silence").fetchall():
        try:
            fields = json.loads(body)
            key = fields.pop("ack")
            kind = Acknowledgement if key else Silence
            kept[number] = key, kind.model_validate_json(json.dumps(fields))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return kept
