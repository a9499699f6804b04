"""Episodes: what the label `incident` tells apart. Times are Unix seconds.

An episode of a run is one incident with the alerts around it. An alert that no incident is known
for belongs to what is going on in its run, or begins an episode; an incident that opens soon
after that is part of it.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from ldlm_monitor.notify.notification import Notification

JOIN_SECONDS: Final = 60.0
"""What begins so soon after the first alert of a run belongs to it, whatever its incident."""
REOPEN_SECONDS: Final = 600.0
"""An alert that comes back within this time goes on where its group ended."""


def episode_of(db: sqlite3.Connection, told: Notification, now: float) -> str:
    """What the label `incident` is for an alert: which failure of its run it is about."""
    known = db.execute("SELECT episode FROM episode_alert WHERE key = ?", (told.key,)).fetchone()
    if known is not None and told.state != "firing":
        _touch(db, known[0], told, now)
        return str(known[0])
    number = _episode_for(db, told, now)
    if number is None:
        cursor = db.execute(
            "INSERT INTO episode (run, incident, opened_at, touched_at) VALUES (?, ?, ?, ?)",
            (told.run, told.incident, now, now),
        )
        number = int(cursor.lastrowid or 0)
    _touch(db, number, told, now)
    return str(number)


def _episode_for(db: sqlite3.Connection, told: Notification, now: float) -> int | None:
    """The one that is about its incident; else the run's last, if that goes on or just began."""
    if told.incident is not None:
        same = db.execute(
            "SELECT max(id) FROM episode WHERE run = ? AND incident = ?", (told.run, told.incident)
        ).fetchone()
        if same[0] is not None:
            return int(same[0])
    last = db.execute(
        "SELECT id, opened_at, touched_at FROM episode WHERE run = ? ORDER BY id DESC LIMIT 1",
        (told.run,),
    ).fetchone()
    if last is None:
        return None
    number, opened_at, touched_at = int(last[0]), float(last[1]), float(last[2])
    if abs(now - opened_at) <= JOIN_SECONDS:
        return number
    goes_on = abs(now - touched_at) <= REOPEN_SECONDS or _fires(db, number)
    return number if told.incident is None and goes_on else None


def _fires(db: sqlite3.Connection, episode: int) -> bool:
    """Whether any alert of it was told to fire, and not to have ended."""
    row = db.execute("SELECT 1 FROM episode_alert WHERE episode = ? LIMIT 1", (episode,)).fetchone()
    return row is not None


def _touch(db: sqlite3.Connection, number: int, told: Notification, now: float) -> None:
    db.execute(
        "UPDATE episode SET touched_at = ?, incident = coalesce(incident, ?) WHERE id = ?",
        (now, told.incident, number),
    )
    if told.state == "firing":
        db.execute(
            "INSERT INTO episode_alert (key, episode) VALUES (?, ?)"
            " ON CONFLICT (key) DO UPDATE SET episode = excluded.episode",
            (told.key, number),
        )
    else:
        db.execute("DELETE FROM episode_alert WHERE key = ?", (told.key,))
