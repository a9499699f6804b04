"""When which bytes were read, since the last checkpoint: noted before they are judged.

After a crash the bytes are read again and judged at the very times at which they were
judged before, so that the monitor comes to stand where it stood. What no log carried is
noted whole.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from ldlm_monitor.model.chunk import Chunk, FileId
from ldlm_monitor.model.records import Record, from_json, to_json
from ldlm_monitor.state.database import Database

Kind: TypeAlias = Literal["records", "peek", "final"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS turn (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    chunks TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS observed (
    number INTEGER PRIMARY KEY,
    records TEXT NOT NULL
);
"""
MAX_TURNS = 100_000
"""So many are kept where no checkpoint can be; what came before is placed as if unseen."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Bytes `start` to `stop` of a file, read at `at` (Unix seconds).

    `order`: the turn of the pump, and the place in it. `peek`: a record that was not
    finished. `final`: nothing of this file was to follow.
    """

    order: tuple[int, int]
    at: float
    path: str
    file: FileId
    start: int
    stop: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Observed:
    """Records that no log carried, judged at `at` (Unix seconds); `order` as of an arrival."""

    order: tuple[int, int]
    at: float
    records: tuple[Record, ...]


class ReadLog:
    """One SQLite file in the state folder; turns are numbered and never numbered again."""

    def __init__(self, path: Path) -> None:
        # What the power takes with it is placed in time like what nobody saw arrive.
        self._database = Database(path, _SCHEMA, durable=False)

    def note(self, chunks: Sequence[Chunk], at: float) -> int:
        """Keep that these were read at `at`, committed when this returns; the turn's number."""
        told = [
            (chunk.path, *chunk.file, chunk.offset, chunk.offset + len(chunk.data), _kind(chunk))
            for chunk in chunks
        ]
        row = (at, json.dumps(told, separators=(",", ":")))

        return self._database.run(lambda db: _begin_turn(db, row))

    def note_observed(self, records: Sequence[Record], at: float) -> int:
        """Keep that these were observed at `at`, committed when this returns; the turn's number."""
        told = json.dumps([to_json(record).decode() for record in records])

        def work(db: sqlite3.Connection) -> int:
            number = _begin_turn(db, (at, "[]"))
            db.execute("INSERT OR REPLACE INTO observed VALUES (?, ?)", (number, told))
            return number

        return self._database.run(work)

    def last(self) -> int:
        """The number of the last turn, 0 before the first."""

        def work(db: sqlite3.Connection) -> int:
            row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'turn'").fetchone()
            return 0 if row is None else int(row[0])

        return self._database.run(work)

    def since(self, turn: int) -> list[Arrival]:
        """What was read after a turn, in the order in which it was judged."""

        def work(db: sqlite3.Connection) -> list[tuple[int, float, str]]:
            return db.execute(
                "SELECT number, at, chunks FROM turn WHERE number > ? ORDER BY number", (turn,)
            ).fetchall()

        return [
            Arrival((number, place), at, path, (device, inode, generation), start, stop, kind)
            for number, at, chunks in self._database.run(work)
            for place, (path, device, inode, generation, start, stop, kind) in enumerate(
                json.loads(chunks)
            )
        ]

    def observed_since(self, turn: int) -> list[Observed]:
        """What was observed after a turn, in the order in which it was judged."""

        def work(db: sqlite3.Connection) -> list[tuple[int, float, str]]:
            return db.execute(
                "SELECT number, at, records FROM turn JOIN observed USING (number)"
                " WHERE number > ? ORDER BY number",
                (turn,),
            ).fetchall()

        return [
            Observed((number, 0), at, tuple(map(from_json, json.loads(records))))
            for number, at, records in self._database.run(work)
        ]

    def forget(self, turn: int) -> None:
        """Drop this turn and those before it: a checkpoint holds what they led to."""
        self._database.run(lambda db: _drop_to(db, turn))

    def take_notices(self) -> list[str]:
        """What the user should know of the file, each once."""
        return self._database.take_notices()

    def close(self) -> None:
        """Release the file."""
        self._database.close()


def _begin_turn(db: sqlite3.Connection, row: tuple[float, str]) -> int:
    number = db.execute("INSERT INTO turn (at, chunks) VALUES (?, ?)", row).lastrowid or 0
    _drop_to(db, number - MAX_TURNS)
    return number


def _drop_to(db: sqlite3.Connection, turn: int) -> None:
    for table in ("turn", "observed"):
        db.execute(f"DELETE FROM {table} WHERE number <= ?", (turn,))


def _kind(chunk: Chunk) -> Kind:
    return "peek" if chunk.peek else "final" if chunk.final else "records"
