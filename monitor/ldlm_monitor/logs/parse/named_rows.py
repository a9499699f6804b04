"""JSON rows in which a text names the quantity, or the split of the data that was measured.

A row of one value has its name beside it: `{"name": "loss", "value": 2.5}`. All other numbers of
such a row are ids, counters and clocks: no quantity. torchtitan's structured logs are of this form
(its `TraceJsonlFormatter`): scalars by `event_name`, and spans, whose `_end` has the milliseconds
that they took.
"""

import re
from typing import Any, Final, TypeAlias

from ldlm_monitor.logs.parse.patterns import number
from ldlm_monitor.logs.parse.vocabulary import EVALUATIONS, MAX_KEY, is_metric, plain

Named: TypeAlias = tuple[str, float]
"""The name of a quantity and its value; the name is "" for a row that has none."""
KIND: Final = "log_type_name"
"""The key by which torchtitan's records are known, and which has a span's name."""
_NO_VALUE: Final[Named] = ("", 0.0)
_NAMES: Final = ("name", "metric", "metric_name", "tag", "key")
_VALUE: Final = "value"
_MODES: Final = frozenset({"phase", "stage", "mode"})
_SPLITS: Final = _MODES | {"split", "subset"}
"""Keys of a text that names the data of a row, such as `val`."""
_STAGES: Final = frozenset({"dev", "test", "testing"})
_EVALUATION: Final = "eval_"
_MAX_TEXT: Final = 64  # characters of a number, or of a split's name
_CLOCK: Final = re.compile(r"time|epoch|second|elapsed|duration|_m?s$")
_UNITS: Final = {"time_us": 1e6, "time_ms": 1e3}
"""Keys of a time that is finer than the row's `time`, and how many of its units are a second."""


def named_value(row: dict[str, Any]) -> Named | None:
    """The one value of a row and its name; None for a row that has its quantities as keys."""
    kind = row.get(KIND)
    if isinstance(kind, str) and "time_us" in row:
        return _recorded(row, kind)
    found = [row[key] for key in _NAMES if isinstance(row.get(key), str)]
    if len(found) != 1 or (value := _number(row.get(_VALUE))) is None:
        return None
    if any(_is_quantity(key, each) for key, each in row.items() if key != _VALUE):
        return None
    return found[0], value


def names_split(row: dict[str, Any], words: frozenset[str]) -> bool:
    """Whether a text of the row names the data that it is about by one of `words`.

    `dev` and `test` may be the stage of a deployment, or its mode, for a whole training.
    """
    texts = ((key, value) for key, value in row.items() if isinstance(value, str))
    named = ((key, plain(value[:_MAX_TEXT])) for key, value in texts if key in _SPLITS)
    return any(word in words and not (key in _MODES and word in _STAGES) for key, word in named)


def of_split(row: dict[str, Any], values: dict[str, float]) -> dict[str, float]:
    """The values by name; those of a row whose split is an evaluation's are `eval_` ones.

    So are none of a row that has them already, or what an update alone has.
    """
    if not names_split(row, EVALUATIONS) or any(map(_is_of_training, values)):
        return values
    return {f"{_EVALUATION}{name}": each for name, each in values.items()}


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


def _is_of_training(name: str) -> bool:
    return name.startswith(_EVALUATION) or name in ("learning_rate", "grad_norm")


def _is_quantity(key: str, value: object) -> bool:
    """Whether a row has a quantity by its key: a known one, or a fraction that is no clock's."""
    fraction = isinstance(value, float) and not value.is_integer()
    return is_metric(key[:MAX_KEY]) or (fraction and not _CLOCK.search(key))


def _number(value: object) -> float | None:
    if isinstance(value, str):
        return number(value[:_MAX_TEXT])
    return float(value) if isinstance(value, int | float) and _is_number(value) else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
