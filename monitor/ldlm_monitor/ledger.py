"""What no log says and a restart must know: how far was judged, since when alerts hold."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

from ldlm_monitor.database import Database
from ldlm_monitor.errors import InputError
from ldlm_monitor.source import DIRECT, Disk, Position, positions_from_json, positions_to_json

_SCHEMA = """
CREATE TABLE IF NOT EXISTS kept (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;
"""


class Ledger:
    """One SQLite file in the state folder. Commit it after the outbox, never before.

    What it says was judged was put in the outbox: after a crash between the two,
    something is told twice rather than never.
    """

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA)

    def commit(
        self,
        positions: Iterable[Position],
        starts: Mapping[str, float],
        progress: Mapping[str, tuple[int, float]],
    ) -> None:
        """Keep where reading stands, when alerts began, and when runs took their last step."""
        rows = (
            ("positions", positions_to_json(positions)),
            ("starts", json.dumps(dict(starts))),
            ("progress", json.dumps(dict(progress))),
        )

        def work(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", rows)

        self._database.run(work)

    def positions(self) -> dict[str, Position]:
        """By path, how far each file was judged; empty on a first start."""
        try:
            kept = positions_from_json(self._read("positions") or "[]")
        except InputError:
            return {}
        return {position.path: position for position in kept if not position.nameless}

    def starts(self) -> dict[str, float]:
        """By alert key, when the condition of an alert that was active first held."""
        return {str(key): float(at) for key, at in json.loads(self._read("starts") or "{}").items()}

    def progress(self) -> dict[str, tuple[int, float]]:
        """By run, its last step and when it was taken: seen live, not estimated from a log."""
        kept = json.loads(self._read("progress") or "{}")
        return {str(run): (int(step), float(at)) for run, (step, at) in kept.items()}

    def take_notices(self) -> list[str]:
        """What the user should know of the file, each once."""
        return self._database.take_notices()

    def close(self) -> None:
        """Release the file."""
        self._database.close()

    def _read(self, name: str) -> str | None:
        def work(db: sqlite3.Connection) -> str | None:
            row = db.execute("SELECT body FROM kept WHERE name = ?", (name,)).fetchone()
            return None if row is None else str(row[0])

        return self._database.run(work)


def still_holds(position: Position, disk: Disk = DIRECT) -> bool:
    """Whether the file is the same, and what was read of it still stands where it was read.

    Raises `TimeoutError` where its server does not answer.
    """
    try:
        descriptor, key = disk.open_regular(Path(position.path))
        try:
            return key == position.key and position.verify(disk, descriptor) is not None
        finally:
            disk.close(descriptor)
    except TimeoutError:
        raise
    except (OSError, InputError):
        return False
