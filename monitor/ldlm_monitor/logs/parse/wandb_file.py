"""Reads the transaction log of a W&B run: history, configuration and exit code."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from ldlm_monitor.base.records import FieldValue, Record, Sample, as_count
from ldlm_monitor.logs.parse import jsonl
from ldlm_monitor.logs.parse.event_file import FrameReader, fields_of
from ldlm_monitor.logs.parse.event_rules import RecordPlace

# Field numbers of wandb/proto/wandb_internal.proto, whose meaning `WandbReader` gives.
_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18  # of a record
_UPDATE = 1  # an item of a history or config
_RUN_CONFIG, _RUN_START = 4, 17  # of a run
_RUN_TEXTS = {1: "run", 8: "run", 13: "host"}  # a run's texts: ID, name (which replaces it), host
_KEY, _NESTED_KEY, _VALUE = 1, 2, 16  # of an item
_CALLS, _TIME = "_step", "_timestamp"  # keys that wandb adds to rows
_INTERNAL = ("_wandb", "_runtime", "type")
"""Keys of a row to drop: `_wandb` and `_runtime` are no metrics; `type` is the callback's."""
_INTERRUPTED = 255
"""The exit code that wandb's hook records for a KeyboardInterrupt (wandb/sdk/lib/exit_hooks.py)."""


class WandbReader(FrameReader):
    """Reads the transaction log of one W&B run.

    A record (wandb/proto/wandb_internal.proto) has one of these fields: 2 history; 5 config;
    17 run (with 1 id, 4 config, 8 name, 13 host, 17 start time); 18 exit (with 1 code). An
    item of a history or config has 1 a key, or 2 the parts of a nested key, and 16 the value
    as Python's JSON, with `NaN` and `Infinity`. A history is read like a row of JSON lines.
    `_step` counts calls of `log`, so it is the step only if the rows have no other step.
    """

    name = "W&B"

    def __init__(self) -> None:
        self._has_steps = False

    def records(self, content: bytes, place: RecordPlace) -> list[Record]:
        """The records of one transaction."""
        for tag, value in fields_of(content):
            if not isinstance(value, bytes):
                continue
            if tag == _HISTORY:
                return self._row(_items(value), place)
            if tag == _CONFIG:
                return _run({"config": _items(value)}, place)[1:]
            if tag == _RUN:
                return _run(_run_row(value), place)
            if tag == _EXIT:
                return [_exit(value, place)]
        return []

    @staticmethod
    def time_of(content: bytes) -> float | None:
        """When a row of metrics was logged (Unix seconds); None for other records."""
        value = dict(fields_of(content)).get(_HISTORY)
        return jsonl.unix_time(_items(value).get(_TIME)) if isinstance(value, bytes) else None

    def _row(self, row: dict[str, Any], place: RecordPlace) -> list[Record]:
        for key in _INTERNAL:
            row.pop(key, None)
        calls = row.pop(_CALLS, None)
        found = jsonl.records(row, place)
        self._has_steps |= any(isinstance(each, Sample) and each.step is not None for each in found)
        if self._has_steps or not isinstance(calls, int):
            return found
        step = as_count(calls)
        return [replace(each, step=step) if isinstance(each, Sample) else each for each in found]


def _items(content: bytes) -> dict[str, Any]:
    """The items of a history or config; the parts of a nested key are joined by `/`."""
    found: dict[str, Any] = {}
    for tag, item in fields_of(content):
        if tag != _UPDATE or not isinstance(item, bytes):
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
    """A JSON value, mostly a number; None if nested too deeply. Raises `ValueError` if damaged."""
    try:
        # A seed of 64 bits has 20 digits.
        return int(text) if text.isdigit() and len(text) <= 20 else float(text)
    except ValueError:
        with suppress(RecursionError):
            return jsonl.loads(text.decode())
        return None


def _run_row(content: bytes) -> dict[str, Any]:
    """A run in the form of the callback's `run` row."""
    row: dict[str, Any] = {"config": {}}
    for tag, value in fields_of(content):
        if not isinstance(value, bytes):
            continue
        if tag == _RUN_CONFIG:
            row["config"] = _items(value)
        elif value and tag in _RUN_TEXTS:
            row[_RUN_TEXTS[tag]] = value.decode("utf-8", "replace")
        elif tag == _RUN_START:
            row["time"] = dict(fields_of(value)).get(1)
    return row


def _run(row: dict[str, Any], place: RecordPlace) -> list[Record]:
    row["config"].pop("_wandb", None)
    return jsonl.records({"type": "run", **row}, place)


def _exit(content: bytes, place: RecordPlace) -> Record:
    value = dict(fields_of(content)).get(1)
    code = value if isinstance(value, int) else 0
    code -= 1 << 64 if code >= 1 << 63 else 0  # a negative int32 is a varint of 64 bits
    if code == 0:
        return place.lifecycle("run_finished", "exit code 0")
    fields: dict[str, FieldValue] = {"exitcode": code, "launcher": "wandb"}
    kind, family, role = "elastic_worker_failed", "elastic", "death"
    if code == _INTERRUPTED:
        kind, family, role = "python_exception", "process", "root"
        fields["exc_type"] = "KeyboardInterrupt"
    return place.event(kind, "error", f"exit code {code}", role, fields, family=family)
