"""Deliveries: what waits for which receiver, what came of it, and when it is tried again.

Every function runs within a transaction on the outbox's file. Times are Unix seconds.
"""

import math
import sqlite3
import zlib
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ldlm_monitor.config.policy import StreamPolicy
from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.notify.groups import Group, recount_all
from ldlm_monitor.notify.groups import forget as forget_groups
from ldlm_monitor.notify.message import Message
from ldlm_monitor.notify.notification import Notification, readable, to_json

Outcome: TypeAlias = Literal["sent", "retried", "failed", "repeated", "withheld"]
"""`withheld`: began and ended within quiet hours, so nothing is sent of it."""
COUNTED_FROM_ZERO: Final[tuple[Outcome, ...]] = ("sent", "retried", "failed", "repeated")

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 300.0
"""Seconds between two attempts, at first and at most: a receiver that is up again is to be in use
within minutes, and one that is down is not to be flooded."""
UNSURE: Final = 2
"""`in_flight` of what was sent without an answer: it may have arrived."""
UNREADABLE: Final = "written by another version"


@dataclass(frozen=True, slots=True)
class Pending:
    """What is on its way to one receiver; `attempts` to reach it have failed so far.

    `notification` is its subject. Where the receiver gets groups, `message` is what it gets,
    `ids` are the notifications that are new in it, and `group` is the group's row.
    """

    id: int
    receiver: str
    attempts: int
    notification: Notification
    message: Message | None = None
    ids: tuple[int, ...] = ()
    group: Group | None = None


def pause(pending: Pending, retry_after: float | None) -> float:
    """Seconds to wait after an attempt that failed.

    The receiver's `Retry-After`, between FIRST_PAUSE and LONGEST_PAUSE. Without one: doubled
    with every attempt up to LONGEST_PAUSE, and of that a share between one half and one that
    follows from the notification, so that receivers that failed together do not all return
    together.
    """
    if retry_after is not None and not math.isnan(retry_after):
        return min(LONGEST_PAUSE, max(FIRST_PAUSE, retry_after))
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(pending.attempts, 16))
    draw = zlib.crc32(f"{pending.receiver} {pending.id} {pending.attempts}".encode()) / 2**32
    return longest * (0.5 + draw / 2)


def store(db: sqlite3.Connection, notification: Notification, now: float) -> int:
    """The id of a notification, which is stored where it is new."""
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


def queue(db: sqlite3.Connection, number: int, receiver: str, now: float) -> bool:
    """Whether it waits for the receiver now and did not before."""
    register(db, receiver)
    cursor = db.execute(
        "INSERT OR IGNORE INTO delivery (notification, receiver, next_at) VALUES (?, ?, ?)",
        (number, receiver, now),
    )
    return cursor.rowcount == 1


def next_single(db: sqlite3.Connection, receiver: str, attempts: int, now: float) -> Pending | None:
    """The oldest notification that waits for a receiver which gets each by itself."""
    while True:
        head = db.execute(
            "SELECT notification, body FROM delivery JOIN notification ON id = notification"
            " WHERE receiver = ? AND outcome = 'pending' ORDER BY notification LIMIT 1",
            (receiver,),
        ).fetchone()
        if head is None:
            return None
        number, body = head
        notification = readable(body)
        if notification is not None:
            mark_in_flight(db, (number,), receiver)
            return Pending(number, receiver, attempts, notification)
        settle(db, (number, receiver), "failed", now=now, error=UNREADABLE)


def apply_quiet_hours(
    db: sqlite3.Connection, policy: StreamPolicy, receiver: str, now: float
) -> None:
    """In quiet hours hold back what is not urgent; after them, let it wait to be sent again.

    An alert that began and ended meanwhile is withheld, and so is its end. What was sent without
    an answer is not held back: only another attempt can settle it.
    """
    if policy.is_quiet(now):
        changed = _hold(db, policy, receiver)
        if changed:
            _withhold(db, receiver, now)
    else:
        changed = db.execute(
            "UPDATE delivery SET outcome = 'pending' WHERE receiver = ? AND outcome = 'held'",
            (receiver,),
        ).rowcount
    if changed:
        recount_all(db, receiver)


def _hold(db: sqlite3.Connection, policy: StreamPolicy, receiver: str) -> int:
    rows = db.execute(
        "SELECT notification, body FROM delivery JOIN notification ON id = notification"
        " WHERE receiver = ? AND outcome = 'pending' AND in_flight = 0",
        (receiver,),
    ).fetchall()
    read = ((number, readable(body)) for number, body in rows)
    held = [
        (number, receiver)
        for number, each in read
        if each is not None and policy.waits_in_quiet_hours(each.severity)
    ]
    db.executemany(
        "UPDATE delivery SET outcome = 'held' WHERE notification = ? AND receiver = ?", held
    )
    return len(held)


def _withhold(db: sqlite3.Connection, receiver: str, now: float) -> None:
    rows = db.execute(
        "SELECT id FROM delivery JOIN notification AS one ON one.id = notification"
        " WHERE receiver = :receiver AND outcome = 'held' AND EXISTS"
        " (SELECT 1 FROM notification AS other JOIN delivery AS its ON its.notification = other.id"
        " WHERE its.receiver = :receiver AND its.outcome = 'held' AND other.key = one.key"
        " AND other.started_at = one.started_at"
        " AND (other.state = 'firing') != (one.state = 'firing'))",
        {"receiver": receiver},
    ).fetchall()
    for (number,) in rows:
        settle(db, (number, receiver), "withheld", now=now)


def patience_with(db: sqlite3.Connection, receiver: str) -> tuple[int, float]:
    """How often an attempt failed since the last success, and when the next is due."""
    row = db.execute(
        "SELECT attempts, retry_at FROM receiver WHERE name = ?", (receiver,)
    ).fetchone()
    return (0, 0.0) if row is None else (int(row[0]), float(row[1]))


def mark_in_flight(db: sqlite3.Connection, numbers: tuple[int, ...], receiver: str) -> None:
    """Until they are settled, it is not known whether they arrived."""
    db.executemany(
        "UPDATE delivery SET in_flight = 1 WHERE notification = ? AND receiver = ?",
        [(number, receiver) for number in numbers],
    )


def settle(
    db: sqlite3.Connection,
    delivery: tuple[int, str],
    outcome: Outcome,
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
    """Leave the receiver alone until `next_at`."""
    db.execute(
        "INSERT INTO receiver (name, attempts, retry_at) VALUES (?, 1, ?) ON CONFLICT (name)"
        " DO UPDATE SET attempts = attempts + 1, retry_at = excluded.retry_at",
        (pending.receiver, next_at),
    )
    message = pending.message
    unsure = message is not None and (error.unsure or message.unsure)
    for number in (pending.id,) if message is None else pending.ids:
        db.execute(
            "UPDATE delivery SET attempts = attempts + 1, in_flight = ?, error = ?"
            " WHERE notification = ? AND receiver = ? AND outcome = 'pending'",
            (UNSURE if unsure else 0, str(error), number, pending.receiver),
        )
    tally(db, pending.receiver, "retried")


def forget(db: sqlite3.Connection, before: float) -> None:
    """Delete what is settled and older than `before`."""
    db.execute(
        "DELETE FROM delivery WHERE outcome NOT IN ('pending', 'held')"
        " AND notification IN (SELECT id FROM notification WHERE added_at < ?)",
        (before,),
    )
    forget_groups(db, before)
    db.execute(
        "DELETE FROM notification WHERE added_at < ?"
        " AND NOT EXISTS (SELECT 1 FROM delivery WHERE notification = id)",
        (before,),
    )


def recover_in_flight(db: sqlite3.Connection) -> None:
    """What was on its way when the last process ended is sent again, and may have arrived.

    A single notification counts as repeated. A group's message is sent again as it was, so that
    its receiver can recognise it; whether it was a repeat is known from the answer.
    """
    in_group = (
        "EXISTS (SELECT 1 FROM group_member WHERE group_member.notification ="
        " delivery.notification AND group_member.receiver = delivery.receiver)"
    )
    rows = db.execute(f"SELECT receiver FROM delivery WHERE in_flight = 1 AND NOT {in_group}")
    for (receiver,) in rows.fetchall():
        tally(db, receiver, "repeated")
    db.execute(f"UPDATE delivery SET in_flight = 0 WHERE in_flight = 1 AND NOT {in_group}")
    db.execute("UPDATE delivery SET in_flight = ? WHERE in_flight = 1", (UNSURE,))


def register(db: sqlite3.Connection, receiver: str) -> None:
    """Count for a receiver from 0."""
    db.executemany(
        "INSERT OR IGNORE INTO tally (receiver, outcome) VALUES (?, ?)",
        [(receiver, outcome) for outcome in COUNTED_FROM_ZERO],
    )


def tally(db: sqlite3.Connection, receiver: str, outcome: Outcome) -> None:
    """Count one more."""
    register(db, receiver)
    db.execute(
        "INSERT INTO tally (receiver, outcome, count) VALUES (?, ?, 1)"
        " ON CONFLICT (receiver, outcome) DO UPDATE SET count = count + 1",
        (receiver, outcome),
    )


def firing_keys(db: sqlite3.Connection) -> frozenset[str]:
    """Keys of the alerts whose last notification says that they fire."""
    latest = db.execute(
        "SELECT key FROM notification AS one WHERE state = 'firing' "
        "AND id = (SELECT max(id) FROM notification WHERE key = one.key)"
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
