"""Groups of alerts that are told together: which there are, and when each is told.

All of it stands in the outbox's file, so that a restart neither loses a group nor begins it
anew. Times are Unix seconds. As in Alertmanager, a group waits `group_wait` before its first
message and `group_interval` between two; it ends when nothing of it fires any more.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from ldlm_monitor.notify.episodes import REOPEN_SECONDS
from ldlm_monitor.notify.message import FLAPPING
from ldlm_monitor.notify.notification import Notification
from ldlm_monitor.notify.routing import Node, Placement

FLAPPING_SECONDS: Final = 3600.0
"""An alert that fires oftener than FLAPPING within this time doubles its group's interval every
time, up to this time."""
HELD_SECONDS: Final = 5.0
"""How often it is looked whether what is held back may be told."""


@dataclass(frozen=True, slots=True)
class Row:
    """One group as it stands in the file."""

    id: int
    route: str
    incident: str | None
    opened_at: float
    worst_told: str
    place: str | None
    changes: int
    told_at: float | None


def join(db: sqlite3.Connection, number: int, told: Notification, to: Placement, now: float) -> int:
    """The group that a notification is told with, scheduled; a new one where there is none."""
    node = to.route
    group = _group_for(db, told, to, now)
    if group is None:
        cursor = db.execute(
            "INSERT INTO alert_group (receiver, route, labels, incident, opened_at, flush_at,"
            " delay) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (to.receiver, node.key, to.group, told.incident, now, now + node.group_wait,
             node.group_wait),
        )  # fmt: skip
        group = int(cursor.lastrowid or 0)
    else:
        _schedule(db, group, told, node, now)
    _enter(db, number, to, group)
    return group


def stand_alone(db: sqlite3.Connection, number: int, to: Placement) -> None:
    """Note the route of a notification that its receiver is told by itself."""
    _enter(db, number, to, None)


def _enter(db: sqlite3.Connection, number: int, to: Placement, group: int | None) -> None:
    db.execute(
        "INSERT OR REPLACE INTO member (notification, receiver, route, alert_group)"
        " VALUES (?, ?, ?, ?)",
        (number, to.receiver, to.route.key, group),
    )


def _group_for(db: sqlite3.Connection, told: Notification, to: Placement, now: float) -> int | None:
    """An end is told where the beginning was; else the labels decide."""
    if told.state != "firing":
        before = db.execute(
            "SELECT alert_group FROM member JOIN notification ON id = notification"
            " WHERE key = ? AND receiver = ? AND alert_group IS NOT NULL"
            " ORDER BY notification DESC LIMIT 1",
            (told.key, to.receiver),
        ).fetchone()
        if before is not None:
            return int(before[0])
    same = db.execute(
        "SELECT max(id) FROM alert_group WHERE receiver = ? AND route = ? AND labels = ?"
        " AND (closed_at IS NULL OR closed_at >= ?)",
        (to.receiver, to.route.key, to.group, now - REOPEN_SECONDS),
    ).fetchone()
    return None if same[0] is None else int(same[0])


def _schedule(
    db: sqlite3.Connection, group: int, told: Notification, node: Node, now: float
) -> None:
    """Nothing waits longer for another alert's flapping."""
    waits, told_at, flush_at, delay = db.execute(
        "UPDATE alert_group SET incident = coalesce(incident, ?),"
        " closed_at = CASE WHEN ? THEN NULL ELSE closed_at END WHERE id = ?"
        " RETURNING waits, told_at, flush_at, delay",
        (told.incident, told.state == "firing", group),
    ).fetchone()
    if told_at is None:
        wanted, pause = now + node.group_wait, node.group_wait
    else:
        times = flaps_of(db, group, now, key=told.key)
        doubled = 2.0 ** min(max(times - FLAPPING, 0), 20)
        pause = min(node.group_interval * doubled, max(FLAPPING_SECONDS, node.group_interval))
        wanted = max(now, told_at + pause)
    if not waits or wanted < flush_at:
        _wait_until(db, group, wanted, pause if not waits else min(pause, delay))


def put_off(db: sqlite3.Connection, group: int, now: float) -> None:
    """All its news are held back, or were withheld: look again in a while if any are left."""
    _wait_until(db, group, now + HELD_SECONDS, HELD_SECONDS)
    recount(db, group)


def _wait_until(db: sqlite3.Connection, group: int, flush_at: float, delay: float) -> None:
    db.execute(
        "UPDATE alert_group SET flush_at = ?, delay = ?, waits = 1 WHERE id = ?",
        (flush_at, delay, group),
    )


def recount(db: sqlite3.Connection, group: int) -> bool:
    """Whether any news of it wait."""
    row = db.execute(
        "UPDATE alert_group SET waits = EXISTS (SELECT 1 FROM member"
        " JOIN delivery USING (notification, receiver)"
        " WHERE member.alert_group = alert_group.id AND outcome IN ('pending', 'held'))"
        " WHERE id = ?"
        " RETURNING waits",
        (group,),
    ).fetchone()
    return bool(row[0])


def flaps_of(db: sqlite3.Connection, group: int, now: float, *, key: str | None = None) -> int:
    """How often one alert of a group fired within the last hour: `key`, or the most frequent."""
    row = db.execute(
        "SELECT max(times) FROM (SELECT count(*) AS times FROM member"
        " JOIN notification ON id = notification"
        " WHERE alert_group = ? AND state = 'firing' AND added_at > ? AND key = coalesce(?, key)"
        " GROUP BY key)",
        (group, now - FLAPPING_SECONDS, key),
    ).fetchone()
    return int(row[0] or 0)


def forget(db: sqlite3.Connection, before: float) -> None:
    """What ended long ago; before its notifications are forgotten."""
    db.execute(
        "DELETE FROM member WHERE notification IN"
        " (SELECT id FROM notification WHERE added_at < ?) AND NOT EXISTS"
        " (SELECT 1 FROM delivery WHERE delivery.notification = member.notification"
        " AND delivery.receiver = member.receiver)",
        (before,),
    )
    db.execute("DELETE FROM alert_group WHERE closed_at < ?", (before,))
    db.execute("DELETE FROM episode WHERE touched_at < ?", (before,))
    db.execute("DELETE FROM episode_alert WHERE episode NOT IN (SELECT id FROM episode)")
    db.execute("DELETE FROM story WHERE changed_at < ?", (before,))
