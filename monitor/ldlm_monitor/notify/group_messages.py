"""The messages of groups: which is due, what it contains, and what follows from the answer.

A group's turn comes for news, for a repeat, for an update of what was sent, or for a picture.
Every function runs within a transaction on the outbox's file. Times are Unix seconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container
from typing import Final

from pydantic import ValidationError

from ldlm_monitor.config.policy import Policy, severity_rank
from ldlm_monitor.notify.deliveries import (
    UNREADABLE,
    UNSURE,
    Pending,
    mark_in_flight,
    settle,
)
from ldlm_monitor.notify.groups import DIGEST, Group, flaps_of, interval_seconds, recount
from ldlm_monitor.notify.message import Message, Step, Story, story_from_json, story_to_json
from ldlm_monitor.notify.notification import Notification, readable

BATCH: Final = 5000
"""Notifications of one message at most: it bounds memory, and every message shows a count."""
UPDATE_SECONDS: Final = 5.0
"""Between two edits of a message: an incident changes with every line, and Slack limits edits."""
RECHECK_SECONDS: Final = 60.0
"""Pause before a repeat is considered again that was due while nothing was known to fire."""
PICTURE_TRIES: Final = 3
"""A picture is no alert: after so many failures it is left out."""

_COLUMNS: Final = "id, subject, incident, opened_at, worst_sent, place, changes, sent_at"
# A time later than the group's own delay from now: the clock was set back meanwhile.
_WITH_NEWS: Final = "waits AND (:last OR send_at <= :now OR send_at > :now + delay)"
_STEPS: Final[tuple[tuple[Step, str], ...]] = (
    ("repeat", "closed_at IS NULL AND repeat_at <= :now"),
    (
        "update",
        "changes > 0 AND place IS NOT NULL AND (updated_at <= :now - :pause OR updated_at > :now)",
    ),
    ("picture", "picture_tries > 0 AND place IS NOT NULL"),
)


def next_message(
    db: sqlite3.Connection,
    policy: Policy,
    receiver: str,
    *,
    attempts: int,
    now: float,
    last: bool,
    active: Container[str],
) -> Pending | None:
    """The message that is due for a receiver of groups.

    `last`: the monitor ends, so news wait no longer. `active` are the keys of the alerts that
    fire now: nothing else is repeated.
    """
    for group in _groups(db, receiver, _WITH_NEWS, "send_at, id", now=now, last=last):
        batch, unsure = _batch(db, group, receiver, now)
        if not batch:
            recount(db, group.id)
            continue
        ids, news = tuple(number for number, _ in batch), tuple(each for _, each in batch)
        mark_in_flight(db, ids, receiver)
        step: Step = "first" if group.sent_at is None else "follow-up"
        message = _message(db, group, step, now, news=news, first_id=ids[0], unsure=unsure)
        return Pending(ids[0], receiver, attempts, news[0], message, ids, group)
    found = _next_step(db, policy, receiver, now, active)
    if found is None:
        return None
    group, step = found
    message = _message(db, group, step, now)
    return Pending(group.id, receiver, attempts, message.lead, message, (), group)


def _groups(
    db: sqlite3.Connection, receiver: str, condition: str, order: str, **values: object
) -> list[Group]:
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM incident_group WHERE receiver = :receiver AND {condition}"
        f" ORDER BY {order}",
        {"receiver": receiver, **values},
    )
    return [Group(*row) for row in rows.fetchall()]


def _batch(
    db: sqlite3.Connection, group: Group, receiver: str, now: float
) -> tuple[list[tuple[int, Notification]], bool]:
    """The group's news, oldest first, and whether they may have arrived already.

    What may have arrived goes again exactly as it went, and what came since goes after it.
    """
    rows = db.execute(
        "SELECT notification, body, in_flight FROM group_member"
        " JOIN delivery USING (notification, receiver) JOIN notification ON id = notification"
        " WHERE group_id = ? AND outcome = 'pending' ORDER BY notification LIMIT ?",
        (group.id, BATCH),
    ).fetchall()
    fresh: list[tuple[int, Notification]] = []
    again: list[tuple[int, Notification]] = []
    for number, body, in_flight in rows:
        notification = readable(body)
        if notification is None:
            settle(db, (number, receiver), "failed", now=now, error=UNREADABLE)
        else:
            (again if in_flight == UNSURE else fresh).append((number, notification))
    return (again, True) if again else (fresh, False)


def _next_step(
    db: sqlite3.Connection, policy: Policy, receiver: str, now: float, active: Container[str]
) -> tuple[Group, Step] | None:
    for step, condition in _STEPS:
        for group in _groups(db, receiver, condition, "id", now=now, pause=UPDATE_SECONDS):
            alerts = _alerts(db, group.id)
            if step != "repeat" and alerts:
                return group, step
            if step != "repeat":
                change = "changes = 0, picture_tries = 0"
            elif any(_is_repeated(each, policy, now, active) for each in alerts):
                return group, step
            else:
                change = f"repeat_at = {now + RECHECK_SECONDS!r}"
            db.execute(f"UPDATE incident_group SET {change} WHERE id = ?", (group.id,))
    return None


def _is_repeated(each: Notification, policy: Policy, now: float, active: Container[str]) -> bool:
    if each.state != "firing" or each.key not in active:
        return False
    return not (policy.is_quiet(now) and policy.waits_in_quiet_hours(each.severity))


def next_moment(db: sqlite3.Connection, receiver: str) -> float | None:
    """When a message of the receiver's groups is due; None without any."""
    moments = db.execute(
        "SELECT (SELECT min(send_at) FROM incident_group WHERE receiver = :receiver AND waits),"
        " (SELECT min(repeat_at) FROM incident_group"
        " WHERE receiver = :receiver AND closed_at IS NULL),"
        " (SELECT min(updated_at) + :pause FROM incident_group WHERE receiver = :receiver"
        " AND changes > 0 AND place IS NOT NULL),"
        " (SELECT min(opened_at) FROM incident_group WHERE receiver = :receiver"
        " AND picture_tries > 0 AND place IS NOT NULL)",
        {"receiver": receiver, "pause": UPDATE_SECONDS},
    ).fetchone()
    return min((float(moment) for moment in moments if moment is not None), default=None)


def _message(
    db: sqlite3.Connection,
    group: Group,
    step: Step,
    now: float,
    *,
    news: tuple[Notification, ...] = (),
    first_id: int = 0,
    unsure: bool = False,
) -> Message:
    return Message(
        step=step,
        group=group.id,
        identity=f"{group.opened_at!r}/{group.id}/{first_id}",
        news=news,
        alerts=_alerts(db, group.id),
        opened_at=group.opened_at,
        story=_story(db, group.incident),
        place=group.place,
        unsure=unsure,
        worst_sent=group.worst_sent,
        flaps=flaps_of(db, group.id, now),
    )


def _alerts(db: sqlite3.Connection, group: int) -> tuple[Notification, ...]:
    """The latest transition of every alert of the group that was sent, or is being sent now."""
    rows = db.execute(
        "SELECT body FROM notification WHERE id IN (SELECT max(id) FROM group_member"
        " JOIN delivery USING (notification, receiver) JOIN notification ON id = notification"
        " WHERE group_id = ? AND (outcome = 'sent' OR in_flight = 1) GROUP BY key) ORDER BY id",
        (group,),
    )
    return tuple(each for (body,) in rows if (each := readable(body)) is not None)


def _story(db: sqlite3.Connection, incident: str | None) -> Story | None:
    row = db.execute("SELECT body FROM story WHERE incident = ?", (incident,)).fetchone()
    try:
        return None if row is None else story_from_json(row[0])
    except ValidationError:  # another version wrote it; the next change replaces it
        return None


def store_story(db: sqlite3.Connection, story: Story, now: float) -> None:
    """Store an incident's story; where it changed, the messages about it are due for an update."""
    cursor = db.execute(
        "INSERT INTO story (incident, body, changed_at) VALUES (?, ?, ?) ON CONFLICT (incident)"
        " DO UPDATE SET body = excluded.body, changed_at = excluded.changed_at"
        " WHERE body != excluded.body",
        (story.id, story_to_json(story), now),
    )
    if cursor.rowcount:
        db.execute(
            "UPDATE incident_group SET changes = changes + 1 WHERE incident = ?", (story.id,)
        )


def delivered(
    db: sqlite3.Connection,
    group: Group,
    message: Message,
    policy: Policy,
    *,
    place: str | None,
    now: float,
) -> None:
    """A message has arrived at `place`: schedule the group's next one, or close the group."""
    if message.step == "picture":
        db.execute("UPDATE incident_group SET picture_tries = 0 WHERE id = ?", (group.id,))
    elif message.step == "update":
        # What changed while it was on its way is still to be shown.
        db.execute(
            "UPDATE incident_group SET updated_at = ?, changes = max(changes - ?, 0) WHERE id = ?",
            (now, group.changes, group.id),
        )
    else:
        _sent(db, group, message, policy, place=place, now=now)


def _sent(
    db: sqlite3.Connection,
    group: Group,
    message: Message,
    policy: Policy,
    *,
    place: str | None,
    now: float,
) -> None:
    severities = [message.worst_sent, *(each.severity for each in message.news)]
    worst = min(severities, key=severity_rank)
    waits = recount(db, group.id)
    is_over = not message.firing and not waits
    is_pictured = message.step == "first" and severity_rank(worst) < severity_rank("info")
    interval = interval_seconds(group.subject, policy)
    repeat = policy.repeat_seconds(digest=group.subject == DIGEST)
    db.execute(
        "UPDATE incident_group SET sent_at = :now, send_at = :now + :interval, delay = :interval,"
        " repeat_at = :repeat_at, worst_sent = :worst, place = coalesce(:place, place),"
        " closed_at = CASE WHEN :is_over THEN :now END, changes = changes + :changed,"
        " picture_tries = CASE WHEN :is_pictured THEN :tries ELSE picture_tries END"
        " WHERE id = :group",
        {
            "now": now,
            "interval": interval,
            "repeat_at": None if is_over else now + repeat,
            "worst": worst,
            "place": place,
            "is_over": is_over,
            "changed": message.step != "first",
            "is_pictured": is_pictured and place is not None,
            "tries": PICTURE_TRIES,
            "group": group.id,
        },
    )


def delivery_failed(db: sqlite3.Connection, message: Message, *, permanent: bool) -> None:
    """A message did not arrive; `permanent`: it never will, and the group goes on without it."""
    if message.step == "picture":
        left = "0" if permanent else "max(picture_tries - 1, 0)"
        db.execute(
            f"UPDATE incident_group SET picture_tries = {left} WHERE id = ?", (message.group,)
        )
    if permanent:
        recount(db, message.group)
        db.execute(
            "UPDATE incident_group SET changes = CASE WHEN ? THEN 0 ELSE changes END,"
            " repeat_at = CASE WHEN ? THEN NULL ELSE repeat_at END WHERE id = ?",
            (message.step == "update", message.step == "repeat", message.group),
        )
