"""The messages of groups: which is due, what it contains, how its delivery changes the group.

A message is due for news, a repeat (a reminder), an update (an edit of the first message), or a
correction where the receiver cannot edit.
Every function runs within a transaction on the outbox's file. Times are Unix seconds.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from ldlm_monitor.base.names import severity_rank
from ldlm_monitor.service.notify.deliveries import UNSURE, Holds, mark_in_flight, settle
from ldlm_monitor.service.notify.groups import (
    DIGEST,
    INCIDENT,
    MANY,
    WAITS,
    flaps,
    interval_seconds,
)
from ldlm_monitor.service.notify.message import (
    Message,
    Notification,
    Step,
    Story,
    from_json,
    to_json,
)
from ldlm_monitor.service.notify.policy import Policy, StreamPolicy

BATCH: Final = 5000
"""Notifications of one message at most: a choice; one for each of 5000 ranks, tens of MB in all."""
UPDATE_SECONDS: Final = 5.0
"""Seconds between two edits: a choice. Slack allows some 50 a minute; fewer show old facts."""
RECHECK_SECONDS: Final = 60.0
"""Seconds until a repeat is tried again if none of the group's alerts is known to fire, as after a
restart until the logs have been read again. A choice: little beside the hours between repeats."""
_COLUMNS: Final = "id, kind, incident, opened_at, worst_sent, place, changes, sent_at"  # of `Group`
# A last message in the future was sent before the clock was set back: the group is due.
_WITH_NEWS: Final = f"{WAITS} AND (:last OR send_at <= :now OR coalesce(sent_at, opened_at) > :now)"
_STEPS: Final[Mapping[Step, str]] = {  # SQL: when the step is due for a group
    "repeat": "closed_at IS NULL AND repeat_at <= :now",
    "update": "changes > 0 AND place IS NOT NULL"
    " AND (updated_at <= :now - :pause OR updated_at > :now)",
    "correction": f"changes > 0 AND place IS NULL AND kind = '{INCIDENT}' AND closed_at IS NULL"
    " AND sent_at IS NOT NULL AND send_at <= :now",
}


@dataclass(frozen=True, slots=True)
class Group:
    """The columns of `groups.SCHEMA` on which a group's messages depend."""

    id: int
    kind: str
    incident: str | None
    opened_at: float
    worst_sent: str
    place: str | None
    changes: int
    sent_at: float | None


@dataclass(frozen=True, slots=True)
class Pending:
    """A message on its way to one receiver, and the group that it is about.

    `attempts` counts the failures in a row so far. `ids` are those of the message's news.
    """

    receiver: str
    attempts: int
    message: Message
    ids: tuple[int, ...]
    group: Group


def next_message(
    db: sqlite3.Connection, receiver: str, attempts: int, repeats: Holds, *, now: float, last: bool
) -> Pending | None:
    """The next message that is due for a receiver; None if there is none.

    `attempts` counts the receiver's failures in a row. `repeats` returns whether an alert
    deserves a reminder. `last`: the monitor ends, so news are due at once.
    """
    while group := _first(db, receiver, _WITH_NEWS, "send_at, id", now=now, last=last):
        batch, unsure = _batch(db, group, receiver)
        if not batch:
            continue
        mark_in_flight(db, batch, receiver)
        step: Step = "first" if group.sent_at is None else "follow-up"
        message = _message(db, group, step, now, news=batch, unsure=unsure)
        return Pending(receiver, attempts, message, tuple(batch), group)
    for step, condition in _STEPS.items():
        while group := _first(db, receiver, condition, "id", now=now, pause=UPDATE_SECONDS):
            message = _message(db, group, step, now)
            if message.alerts and _is_needed(message, repeats):
                return Pending(receiver, attempts, message, (), group)
            change = "repeat_at = :later" if step == "repeat" else "changes = 0"
            db.execute(
                f"UPDATE message_group SET {change} WHERE id = :id",
                {"later": now + RECHECK_SECONDS, "id": group.id},
            )
    return None


def _is_needed(message: Message, repeats: Holds) -> bool:
    if message.step == "update":
        return True
    held = not any(map(repeats, message.alerts))
    return not held and (message.step == "repeat" or message.is_outdated)


def _first(
    db: sqlite3.Connection, receiver: str, condition: str, order: str, **values: object
) -> Group | None:
    row = db.execute(
        f"SELECT {_COLUMNS} FROM message_group WHERE receiver = :receiver AND {condition}"
        f" ORDER BY {order} LIMIT 1",
        {"receiver": receiver, **values},
    ).fetchone()
    return Group(*row) if row else None


def _batch(
    db: sqlite3.Connection, group: Group, receiver: str
) -> tuple[dict[int, Notification], bool]:
    """The group's news by their ids, oldest first, and whether they may have arrived already.

    News that may have arrived are sent again unchanged, so that the receiver can recognise
    them; later news follow in the next message.
    """
    rows = db.execute(
        "SELECT notification, body, in_flight FROM delivery JOIN notification ON id = notification"
        " WHERE group_id = ? AND outcome = 'pending' ORDER BY notification LIMIT ?",
        (group.id, BATCH),
    ).fetchall()
    fresh: dict[int, Notification] = {}
    again: dict[int, Notification] = {}
    for number, body, in_flight in rows:
        notification = from_json(Notification, body)
        if notification is None:
            settle(db, [number], receiver, "failed")
        else:
            (again if in_flight == UNSURE else fresh)[number] = notification
    return (again, True) if again else (fresh, False)


def _message(
    db: sqlite3.Connection,
    group: Group,
    step: Step,
    now: float,
    *,
    news: Mapping[int, Notification] = MappingProxyType({}),
    unsure: bool = False,
) -> Message:
    story = db.execute("SELECT body FROM story WHERE incident = ?", (group.incident,)).fetchone()
    return Message(
        step=step,
        group=group.id,
        identity=f"{group.opened_at!r}/{group.id}/{next(iter(news), 0)}",
        news=tuple(news.values()),
        alerts=_alerts(db, group.id),
        opened_at=group.opened_at,
        story=from_json(Story, story[0]) if story else None,
        place=group.place,
        unsure=unsure,
        worst_sent=group.worst_sent,
        flaps=flaps(db, group.id, now),
        shared=(group.incident or "").partition(": ")[2] if group.kind == MANY else "",
    )


def _alerts(db: sqlite3.Connection, group: int) -> tuple[Notification, ...]:
    """The latest transition of every alert of the group that was sent, or is being sent now.

    A rank that a correction replaced is the corrected one.
    """
    rows = db.execute(
        "SELECT body FROM notification WHERE id IN (SELECT max(notification) FROM delivery"
        " JOIN notification ON id = notification WHERE group_id = ?"
        " AND (outcome = 'sent' OR in_flight = 1) GROUP BY key) ORDER BY id",
        (group,),
    )
    sent = [each for (body,) in rows if (each := from_json(Notification, body)) is not None]
    query = "SELECT rank FROM correction WHERE group_id = ?"
    if known := db.execute(query, (group,)).fetchone():
        sent = [replace(each, rank=known[0]) if each.named else each for each in sent]
    return tuple(sent)


def store_story(db: sqlite3.Connection, story: Story, now: float) -> None:
    """Store an incident's story; if it changed, messages about it become due for an update."""
    cursor = db.execute(
        "INSERT INTO story (incident, body, changed_at) VALUES (?, ?, ?) ON CONFLICT (incident)"
        " DO UPDATE SET body = excluded.body, changed_at = excluded.changed_at"
        " WHERE body != excluded.body",
        (story.id, to_json(story), now),
    )
    if cursor.rowcount:
        db.execute("UPDATE message_group SET changes = changes + 1 WHERE incident = ?", (story.id,))


def delivered(
    db: sqlite3.Connection, pending: Pending, policy: StreamPolicy, place: str | None, now: float
) -> None:
    """Record a message's arrival at `place`: schedule the group's next one, or close the group."""
    group, step = pending.group, pending.message.step
    if step == "correction" and isinstance(policy, Policy):
        _corrected(db, pending, policy, now)
    elif step == "update":
        # Changes that came while the message was on its way are left for the next update.
        db.execute(
            "UPDATE message_group SET updated_at = ?, changes = max(changes - ?, 0) WHERE id = ?",
            (now, group.changes, group.id),
        )
    elif isinstance(policy, Policy):
        _sent(db, pending, policy, place, now)
    else:
        db.execute("UPDATE message_group SET closed_at = ? WHERE id = ?", (now, group.id))


def _corrected(db: sqlite3.Connection, pending: Pending, policy: Policy, now: float) -> None:
    group, story = pending.group, pending.message.story
    db.execute(
        "UPDATE message_group SET changes = max(changes - ?, 0), send_at = ? WHERE id = ?",
        (group.changes, now + interval_seconds(group.kind, policy), group.id),
    )
    rank = story.rank if story else None
    db.execute("INSERT OR REPLACE INTO correction VALUES (?, ?)", (group.id, rank))


def _sent(
    db: sqlite3.Connection, pending: Pending, policy: Policy, place: str | None, now: float
) -> None:
    group, message = pending.group, pending.message
    severities = [message.worst_sent, *(each.severity for each in message.news)]
    worst = max(severities, key=severity_rank)
    waits = db.execute(f"SELECT {WAITS} FROM message_group WHERE id = ?", (group.id,)).fetchone()[0]
    is_over = not waits and not message.firing
    repeat_seconds = policy.repeat_seconds(digest=group.kind == DIGEST)
    db.execute(
        "UPDATE message_group SET sent_at = :now, send_at = :now + :interval,"
        " repeat_at = :repeat_at, worst_sent = :worst, place = coalesce(:place, place),"
        " closed_at = CASE WHEN :is_over THEN :now END, changes = changes + :changed"
        " WHERE id = :group",
        {
            "now": now,
            "interval": interval_seconds(group.kind, policy),
            "repeat_at": None if is_over else now + repeat_seconds,
            "worst": worst,
            "place": place,
            "is_over": is_over,
            "changed": message.step != "first",
            "group": group.id,
        },
    )


def refused(db: sqlite3.Connection, pending: Pending, now: float) -> None:
    """Give up a message that its receiver refused for good; later news are still sent."""
    steps = {"update": "changes = 0", "correction": "changes = 0", "repeat": "repeat_at = NULL"}
    change = steps.get(
        pending.message.step,
        f"closed_at = CASE WHEN (sent_at IS NULL OR :is_over) AND NOT ({WAITS}) THEN :now END",
    )
    values = {"now": now, "id": pending.group.id, "is_over": not pending.message.firing}
    db.execute(f"UPDATE message_group SET {change} WHERE id = :id", values)
