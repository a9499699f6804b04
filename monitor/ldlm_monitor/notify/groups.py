"""Groups: which alerts one receiver gets in one message, and when the next one is due.

The alerts around one incident of a run are a group. An alert without an incident belongs to the
run's current group, or begins one; an incident that opens soon after that is part of it. Alerts of
severity info of all runs are one group, the digest. Where the receiver gets every transition by
itself, each is a group. All of it is in the outbox's file, so that a restart neither loses a group
nor begins it anew. Every function runs within a transaction on it. Times are Unix seconds.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from ldlm_monitor.config.policy import Policy, StreamPolicy
from ldlm_monitor.notify.message import FLAPPING, Notification

ALONE, DIGEST, INCIDENT = "alone", "digest", "incident"
"""The kinds of groups."""
JOIN_SECONDS: Final = 60.0
"""What begins this soon after the first alert of a run is the same failure, whatever its incident:
ranks and log files report with delays of up to a minute."""
REOPEN_SECONDS: Final = 600.0
"""An alert that comes back within this time continues its group: it is flapping, not news."""
FLAPPING_SECONDS: Final = 3600.0
"""An alert that fires oftener than FLAPPING within this time doubles its group's interval every
time, up to this time."""
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS message_group (
    id INTEGER PRIMARY KEY,
    receiver TEXT NOT NULL,
    kind TEXT NOT NULL,
    run TEXT NOT NULL,
    incident TEXT,
    opened_at REAL NOT NULL,
    send_at REAL NOT NULL,
    sent_at REAL,
    repeat_at REAL,
    closed_at REAL,
    worst_sent TEXT NOT NULL DEFAULT '',
    place TEXT,
    changes INTEGER NOT NULL DEFAULT 0,
    updated_at REAL NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS group_run ON message_group (receiver, kind, run, id);
CREATE INDEX IF NOT EXISTS group_incident ON message_group (incident);
CREATE INDEX IF NOT EXISTS group_open
    ON message_group (receiver, send_at) WHERE closed_at IS NULL;
CREATE TABLE IF NOT EXISTS story (
    incident TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    changed_at REAL NOT NULL
) WITHOUT ROWID;
SELECT id, receiver, kind, run, incident, opened_at, send_at, sent_at, repeat_at, closed_at,
    worst_sent, place, changes, updated_at FROM message_group LIMIT 0;
SELECT incident, body, changed_at FROM story LIMIT 0;
"""
"""Of a group, `send_at` is the time of the next message. What has something to send is open: its
`closed_at` is NULL."""
WAITS: Final = (
    "closed_at IS NULL AND EXISTS (SELECT 1 FROM delivery"
    " WHERE group_id = message_group.id AND outcome = 'pending')"
)


def join(
    db: sqlite3.Connection,
    delivery: tuple[int, str],
    each: Notification,
    policy: StreamPolicy,
    now: float,
) -> None:
    """Put a delivery (notification id, receiver) into its group, or a new one, and schedule it."""
    number, receiver = delivery
    kind, group, first_wait, interval = ALONE, None, 0.0, 0.0
    if isinstance(policy, Policy):
        is_digest = each.severity == "info" and policy.digest_seconds > 0
        kind = DIGEST if is_digest else INCIDENT
        first_wait = policy.digest_seconds if is_digest else 0.0
        interval = interval_seconds(kind, policy)
        group = _group_of(db, each, receiver, kind, now)
    if group is None:
        # Groups of one go in the order in which they came, whatever the clock did meanwhile.
        send_at = 0.0 if kind == ALONE else now + first_wait
        cursor = db.execute(
            "INSERT INTO message_group (receiver, kind, run, incident, opened_at, send_at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (receiver, kind, each.run, each.incident, now, send_at),
        )
        group = int(cursor.lastrowid or 0)
    else:
        _schedule(db, group, each, (first_wait, interval), now)
    db.execute(
        "UPDATE delivery SET group_id = ? WHERE notification = ? AND receiver = ?",
        (group, number, receiver),
    )


def interval_seconds(kind: str, policy: Policy) -> float:
    """Seconds between two messages about a group that has news."""
    return policy.digest_seconds if kind == DIGEST else policy.follow_up_seconds


def _group_of(
    db: sqlite3.Connection, each: Notification, receiver: str, kind: str, now: float
) -> int | None:
    """That of an alert's beginning for its end; that of its incident; else the run's last."""
    found = None
    if each.state != "firing":
        found = db.execute(
            "SELECT group_id FROM delivery JOIN notification ON id = notification"
            " WHERE key = ? AND receiver = ? AND group_id IS NOT NULL"
            " ORDER BY notification DESC LIMIT 1",
            (each.key, receiver),
        ).fetchone()
    found = (
        found
        or db.execute(
            "SELECT id FROM message_group WHERE receiver = :receiver AND kind = :kind"
            " AND (closed_at IS NULL OR closed_at >= :now - :reopen)"
            " AND (kind = :digest OR (run = :run AND (:incident IS NULL OR incident = :incident"
            " OR abs(:now - opened_at) <= :join)))"
            " ORDER BY coalesce(incident = :incident, 0) DESC, id DESC LIMIT 1",
            {
                "receiver": receiver,
                "kind": kind,
                "digest": DIGEST,
                "run": each.run,
                "incident": each.incident,
                "now": now,
                "reopen": REOPEN_SECONDS,
                "join": JOIN_SECONDS,
            },
        ).fetchone()
    )
    return found and int(found[0])


def _schedule(
    db: sqlite3.Connection, group: int, each: Notification, pauses: tuple[float, float], now: float
) -> None:
    """Set the time of the next message; an alert never waits longer because another one flaps.

    `pauses` are the seconds before the first message and between two.
    """
    first, interval = pauses
    waits, sent_at, send_at = db.execute(
        f"SELECT {WAITS}, sent_at, send_at FROM message_group WHERE id = ?", (group,)
    ).fetchone()
    wanted = now + first
    if sent_at is not None:
        times = flaps(db, group, now, key=each.key)
        doubled = 2.0 ** min(max(times - FLAPPING, 0), 20)
        pause = min(interval * doubled, max(FLAPPING_SECONDS, interval))
        wanted = max(now, sent_at + pause)
    db.execute(
        "UPDATE message_group SET send_at = ?, incident = coalesce(incident, ?), closed_at = NULL"
        " WHERE id = ?",
        (min(wanted, send_at) if waits else wanted, each.incident, group),
    )


def flaps(db: sqlite3.Connection, group: int, now: float, *, key: str | None = None) -> int:
    """How often one alert of a group fired within the last hour: `key`, or the most frequent."""
    row = db.execute(
        "SELECT max(times) FROM (SELECT count(*) AS times FROM delivery"
        " JOIN notification ON id = notification"
        " WHERE group_id = ? AND state = 'firing' AND added_at > ? AND key = coalesce(?, key)"
        " GROUP BY key)",
        (group, now - FLAPPING_SECONDS, key),
    ).fetchone()
    return int(row[0] or 0)


def forget(db: sqlite3.Connection, before: float) -> None:
    """Delete what ended before that time, after its deliveries."""
    db.execute(
        "DELETE FROM message_group WHERE coalesce(closed_at, opened_at) < ?"
        " AND NOT EXISTS (SELECT 1 FROM delivery WHERE group_id = message_group.id)",
        (before,),
    )
    db.execute("DELETE FROM story WHERE changed_at < ?", (before,))
