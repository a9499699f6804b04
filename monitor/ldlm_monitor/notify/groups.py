"""Groups: the alerts of one incident that one receiver gets in one message.

All of it is in the outbox's file, so that a restart neither loses a group nor begins it anew.
An episode of a run is one incident with the alerts around it. An alert without an incident
belongs to the run's current episode, or begins one; an incident that opens soon after that is
part of it. Alerts of severity info of all runs are one group, the digest. Times are Unix seconds.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from ldlm_monitor.config.policy import Policy
from ldlm_monitor.notify.message import FLAPPING
from ldlm_monitor.notify.notification import Notification

DIGEST: Final = "digest"
JOIN_SECONDS: Final = 60.0
"""What begins this soon after the first alert of a run is the same failure, whatever its incident:
ranks and log files report with delays of up to a minute."""
REOPEN_SECONDS: Final = 600.0
"""An alert that comes back within this time continues its group: it is flapping, not news."""
FLAPPING_SECONDS: Final = 3600.0
"""An alert that fires oftener than FLAPPING within this time doubles its group's interval every
time, up to this time."""


@dataclass(frozen=True, slots=True)
class Group:
    """The columns of a group that its messages depend on."""

    id: int
    subject: str
    incident: str | None
    opened_at: float
    worst_sent: str
    place: str | None
    changes: int
    sent_at: float | None


def join(
    db: sqlite3.Connection,
    delivery: tuple[int, str],
    each: Notification,
    policy: Policy,
    *,
    episode: str,
    now: float,
) -> None:
    """Put a delivery (notification id, receiver) into its group, or a new one, and schedule it."""
    number, receiver = delivery
    digest = each.severity == "info" and policy.digest_seconds > 0
    subject = DIGEST if digest else episode
    first_wait = policy.digest_seconds if digest else 0.0
    group = _group_of(db, each, receiver, subject, now)
    if group is None:
        cursor = db.execute(
            "INSERT INTO incident_group (receiver, subject, incident, opened_at, send_at, delay)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (receiver, subject, each.incident, now, now + first_wait, first_wait),
        )
        group = int(cursor.lastrowid or 0)
    else:
        waits = (first_wait, interval_seconds(subject, policy))
        _schedule(db, group, each, waits, now)
    db.execute(
        "INSERT OR REPLACE INTO group_member (notification, receiver, group_id) VALUES (?, ?, ?)",
        (number, receiver, group),
    )


def interval_seconds(subject: str, policy: Policy) -> float:
    """Seconds between two messages about a group that has news."""
    return policy.digest_seconds if subject == DIGEST else policy.follow_up_seconds


def _group_of(
    db: sqlite3.Connection, each: Notification, receiver: str, subject: str, now: float
) -> int | None:
    """The group of an alert's beginning for its end; else the last one of its subject."""
    if each.state != "firing":
        before = db.execute(
            "SELECT group_id FROM group_member JOIN notification ON id = notification"
            " WHERE key = ? AND receiver = ? ORDER BY notification DESC LIMIT 1",
            (each.key, receiver),
        ).fetchone()
        if before is not None:
            return int(before[0])
    same = db.execute(
        "SELECT max(id) FROM incident_group WHERE receiver = ? AND subject = ?"
        " AND (closed_at IS NULL OR closed_at >= ?)",
        (receiver, subject, now - REOPEN_SECONDS),
    ).fetchone()
    return None if same[0] is None else int(same[0])


def _schedule(
    db: sqlite3.Connection, group: int, each: Notification, pauses: tuple[float, float], now: float
) -> None:
    """Set the time of the next message; an alert never waits longer because another one flaps.

    `pauses` are the seconds before the first message and between two.
    """
    first, interval = pauses
    waits, sent_at, send_at, delay = db.execute(
        "UPDATE incident_group SET incident = coalesce(incident, ?),"
        " closed_at = CASE WHEN ? THEN NULL ELSE closed_at END WHERE id = ?"
        " RETURNING waits, sent_at, send_at, delay",
        (each.incident, each.state == "firing", group),
    ).fetchone()
    if sent_at is None:
        wanted, pause = now + first, first
    else:
        times = flaps_of(db, group, now, key=each.key)
        doubled = 2.0 ** min(max(times - FLAPPING, 0), 20)
        pause = min(interval * doubled, max(FLAPPING_SECONDS, interval))
        wanted = max(now, sent_at + pause)
    if not waits or wanted < send_at:
        pause = min(pause, delay) if waits else pause
        db.execute(
            "UPDATE incident_group SET send_at = ?, delay = ?, waits = 1 WHERE id = ?",
            (wanted, pause, group),
        )


def episode_of(db: sqlite3.Connection, each: Notification, now: float) -> str:
    """The id of the episode of its run that an alert is about."""
    found = db.execute("SELECT episode FROM episode_alert WHERE key = ?", (each.key,)).fetchone()
    number = None if found is None or each.state == "firing" else int(found[0])
    if number is None:
        number = _open_episode(db, each, now)
    if number is None:
        cursor = db.execute(
            "INSERT INTO episode (run, incident, opened_at, touched_at) VALUES (?, ?, ?, ?)",
            (each.run, each.incident, now, now),
        )
        number = int(cursor.lastrowid or 0)
    _touch(db, number, each, now)
    return str(number)


def _open_episode(db: sqlite3.Connection, each: Notification, now: float) -> int | None:
    """The one of its incident; else the run's last, if that is new or has not ended."""
    if each.incident is not None:
        same = db.execute(
            "SELECT max(id) FROM episode WHERE run = ? AND incident = ?", (each.run, each.incident)
        ).fetchone()
        if same[0] is not None:
            return int(same[0])
    last = db.execute(
        "SELECT id, opened_at, touched_at,"
        " EXISTS (SELECT 1 FROM episode_alert WHERE episode = episode.id)"
        " FROM episode WHERE run = ? ORDER BY id DESC LIMIT 1",
        (each.run,),
    ).fetchone()
    if last is None:
        return None
    number, opened_at, touched_at, fires = last
    is_current = fires or abs(now - touched_at) <= REOPEN_SECONDS
    if abs(now - opened_at) <= JOIN_SECONDS or (each.incident is None and is_current):
        return int(number)
    return None


def _touch(db: sqlite3.Connection, number: int, each: Notification, now: float) -> None:
    db.execute(
        "UPDATE episode SET touched_at = ?, incident = coalesce(incident, ?) WHERE id = ?",
        (now, each.incident, number),
    )
    if each.state == "firing":
        db.execute(
            "INSERT INTO episode_alert (key, episode) VALUES (?, ?)"
            " ON CONFLICT (key) DO UPDATE SET episode = excluded.episode",
            (each.key, number),
        )
    else:
        db.execute("DELETE FROM episode_alert WHERE key = ?", (each.key,))


def flaps_of(db: sqlite3.Connection, group: int, now: float, *, key: str | None = None) -> int:
    """How often one alert of a group fired within the last hour: `key`, or the most frequent."""
    row = db.execute(
        "SELECT max(times) FROM (SELECT count(*) AS times FROM group_member"
        " JOIN notification ON id = notification"
        " WHERE group_id = ? AND state = 'firing' AND added_at > ? AND key = coalesce(?, key)"
        " GROUP BY key)",
        (group, now - FLAPPING_SECONDS, key),
    ).fetchone()
    return int(row[0] or 0)


def recount(db: sqlite3.Connection, group: int) -> bool:
    """Whether anything of the group waits to be sent, stored as its `waits`."""
    row = db.execute(
        "UPDATE incident_group SET waits = EXISTS (SELECT 1 FROM group_member"
        " JOIN delivery USING (notification, receiver)"
        " WHERE group_id = incident_group.id AND outcome = 'pending') WHERE id = ?"
        " RETURNING waits",
        (group,),
    ).fetchone()
    return bool(row[0])


def recount_all(db: sqlite3.Connection, receiver: str) -> None:
    """`recount` for every group of a receiver."""
    db.execute("UPDATE incident_group SET waits = 0 WHERE receiver = ? AND waits", (receiver,))
    db.execute(
        "UPDATE incident_group SET waits = 1 WHERE id IN (SELECT group_id FROM delivery"
        " JOIN group_member USING (notification, receiver)"
        " WHERE receiver = ? AND outcome = 'pending')",
        (receiver,),
    )


def forget(db: sqlite3.Connection, before: float) -> None:
    """Delete what ended before that time: after its deliveries, and before its notifications."""
    db.execute(
        "DELETE FROM group_member WHERE notification IN"
        " (SELECT id FROM notification WHERE added_at < ?) AND NOT EXISTS"
        " (SELECT 1 FROM delivery WHERE delivery.notification = group_member.notification"
        " AND delivery.receiver = group_member.receiver)",
        (before,),
    )
    db.execute(
        "DELETE FROM incident_group WHERE coalesce(closed_at, opened_at) < ?"
        " AND NOT EXISTS (SELECT 1 FROM group_member WHERE group_id = incident_group.id)",
        (before,),
    )
    db.execute("DELETE FROM episode WHERE touched_at < ?", (before,))
    db.execute("DELETE FROM episode_alert WHERE episode NOT IN (SELECT id FROM episode)")
    db.execute("DELETE FROM story WHERE changed_at < ?", (before,))
