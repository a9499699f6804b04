"""Deliveries: what waits for which receiver, what came of it, and when it is tried again."""

import math
import sqlite3
import zlib
from dataclasses import dataclass
from typing import Final

from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.notify.groups import Row
from ldlm_monitor.notify.groups import forget as forget_groups
from ldlm_monitor.notify.message import Message
from ldlm_monitor.notify.notification import Notification, to_json
from ldlm_monitor.notify.tables import COUNTED_FROM_ZERO

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 300.0
"""Seconds between two attempts, at first and at most."""

UNSURE: Final = 2
"""`in_flight` of what was sent without an answer: it may have arrived."""
UNREADABLE: Final = "written by another version"


@dataclass(frozen=True, slots=True)
class Pending:
    """What is on its way to one receiver; `attempts` to reach it have failed so far.

    `notification` is what it is about; where the receiver takes groups, `message` is what it
    is told, and `ids` are the news in it.
    """

    id: int
    receiver: str
    attempts: int
    notification: Notification
    message: Message | None = None
    ids: tuple[int, ...] = ()
    row: Row | None = None


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


def number_of(db: sqlite3.Connection, notification: Notification, now: float) -> tuple[int, bool]:
    """The id of a notification, which is kept where it is new, and whether it is."""
    identity = (notification.key, notification.state, notification.started_at)
    cursor = db.execute(
        "INSERT OR IGNORE INTO notification (key, state, started_at, added_at, body)"
        " VALUES (?, ?, ?, ?, ?)",
        (*identity, now, to_json(notification)),
    )
    row = db.execute(
        "SELECT id FROM notification WHERE key = ? AND state = ? AND started_at = ?", identity
    ).fetchone()
    return int(row[0]), cursor.rowcount == 1


def queue(db: sqlite3.Connection, number: int, receiver: str, now: float) -> bool:
    """Whether it waits for the receiver now and did not before."""
    register(db, receiver)
    cursor = db.execute(
        "INSERT OR IGNORE INTO delivery (notification, receiver, next_at) VALUES (?, ?, ?)",
        (number, receiver, now),
    )
    return cursor.rowcount == 1


def patience_with(db: sqlite3.Connection, receiver: str) -> tuple[int, float]:
    """How often it was tried in vain, and when it may be tried again."""
    row = db.execute(
        "SELECT attempts, retry_at FROM receiver WHERE name = ?", (receiver,)
    ).fetchone()
    return (0, 0.0) if row is None else (int(row[0]), float(row[1]))


def mark_in_flight(db: sqlite3.Connection, number: int, receiver: str) -> None:
    """From now on nobody knows whether it arrived, until it is settled."""
    db.execute(
        "UPDATE delivery SET in_flight = 1 WHERE notification = ? AND receiver = ?",
        (number, receiver),
    )


def settle(
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
        " WHERE notification = ? AND receiver = ? AND outcome IN ('pending', 'held')",
        (outcome, now, error, *delivery),
    )
    if cursor.rowcount:
        tally(db, delivery[1], outcome)


def postpone(
    db: sqlite3.Connection, pending: Pending, next_at: float, error: DeliveryError
) -> None:
    """The receiver is left alone until `next_at`."""
    db.execute(
        "INSERT INTO receiver (name, attempts, retry_at) VALUES (?, 1, ?) ON CONFLICT (name)"
        " DO UPDATE SET attempts = attempts + 1, retry_at = excluded.retry_at",
        (pending.receiver, next_at),
    )
    unsure = UNSURE if error.unsure and pending.message is not None else 0
    was_unsure = pending.message is not None and pending.message.unsure
    for number in (pending.id,) if pending.message is None else pending.ids:
        db.execute(
            "UPDATE delivery SET attempts = attempts + 1, in_flight = ?, error = ?"
            " WHERE notification = ? AND receiver = ? AND outcome = 'pending'",
            (UNSURE if was_unsure else unsure, str(error), number, pending.receiver),
        )
    tally(db, pending.receiver, "retried")


def forget(db: sqlite3.Connection, before: float) -> None:
    """What was dealt with and is older than `before`."""
    db.execute(
        "DELETE FROM delivery WHERE outcome != 'pending'"
        " AND notification IN (SELECT id FROM notification WHERE added_at < ?)",
        (before,),
    )
    forget_groups(db, before)
    db.execute(
        "DELETE FROM notification WHERE added_at < ?"
        " AND NOT EXISTS (SELECT 1 FROM delivery WHERE notification = id)",
        (before,),
    )


def recount_in_flight(db: sqlite3.Connection) -> None:
    """What was on its way when the last process ended goes again, and may be there already.

    Of a group it goes again just as it went, so that its receiver may know it; whether it
    was a repeat is known when that has answered.
    """
    rows = db.execute(
        "SELECT receiver FROM delivery LEFT JOIN member USING (notification, receiver)"
        " WHERE in_flight = 1 AND alert_group IS NULL"
    )
    for (receiver,) in rows.fetchall():
        tally(db, receiver, "repeated")
    db.execute(
        "UPDATE delivery SET in_flight = 0 WHERE in_flight = 1 AND NOT EXISTS (SELECT 1 FROM"
        " member WHERE member.notification = delivery.notification"
        " AND member.receiver = delivery.receiver AND alert_group IS NOT NULL)"
    )
    db.execute("UPDATE delivery SET in_flight = ? WHERE in_flight = 1", (UNSURE,))


def register(db: sqlite3.Connection, receiver: str) -> None:
    """Count for a receiver from 0."""
    db.executemany(
        "INSERT OR IGNORE INTO tally (receiver, outcome) VALUES (?, ?)",
        [(receiver, outcome) for outcome in COUNTED_FROM_ZERO],
    )


def tally(db: sqlite3.Connection, receiver: str, outcome: str) -> None:
    """Count one more."""
    register(db, receiver)
    db.execute(
        "INSERT INTO tally (receiver, outcome, count) VALUES (?, ?, 1)"
        " ON CONFLICT (receiver, outcome) DO UPDATE SET count = count + 1",
        (receiver, outcome),
    )


def standing(db: sqlite3.Connection) -> frozenset[str]:
    """Keys of the alerts that were told to be firing, and not to have ended."""
    latest = db.execute(
        "SELECT key FROM notification AS told WHERE state = 'firing' "
        "AND id = (SELECT max(id) FROM notification WHERE key = told.key)"
    )
    return frozenset(str(row[0]) for row in latest)


def counts(db: sqlite3.Connection) -> dict[tuple[str, str], int]:
    """By (receiver, outcome), and how many wait."""
    rows = db.execute("SELECT receiver, outcome, count FROM tally").fetchall()
    counts = {(receiver, outcome): int(count) for receiver, outcome, count in rows}
    counts.update({(receiver, "pending"): 0 for receiver, _, _ in rows})
    waiting = db.execute(
        "SELECT receiver, count(*) FROM delivery WHERE outcome = 'pending' GROUP BY receiver"
    )
    counts.update({(receiver, "pending"): int(count) for receiver, count in waiting})
    return counts


def withhold(db: sqlite3.Connection, receiver: str, ended: Notification, now: float) -> None:
    """Neither the end of an alert nor its beginning, which was not told, is ever told."""
    rows = db.execute(
        "SELECT notification FROM delivery JOIN notification ON id = notification"
        " WHERE key = ? AND started_at = ? AND receiver = ? AND outcome IN ('pending', 'held')",
        (ended.key, ended.started_at, receiver),
    ).fetchall()
    for (number,) in rows:
        settle(db, (number, receiver), "withheld", now=now)
