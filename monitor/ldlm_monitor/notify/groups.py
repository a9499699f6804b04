"""Groups of alerts that are told together: which there are, when each is told, what is said.

All of it stands in the outbox's file, so that a restart neither loses a group nor begins it
anew. Times are Unix seconds. As in Alertmanager, a group waits `group_wait` before its first
message and `group_interval` between two; it ends when nothing of it fires any more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from ldlm_monitor.notify.episodes import REOPEN_SECONDS
from ldlm_monitor.notify.message import (
    FLAPPING,
    Message,
    Step,
    Story,
    rank,
    story_from_json,
    story_to_json,
)
from ldlm_monitor.notify.notification import Notification, from_json
from ldlm_monitor.notify.routing import Node, Placement, Routing

FLAPPING_SECONDS: Final = 3600.0
"""An alert that fires oftener than FLAPPING within this time doubles its group's interval every
time, up to this time."""
UPDATE_SECONDS: Final = 5.0
"""Between two changes of what stands there already."""
PICTURE_TRIES: Final = 3
BATCH: Final = 5000
SETTLE_SECONDS: Final = 60.0
"""How often it is looked whether what was told to fire does, before it is told again."""
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


_COLUMNS: Final = "id, route, incident, opened_at, worst_told, place, changes, told_at"
_DUE: Final = "(flush_at <= :now OR flush_at > :now + delay)"
"""Later than its own delay from now: the clock was set back meanwhile."""


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
    _recount(db, group)


def _wait_until(db: sqlite3.Connection, group: int, flush_at: float, delay: float) -> None:
    db.execute(
        "UPDATE alert_group SET flush_at = ?, delay = ?, waits = 1 WHERE id = ?",
        (flush_at, delay, group),
    )


def _recount(db: sqlite3.Connection, group: int) -> bool:
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


def with_news(db: sqlite3.Connection, receiver: str, now: float, *, last: bool) -> list[Row]:
    """The groups whose turn it is, in order; `last`: there will be no other turn."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM alert_group WHERE receiver = :receiver AND waits"
        f" AND (:last OR {_DUE}) ORDER BY flush_at, id",
        {"receiver": receiver, "now": now, "last": last},
    )
    return [Row(*row) for row in rows]


def next_step(
    db: sqlite3.Connection,
    routing: Routing,
    receiver: str,
    now: float,
    *,
    active: Container[str],
) -> tuple[Row, Step] | None:
    """What else is to be done for a group: repeat, bring up to date, add a picture.

    `active` are the keys of the alerts that are known to fire now: nothing else is repeated.
    """
    conditions = (
        "closed_at IS NULL AND repeat_at <= :now",
        "changes > 0 AND place IS NOT NULL AND (updated_at <= :now - :pause OR updated_at > :now)",
        "picture != '' AND place IS NOT NULL",
    )
    steps: tuple[Step, ...] = ("repeat", "update", "picture")
    for condition, step in zip(conditions, steps, strict=True):
        rows = db.execute(
            f"SELECT {_COLUMNS} FROM alert_group WHERE receiver = :receiver AND {condition}"
            " ORDER BY id",
            {"receiver": receiver, "now": now, "pause": UPDATE_SECONDS},
        ).fetchall()
        for row in (Row(*columns) for columns in rows):
            told = standing(db, row.id)
            if step == "repeat":
                fires = any(each.state == "firing" and each.key in active for each in told)
                if fires and not routing.is_muted(row.route, now):
                    return row, step
                again = now + SETTLE_SECONDS
                db.execute("UPDATE alert_group SET repeat_at = ? WHERE id = ?", (again, row.id))
            elif told:
                return row, step
            else:
                db.execute(
                    "UPDATE alert_group SET changes = 0, picture = '' WHERE id = ?", (row.id,)
                )
    return None


def next_moment(db: sqlite3.Connection, receiver: str) -> float | None:
    """When something of the receiver's groups is due."""
    moments = db.execute(
        "SELECT (SELECT min(flush_at) FROM alert_group WHERE receiver = :receiver AND waits),"
        " (SELECT min(repeat_at) FROM alert_group"
        " WHERE receiver = :receiver AND closed_at IS NULL),"
        " (SELECT min(updated_at) + :pause FROM alert_group WHERE receiver = :receiver"
        " AND changes > 0 AND place IS NOT NULL),"
        " (SELECT min(opened_at) FROM alert_group WHERE receiver = :receiver"
        " AND picture != '' AND place IS NOT NULL)",
        {"receiver": receiver, "pause": UPDATE_SECONDS},
    ).fetchone()
    return min((float(moment) for moment in moments if moment is not None), default=None)


def standing(db: sqlite3.Connection, group: int) -> tuple[Notification, ...]:
    """The last word on every alert of the group that was told, or is being told now."""
    rows = db.execute(
        "SELECT body FROM notification WHERE id IN (SELECT max(id) FROM member"
        " JOIN delivery USING (notification, receiver) JOIN notification ON id = notification"
        " WHERE alert_group = ? AND (outcome = 'sent' OR in_flight = 1) GROUP BY key) ORDER BY id",
        (group,),
    )
    return tuple(read for (body,) in rows if (read := readable(body)) is not None)


def readable(body: str) -> Notification | None:
    """None: another version wrote it."""
    try:
        return from_json(body)
    except ValidationError:
        return None


def message_of(
    db: sqlite3.Connection,
    row: Row,
    step: Step,
    now: float,
    *,
    news: tuple[Notification, ...] = (),
    first_id: int = 0,
    unsure: bool = False,
) -> Message:
    """What is to be said of a group."""
    return Message(
        step=step,
        group=row.id,
        identity=f"{row.opened_at!r}/{row.id}/{first_id}",
        news=news,
        standing=standing(db, row.id),
        opened_at=row.opened_at,
        story=_story(db, row.incident),
        place=row.place,
        unsure=unsure,
        worst_told=row.worst_told,
        flaps=flaps_of(db, row.id, now),
    )


def _story(db: sqlite3.Connection, incident: str | None) -> Story | None:
    row = db.execute("SELECT body FROM story WHERE incident = ?", (incident,)).fetchone()
    try:
        return None if row is None else story_from_json(row[0])
    except ValidationError:
        return None


def keep_story(db: sqlite3.Connection, story: Story, now: float) -> None:
    """Keep what is known of an incident; if that is new, its messages are to be changed."""
    cursor = db.execute(
        "INSERT INTO story (incident, body, changed_at) VALUES (?, ?, ?) ON CONFLICT (incident)"
        " DO UPDATE SET body = excluded.body, changed_at = excluded.changed_at"
        " WHERE body != excluded.body",
        (story.id, story_to_json(story), now),
    )
    if cursor.rowcount:
        db.execute("UPDATE alert_group SET changes = changes + 1 WHERE incident = ?", (story.id,))


def settle(
    db: sqlite3.Connection, message: Message, node: Node, place: str | None, now: float
) -> None:
    """A message arrived: when the group is told next, and whether it is over."""
    if message.step == "picture":
        db.execute("UPDATE alert_group SET picture = '' WHERE id = ?", (message.group,))
        return
    worst = min((each.severity for each in message.news), key=rank, default="")
    if rank(message.worst_told) < rank(worst):
        worst = message.worst_told
    fires = any(each.state == "firing" for each in message.standing)
    waits = _recount(db, message.group)
    over = not fires and not waits
    pictured = message.step == "first" and rank(worst) < rank("info")
    db.execute(
        "UPDATE alert_group SET told_at = :now, flush_at = :next,"
        " delay = :delay, repeat_at = :repeat_at, worst_told = :worst,"
        " place = coalesce(:place, place), closed_at = CASE WHEN :over THEN :now END,"
        " changes = changes + :changed, picture = CASE WHEN :pictured THEN :tries ELSE picture END"
        " WHERE id = :group",
        {
            "now": now,
            "next": now + node.group_interval,
            "delay": node.group_interval,
            "repeat_at": None if over else now + node.repeat_interval,
            "worst": worst,
            "place": place,
            "over": over,
            "changed": message.step != "first",
            "pictured": pictured and place is not None,
            "tries": "x" * PICTURE_TRIES,
            "group": message.group,
        },
    )


def updated(db: sqlite3.Connection, row: Row, now: float) -> None:
    """What stands there is up to date, as far as it was known when that was begun."""
    db.execute(
        "UPDATE alert_group SET updated_at = ?, changes = max(changes - ?, 0) WHERE id = ?",
        (now, row.changes, row.id),
    )


def given_up(db: sqlite3.Connection, message: Message) -> None:
    """The receiver will never take it: what else there is to say of the group goes on."""
    _recount(db, message.group)
    db.execute(
        "UPDATE alert_group SET changes = CASE WHEN ? THEN 0 ELSE changes END,"
        " repeat_at = CASE WHEN ? THEN NULL ELSE repeat_at END WHERE id = ?",
        (message.step == "update", message.step == "repeat", message.group),
    )


def stumbled(db: sqlite3.Connection, group: int, *, for_good: bool) -> None:
    """A picture did not arrive: it is tried a few times, for it is no alert."""
    db.execute(
        "UPDATE alert_group SET picture = CASE WHEN ? THEN '' ELSE substr(picture, 2) END"
        " WHERE id = ?",
        (for_good, group),
    )


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
