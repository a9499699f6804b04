"""Stores when which bytes were read, and this host's records, before they are judged.

A restart reads the followed files again. Most logs contain no times, so the arrival times of
their bytes are stored here; with them a restart computes the same stalls and pauses. Records
that are in no log (the findings of `probe`) are stored whole.
"""

import json
import math
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from ldlm_monitor.base.arrival import Arrival, Kind
from ldlm_monitor.base.chunk import Chunk, FileId
from ldlm_monitor.base.records import MAX_COUNT, Heartbeat, Record, from_json, to_json
from ldlm_monitor.logs.history.late_bytes import evenly
from ldlm_monitor.service.state.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS file (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    ended INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS arrival (
    number INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    file INTEGER NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    line INTEGER NOT NULL,
    kind TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS observed (
    number INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    source TEXT NOT NULL,
    record TEXT NOT NULL
);
"""
"""Tables of the followed files (`key`: see `file_key`), `Arrival`s and `ObservedRecords`."""
MAX_ARRIVALS = 200_000
"""Rows of arrivals: about 10 MB, read in half a second. One log that grows every second fills
them in two days, 64 such logs in an hour. Then each two neighbours in the older half become one
row at the later time, which loses pauses shorter than the row and the order among files within
it; peeks and ended files there are dropped. An active alert's start is stored separately."""
MAX_OBSERVED = 10_000
"""The most records of this host; the oldest are dropped. A choice, a thousand examinations of a
stalled run with ten each: more slow a restart, fewer lose more of a long stall."""
_ARRIVALS = (  # in the order of reading, of files that are still followed
    "SELECT number, at, start, stop, line, kind, key FROM arrival"
    " JOIN file ON file.id = arrival.file WHERE NOT ended ORDER BY number"
)
LATEST = 1e10
"""Unix seconds of the year 2286, where they get an eleventh digit; a later arrival is damage."""


@dataclass(frozen=True, slots=True)
class ObservedRecords:
    """A record that is in no log, judged at `at` (Unix seconds); `order` as in `Arrival`."""

    order: int
    at: float
    record: Record


_File: TypeAlias = tuple[str, FileId]
_Row: TypeAlias = tuple[int, float, int, int, int, int, Kind]  # a row of the table `arrival`


class ReadLog:
    """The order in which bytes and host records arrived; `last`: the highest row number given."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ids: dict[str, int] = {}
        self._ended: set[str] = set()
        self.last = self._rows = 0
        self._prolonged: tuple[int, int, int] | None = None
        self._noted_at, self._noted = math.inf, set[_File]()
        database.load(self._load)

    def note(self, chunks: Sequence[Chunk], at: float, since: float = math.inf) -> None:
        """Store that `chunks` were read at `at` (Unix seconds); committed on return.

        Chunks of one file within one second, with none of another file between, are one row. What
        nobody could read from `since` on is spread over that time: a restart finds no silence. What
        else of a file is noted at the same `at` came behind that.
        """
        if at != self._noted_at:
            self._noted_at, self._noted = at, set()
        files: dict[_File, list[Chunk]] = {}
        for chunk in chunks:
            files.setdefault((chunk.path, chunk.file), []).append(chunk)
        ends = {
            file: _ends(found, at if file in self._noted else min(since, at), at)
            for file, found in files.items()
        }
        self._noted |= files.keys()
        pieces = (_pieces(chunk, ends[chunk.path, chunk.file], at) for chunk in chunks)
        rows = [self._row(each) for each in chain.from_iterable(pieces)]
        self._database.run(lambda db: self._insert(db, rows))
        if self._rows > MAX_ARRIVALS:
            self._rows = self._database.run(_thin_out)
            self._prolonged = None

    def note_observed(self, records: Sequence[Record], at: float) -> None:
        """Store that `records` were observed at `at` (Unix seconds); committed on return.

        Of the heartbeats of one file only the last is kept: it has the rank's present step.
        """
        self._prolonged = None
        rows = []
        for record in records:
            self.last += 1
            source = json.dumps(record.position.path) if isinstance(record, Heartbeat) else ""
            rows.append((self.last, at, source, to_json(record).decode()))
        heartbeats = [(source, number) for number, _, source, _ in rows if source]

        def work(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR REPLACE INTO observed VALUES (?, ?, ?, ?)", rows)
            db.executemany("DELETE FROM observed WHERE source = ? AND number < ?", heartbeats)
            db.execute(
                "DELETE FROM observed WHERE number NOT IN"
                " (SELECT number FROM observed ORDER BY number DESC LIMIT ?)",
                (MAX_OBSERVED,),
            )

        self._database.run(work)

    def commit(
        self, db: sqlite3.Connection, contents: Iterable[Arrival], present: Collection[str]
    ) -> None:
        """Store the arrivals `contents`, which were judged, in the caller's transaction `db`.

        `present`: the keys (`file_key`) of files still followed; all others are marked as ended.
        """
        self._prolonged = None
        self._insert(db, [self._row(each) for each in contents])
        ended = self._ids.keys() - present
        changed = [(key in ended, key) for key in ended ^ self._ended]
        db.executemany("UPDATE file SET ended = ? WHERE key = ?", changed)
        self._ended = ended

    def arrivals(self) -> list[Arrival]:
        """The reads of all files that are still followed, in the order of reading."""

        def work(db: sqlite3.Connection) -> list[Arrival]:
            found = []
            keys = {key: json.loads(key) for key in self._ids}
            files = {key: (path, tuple(file)) for key, (path, *file) in keys.items()}
            for number, at, start, stop, line, kind, key in db.execute(_ARRIVALS):
                if not (0 <= at < LATEST and 0 <= start <= stop < MAX_COUNT and line > 0):
                    raise ValueError("the read log is damaged")
                found.append(Arrival(at, *files[key], start, stop, line, kind, number))
            return found

        return self._database.load(work)

    def observed(self) -> list[ObservedRecords]:
        """The records of this host, in the order in which they were judged."""
        query = "SELECT number, at, record FROM observed ORDER BY number"
        return self._database.load(
            lambda db: [
                ObservedRecords(n, at, from_json(text)) for n, at, text in db.execute(query)
            ]
        )

    def rename(self, path: str, before: FileId, after: FileId) -> None:
        """Move the rows of the file `before` to the file `after`, which has that content now."""
        old, new = file_key(path, before), file_key(path, after)
        if old in self._ids and new not in self._ids:
            self._ids[new] = self._ids.pop(old)
            self._ended.discard(old)
            moved = "UPDATE file SET key = ?, ended = 0 WHERE key = ?"
            self._database.run(lambda db: db.execute(moved, (new, old)))

    def forget_others(self, present: Collection[str]) -> dict[str, int]:
        """Drop the rows of files whose key is not in `present`; return path to bytes read."""
        highest = "SELECT max(stop) FROM arrival WHERE file = ?"
        lost: dict[str, int] = {}
        gone = [(key, self._ids.pop(key)) for key in self._ids.keys() - present]

        def work(db: sqlite3.Connection) -> None:
            lost.clear()
            for key, number in gone:
                (read,) = db.execute(highest, (number,)).fetchone()
                path = json.loads(key)[0]
                lost[path] = lost.get(path, 0) + (read or 0)
                db.execute("DELETE FROM arrival WHERE file = ?", (number,))
                db.execute("DELETE FROM file WHERE id = ?", (number,))

        self._database.run(work)
        return lost

    def forget_all(self) -> None:
        """Drop all rows; later ones get numbers above `last`."""
        self.forget_others(())
        self._database.run(lambda db: db.execute("DELETE FROM observed"))

    def _load(self, db: sqlite3.Connection) -> None:
        files = db.execute("SELECT key, id, ended FROM file").fetchall()
        self._ids = {key: number for key, number, _ in files}
        self._ended = {key for key, _, ended in files if ended}
        self._rows, last = db.execute("SELECT count(*), max(number) FROM arrival").fetchone()
        (other,) = db.execute("SELECT max(number) FROM observed").fetchone()
        self.last = max(last or 0, other or 0)
        highest = max([self.last, *self._ids.values()])
        if highest >= MAX_COUNT or not all(map(_is_key, self._ids)):
            raise ValueError("the read log is damaged")

    def _row(self, new: Arrival) -> _Row:
        """A new row; or, if the bytes continue the last row, that row's number and a later end."""
        key = file_key(new.path, new.file)
        if key not in self._ids:
            self._ids[key] = max(self._ids.values(), default=0) + 1
        file, whole = self._ids[key], new.kind == "records"
        second = math.floor(new.at)  # bounds the rows; shorter pauses matter to no stall limit
        if not whole or self._prolonged != (file, second, new.start):
            self._rows += 1
            self.last += 1
        self._prolonged = (file, second, new.stop) if whole else None
        return self.last, new.at, file, new.start, new.stop, new.line, new.kind

    def _insert(self, db: sqlite3.Connection, rows: Sequence[_Row]) -> None:
        numbers = {row[2] for row in rows}
        files = [(number, key) for key, number in self._ids.items() if number in numbers]
        db.executemany("INSERT OR IGNORE INTO file (id, key) VALUES (?, ?)", files)
        db.executemany(
            "INSERT INTO arrival VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (number) DO UPDATE SET at = excluded.at, stop = excluded.stop",
            rows,
        )


def file_key(path: str, file: FileId) -> str:
    """The key of a file with the name `path`: ASCII text, as a path need not be valid UTF-8."""
    return json.dumps([path, *file])


def _is_key(text: str) -> bool:
    """Whether `text` is a key of `file_key`. Raises any exception if it is no JSON list."""
    path, *file = json.loads(text)
    return isinstance(path, str) and [type(part) for part in file] == [int] * 3


def _thin_out(db: sqlite3.Connection) -> int:
    """Merge each two neighbours of the older half into one row; return how many rows are left."""
    half = "SELECT number FROM arrival ORDER BY number LIMIT 1 OFFSET ?"
    (middle,) = db.execute(half, (MAX_ARRIVALS // 2,)).fetchone()
    db.execute(  # the bytes of a peek come again, unless the peek is its file's last row
        "DELETE FROM arrival WHERE number <= ? AND (file IN (SELECT id FROM file WHERE ended)"
        " OR kind = 'peek' AND number NOT IN (SELECT max(number) FROM arrival GROUP BY file))",
        (middle,),
    )
    rows = db.execute(
        "SELECT number, file, start, stop, line FROM arrival"
        " WHERE kind = 'records' AND number <= ? ORDER BY file, number",
        (middle,),
    ).fetchall()
    merged = [
        (first[2], first[4], second[0], first[0])
        for first, second in zip(rows[::2], rows[1::2], strict=False)
        if first[1] == second[1] and first[3] == second[2]
    ]
    db.executemany(
        "UPDATE arrival SET start = ?, line = ? WHERE number = ?", [row[:3] for row in merged]
    )
    db.executemany("DELETE FROM arrival WHERE number = ?", [row[3:] for row in merged])
    return int(db.execute("SELECT count(*) FROM arrival").fetchone()[0])


def arrival_of(chunk: Chunk, at: float) -> Arrival:
    """The arrival of a chunk at `at` (Unix seconds)."""
    kind: Kind = "peek" if chunk.peek else "final" if chunk.final else "records"
    stop = chunk.offset + len(chunk.data)
    return Arrival(at, chunk.path, chunk.file, chunk.offset, stop, chunk.line, kind)


def _ends(chunks: Iterable[Chunk], since: float, at: float) -> list[tuple[int, float]]:
    """Where rows end, and when, of a file's chunks that came evenly from `since` to `at`."""
    read = [each for each in chunks if arrival_of(each, at).kind == "records"]
    return evenly(read, since, at) if read and read[0].framed is None else []


def _pieces(chunk: Chunk, ends: Iterable[tuple[int, float]], at: float) -> Iterator[Arrival]:
    """The arrivals of a chunk, of which the last bytes of its file came at `at` (Unix seconds)."""
    whole = arrival_of(chunk, at)
    start, line = whole.start, whole.line
    for end, came in ends:
        if end >= whole.stop:
            at = came
            break
        if end > start:
            yield whole._replace(at=came, start=start, stop=end, line=line)
            line += chunk.data.count(b"\n", start - whole.start, end - whole.start)
            start = end
    yield whole._replace(at=at, start=start, line=line)
