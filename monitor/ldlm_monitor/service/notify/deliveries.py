"""Deliveries (each is one notification for one receiver, with its outcome); pauses after failures.

Every function runs within a transaction on the outbox's file. Times are Unix seconds.
"""

import math
import random
import sqlite3
from collections.abc import Callable, Container, Iterable
from typing import Final, Literal, TypeAlias

from ldlm_monitor.service.notify.message import Notification, from_json, to_json
from ldlm_monitor.service.state.database import damaged

Outcome: TypeAlias = Literal["sent", "retried", "failed", "repeated", "withheld"]
"""`retried` counts attempts; the others notifications: `failed` given up, `repeated` sent twice.
`withheld`: an alert began and ended while quiet hours or a silence held it; neither is sent."""
COUNTED_FROM_ZERO: Final[tuple[Outcome, ...]] = ("sent", "retried", "failed", "repeated")
"""Outcomes whose counters start at 0: a first value of 1 is no `increase` in PromQL."""
Holds: TypeAlias = Callable[[Notification], bool]
"""Whether quiet hours or a silence hold a notification now."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Seconds between two attempts, at first and at most: a choice. Longer pauses delay alerts after an
outage; shorter ones flood a receiver that is down."""
UNSURE: Final = 2
"""`in_flight` of a delivery that got no answer and may have arrived (1: on its way, 0: neither)."""
SCHEMA: Final = """
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
    group_id INTEGER,
    outcome TEXT NOT NULL DEFAULT 'pending',
    in_flight INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (notification, receiver)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS delivery_group ON delivery (group_id, outcome);
CREATE INDEX IF NOT EXISTS delivery_outcome ON delivery (receiver, outcome);
CREATE TABLE IF NOT EXISTS tally (
    receiver TEXT NOT NULL,
    outcome TEXT NOT NULL,
    count INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (receiver, outcome)
) WITHOUT ROWID;
"""
"""`outcome`: an Outcome, `pending`, or `held` (by a silence or quiet hours)."""


def pause(attempts: int, retry_after: float | None) -> float:
    """Seconds to wait after a failed attempt; `attempts` counts the failures before it.

    It is `retry_after`, as the receiver asked, but at least FIRST_PAUSE and at most LONGEST_PAUSE.
    If None, the pause doubles with every attempt up to LONGEST_PAUSE, times a random factor of
    0.5 to 1, so that the monitors of one job do not all return together.
    """
    if retry_after is not None and not math.isnan(retry_after):
        return min(LONGEST_PAUSE, max(FIRST_PAUSE, retry_after))
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(attempts, 16))  # 16 keeps it finite
    return longest * random.uniform(0.5, 1.0)


def store(db: sqlite3.Connection, notification: Notification, now: float) -> int:
    """Store a notification unless it is stored already; returns its id."""
    identity = (notification.key, notification.state, notification.started_at)
    db.execute(
        "INSERT OR IGNORE INTO notification (key, state, started_at, added_at, body)"
        " VALUES (?, ?, ?, ?, ?)",
        (*identity, now, to_json(notification)),
    )
    row = db.execute(
        "SELECT id FROM notification WHERE key = ? AND state = ? AND started_at = ?", identity
    ).fetchone()
    if row is None or row[0] is None:
        raise damaged("a notification that was stored is not found")
    return int(row[0])


def queue(db: sqlite3.Connection, number: int, receiver: str) -> bool:
    """Queue the notification with the id `number` for a receiver; False if it was queued before."""
    register(db, receiver)
    queued = "INSERT OR IGNORE INTO delivery (notification, receiver) VALUES (?, ?)"
    return db.execute(queued, (number, receiver)).rowcount == 1


def apply_holds(
    db: sqlite3.Connection, receiver: str, holds: Holds | None, active: Container[str]
) -> None:
    """Hold the notifications for which `holds` (None: for none) is true, and release the others.

    If an alert has begun and ended while held, both notifications are withheld. A held alert
    whose key is not in `active` stays held until the logs have been read again and show whether
    it fires.
    """
    waiting = _waiting(db, receiver, always=holds is not None)
    held = {
        number
        for number, (outcome, each) in waiting.items()
        if (holds is not None and holds(each))
        or (outcome == "held" and each.state == "firing" and each.key not in active)
    }
    spans = {number: (each.key, each.started_at) for number, (_, each) in waiting.items()}
    begun = {spans[number] for number in held if waiting[number][1].state == "firing"}
    over = begun & {spans[n] for n, (_, each) in waiting.items() if each.state != "firing"}
    settled = [number for number, span in spans.items() if span in over]
    settle(db, settled, receiver, "withheld")
    changed = [
        ("held" if number in held else "pending", number, receiver)
        for number, (outcome, _) in waiting.items()
        if spans[number] not in over and (outcome == "held") != (number in held)
    ]
    db.executemany(
        "UPDATE delivery SET outcome = ? WHERE notification = ? AND receiver = ?", changed
    )
    # A group may have been closed while one of its alerts was held: open it to send that alert, in
    # a message of its own, since few read the thread of an incident that has ended.
    db.executemany(
        "UPDATE message_group SET closed_at = NULL, place = NULL WHERE closed_at IS NOT NULL AND"
        " id = (SELECT group_id FROM delivery WHERE notification = ? AND receiver = ?)",
        [delivery for outcome, *delivery in changed if outcome == "pending"],
    )


def _waiting(
    db: sqlite3.Connection, receiver: str, *, always: bool
) -> dict[int, tuple[str, Notification]]:
    """Outcome and notification, by id, of those that wait or are held and are not in flight.

    Without `always`, nothing if no notification is held.
    """
    rows = db.execute(
        "SELECT notification, outcome, body FROM delivery JOIN notification ON id = notification"
        " WHERE receiver = :receiver AND outcome IN ('pending', 'held') AND in_flight = 0 AND"
        " (:always OR EXISTS (SELECT 1 FROM delivery WHERE receiver = :receiver"
        " AND outcome = 'held'))",
        {"receiver": receiver, "always": always},
    )
    read = ((number, outcome, from_json(Notification, body)) for number, outcome, body in rows)
    return {number: (outcome, each) for number, outcome, each in read if each is not None}


def mark_in_flight(
    db: sqlite3.Connection, numbers: Iterable[int], receiver: str, value: int = 1
) -> None:
    """Set `in_flight` of pending deliveries to `value`: 1 (on their way), UNSURE or 0 (neither)."""
    db.executemany(
        "UPDATE delivery SET in_flight = ?"
        " WHERE notification = ? AND receiver = ? AND outcome = 'pending'",
        [(value, number, receiver) for number in numbers],
    )


def settle(db: sqlite3.Connection, numbers: Iterable[int], receiver: str, outcome: Outcome) -> None:
    """Set the outcome of deliveries that waited, and count it."""
    cursor = db.executemany(
        "UPDATE delivery SET outcome = ?, in_flight = 0"
        " WHERE notification = ? AND receiver = ? AND outcome IN ('pending', 'held')",
        [(outcome, number, receiver) for number in numbers],
    )
    tally(db, receiver, outcome, max(0, cursor.rowcount))


def register(db: sqlite3.Connection, receiver: str) -> None:
    """Create a receiver's counts, at 0."""
    db.executemany(
        "INSERT OR IGNORE INTO tally (receiver, outcome) VALUES (?, ?)",
        [(receiver, outcome) for outcome in COUNTED_FROM_ZERO],
    )


def tally(db: sqlite3.Connection, receiver: str, outcome: Outcome, more: int = 1) -> None:
    """Add `more` to a receiver's count of an outcome."""
    if more:
        db.execute(
            "INSERT INTO tally (receiver, outcome, count) VALUES (?, ?, ?)"
            " ON CONFLICT (receiver, outcome) DO UPDATE SET count = count + excluded.count",
            (receiver, outcome, more),
        )
