"""What is said of a group of alerts, and what the group is once its message has arrived or failed.

Times are Unix seconds.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from pydantic import ValidationError

from ldlm_monitor.notify.groups import Row, flaps_of, recount
from ldlm_monitor.notify.message import (
    Message,
    Step,
    Story,
    rank,
    story_from_json,
    story_to_json,
)
from ldlm_monitor.notify.notification import Notification, readable
from ldlm_monitor.notify.routing import Node

PICTURE_TRIES: Final = 3


def standing(db: sqlite3.Connection, group: int) -> tuple[Notification, ...]:
    """The last word on every alert of the group that was told, or is being told now."""
    rows = db.execute(
        "SELECT body FROM notification WHERE id IN (SELECT max(id) FROM member"
        " JOIN delivery USING (notification, receiver) JOIN notification ON id = notification"
        " WHERE alert_group = ? AND (outcome = 'sent' OR in_flight = 1) GROUP BY key) ORDER BY id",
        (group,),
    )
    return tuple(read for (body,) in rows if (read := readable(body)) is not None)


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
    waits = recount(db, message.group)
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
    recount(db, message.group)
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
