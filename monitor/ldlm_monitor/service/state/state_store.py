"""What a restart needs and no log contains: positions in files, active alerts, counters."""

import json
import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from ldlm_monitor.base.arrival import Arrival
from ldlm_monitor.base.snapshot import AlertView, MonitorView
from ldlm_monitor.logs.source.file_identity import FilePosition
from ldlm_monitor.service.state.database import Database
from ldlm_monitor.service.state.read_log import SCHEMA, ReadLog, file_key

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS kept (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;
{SCHEMA}
"""
"""The fields of a `State` by name, each as JSON, and the tables of the read log."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class State:
    """A daemon's state when everything before `positions` was judged and put into the outbox.

    `alerts`: the active ones. `counts`: the lifetime counters; None if none were stored. `runs`:
    file name to run name, in the order in which the files were first seen. `clock`: everything up
    to this time (Unix seconds) was judged. `read_to`: up to when all files were read; what is not
    in the read log was written later. `judged`: the read log's highest number at that time.
    """

    positions: list[FilePosition] = field(default_factory=list)
    alerts: list[AlertView] = field(default_factory=list)
    counts: MonitorView | None = None
    runs: dict[str, str] = field(default_factory=dict)
    clock: float = 0.0
    read_to: float = 0.0
    judged: int = 0


_STATE: TypeAdapter[State] = TypeAdapter(State)  # writes the fields as JSON values
_FIELDS: dict[str, TypeAdapter[Any]] = {  # read one by one: a damaged field spoils no other
    name: TypeAdapter(kind) for name, kind in get_type_hints(State).items()
}


class StateStore:
    """One SQLite file in the state folder, which also contains the `read_log`.

    Call `commit` after the outbox's, never before: otherwise a kill between the two loses alerts.
    """

    def __init__(self, path: Path) -> None:
        # A loss of power may undo the last commits: then more bytes are read and judged again.
        self._database = Database(path, _SCHEMA, durable=False)
        self.read_log = ReadLog(self._database)
        self._path = path

    def commit(self, state: State, contents: Sequence[Arrival] = ()) -> None:
        """Store `state` and, in the same transaction, the backlog `contents` that were judged."""
        # json, not pydantic's: file names need not be valid UTF-8, which pydantic demands.
        rows = [(name, json.dumps(value)) for name, value in _STATE.dump_python(state).items()]
        present = {file_key(each.path, each.file) for each in state.positions}

        def work(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", rows)
            self.read_log.commit(db, contents, present)

        self._database.run(work)

    def load(self) -> State | None:
        """The last committed state; None on a first start. Unreadable fields get their default."""
        query = "SELECT name, body FROM kept"
        kept = self._database.load(lambda db: dict(db.execute(query).fetchall()))
        if not kept:
            return None
        if "clock" not in kept:  # every version with a read log stores it
            text = "%s: written by an earlier version; the fields that can be read are taken over"
            log.warning(text, self._path)
        found = {}
        for name in _FIELDS.keys() & kept.keys():
            try:
                found[name] = _FIELDS[name].validate_python(json.loads(kept[name]))
            except (ValueError, RecursionError):
                log.warning("%s: the stored %s cannot be read and are ignored", self._path, name)
        return State(**found)

    def close(self) -> None:
        """Close the file."""
        self._database.close()
