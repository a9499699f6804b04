"""Rows of JSON lines: metrics of any trainer, and the callback's `ldlm.health/1` records.

Rows are decoded by Python's `json`, which accepts the bare `NaN` and `Infinity` that its
`dumps` writes. The callback's rows have a `type` (docs/callback.md).
"""

import json
import math
from datetime import datetime
from itertools import chain
from typing import Any

from ldlm_monitor.base.names import SEVERITIES, Severity
from ldlm_monitor.base.records import (
    FieldValue,
    Heartbeat,
    Record,
    Sample,
    Scalar,
    as_count,
    row_source,
)
from ldlm_monitor.base.text.sanitize import encodable
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.named_rows import Named, failed, finest_time, named_value, of_split
from ldlm_monitor.logs.parse.patterns import number
from ldlm_monitor.logs.parse.vocabulary import (
    MAX_KEY,
    STEP_KEYS,
    counted_key,
    is_known,
    is_metric,
    is_training,
    measure,
    measured_losses,
    plain,
    put,
)

STEPS = (
    "step", "global_step", "iteration", "current_steps", "iter", "num_updates", "global_steps",
    "trainer/global_step", "train/global_step", "_step",
)  # fmt: skip
"""Keys of a row's step, the preferred first; the vocabulary finds further ones."""
TIMES = ("time", "timestamp", "_timestamp")
"""Keys of a row's time, the preferred first; `_timestamp` is W&B's."""
EARLIEST = 9e8  # Unix seconds (1998): a lower `time` counts seconds from some start
LATEST = 1e10  # Unix seconds (2286): a higher `time` has another unit, such as milliseconds
_PEER_IS_GONE = (
    "Connection closed by peer",
    "Connection reset by peer",
    "remote process exited or there was a network error",
)
"""Texts of gloo and NCCL in a rank's exception that mean that another rank ended first."""
# Keys of loggers that write JSON, such as python-json-logger (levelname) and structlog (event).
_LEVELS = ("level", "levelname", "severity", "log_level")
_MESSAGES = ("message", "msg", "event")  # their keys of the text
_ERRORS = frozenset({"error", "critical", "fatal"})  # levels of rows that give an event
_MAX_TEXT = 16 * 1024
"""Characters kept of a text: as many as `tracebacks.MAX_TEXT_BYTES`, so that a traceback fits."""
_MAX_ITEMS = 512
"""Values kept of a row, items of a field. A choice: known rows have up to 300, more take memory."""
_SUMMARY = "train_runtime"
"""A key of the last row of transformers' Trainer, whose `train_loss` is the mean over the run."""
_MAX_NUMBER = 64
"""Texts this long are no numbers. A choice: `tensor(1.5, device='cuda:0')` has 28, more is slow."""
# Types of the callback's rows; a row with another `type` is one of any trainer.
_TYPES = frozenset({"run", "step", "heartbeat", "event", "stack_dump", "end"})


class BadRowError(ValueError):
    """A line that is not a JSON object, or a record of the callback that lacks a field."""


def decode(text: bytes) -> dict[str, Any]:
    """The JSON object on one line. Raises `BadRowError`."""
    try:
        value = loads(text.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError) as error:
        raise BadRowError(str(error)) from error
    if not isinstance(value, dict):
        raise BadRowError("not an object")
    return value


def loads(text: str) -> Any:
    """A JSON value. Raises `ValueError`, and `RecursionError` for one that is nested too deeply."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of more than 4300 digits, which Python does not convert
        value = json.loads(text, parse_int=float)
    if "\\ud" in text or "\\uD" in text:  # replaces lone surrogates, which UTF-8 cannot encode
        value = json.loads(encodable(json.dumps(value, ensure_ascii=False)))
    return value


def records(row: dict[str, Any], place: RecordPlace) -> list[Record]:
    """The records of one row. Raises `BadRowError` for a heartbeat or event that lacks a field."""
    kind = row.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        return _health(kind, row, place)
    if (named := named_value(row)) is not None:
        return _named(row, named, place)
    return _row(row, place)


def _named(row: dict[str, Any], named: Named, place: RecordPlace) -> list[Record]:
    """The one value of a row, or that a span of it failed, at the row's step, rank and time."""
    row = dict(row)
    time = unix_time(finest_time(row)) or _first(row, TIMES, unix_time)
    place = place.known(_first(row, ("rank",), _whole), time)
    if (failure := failed(row)) is not None:
        return [place.made("run fails", failure[:_MAX_TEXT])]
    name, value = named
    if not name:
        return []
    values: dict[str, float] = {}
    put(values, name[:MAX_KEY], value)
    step, epoch = _first(row, STEPS, _whole), _first(row, ("epoch",), _real)
    return [place.sample(of_split(row, values), step, epoch, row_source(place.path))]


def training_row(text: bytes, place: RecordPlace) -> list[Record]:
    """The records of a JSON object in a text log; empty for other text and for mere settings.

    An object may stand in an array, before a comma. One of several rows is a document's.
    """
    try:
        row = decode(text.rstrip(b", \r"))
        several = any(isinstance(each, dict) and counted_key(key) for key, each in row.items())
        rows = [] if several else records(row, place)
    except BadRowError:
        return []
    if all(isinstance(each, Sample) and each.step is None for each in rows):
        found = [each for each in rows if isinstance(each, Sample) and is_training(each.values)]
        return [] if names_loss(row) else [*found]
    return rows


def names_loss(row: dict[str, Any]) -> bool:
    """Whether a row, or an object in it, has a kind of loss, as settings do: `"loss": "mse"`."""
    inner = (part for value in row.values() if isinstance(value, dict) for part in value.items())
    return any(
        isinstance(value, str)
        and "loss" in plain(key[:MAX_KEY]).split("_")
        and number(value[:_MAX_NUMBER]) is None
        for key, value in chain(row.items(), inner)
    )


def metrics(row: dict[str, Any], place: RecordPlace) -> Sample | None:
    """The sample of a row of metrics; None for a row of anything else."""
    row = dict(row)
    if _SUMMARY in row and "train_loss" in row:
        row["loss_mean"] = row.pop("train_loss")
    step = _first(row, STEPS, _whole)
    if step is None:
        step = _first(row, tuple(key for key in row if plain(key[:MAX_KEY]) in STEP_KEYS), _whole)
    values: dict[str, float] = {}
    if step is None:
        step = _of_total(row, values)
    time = _first(row, TIMES, unix_time)
    epoch = _first(row, ("epoch",), _real)
    rank = _first(row, ("rank",), _whole)
    for key, value in row.items():
        if value.__class__ is float:
            put(values, key[:MAX_KEY], value)
        elif isinstance(value, dict):
            for inner, part in list(value.items())[:_MAX_ITEMS]:
                _add(values, f"{key}_{inner}", part)
        else:
            _add(values, key, value)
        if len(values) >= _MAX_ITEMS:
            break
    for name, loss in measured_losses(values).items():
        values[loss] = values.pop(name)
    # A loss that is null or a word takes no step away.
    if not values and (step is None or not any(is_metric(key[:MAX_KEY]) for key in row)):
        return None
    values = of_split(row, values)
    return place.known(rank, time).sample(values, step, epoch, row_source(place.path))


def _row(row: dict[str, Any], place: RecordPlace) -> list[Record]:
    sample = metrics(row, place)
    return _logged(row, place) if sample is None else [sample]


def _of_total(row: dict[str, Any], values: dict[str, float]) -> int | None:
    """The step of a text with the total, as in `"global_step/max_steps": "160/438"`."""
    for key, value in row.items():
        if isinstance(value, str) and plain(key[:MAX_KEY].partition("/")[0]) in STEP_KEYS:
            step, _, total = value[:_MAX_NUMBER].partition("/")
            if step.strip().isdecimal() and total.strip().isdecimal():
                values["total_steps"] = float(total)
                return int(step)
    return None


def _logged(row: dict[str, Any], place: RecordPlace) -> list[Record]:
    row = dict(row)
    time = _first(row, TIMES, unix_time)
    place = place.known(_first(row, ("rank",), _whole), time)
    level = next((row[key] for key in _LEVELS if isinstance(row.get(key), str)), "")
    message = next((row[key] for key in _MESSAGES if isinstance(row.get(key), str)), "")
    if level.lower() not in _ERRORS or not message:
        return []
    return [place.made("error", message[:_MAX_TEXT])]


def _add(values: dict[str, float], key: str, value: object) -> None:
    if isinstance(value, float):
        put(values, key[:MAX_KEY], value)
    elif isinstance(value, int) and not isinstance(value, bool):
        put(values, key[:MAX_KEY], _float(value))
    elif isinstance(value, str) and len(value) < _MAX_NUMBER:
        read = number(value) if is_known(measure(key[:MAX_KEY]).name) else None
        if read is not None:
            put(values, key[:MAX_KEY], read)


def _health(kind: str, row: dict[str, Any], place: RecordPlace) -> list[Record]:
    rest = {key: value for key, value in row.items() if key not in ("type", "schema")}
    if kind == "step":
        return _row(rest, place)
    place = place.known(_first(rest, ("rank",), _whole), _first(rest, TIMES, unix_time))
    if kind == "heartbeat":
        return [_heartbeat(rest, place)]
    if kind == "run":
        return _run(rest, place)
    if kind == "end":
        return _end(rest, place)
    if kind == "stack_dump":
        return [place.made("stacks", "stack dump", _fields(rest))]
    return _event(rest, place)


def _run(row: dict[str, Any], place: RecordPlace) -> list[Record]:
    config = row.pop("config", None)
    message = f"run {row.get('run', '')} started"
    found: list[Record] = [place.made("run begins", message, _fields(row))]
    if isinstance(config, dict) and config:
        found.append(place.made("settings", "config", _fields(config)))
    return found


def _end(row: dict[str, Any], place: RecordPlace) -> list[Record]:
    fields = _fields(row)
    if row.get("status") == "finished":
        return [place.made("run completes", "finished", fields)]
    message = _text(row.get("error")) or "the run failed"
    # A consequence of something else: a signal was sent, or another rank closed the connection.
    followed = "signal" in row or any(words in message for words in _PEER_IS_GONE)
    return [place.made("peer's failure" if followed else "run fails", message, fields)]


def _event(row: dict[str, Any], place: RecordPlace) -> list[Record]:
    kind = row.pop("kind", None)
    severity = row.pop("severity", "info")
    if not isinstance(kind, str) or not kind:
        raise BadRowError("an event lacks its kind")
    level: Severity = severity if severity in SEVERITIES else "info"
    message = _text(row.pop("message", "")) or kind
    inner = row.pop("fields", None)
    fields = _fields({**row, **(inner if isinstance(inner, dict) else {})})
    family = str(fields.pop("family", "process"))
    role = str(fields.pop("role", "context"))
    return [place.event(kind[:MAX_KEY], level, message, role, fields, family=family)]


def _heartbeat(row: dict[str, Any], place: RecordPlace) -> Heartbeat:
    pid, step = _whole(row.get("pid")), _whole(row.get("step"))
    if place.rank is None or place.time is None or pid is None or step is None:
        raise BadRowError("a heartbeat lacks rank, time, pid or step")
    return Heartbeat(
        run=place.origin.run,
        rank=place.rank,
        host=_text(row.get("host")),
        pid=pid,
        step=step,
        phase=_text(row.get("phase")),
        time=place.time,
        position=place.position,
    )


def _first(row: dict[str, Any], keys: tuple[str, ...], read: Any) -> Any:
    """Remove the first key whose value `read` accepts, and return what `read` gave; else None."""
    for key in keys:
        value = read(row[key]) if key in row else None
        if value is not None:
            del row[key]
            return value
    return None


def unix_time(value: object) -> float | None:
    """Unix seconds of a number or ISO time with a zone; None if not from `EARLIEST` to `LATEST`."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        value = moment.timestamp() if moment.tzinfo else None
    seconds = _real(value)
    return seconds if seconds is not None and EARLIEST <= seconds <= LATEST else None


def _real(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _float(value)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _whole(value: object) -> int | None:
    real = _real(value)
    return None if real is None else as_count(real)


def _text(value: object) -> str:
    return "" if value is None else str(value)[:_MAX_TEXT]


def _fields(row: dict[str, Any]) -> dict[str, FieldValue]:
    """An event's fields: scalars, flat lists and objects, and lists of these stay.

    Other values become JSON.
    """
    return {key[:MAX_KEY]: _field(value) for key, value in list(row.items())[:_MAX_ITEMS]}


def _field(value: Any) -> FieldValue:
    if isinstance(value, list) and all(map(_is_scalar, value)):
        return [_cut(part) for part in value[:_MAX_ITEMS]]
    if isinstance(value, list) and all(map(_is_flat, value)):
        return [_flat(part) for part in value[:_MAX_ITEMS]]
    if _is_flat(value):
        return _flat(value)
    return _cut(value) if _is_scalar(value) else _text(json.dumps(value))


def _is_flat(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_scalar, value.values()))


def _flat(value: dict[str, Any]) -> dict[str, Scalar]:
    return {key[:MAX_KEY]: _cut(part) for key, part in list(value.items())[:_MAX_ITEMS]}


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _cut(value: Scalar) -> Scalar:
    return value[:_MAX_TEXT] if isinstance(value, str) else value
