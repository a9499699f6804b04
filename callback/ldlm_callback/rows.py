"""Reads the values of steps in the loop, and makes rows of them in the writer's thread."""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ldlm_callback.batches import Spikes, said
from ldlm_callback.checksums import take
from ldlm_callback.device import host_number, is_elsewhere, is_late, is_tensor, local_value
from ldlm_callback.gradients import NORM, course

MAX_NAME = 128
"""Characters of a name; longer ones are cut. With `MAX_VALUES`, a row stays below 64 KiB."""
MAX_VALUES = 256
"""Most values in a row; others are dropped. A model's blocks give some hundred gradient norms."""
LARGEST_FLOAT = 2**1023  # of whole numbers that are floats
LARGEST = 2**63
"""Bound of whole numbers, as in 64 bits: larger ones count no steps, samples or tokens."""
_PLAIN = frozenset({float, int, bool, str, type(None)})
"""Immutable kinds of values, which are kept as they are."""
_UNREADABLE = object()  # replaces a tensor that has no one value on this rank
_FIRST = dict.fromkeys(("epoch", "loss", "grad_norm", "learning_rate"))
"""Values that begin a row; None: not given. Of too many, the last are dropped."""
_OWN = frozenset({"type", "schema", "time", "rank", "run"})
"""Keys of a row that the callback sets, so values of these names are dropped."""
Row: TypeAlias = dict[str, Any]
Entry: TypeAlias = tuple[
    int, float, float | None, float, float | None, dict[str, Any], Any, Any, Any, Any
]
"""A step of the loop: its number; Unix time; monotonic time (None: these are more values of an
earlier step); seconds spent so far in phases outside of steps, and in waiting for data (None: not
measured); values; samples; tokens; batch; the names of the batch's rows."""


class Rows:
    """Makes rows of entries, in their order.

    `every`: a step gets a row if its number is a multiple of this, or if a loss or gradient norm
    is not finite; `alarm` is called when one becomes so. Checksums become an event, and so do the
    names of the batch's rows at a step whose loss spikes or becomes non-finite. `extra` is added
    to the next row only. `latest` is the last row. `unread` counts dropped values, of which `say`
    gets the first one's name and type.
    """

    def __init__(
        self,
        rank: int,
        every: int,
        alarm: Callable[[], None],
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.latest: Row = {}
        self.extra: dict[str, float] = {}
        self.unread = 0
        self._rank = rank
        self._every = every
        self._alarm = alarm
        self._say = say
        self._bad: set[str] = set()
        self._spikes = Spikes()
        self._last: tuple[int, float, float] | None = None
        self._span = 0.0
        self._data = 0.0
        self._totals = {"samples": 0, "tokens": 0}

    def make(self, entry: Entry) -> list[Row]:
        """The rows of one entry: none, the step's, or also events of newly non-finite values."""
        number, now, at, paused, data, given, samples, tokens, batch, ids = entry
        events = self._checks(take(given), now, number)
        row: Row = {"type": "step", "step": number, "time": now}
        if batch is not None:
            row["batch"] = whole(batch, -1)
        if dropped := gather(_FIRST | given, row):
            self._note_unread(dropped[0], given)
            self.unread += len(dropped)
        if at is not None:
            self._time(row, at, paused, data)
            self._count(row, samples=samples, tokens=tokens)
        bad = nonfinite(row)
        new = [name for name in bad if name not in self._bad]
        events += (self._event(name, row) for name in _without_groups(new, row))
        if (self._spikes.observe(row.get("loss")) or new) and ids is not None:
            events += self._batch(ids, row)
        if not bad and at is not None and number % self._every:
            return events
        if self.extra:
            extra, self.extra = self.extra, {}
            row.update(extra)
        # A row without a value does not show that it is finite again.
        self._bad = {name for name in self._bad if name not in row}.union(bad)
        self.latest = row
        if new:
            self._alarm()
        return [*events, row]

    def _note_unread(self, name: str, given: Mapping[str, Any]) -> None:
        """Say once which value is in no row, and why."""
        if self.unread:
            return
        value = given[name]
        why = (
            f"is of the type {type(value).__module__}.{type(value).__qualname__}: no single number"
        )
        if value is _UNREADABLE:
            why = "is a tensor of several elements, or not whole on this rank"
        elif name in _OWN or type(value) in _PLAIN:
            why = "has a name of the callback's own, or is one of too many"
        self._say(f"{name[:MAX_NAME]} {why}; it is in no row, nor are others like it")

    def _checks(self, checksums: Mapping[str, str], now: float, step: int) -> list[Row]:
        """The event of a step's checksums, if it has any."""
        if not checksums:
            return []
        fields = {"checksums": checksums, "family": "numerics", "role": "context"}
        message = f"checksums of rank {self._rank}"
        more: Row = {"fields": fields, "time": now, "step": step}
        return [event_row("replica_checksum", "info", message, **more)]

    def _time(self, row: Row, at: float, paused: float, data: float | None) -> None:
        """Add the seconds of a step (less phases outside of steps), and of waiting for its data."""
        if self._last is not None and row["step"] > self._last[0]:
            steps = row["step"] - self._last[0]
            seconds = (at - self._last[1] - (paused - self._last[2])) / steps
            row["step_seconds"] = seconds
            self._span = seconds * steps
        self._last = row["step"], at, paused
        if data is not None:
            row["data_seconds"], self._data = data - self._data, data

    def _count(self, row: Row, **counts: Any) -> None:
        for name, count in counts.items():
            if count is None:
                continue
            number = whole(count, 0)
            total = self._totals[name] = self._totals[name] + number
            row[f"{name}_total"] = total
            if "step_seconds" in row and self._span > 0:
                row[f"{name}_per_second"] = number / self._span

    def _event(self, name: str, row: Row) -> Row:
        text = spelled(row[name])
        fields: Row = {"quantity": name, "value": text, "family": "numerics", "role": "root"}
        where = f"step {row['step']}"
        if "batch" in row:
            fields["batch"] = row["batch"]
            where = f"{where}, batch {row['batch']}"
        message = f"{name} is {text} at {where} on rank {self._rank}"
        if name.startswith(NORM):
            message = f"{message}: {course(row)}"
        at = {"time": row["time"], "step": row["step"]}
        return event_row("nonfinite_metric", "error", message, fields=fields, **at)

    def _batch(self, ids: Any, row: Row) -> list[Row]:
        """The event with the names of a batch's rows; none if they cannot be read."""
        names, text = said(ids)
        if not names:
            self.unread += 1
            return []
        at = {"time": row["time"], "step": row["step"]}
        fields = {"batch_ids": names, "family": "numerics", "role": "evidence"}
        loss = spelled(row.get("loss", math.nan))
        message = f"the batch of step {row['step']} on rank {self._rank} (loss {loss}): {text}"
        return [event_row("batch_ids", "warning", message, fields=fields, **at)]


def _without_groups(new: list[str], row: Row) -> list[str]:
    """The names, but of groups of parameters only that to which the backward pass comes first."""
    groups = [name for name in row if name.startswith(NORM) and name in new]
    return [name for name in new if name not in groups[:-1]]


def event_row(kind: str, severity: str, message: str, **more: Any) -> Row:
    """The row of an event; `more`: its `fields`, `time` (Unix seconds) and `step`."""
    return {"type": "event", "kind": kind, "severity": severity, "message": message, **more}


def spelled(number: float) -> float | str:
    """Number for JSON: NaN and infinities as strings, integers beyond ±`LARGEST` as infinite."""
    if isinstance(number, int):
        if -LARGEST <= number <= LARGEST:
            return number
        number = math.inf if number > 0 else -math.inf
    if math.isfinite(number):
        return float(number)
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def snapshot(given: dict[str, Any]) -> dict[str, Any]:
    """Replace what is in host memory by its number; remove and return what is on a device.

    Reading host memory does not wait: tensors, NumPy's arrays of one element, and whatever has
    `__float__`, now, since it may change. What has no number stays, and `gather` drops it.
    One level of mappings is flattened: `losses={"text": x}` becomes `losses_text`.
    """
    on_device: dict[str, Any] = {}
    for name, value in list(given.items()):
        if type(value) in _PLAIN:
            continue
        parts = {name: value}
        if isinstance(value, Mapping) and not is_tensor(value):
            del given[name]
            parts = {f"{name}_{inner}": part for inner, part in value.items()}
            given.update(parts)
        for flat, part in parts.items():
            if type(part) not in _PLAIN:
                _snap(given, flat, part, on_device)
    return on_device


def gather(given: Mapping[str, Any], row: dict[str, Any]) -> list[str]:
    """Put numbers into the row; returns the names of values dropped, as no numbers or too many."""
    dropped: list[str] = []
    for key, value in given.items():
        if value is None:
            continue
        name = key[:MAX_NAME]
        kind = type(value)
        if name in _OWN or len(row) >= MAX_VALUES:
            dropped.append(key)
        elif kind is float or kind is bool or (kind is int and -LARGEST <= value <= LARGEST):
            row[name] = value
        elif kind is int and abs(value) < LARGEST_FLOAT:
            row[name] = float(value)
        else:
            dropped.append(key)
    return dropped


def whole(value: Any, otherwise: int) -> int:
    """A whole number; `otherwise` if it is not one, or if reading it could wait for a device."""
    if type(value) is int:
        return value if -LARGEST <= value <= LARGEST else otherwise
    if value is None:
        return otherwise
    try:
        if is_late(value):
            return int(value) if value.is_ready() else otherwise
        if is_tensor(value):
            return int(host_number(value)) if value.is_cpu else otherwise
        return operator.index(value)
    except Exception:  # noqa: BLE001 its methods may run any code
        return otherwise


def nonfinite(row: Mapping[str, Any]) -> dict[str, float]:
    """Losses and gradient norms that are NaN or infinite; other values, as accuracies, may be."""
    return {
        name: value
        for name, value in row.items()
        if type(value) is float
        and not math.isfinite(value)
        and (name.startswith(("loss", "grad_norm")) or name.endswith("loss"))
    }


def _snap(given: dict[str, Any], name: str, value: Any, on_device: dict[str, Any]) -> None:
    """Read one value, or move it to `on_device`; one that raises stays, and costs no other."""
    try:
        if is_tensor(value):
            local = local_value(value)
            is_here = local is not None and local.is_cpu
            given[name] = host_number(local) if is_here else _UNREADABLE
            if local is not None and not is_here:
                on_device[name] = local
                del given[name]
        elif is_late(value):
            on_device[name] = value
            del given[name]
        elif not (is_elsewhere(value) or isinstance(value, str | bytes | bytearray)):
            given[name] = float(value.item() if getattr(value, "size", None) == 1 else value)
    except Exception:  # noqa: BLE001 its methods may run any code
        return
