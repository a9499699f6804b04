"""What no log says and a restart must know: how far was judged, since when alerts hold."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

from ldlm_monitor.model.errors import InputError
from ldlm_monitor.source import DIRECT, Disk, Position, positions_from_json, positions_to_json
from ldlm_monitor.state.database import Database
from ldlm_monitor.state.read_log import ReadLog

_SCHEMA = """
CREATE TABLE IF NOT EXISTS kept (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS checkpoint (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    stamp TEXT NOT NULL,
    body BLOB NOT NULL
);
"""


class StateStore:
    """One SQLite file in the state folder, and `arrivals` in another.

    Commit it after the outbox, never before.

    What it says was judged was put in the outbox: after a crash between the two,
    something is told twice rather than never.
    """

    def __init__(self, path: Path) -> None:
        # After a loss of power an earlier commit will do: more is judged again.
        self._database = Database(path, _SCHEMA, durable=False)
        self.arrivals = ReadLog(path.with_name("arrivals.sqlite"))

    def commit(
        self,
        positions: Iterable[Position],
        starts: Mapping[str, float],
        progress: Mapping[str, tuple[int, float]],
        checkpoint: tuple[str, bytes] | None = None,
        turn: int = 0,
    ) -> None:
        """Keep where reading stands, when alerts began, and when runs took their last step.

        `checkpoint`: for which code and settings it is of use, and the monitor as it stands
        after `turn`; arrivals up to there are forgotten.
        """
        rows = (
            ("positions", positions_to_json(positions)),
            ("starts", json.dumps(dict(starts))),
            ("progress", json.dumps(dict(progress))),
        )

        def work(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", rows)
            if checkpoint is not None:
                db.execute("INSERT OR REPLACE INTO checkpoint VALUES (1, ?, ?)", checkpoint)

        self._database.run(work)
        if checkpoint is not None and not self._database.is_in_memory:
            self.arrivals.forget(turn)

    def drop_checkpoint(self) -> None:
        """None is of use any more."""
        self._database.run(lambda db: db.execute("DELETE FROM checkpoint"))

    def checkpoint(self, stamp: str) -> bytes | None:
        """The last checkpoint, if it was kept under the same stamp."""

        def work(db: sqlite3.Connection) -> bytes | None:
            row = db.execute("SELECT body FROM checkpoint WHERE stamp = ?", (stamp,)).fetchone()
            return None if row is None else bytes(row[0])

        return self._database.run(work)

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
        return [*self._database.take_notices(), *self.arrivals.take_notices()]

    def close(self) -> None:
        """Release the files."""
        self._database.close()
        self.arrivals.close()

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
