"""JSON rows of one value each, whose name is a text beside it: `{"name": "loss", "value": 2.5}`.

All other numbers of such a row are ids, counters and clocks: no quantity. torchtitan's structured
logs are of this form (its `TraceJsonlFormatter`): scalars by `event_name`, and spans, whose `_end`
has the milliseconds that they took.
"""

from typing import Any, Final, TypeAlias

from ldlm_monitor.logs.parse.vocabulary import MAX_KEY, is_metric

Named: TypeAlias = tuple[str, float]
"""The name of a quantity and its value; the name is "" for a row that has none."""
KIND: Final = "log_type_name"
"""The key by which torchtitan's records are known, and which has a span's name."""
_NO_VALUE: Final[Named] = ("", 0.0)
_NAMES: Final = ("name", "metric", "metric_name", "tag", "key")
_VALUE: Final = "value"
_UNITS: Final = {"time_us": 1e6, "time_ms": 1e3}
"""Keys of a time that is finer than the row's `time`, and how many of its units are a second."""


def named_value(row: dict[str, Any]) -> Named | None:
    """The one value of a row and its name; None for a row that has its quantities as keys."""
    kind = row.get(KIND)
    if isinstance(kind, str) and "time_us" in row:
        return _recorded(row, kind)
    if not _is_number(row.get(_VALUE)):
        return None
    found = [row[key] for key in _NAMES if isinstance(row.get(key), str)]
    if len(found) != 1 or any(is_metric(key[:MAX_KEY]) for key in row if key != _VALUE):
        return None
    return found[0], float(row[_VALUE])


def failed(row: dict[str, Any]) -> str | None:
    """What ended a span of torchtitan's with an exception, as text; None for any other row."""
    kind, message = row.get(KIND), row.get("message")
    if not (isinstance(kind, str) and kind.endswith("_error") and isinstance(message, str)):
        return None
    return message.partition(f"{kind}: ")[2] or message


def finest_time(row: dict[str, Any]) -> float | None:
    """Unix seconds of a row by its finest clock; None if `time` is all that it has."""
    units = ((key, unit) for key, unit in _UNITS.items() if _is_number(row.get(key)))
    return next((float(row[key]) / unit for key, unit in units), None)


def _recorded(row: dict[str, Any], kind: str) -> Named:
    name, span = row.get("event_name"), kind.removesuffix("_end")
    if not _is_number(row.get(_VALUE)):
        return _NO_VALUE
    if kind == "metric_value":
        return (name, float(row[_VALUE])) if isinstance(name, str) else _NO_VALUE
    return _NO_VALUE if span == kind else (f"{span}_seconds", float(row[_VALUE]) / 1e3)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
