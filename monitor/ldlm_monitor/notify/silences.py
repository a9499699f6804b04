"""Silences and acknowledgements, kept over restarts, and the alerts that they hold back."""

from __future__ import annotations

import json
import sqlite3
import threading
import uuid
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import ValidationError

from ldlm_monitor.model.alert import Transition, alert_key
from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.model.view import AlertView
from ldlm_monitor.notify.silence import Acknowledgement, Silence, from_json, moment, to_json
from ldlm_monitor.state.database import Database
from ldlm_monitor.text.sanitize import encodable, redact

MAX_KEPT: Final = 1000
"""Silences and acknowledgements: every alert is matched against all, on the pump's thread."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS silence (
    id TEXT PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS withheld (key TEXT PRIMARY KEY) WITHOUT ROWID;
"""
Request: TypeAlias = Silence | Acknowledgement


class Silences:
    """All of them, in one SQLite file; safe to use from several threads.

    One process writes the file, so it is read once. Times are Unix seconds.
    """

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA)
        self._lock = threading.Lock()
        self._silences: dict[str, Silence] = {}
        self._acks: dict[str, tuple[str, Acknowledgement]] = {}
        for number, request in self._database.run(_read):
            if isinstance(request, Silence):
                self._silences[number] = request
            else:
                self._acks[_key(request.alert, request.labels)] = (number, request)

    @property
    def acknowledges(self) -> bool:
        """Whether any acknowledgement waits for its alert's end."""
        return bool(self._acks)

    def add(self, silence: Silence, now: float) -> str:
        """Store a silence, committed on return; its id.

        Raises `UsageError` where it is over already, or where there are too many.
        """
        if silence.state(now) == "expired":
            raise UsageError("endsAt is in the past", where="endsAt", remedy="choose a later time")
        if silence.starts_at is None:
            silence = silence.model_copy(update={"starts_at": moment(now)})
        with self._lock:
            self._forget_expired(now)
            return self._keep(silence)

    def acknowledge(self, ack: Acknowledgement, alerts: Iterable[AlertView], now: float) -> str:
        """Store an acknowledgement of one of `alerts`, committed on return; its id.

        A second one of the same alert replaces the first. Raises `LookupError` where
        no such alert is active, `UsageError` where there are too many.
        """
        for alert in alerts:
            # The API shows labels without their secrets.
            shown = {redact(name): redact(value) for name, value in alert.labels.items()}
            if alert.name == ack.alert and ack.labels in (alert.labels, shown):
                with self._lock:
                    self._forget_expired(now)
                    return self._keep(ack.model_copy(update={"labels": _cleaned(alert.labels)}))
        raise LookupError("no alert of this name with exactly these labels is active")

    def expire(self, number: str, now: float) -> bool:
        """End a silence or an acknowledgement before its time; False if there is none."""
        with self._lock:
            self._forget_expired(now)
            acks = [key for key, (known, _) in self._acks.items() if known == number]
            if number not in self._silences and not acks:
                return False
            self._drop([number])
            return True

    def active(self, now: float) -> list[Silence]:
        """The silences in effect; those that are still to begin are not."""
        return [each for each in [*self._silences.values()] if each.state(now) == "active"]

    def silenced(self, alertname: str, labels: Mapping[str, str], now: float) -> Request | None:
        """The request that keeps this alert from being sent now; None without one."""
        if self._acks and (kept := self._acks.get(_key(alertname, labels))):
            return kept[1]
        return next((each for each in self.active(now) if each.matches(alertname, labels)), None)

    def end_acknowledgements(self, ended: Collection[str], active: Collection[str]) -> None:
        """Drop those whose alert (by its key) ended, or is not among the active ones."""
        over, alive = set(map(encodable, ended)), set(map(encodable, active))
        with self._lock:
            acks = self._acks.items()
            self._drop([kept[0] for key, kept in acks if key in over or key not in alive])

    def take_silence(self, body: bytes, now: float) -> str:
        """`add` a client's JSON. Raises `UsageError`."""
        return self.add(from_json(Silence, body), now)

    def take_ack(self, body: bytes, alerts: Iterable[AlertView], now: float) -> str:
        """`acknowledge` a client's JSON. Raises as that does."""
        return self.acknowledge(from_json(Acknowledgement, body), alerts, now)

    def listing(self, now: float) -> dict[str, list[dict[str, Any]]]:
        """`silences` that are not over, spelled as in Alertmanager, and `acks`."""
        with self._lock:
            silences, acks = list(self._silences.items()), list(self._acks.values())
        return {
            "silences": [
                {"id": number, "status": {"state": state}, **to_json(silence)}
                for number, silence in silences
                if (state := silence.state(now)) != "expired"
            ],
            "acks": [{"id": number, **to_json(ack)} for number, ack in acks],
        }

    def withheld(self) -> frozenset[str]:
        """The keys that `keep_withheld` stored last."""
        return self._database.run(
            lambda db: frozenset(str(row[0]) for row in db.execute("SELECT key FROM withheld"))
        )

    def keep_withheld(self, keys: Collection[str]) -> None:
        """Store the keys of the alerts that are held back."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM withheld")
            db.executemany(
                "INSERT INTO withheld VALUES (?)",
                [(key,) for key in sorted(set(map(encodable, keys)))],
            )

        self._database.run(work)

    def close(self) -> None:
        """Release the file."""
        self._database.close()

    def _keep(self, request: Request) -> str:
        key = _key(request.alert, request.labels) if isinstance(request, Acknowledgement) else ""
        if len(self._silences) + len(self._acks) >= MAX_KEPT and key not in self._acks:
            raise UsageError(
                f"{MAX_KEPT} silences are kept already", remedy="let some of them expire first"
            )
        if key in self._acks:
            self._drop([self._acks[key][0]])
        number = str(uuid.uuid4())
        row = (number, json.dumps({"ack": bool(key), **to_json(request)}))
        self._database.run(lambda db: db.execute("INSERT INTO silence VALUES (?, ?)", row))
        # Other threads read these without the lock: each change is a new dictionary.
        if isinstance(request, Acknowledgement):
            self._acks = {**self._acks, key: (number, request)}
        else:
            self._silences = {**self._silences, number: request}
        return number

    def _forget_expired(self, now: float) -> None:
        self._drop([n for n, each in self._silences.items() if each.state(now) == "expired"])

    def _drop(self, numbers: Collection[str]) -> None:
        if not numbers:
            return
        rows = [(number,) for number in numbers]
        self._database.run(lambda db: db.executemany("DELETE FROM silence WHERE id = ?", rows))
        self._silences = {n: each for n, each in self._silences.items() if n not in numbers}
        self._acks = {key: kept for key, kept in self._acks.items() if kept[0] not in numbers}


class Withheld:
    """Firing alerts that were not sent because of a silence, and are sent if they outlast it.

    An alert that was sent before a silence began is not sent again when that ends, but its
    own end is sent: nobody is left with an alert that seems to fire for ever. Without
    `silences` nothing is held back.
    """

    def __init__(self, silences: Silences | None) -> None:
        self._silences = silences
        self._held: dict[str, tuple[Transition, Request | None]] = {}
        self._saved = silences.withheld() if silences else frozenset()

    def __contains__(self, key: str) -> bool:
        """Whether the alert was held back before the restart, or at the last `save`."""
        return encodable(key) in self._saved

    def judge(self, transition: Transition, now: float, *, hold: bool) -> Request | None:
        """Why a transition is not to be sent; with `hold` a firing one is kept until it may be."""
        if self._silences is None:
            return None
        if transition.state not in ("pending", "firing"):
            held = self._held.pop(transition.key, None)
            return held and held[1]
        why = self._silences.silenced(transition.alert, transition.labels, now)
        if hold and why and transition.state == "firing":
            self._held[transition.key] = (transition, why)
        return why

    @property
    def waits(self) -> bool:
        """Whether anything may change with time or with an alert's end."""
        return self._silences is not None and bool(self._held or self._silences.acknowledges)

    def release(
        self, passed: Iterable[Transition], active: Collection[str], now: float
    ) -> list[Transition]:
        """End acknowledgements with their alerts; what still fires and may be sent now.

        `passed` are the transitions since the last call, `active` the keys of the
        alerts that are active now.
        """
        if self._silences is None:
            return []
        ended = {each.key for each in passed if each.state not in ("pending", "firing")}
        self._silences.end_acknowledgements(ended, active)
        over = [
            transition
            for transition, _ in self._held.values()
            if transition.key not in active
            or self._silences.silenced(transition.alert, transition.labels, now) is None
        ]
        for transition in over:
            del self._held[transition.key]
        return [transition for transition in over if transition.key in active]

    def save(self) -> None:
        """Store what is held back for a restart; commit the outbox first."""
        held = frozenset(map(encodable, self._held))
        if self._silences is not None and self._saved != held:
            self._saved = held
            self._silences.keep_withheld(self._saved)


def _cleaned(labels: Mapping[str, str]) -> dict[str, str]:
    return {encodable(name): encodable(value) for name, value in labels.items()}


def _key(alertname: str, labels: Mapping[str, str]) -> str:
    """The alert's key, in a form that any file can store."""
    return encodable(alert_key(alertname, labels))


def _read(db: sqlite3.Connection) -> list[tuple[str, Request]]:
    """The file's rows by their ids; a row that another version wrote is left out."""
    kept: list[tuple[str, Request]] = []
    for number, body in db.execute("SELECT id, body FROM silence").fetchall():
        try:
            fields = json.loads(body)
            kind = Acknowledgement if fields.pop("ack") else Silence
            kept.append((number, kind.model_validate_json(json.dumps(fields))))
        except (ValidationError, ValueError, KeyError):
            continue
    return kept
