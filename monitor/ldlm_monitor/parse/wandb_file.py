"""W&B's transaction logs: a run's settings, its history, and how it ended.

A record (wandb/proto/wandb_internal.proto) contains one of: 2 history; 5 config; 17 run,
whose 1 is its id, 4 its config, 8 its name, 13 its host and 17 when it began; 18 exit, whose
1 is the code. An item of a history or config has 1 a key or 2 the parts of a nested key, and
16 the value as Python's JSON, with `NaN` and `Infinity`. They are read like rows of JSON
lines. `_step` counts calls of `log`, so it is the step only if the rows have no other.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ldlm_monitor.model.records import Sample
from ldlm_monitor.parse import jsonl
from ldlm_monitor.parse.event_file import FrameReader, fields_of

if TYPE_CHECKING:
    from ldlm_monitor.model.records import FieldValue, Record
    from ldlm_monitor.parse.events import RecordPlace

_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18
_UPDATE, _RUN_CONFIG, _RUN_START = 1, 4, 17
_RUN_TEXTS = {1: "run", 8: "run", 13: "host"}
_KEY, _NESTED_KEY, _VALUE = 1, 2, 16
_CALLS, _TIME = "_step", "_timestamp"
_INTERNAL = ("_wandb", "_runtime", "type")
"""Keys that are not metrics; a `type` would make the row one of the callback's."""
_INTERRUPTED = 255
"""The exit code that wandb's hook records for a KeyboardInterrupt (wandb/sdk/lib/exit_hooks.py)."""


class WandbReader(FrameReader):
    """Reads one run's log."""

    name = "W&B"

    def __init__(self) -> None:
        super().__init__()
        self._has_steps = False

    def records(self, content: bytes, place: RecordPlace) -> list[Record]:
        """The records of one transaction."""
        for number, value in fields_of(content):
            if not isinstance(value, bytes):
                continue
            if number == _HISTORY:
                return self._row(_items(value), place)
            if number == _CONFIG:
                return _run({"config": _items(value)}, place)[1:]
            if number == _RUN:
                return _run(_run_row(value), place)
            if number == _EXIT:
                return [_exit(value, place)]
        return []

    @staticmethod
    def time_of(content: bytes) -> float | None:
        """When a row of metrics was logged."""
        value = dict(fields_of(content)).get(_HISTORY)
        return jsonl.unix_time(_items(value).get(_TIME)) if isinstance(value, bytes) else None

    def _row(self, row: dict[str, Any], place: RecordPlace) -> list[Record]:
        """The sample of one step."""
        for key in _INTERNAL:
            row.pop(key, None)
        calls = row.pop(_CALLS, None)
        found = jsonl.records(row, place)
        rows = [each for each in found if isinstance(each, Sample)]
        self._has_steps |= any(each.step is not None for each in rows)
        if self._has_steps or not isinstance(calls, int):
            return found
        return [replace(each, step=calls) for each in rows]


def _items(content: bytes) -> dict[str, Any]:
    """The items of a history or config; the parts of a nested key are joined by `/`."""
    found: dict[str, Any] = {}
    for number, item in fields_of(content):
        if number != _UPDATE or not isinstance(item, bytes):
            continue
        key: list[str] = []
        value = b""
        for inner, part in fields_of(item):
            if inner in (_KEY, _NESTED_KEY) and isinstance(part, bytes):
                key.append(part.decode("utf-8", "replace"))
            elif inner == _VALUE and isinstance(part, bytes):
                value = part
        found["/".join(key)] = _value(value)
    return found


def _value(text: bytes) -> Any:
    """A JSON value; None for one that is nested too deeply. Most are numbers."""
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        pass
    try:
        return json.loads(text)
    except RecursionError:
        return None


def _run_row(content: bytes) -> dict[str, Any]:
    """A run, as a row of the callback."""
    row: dict[str, Any] = {"config": {}}
    for number, value in fields_of(content):
        if not isinstance(value, bytes):
            continue
        if number == _RUN_CONFIG:
            row["config"] = _items(value)
        elif number in _RUN_TEXTS and value:
            row[_RUN_TEXTS[number]] = value.decode("utf-8", "replace")
        elif number == _RUN_START:
            row["time"] = dict(fields_of(value)).get(1)
    return row


def _run(row: dict[str, Any], place: RecordPlace) -> list[Record]:
    """The run's start, and its config if it has one."""
    row["config"].pop("_wandb", None)
    return jsonl.records({"type": "run", **row}, place)


def _exit(content: bytes, place: RecordPlace) -> Record:
    value = dict(fields_of(content)).get(1, 0)
    code = value if isinstance(value, int) else 0
    code -= 1 << 64 if code >= 1 << 63 else 0
    if code == 0:
        return place.lifecycle("run_finished", "exit code 0")
    fields: dict[str, FieldValue] = {"exitcode": code, "launcher": "wandb"}
    kind, family, role = "elastic_worker_failed", "elastic", "death"
    if code == _INTERRUPTED:
        kind, family, role = "python_exception", "process", "root"
        fields["exc_type"] = "KeyboardInterrupt"
    return place.event(kind, "error", f"exit code {code}", role, fields, family=family)
