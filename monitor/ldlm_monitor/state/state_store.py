"""What a restart needs and no log says: how far was judged, what was active, what was counted."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ldlm_monitor.model.errors import InputError
from ldlm_monitor.model.view import AlertView, MonitorView
from ldlm_monitor.source import FilePosition, positions_from_json, positions_to_json
from ldlm_monitor.state.database import Database
from ldlm_monitor.state.read_log import SCHEMA, ContentState, ReadLog, file_key

T = TypeVar("T")

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS kept (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;
DROP TABLE IF EXISTS checkpoint;
{SCHEMA}
"""
_OF_EARLIER_VERSIONS = ("arrivals.sqlite", "arrivals.sqlite-wal", "arrivals.sqlite-shm")
"""Kept which bytes came when, up to the next pickled state (table `checkpoint`)."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class State:
    """How a daemon stood when all up to `positions` was judged and put into the outbox.

    `alerts` were active; of an earlier version only their `starts` are known, by key. `runs`:
    by file name, the run that the file belongs to, in the order in which they were first seen.
    `clock` (Unix seconds): up to then everything was judged. `judged`: the last number in the
    read log by then.
    """

    positions: list[FilePosition] = field(default_factory=list)
    alerts: list[AlertView] = field(default_factory=list)
    starts: Mapping[str, float] = field(default_factory=dict)
    counts: MonitorView | None = None
    runs: Mapping[str, str] = field(default_factory=dict)
    clock: float = 0.0
    judged: int = 0


class StateStore:
    """One SQLite file in the state folder. `read_log` stands in the same file.

    Commit it after the outbox, never before: what it says was judged is in the outbox.
    """

    def __init__(self, path: Path) -> None:
        # After a loss of power an earlier commit will do: more is judged again.
        self._database = Database(path, _SCHEMA, durable=False)
        for name in _OF_EARLIER_VERSIONS:
            path.with_name(name).unlink(missing_ok=True)
        self.read_log = ReadLog(self._database)
        self._notices: list[str] = []
        self._path = path

    def commit(self, state: State, contents: Sequence[ContentState] = ()) -> None:
        """Keep `state`; `contents` were in files already, and were judged with it."""
        starts = {alert.key: alert.active_at for alert in state.alerts}
        rows = [
            ("positions", positions_to_json(state.positions)),
            ("starts", json.dumps(starts)),
            ("alerts", json.dumps([alert.model_dump() for alert in state.alerts])),
            ("counts", json.dumps(state.counts and state.counts.model_dump())),
            ("runs", json.dumps(dict(state.runs))),
            ("judged", json.dumps([state.clock, state.judged])),
        ]
        present = {file_key(each.path, each.file) for each in state.positions}

        def work(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", rows)
            self.read_log.commit(db, contents, present)

        self._database.run(work)

    def load(self) -> State | None:
        """What was committed last; None on a first start. What cannot be read is left out."""
        kept = dict(self._database.run(lambda db: db.execute("SELECT * FROM kept").fetchall()))
        if not kept:
            return None
        try:
            positions = positions_from_json(kept.get("positions", "[]"))
        except InputError:
            positions = []
            self._notices.append(f"{self._path}: how far files were judged cannot be read")
        clock, judged = self._value(kept, "judged", tuple[float, int], (0.0, 0))
        if "judged" not in kept:
            self._notices.append(
                f"{self._path}: of an earlier version; what it had read before is placed in time"
                " by what the logs say"
            )
        return State(
            positions,
            self._value(kept, "alerts", list[AlertView], []),
            self._value(kept, "starts", dict[str, float], {}),
            self._value(kept, "counts", MonitorView | None, None),
            self._value(kept, "runs", dict[str, str], {}),
            clock,
            judged,
        )

    def take_notices(self) -> list[str]:
        """Lines for the user about the file, each once."""
        notices, self._notices = self._notices, []
        return [*self._database.take_notices(), *notices]

    def close(self) -> None:
        """Release the file."""
        self._database.close()

    def _value(self, kept: Mapping[str, str], name: str, kind: Any, default: T) -> T:
        """What stands under `name`; `default` where it is missing, or was damaged."""
        if name not in kept:
            return default
        try:
            found: T = TypeAdapter(kind).validate_python(json.loads(kept[name]))
        except (ValueError, ValidationError, RecursionError):
            self._notices.append(f"{self._path}: the kept {name} cannot be read, and are left out")
            return default
        return found
