"""Groups: which alerts one receiver gets in one message, and when the next message is due.

The alerts around one incident of a run are a group. An alert without an incident joins the run's
current group; if there is none, it begins one, and an incident that opens soon after joins that
group. Alerts of severity info of all runs are one group, the digest, unless digests are off. For a
receiver that gets every transition by itself, each is a group. Where an alert fires in several runs
within seconds, with the same first cause, its first group becomes one of all of them. Groups
survive a restart in the outbox's file. Every function runs within a transaction on that file. Times
are Unix seconds.
"""

import sqlite3
from typing import Final

from ldlm_monitor.base.names import RUN_FINISHED, STALL_ALERT
from ldlm_monitor.service.notify.message import FLAPPING, Notification, Story, from_json
from ldlm_monitor.service.notify.policy import Policy, StreamPolicy

ALONE, DIGEST, INCIDENT, MANY = "alone", "digest", "incident", "many"
"""Kinds of groups: one transition; the info alerts of all runs; alerts of one run's failure; one
alert of many runs."""
MANY_SECONDS: Final = 10.0
"""Seconds within which an alert of several runs is one message. A choice: stalls of one cause cross
their limits within seconds; a longer time delays the alerts of a run that failed by itself."""
JOIN_SECONDS: Final = 60.0
"""Alerts of a run that come within so many seconds of a group's first alert join the group, even
with another incident: ranks and log files report one failure with delays of up to a minute."""
REOPEN_SECONDS: Final = 600.0
"""Seconds for which a closed group still takes alerts of its run or incident. A choice: a longer
time would hide a new failure in an old thread; with a shorter one, flapping opens many threads."""
FLAPPING_SECONDS: Final = 3600.0
"""Seconds within which an alert's firings are counted. Each firing beyond FLAPPING doubles the
pause between the group's messages, up to this time: people still get a message an hour."""
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
CREATE TABLE IF NOT EXISTS correction (
    group_id INTEGER PRIMARY KEY,
    rank TEXT
);
"""
"""`send_at`: when news are sent next. `repeat_at`: when a reminder is due. `closed_at`: NULL while
an alert of the group fires or waits to be sent. `place`: as in `Receipt`. `changes` counts those of
the incident's story since the edit at `updated_at`. Table `correction`: the rank that the group's
last correction named. Of a group of many runs, `run` is "", and `incident` as in `_of_many`."""
WAITS: Final = (  # SQL: whether a notification of the group waits to be sent
    "closed_at IS NULL AND EXISTS (SELECT 1 FROM delivery"
    " WHERE group_id = message_group.id AND outcome = 'pending')"
)

_FORGET: Final = """
DELETE FROM delivery WHERE outcome NOT IN ('pending', 'held')
    AND notification IN (SELECT id FROM notification WHERE added_at < :before);
DELETE FROM notification WHERE added_at < :before
    AND NOT EXISTS (SELECT 1 FROM delivery WHERE notification = id);
DELETE FROM message_group WHERE coalesce(closed_at, opened_at) < :before
    AND NOT EXISTS (SELECT 1 FROM delivery WHERE group_id = message_group.id);
DELETE FROM correction WHERE group_id NOT IN (SELECT id FROM message_group);
DELETE FROM story WHERE changed_at < :before
"""
"""SQL of `forget`; deliveries are deleted first, as they refer to notifications and groups."""


def join(
    db: sqlite3.Connection,
    delivery: tuple[int, str],
    each: Notification,
    policy: StreamPolicy,
    now: float,
) -> None:
    """Put the delivery (notification id, receiver) of `each` into a group, perhaps a new one."""
    number, receiver = delivery
    kind, group, first_wait, interval = ALONE, None, 0.0, 0.0
    if isinstance(policy, Policy):
        waits = each.severity == "info" and each.alert != RUN_FINISHED
        is_digest = waits and policy.digest_seconds > 0
        kind = DIGEST if is_digest else INCIDENT
        first_wait = policy.digest_seconds if is_digest else 0.0
        interval = interval_seconds(kind, policy)
        group = _group_of(db, each, receiver, kind, now)
        if group is None and kind == INCIDENT and each.state == "firing":
            group = _group_of_many(db, each, receiver, now)
    if group is None:
        # Single transitions go in the order of their ids, even if the clock was set back.
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
    """The group where the alert fired, else its incident's, else the run's last; None: make one."""
    if each.state != "firing" and (before := fired_in(db, each, receiver)):
        return before
    values = {"receiver": receiver, "kind": kind, "run": each.run, "incident": each.incident}
    found = db.execute(
        "SELECT id FROM message_group WHERE receiver = :receiver AND kind = :kind"
        f" AND (closed_at IS NULL OR closed_at >= :now - {REOPEN_SECONDS})"
        f" AND (kind = '{DIGEST}' OR (run = :run AND (:incident IS NULL OR incident = :incident"
        f" OR abs(:now - opened_at) <= {JOIN_SECONDS})))"
        " ORDER BY coalesce(incident = :incident, 0) DESC, id DESC LIMIT 1",
        {**values, "now": now},
    ).fetchone()
    return found and int(found[0])


def fired_in(db: sqlite3.Connection, each: Notification, receiver: str) -> int | None:
    """The group in which the alert fired for a receiver; None if it did not."""
    found = db.execute(
        "SELECT group_id FROM delivery JOIN notification ON id = notification"
        " WHERE key = ? AND receiver = ? AND group_id IS NOT NULL"
        " ORDER BY notification DESC LIMIT 1",
        (each.key, receiver),
    ).fetchone()
    return found and int(found[0])


def _group_of_many(
    db: sqlite3.Connection, each: Notification, receiver: str, now: float
) -> int | None:
    """The group of this alert and cause alone in other runs that began seconds ago, made one of
    them all.
    """
    wanted = _of_many(db, each.alert, each.incident)
    rows = db.execute(
        "SELECT id, kind, incident FROM message_group AS one"
        " WHERE receiver = :receiver AND closed_at IS NULL"
        f" AND opened_at BETWEEN :now - {MANY_SECONDS} AND :now AND run != :run"
        f" AND (kind = '{MANY}' AND incident = :wanted OR kind = '{INCIDENT}' AND NOT EXISTS"
        " (SELECT 1 FROM delivery JOIN notification ON id = notification WHERE group_id = one.id"
        " AND (state != 'firing' OR substr(key, 1, length(:alert) + 1) != :alert || '{')))"
        f" ORDER BY kind = '{MANY}' DESC, id",
        {
            "receiver": receiver, "run": each.run, "alert": each.alert, "wanted": wanted,
            "now": now,
        },
    )  # fmt: skip
    for number, kind, incident in rows.fetchall():
        if kind == MANY or _of_many(db, each.alert, incident) == wanted:
            change = "UPDATE message_group SET kind = ?, run = '', incident = ? WHERE id = ?"
            db.execute(change, (MANY, wanted, number))
            return int(number)
    return None


def _of_many(db: sqlite3.Connection, alert: str, incident: str | None) -> str:
    """What an alert's group of many runs has as its incident: the alert, with the first cause.

    A stall, and an end, show no cause that a message of each run would name.
    """
    if incident is None or alert in (STALL_ALERT, RUN_FINISHED):
        return alert
    row = db.execute("SELECT body FROM story WHERE incident = ?", (incident,)).fetchone()
    story = from_json(Story, row[0]) if row else None
    return f"{alert}: {story.shared if story and story.shared else incident}"


def _schedule(
    db: sqlite3.Connection, group: int, each: Notification, pauses: tuple[float, float], now: float
) -> None:
    """Set the time of a group's next message.

    `pauses`: seconds before the first and between two, which the flapping of `each` doubles.
    """
    first, interval = pauses
    waits, sent_at, send_at, size = db.execute(
        f"SELECT {WAITS}, sent_at, send_at, CASE WHEN kind = '{MANY}'"
        f" AND opened_at >= ? - {MANY_SECONDS}"
        " THEN (SELECT count(*) FROM delivery WHERE group_id = message_group.id) END"
        " FROM message_group WHERE id = ?",
        (now, group),
    ).fetchone()
    wanted = now + first
    if sent_at is not None:
        times = flaps(db, group, now, key=each.key)
        doubled = 2.0 ** min(max(times - FLAPPING, 0), 20)  # 20 keeps the power finite
        pause = min(interval * doubled, max(FLAPPING_SECONDS, interval))
        if size is not None:  # a second run is sent at once, further ones come together
            pause = min(pause, MANY_SECONDS) if size > 1 else 0.0
        wanted = max(now, sent_at + pause)
    db.execute(
        "UPDATE message_group SET send_at = ?, incident = coalesce(incident, ?), closed_at = NULL"
        " WHERE id = ?",
        (min(wanted, send_at) if waits else wanted, each.incident, group),
    )


def flaps(db: sqlite3.Connection, group: int, now: float, *, key: str | None = None) -> int:
    """A group's firings within the last hour of the alert `key` (None: of the most frequent)."""
    row = db.execute(
        "SELECT max(times) FROM (SELECT count(*) AS times FROM delivery"
        " JOIN notification ON id = notification"
        " WHERE group_id = ? AND state = 'firing' AND added_at > ? AND key = coalesce(?, key)"
        " GROUP BY key)",
        (group, now - FLAPPING_SECONDS, key),
    ).fetchone()
    return int(row[0] or 0)


def forget(db: sqlite3.Connection, before: float) -> None:
    """Delete what was stored, changed or closed before a time and waits for no receiver."""
    for statement in _FORGET.split(";"):
        db.execute(statement, {"before": before})
