"""What is still to be sent, and what was: committed before anything goes out.

A crash loses nothing: what was added is found again. Sent twice is only what a
kill caught between the receiver's answer and our commit; it is counted as
`repeated`.
"""

import math
import sqlite3
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import ValidationError

from ldlm_monitor.database import Database
from ldlm_monitor.errors import DeliveryError
from ldlm_monitor.notify.notification import Notification, from_json, to_json

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 300.0
"""Seconds between two attempts, at first and at most."""

KEPT_SECONDS = 30 * 86400.0
"""So long a notification that was dealt with is remembered, and not sent again."""

Outcome: TypeAlias = Literal["sent", "retried", "failed", "repeated"]
_TALLIED: tuple[Outcome, ...] = ("sent", "retried", "failed", "repeated")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS notification (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    state TEXT NOT NULL,
    started_at REAL NOT NULL,
    added_at REAL NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (key, state, started_at)
);
CREATE INDEX IF NOT EXISTS notification_age ON notification (added_at);
CREATE TABLE IF NOT EXISTS delivery (
    notification INTEGER NOT NULL REFERENCES notification (id),
    receiver TEXT NOT NULL,
    outcome TEXT NOT NULL DEFAULT 'pending',
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at REAL NOT NULL,
    in_flight INTEGER NOT NULL DEFAULT 0,
    settled_at REAL,
    error TEXT,
    PRIMARY KEY (notification, receiver)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS delivery_queue
    ON delivery (receiver, notification) WHERE outcome = 'pending';
CREATE TABLE IF NOT EXISTS tally (
    receiver TEXT NOT NULL,
    outcome TEXT NOT NULL,
    count INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (receiver, outcome)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Pending:
    """A notification on its way to one receiver; `attempts` have failed so far."""

    id: int
    receiver: str
    attempts: int
    notification: Notification


class Outbox:
    """The queue of every receiver, in one file; safe to use from several threads.

    A file that fails never stops the monitor: see `take_notices`. Times are Unix
    seconds.
    """

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA)
        self._database.run(_recount_in_flight)

    def take_notices(self) -> list[str]:
        """Lines for the user: the file was damaged, or cannot be written. Each comes once."""
        return self._database.take_notices()

    def close(self) -> None:
        """Release the file. Stop the couriers first."""
        self._database.close()

    def register(self, receiver: str) -> None:
        """Count for `receiver` from 0, before anything is added for it."""
        self._database.run(lambda db: _register(db, receiver))

    def add(self, notification: Notification, receivers: Sequence[str], now: float) -> bool:
        """Queue it for each receiver; committed when this returns.

        False if every one of them had it already, by (key, state, started_at).
        """

        def work(db: sqlite3.Connection) -> bool:
            _forget(db, now - KEPT_SECONDS)
            number = _number(db, notification, now)
            added = [_queue(db, number, receiver, now) for receiver in receivers]
            return any(added)

        return bool(receivers) and self._database.run(work)

    def due(self, receiver: str, now: float) -> Pending | None:
        """The oldest that waits for `receiver`, if its time has come; ask again after settling it.

        Order is kept: nothing overtakes one that waits for its next attempt.
        """
        return self._database.run(lambda db: _take_due(db, receiver, now))

    def next_attempt(self, receiver: str) -> float | None:
        """When the oldest that waits for `receiver` is due; None where nothing waits."""

        def work(db: sqlite3.Connection) -> float | None:
            head = _head(db, receiver)
            return None if head is None else float(head[2])

        return self._database.run(work)

    def accepted(self, pending: Pending, now: float) -> None:
        """The receiver has it."""
        delivery = (pending.id, pending.receiver)
        self._database.run(lambda db: _settle(db, delivery, "sent", now=now))

    def failed(self, pending: Pending, error: DeliveryError, now: float) -> None:
        """The receiver did not take it: try again later, or never if the error is permanent."""

        def work(db: sqlite3.Connection) -> None:
            if error.permanent:
                delivery = (pending.id, pending.receiver)
                _settle(db, delivery, "failed", now=now, error=str(error))
            else:
                _postpone(db, pending, now + pause(pending, error.retry_after), str(error))

        self._database.run(work)

    def count(self, receiver: str, outcome: Outcome) -> None:
        """Count for a receiver that is told of what stands, so that nothing waits for it."""
        self._database.run(lambda db: _tally(db, receiver, outcome))

    def standing(self) -> frozenset[str]:
        """Keys of the alerts that were told to be firing, and not to have ended."""
        return self._database.run(_standing)

    def counts(self) -> dict[tuple[str, str], int]:
        """By (receiver, outcome).

        `sent`, `retried`, `failed` and `repeated` only ever grow, `pending` is how
        many wait now.
        """
        return self._database.run(_counts)


def pause(pending: Pending, retry_after: float | None) -> float:
    """Seconds to wait after an attempt that failed.

    The receiver's own wish, between FIRST_PAUSE and LONGEST_PAUSE. Without one:
    doubled with every attempt up to LONGEST_PAUSE, and of that a share between one
    half and one that follows from the notification, so that receivers that failed
    together do not all return together.
    """
    if retry_after is not None and not math.isnan(retry_after):
        return min(LONGEST_PAUSE, max(FIRST_PAUSE, retry_after))
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(pending.attempts, 16))
    draw = zlib.crc32(f"{pending.receiver} {pending.id} {pending.attempts}".encode()) / 2**32
    return longest * (0.5 + draw / 2)


def _number(db: sqlite3.Connection, notification: Notification, now: float) -> int:
    identity = (notification.key, notification.state, notification.started_at)
    db.execute(
        "INSERT OR IGNORE INTO notification (key, state, started_at, added_at, body)"
        " VALUES (?, ?, ?, ?, ?)",
        (*identity, now, to_json(notification)),
    )
    row = db.execute(
        "SELECT id FROM notification WHERE key = ? AND state = ? AND started_at = ?", identity
    ).fetchone()
    return int(row[0])


def _queue(db: sqlite3.Connection, number: int, receiver: str, now: float) -> bool:
    _register(db, receiver)
    cursor = db.execute(
        "INSERT OR IGNORE INTO delivery (notification, receiver, next_at) VALUES (?, ?, ?)",
        (number, receiver, now),
    )
    return cursor.rowcount == 1


def _head(db: sqlite3.Connection, receiver: str) -> tuple[int, int, float, int, str] | None:
    """(id, attempts, next_at, in_flight, body) of the oldest that waits."""
    row: tuple[int, int, float, int, str] | None = db.execute(
        "SELECT id, attempts, next_at, in_flight, body"
        " FROM delivery JOIN notification ON id = notification"
        " WHERE receiver = ? AND outcome = 'pending' ORDER BY notification LIMIT 1",
        (receiver,),
    ).fetchone()
    return row


def _take_due(db: sqlite3.Connection, receiver: str, now: float) -> Pending | None:
    while (head := _head(db, receiver)) is not None:
        number, attempts, next_at, in_flight, body = head
        # Further off than any pause: the clock was set back meanwhile.
        if now < next_at <= now + LONGEST_PAUSE:
            return None
        try:
            pending = Pending(number, receiver, attempts, from_json(body))
        except ValidationError:
            unreadable = "written by another version"
            _settle(db, (number, receiver), "failed", now=now, error=unreadable)
            continue
        if not in_flight:
            _mark_in_flight(db, number, receiver)
        return pending
    return None


def _mark_in_flight(db: sqlite3.Connection, number: int, receiver: str) -> None:
    db.execute(
        "UPDATE delivery SET in_flight = 1 WHERE notification = ? AND receiver = ?",
        (number, receiver),
    )


def _settle(
    db: sqlite3.Connection,
    delivery: tuple[int, str],
    outcome: str,
    *,
    now: float,
    error: str | None = None,
) -> None:
    """`delivery` is (notification id, receiver)."""
    cursor = db.execute(
        "UPDATE delivery SET outcome = ?, settled_at = ?, in_flight = 0, error = ?"
        " WHERE notification = ? AND receiver = ? AND outcome = 'pending'",
        (outcome, now, error, *delivery),
    )
    if cursor.rowcount:
        _tally(db, delivery[1], outcome)


def _postpone(db: sqlite3.Connection, pending: Pending, next_at: float, error: str) -> None:
    db.execute(
        "UPDATE delivery SET attempts = attempts + 1, next_at = ?, in_flight = 0, error = ?"
        " WHERE notification = ? AND receiver = ? AND outcome = 'pending'",
        (next_at, error, pending.id, pending.receiver),
    )
    _tally(db, pending.receiver, "retried")


def _forget(db: sqlite3.Connection, before: float) -> None:
    db.execute(
        "DELETE FROM delivery WHERE outcome != 'pending'"
        " AND notification IN (SELECT id FROM notification WHERE added_at < ?)",
        (before,),
    )
    db.execute(
        "DELETE FROM notification WHERE added_at < ?"
        " AND NOT EXISTS (SELECT 1 FROM delivery WHERE notification = id)",
        (before,),
    )


def _recount_in_flight(db: sqlite3.Connection) -> None:
    """What was on its way when the last process ended goes again, and may be there already."""
    for (receiver,) in db.execute("SELECT receiver FROM delivery WHERE in_flight = 1").fetchall():
        _tally(db, receiver, "repeated")
    db.execute("UPDATE delivery SET in_flight = 0 WHERE in_flight = 1")


def _register(db: sqlite3.Connection, receiver: str) -> None:
    db.executemany(
        "INSERT OR IGNORE INTO tally (receiver, outcome) VALUES (?, ?)",
        [(receiver, outcome) for outcome in _TALLIED],
    )


def _tally(db: sqlite3.Connection, receiver: str, outcome: str) -> None:
    _register(db, receiver)
    db.execute(
        "UPDATE tally SET count = count + 1 WHERE receiver = ? AND outcome = ?",
        (receiver, outcome),
    )


def _standing(db: sqlite3.Connection) -> frozenset[str]:
    latest = db.execute(
        "SELECT key FROM notification AS told WHERE state = 'firing' "
        "AND id = (SELECT max(id) FROM notification WHERE key = told.key)"
    )
    return frozenset(str(row[0]) for row in latest)


def _counts(db: sqlite3.Connection) -> dict[tuple[str, str], int]:
    rows = db.execute("SELECT receiver, outcome, count FROM tally").fetchall()
    counts = {(receiver, outcome): int(count) for receiver, outcome, count in rows}
    counts.update({(receiver, "pending"): 0 for receiver, _, _ in rows})
    waiting = db.execute(
        "SELECT receiver, count(*) FROM delivery WHERE outcome = 'pending' GROUP BY receiver"
    )
    counts.update({(receiver, "pending"): int(count) for receiver, count in waiting})
    return counts
