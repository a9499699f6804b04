"""Whose turn it is among the groups of a receiver: news, a repeat, an update, a picture.

Times are Unix seconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container
from typing import Final

from ldlm_monitor.notify.group_messages import standing
from ldlm_monitor.notify.groups import Row
from ldlm_monitor.notify.message import Step
from ldlm_monitor.notify.routing import Routing

UPDATE_SECONDS: Final = 5.0
"""Between two changes of what stands there already."""
SETTLE_SECONDS: Final = 60.0
"""How often it is looked whether what was told to fire does, before it is told again."""
_COLUMNS: Final = "id, route, incident, opened_at, worst_told, place, changes, told_at"
_DUE: Final = "(flush_at <= :now OR flush_at > :now + delay)"
"""Later than its own delay from now: the clock was set back meanwhile."""


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
