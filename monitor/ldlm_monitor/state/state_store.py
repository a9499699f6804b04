"""What a restart needs and no log says: how far was judged, what was active, what was counted."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from ldlm_monitor.model.view import AlertView, MonitorView
from ldlm_monitor.source.file_identity import FilePosition
from ldlm_monitor.state.database import Database
from ldlm_monitor.state.read_log import SCHEMA, Arrival, ReadLog, file_key

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS kept (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;
DROP TABLE IF EXISTS checkpoint;
{SCHEMA}
"""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class State:
    """How a daemon stood when all up to `positions` was judged and put into the outbox.

    `alerts` were active. `runs`: by file name, the run that the file belongs to, in the order in
    which they were first seen. `clock` (Unix seconds): up to then everything was judged. `judged`:
    the last number in the read log by then.
    """

    positions: list[FilePosition] = field(default_factory=list)
    alerts: list[AlertView] = field(default_factory=list)
    counts: MonitorView | None = None
    runs: dict[str, str] = field(default_factory=dict)
    clock: float = 0.0
    judged: int = 0


_STATE: TypeAdapter[State] = TypeAdapter(State)
_FIELDS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(kind) for name, kind in get_type_hints(State).items()
}


class StateStore:
    """One SQLite file in the state folder. `read_log` stands in the same file.

    Commit it after the outbox, never before: what it says was judged is in the outbox.
    """

    def __init__(self, path: Path) -> None:
        # After a loss of power an earlier commit will do: more is judged again.
        self._database = Database(path, _SCHEMA, durable=False)
        for suffix in ("", "-wal", "-shm"):  # of an earlier version, as the table `checkpoint`
            with suppress(OSError):
                path.with_name(f"arrivals.sqlite{suffix}").unlink()
        self.read_log = ReadLog(self._database)
        self._path = path

    def commit(self, state: State, contents: Sequence[Arrival] = ()) -> None:
        """Keep `state`; `contents` were in files already, and were judged with it."""
        # json, not pydantic: names of files need not be valid UTF-8.
        rows = [(name, json.dumps(value)) for name, value in _STATE.dump_python(state).items()]
        present = {file_key(each.path, each.file) for each in state.positions}

        def work(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", rows)
            self.read_log.commit(db, contents, present)

        self._database.run(work)

    def load(self) -> State | None:
        """What was committed last; None on a first start. What cannot be read is left out."""
        query = "SELECT name, body FROM kept"
        kept = self._database.load(lambda db: dict(db.execute(query).fetchall()))
        if not kept:
            return None
        if "clock" not in kept:
            log.warning(
                "%s: of an earlier version; what it had read before is placed in time by what the"
                " logs say",
                self._path,
            )
        found = {}
        for name in _FIELDS.keys() & kept.keys():
            try:
                found[name] = _FIELDS[name].validate_python(json.loads(kept[name]))
            except (ValueError, RecursionError):
                log.warning("%s: the kept %s cannot be read, and are left out", self._path, name)
        return State(**found)

    def close(self) -> None:
        """Release the file."""
        self._database.close()
