"""Reads the transaction log of a W&B run: history, configuration and exit code.

The log (`run-ID.wandb`) is `:W&B`, a magic number (u16, little-endian) and a version; then records
in fragments, which fill blocks of 32 KiB. A fragment is the CRC-32 of its kind and content (u32),
the content's length (u16), its kind (whole, or first, middle or last part of a record) and the
content. No fragment crosses the end of a block; a rest too short for a header is padding (wandb's
core/pkg/leveldb; LevelDB's doc/log_format.md, apart from the checksum). Blocks are counted from the
file's start, so reading needs the offset.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from zlib import crc32

from ldlm_monitor.base.framing import Fragment, Frame, Framing
from ldlm_monitor.base.records import FieldValue, Record, Sample, as_count
from ldlm_monitor.logs.parse import jsonl
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.frame_reader import FrameReader, fields_of

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


_HEADER = b":W&B\xe1\xbe\x00"  # the name, the magic number 0xBEE1, version 0
_BLOCK_BYTES = 32 * 1024  # LevelDB's kBlockSize
_MAX_RECORD_BYTES = 1024 * 1024
"""Most bytes of a W&B record (1 MiB). A choice: more cost memory, fewer skip more records than the
huge summaries."""
_FRAGMENT = struct.Struct("<IHB")  # checksum, content's length, kind
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4  # kinds of a fragment (LevelDB's log_format.h)


class Transactions(Framing):
    """W&B's transaction log: records in fragments, in blocks of 32 KiB."""

    name = "wandb"

    def begins(self, head: bytes) -> bool | None:
        """Whether the file's header stands first; None for a part of it."""
        if not _HEADER.startswith(head[: len(_HEADER)]):
            return False
        return True if len(head) >= len(_HEADER) else None

    def frames(self, data: bytes, offset: int = 0, *, ended: bool = True) -> Iterator[Frame]:
        """The complete frames, whether the file has `ended` or not."""
        del ended
        start, at = 0, 0 if offset else len(_HEADER)
        fragments: list[Fragment] = []
        while True:
            room = _BLOCK_BYTES - (offset + at) % _BLOCK_BYTES
            if room < _FRAGMENT.size:
                at += room
                continue
            if at + _FRAGMENT.size > len(data):
                return
            _, size, kind = _FRAGMENT.unpack_from(data, at)
            begin = at + _FRAGMENT.size
            end = begin + size
            known = _WHOLE <= kind <= _LAST and end <= at + room
            if not known:
                end = at + room
            if end > len(data):
                return
            begins = kind in (_WHOLE, _FIRST)
            if known and begins and fragments:  # the record before has no last fragment
                yield Frame(start, at)
                start, fragments = at, []
            if not known or not (begins or fragments):
                yield Frame(start, end)
                start, fragments = end, []
            else:
                # The checksum covers the kind, the byte before the content.
                fragments.append(Fragment(begin, end, begin - 1, at))
                if kind in (_WHOLE, _LAST):
                    yield Frame(start, end, crc32, tuple(fragments))
                    start, fragments = end, []
                elif end - start > _MAX_RECORD_BYTES:
                    yield Frame(start, end)
                    start, fragments = end, []
            at = end


class WandbReader(FrameReader):
    """Reads the transaction log of one W&B run.

    A record (wandb/proto/wandb_internal.proto) has one of these fields: 2 history; 5 config;
    17 run (with 1 id, 4 config, 8 name, 13 host, 17 start time); 18 exit (with 1 code). An
    item of a history or config has 1 a key, or 2 the parts of a nested key, and 16 the value
    as Python's JSON, with `NaN` and `Infinity`. A history is read like a row of JSON lines.
    `_step` counts calls of `log`, so it is the step only if the rows have no other step.
    """

    name = "W&B"
    about = "run-ID.wandb: history, config and exit code, CRC checked"
    framing = Transactions()

    def __init__(self) -> None:
        self._has_steps = False

    @classmethod
    def is_tracker(cls, name: str) -> bool:
        """Whether a file has the suffix of W&B's transaction logs."""
        return name.endswith(".wandb")

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
        return place.made("run completes", "exit code 0")
    fields: dict[str, FieldValue] = {"exitcode": code, "launcher": "wandb"}
    interrupted = code == _INTERRUPTED
    if interrupted:
        fields["exc_type"] = "KeyboardInterrupt"
    return place.made("run fails" if interrupted else "exit code", f"exit code {code}", fields)
