"""What a receiver is told next, and what quiet hours or other alerts keep from it."""

import sqlite3
from collections.abc import Container
from typing import Final

from ldlm_monitor.notify import deliveries, group_messages, groups, turns
from ldlm_monitor.notify.deliveries import Pending
from ldlm_monitor.notify.groups import Row
from ldlm_monitor.notify.notification import Notification, readable
from ldlm_monitor.notify.routing import Routing

BATCH: Final = 5000


def next_single(
    db: sqlite3.Connection, routing: Routing | None, receiver: str, attempts: int, now: float
) -> Pending | None:
    """What a receiver is told next of what is in no group: the oldest."""
    while True:
        head = db.execute(
            "SELECT notification, in_flight, body, route FROM delivery"
            " JOIN notification ON id = notification LEFT JOIN member"
            " USING (notification, receiver)"
            " WHERE receiver = ? AND outcome = 'pending' AND alert_group IS NULL"
            " ORDER BY notification LIMIT 1",
            (receiver,),
        ).fetchone()
        if head is None:
            return None
        number, in_flight, body, route = head
        notification = readable(body)
        if notification is None:
            deliveries.settle(
                db, (number, receiver), "failed", now=now, error=deliveries.UNREADABLE
            )
        elif routing is not None and _is_kept_back(
            db, routing, receiver, notification, route=route or "", now=now
        ):
            db.execute(
                "UPDATE delivery SET outcome = 'held' WHERE notification = ? AND receiver = ?"
                " AND outcome = 'pending'",
                (number, receiver),
            )
        else:
            if not in_flight:
                deliveries.mark_in_flight(db, number, receiver)
            return Pending(number, receiver, attempts, notification)


def release(db: sqlite3.Connection, routing: Routing, receiver: str, now: float) -> None:
    """What was held back and may be told now waits again, in its place, unless it is over."""
    rows = db.execute(
        "SELECT notification, body, route FROM delivery JOIN notification ON id = notification"
        " LEFT JOIN member USING (notification, receiver)"
        " WHERE receiver = ? AND outcome = 'held' ORDER BY notification",
        (receiver,),
    ).fetchall()
    for number, body, route in rows:
        notification = readable(body)
        if notification is not None and _is_over(db, receiver, notification):
            deliveries.withhold(db, receiver, notification, now)
        elif notification is None or not _is_kept_back(
            db, routing, receiver, notification, route=route or "", now=now
        ):
            db.execute(
                "UPDATE delivery SET outcome = 'pending' WHERE notification = ? AND receiver = ?"
                " AND outcome = 'held'",
                (number, receiver),
            )


def _is_over(db: sqlite3.Connection, receiver: str, fired: Notification) -> bool:
    """Whether the end of an alert waits for the receiver too."""
    row = db.execute(
        "SELECT 1 FROM delivery JOIN notification ON id = notification"
        " WHERE key = ? AND started_at = ? AND receiver = ? AND state != 'firing'"
        " AND outcome IN ('pending', 'held')",
        (fired.key, fired.started_at, receiver),
    ).fetchone()
    return fired.state == "firing" and row is not None


def _is_kept_back(
    db: sqlite3.Connection,
    routing: Routing,
    receiver: str,
    told: Notification,
    *,
    route: str,
    now: float,
) -> bool:
    """Whether quiet hours or another alert keep it back.

    An alert that ended before it could be told is never told, and neither is its end.
    """
    muted = routing.is_muted(route, now)
    if told.state == "firing":
        return muted or routing.is_inhibited(told.alert, told.labels)
    untold = db.execute(
        "SELECT notification FROM delivery JOIN notification ON id = notification"
        " WHERE key = ? AND started_at = ? AND state = 'firing' AND receiver = ?"
        " AND outcome = 'held'",
        (told.key, told.started_at, receiver),
    ).fetchone()
    if untold is None:
        return muted
    deliveries.withhold(db, receiver, told, now)
    return True


def next_message(
    db: sqlite3.Connection,
    routing: Routing,
    receiver: str,
    *,
    attempts: int,
    now: float,
    last: bool,
    active: Container[str],
) -> Pending | None:
    """What a receiver of groups is told next; `active` are the keys of what fires now."""
    for row in turns.with_news(db, receiver, now, last=last):
        batch, unsure = _batch(db, routing, row, receiver, now)
        if not batch:
            continue
        for number, _ in batch:
            deliveries.mark_in_flight(db, number, receiver)
        ids = tuple(number for number, _ in batch)
        message = group_messages.message_of(
            db,
            row,
            "first" if row.told_at is None else "follow-up",
            now,
            news=tuple(each for _, each in batch),
            first_id=ids[0],
            unsure=unsure,
        )
        return Pending(ids[0], receiver, attempts, batch[0][1], message, ids, row)
    found = turns.next_step(db, routing, receiver, now, active=active)
    if found is None:
        return None
    row, step = found
    message = group_messages.message_of(db, row, step, now)
    return Pending(row.id, receiver, attempts, message.lead, message, (), row)


def _batch(
    db: sqlite3.Connection, routing: Routing, row: Row, receiver: str, now: float
) -> tuple[list[tuple[int, Notification]], bool]:
    """The group's news that may be told, oldest first; whether they may have arrived already."""
    rows = db.execute(
        "SELECT notification, body, in_flight, outcome = 'held' FROM member"
        " JOIN delivery USING (notification, receiver) JOIN notification ON id = notification"
        " WHERE alert_group = ? AND outcome IN ('pending', 'held') ORDER BY notification LIMIT ?",
        (row.id, BATCH),
    ).fetchall()
    read: list[tuple[int, Notification]] = []
    again: list[tuple[int, Notification]] = []
    held: set[tuple[str, float]] = set()
    for number, body, in_flight, was_held in rows:
        notification = readable(body)
        if notification is None:
            error = deliveries.UNREADABLE
            deliveries.settle(db, (number, receiver), "failed", now=now, error=error)
            continue
        (again if in_flight == deliveries.UNSURE else read).append((number, notification))
        if was_held and notification.state == "firing":
            held.add((notification.key, notification.started_at))
    if again:
        return again, True
    free = _free(db, routing, row, receiver, read, held=held, now=now)
    if not free:
        groups.put_off(db, row.id, now)
    return free, False


def _free(
    db: sqlite3.Connection,
    routing: Routing,
    row: Row,
    receiver: str,
    news: list[tuple[int, Notification]],
    *,
    held: set[tuple[str, float]],
    now: float,
) -> list[tuple[int, Notification]]:
    """Those that neither quiet hours nor another alert keep back; `held` were kept back before."""
    muted = routing.is_muted(row.route, now)
    free: list[tuple[int, Notification]] = []
    back: list[tuple[str, int, str]] = []
    for number, each in news:
        fires = each.state == "firing"
        kept = muted or (fires and routing.is_inhibited(each.alert, each.labels))
        name = (each.key, each.started_at)
        if not fires and name in held:
            deliveries.withhold(db, receiver, each, now)
            free = [(known, told) for known, told in free if (told.key, told.started_at) != name]
        elif not kept:
            free.append((number, each))
        if fires and kept:
            held.add(name)
        back.append(("held" if kept else "pending", number, receiver))
    db.executemany(
        "UPDATE delivery SET outcome = ? WHERE notification = ? AND receiver = ?"
        " AND outcome IN ('pending', 'held')",
        back,
    )
    return free
