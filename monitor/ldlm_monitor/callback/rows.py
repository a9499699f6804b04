"""Rows of what the loop put: made in the thread that writes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from ldlm_monitor.callback.heartbeat import RankValues
from ldlm_monitor.callback.values import LARGEST, gather, nonfinite, whole

Row: TypeAlias = dict[str, Any]
Entry: TypeAlias = tuple[
    int, float, float | None, float, float | None, dict[str, Any], Any, Any, Any
]
"""A step of the loop: its number; Unix time; monotonic time (None: further values of an earlier
step); seconds spent so far in phases outside of steps, and in waiting for data (None: not
measured); values; samples; tokens; batch."""


class Rows:
    """Makes rows of entries, in their order.

    `every`: steps that it divides get a row, and those with a NaN. `extra` joins the next
    row, once. `latest` is the last row. `alarm` is called when a value was not finite.
    """

    def __init__(self, rank: int, every: int, alarm: Callable[[], None]) -> None:
        self.standing = RankValues()
        self.latest: Row = {}
        self.extra: dict[str, float] = {}
        self.unread = 0
        self._rank = rank
        self._every = every
        self._alarm = alarm
        self._bad: set[str] = set()
        self._last: tuple[int, float, float] | None = None
        self._span = 0.0
        self._data = 0.0
        self._totals = {"samples": 0, "tokens": 0}

    def make(self, entry: Entry) -> list[Row]:
        """The rows of one entry: none, the step's, or an event as well."""
        number, now, at, paused, data, given, samples, tokens, batch = entry
        row: Row = {"type": "step", "step": number, "time": now}
        if batch is not None:
            row["batch"] = whole(batch, -1)
        self.unread += gather(given, row)
        if at is not None:
            self._time(row, at, paused, data)
            self._count(row, samples=samples, tokens=tokens)
        bad = dict(nonfinite(row))
        if not bad and at is not None and number % self._every:
            return []
        if self.extra:
            extra, self.extra = self.extra, {}
            row.update(extra)
        events = [self._event(name, value, row) for name, value in self._new(bad)]
        self._stand(row, bad)
        self.latest = row
        return [*events, row]

    def _time(self, row: Row, at: float, paused: float, data: float | None) -> None:
        """How long the step took, evaluations and checkpoints left out."""
        if self._last is not None and row["step"] > self._last[0]:
            steps = row["step"] - self._last[0]
            seconds = (at - self._last[1] - (paused - self._last[2])) / steps
            row["step_seconds"] = self.standing.step_seconds = seconds
            self._span = seconds * steps
        self._last = row["step"], at, paused
        if data is not None:
            row["data_seconds"], self._data = data - self._data, data

    def _count(self, row: Row, **counts: Any) -> None:
        """Totals and rates of samples and tokens."""
        for name, count in counts.items():
            if count is None:
                continue
            number = whole(count, 0)
            total = self._totals[name] = self._totals[name] + number
            row[f"{name}_total"] = total
            if "step_seconds" in row and self._span > 0:
                row[f"{name}_per_second"] = number / self._span

    def _new(self, bad: dict[str, float]) -> list[tuple[str, float]]:
        """The non-finite values that were finite in the row before."""
        new = [(name, value) for name, value in bad.items() if name not in self._bad]
        self._bad = set(bad)
        if new:
            self._alarm()
        return new

    def _stand(self, row: Row, bad: dict[str, float]) -> None:
        standing = self.standing
        standing.time = row["time"]
        standing.samples_total = float(self._totals["samples"])
        standing.tokens_total = float(self._totals["tokens"])
        standing.loss = _number(row.get("loss"), standing.loss)
        standing.grad_norm = _number(row.get("grad_norm"), standing.grad_norm)
        standing.learning_rate = _number(row.get("learning_rate"), standing.learning_rate)
        if bad and standing.nonfinite == 0:
            standing.nonfinite_step = row["step"]
            standing.nonfinite_quantity = next(iter(bad)).encode()[:48]
        standing.nonfinite += len(bad)

    def _event(self, name: str, value: float, row: Row) -> Row:
        """The event of a value that became non-finite; one until it is finite again."""
        text = spelled(value)
        fields: Row = {"quantity": name, "value": text, "family": "numerics", "role": "root"}
        where = f"step {row['step']}"
        if "batch" in row:
            fields["batch"] = row["batch"]
            where = f"{where}, batch {row['batch']}"
        message = f"{name} is {text} at {where} on rank {self._rank}"
        made = event_row("nonfinite_metric", "error", row["time"], message, fields)
        return made | {"step": row["step"]}


def event_row(kind: str, severity: str, at: float, message: str, fields: Row) -> Row:
    """The row of an event at `at` (Unix seconds)."""
    return {
        "type": "event",
        "kind": kind,
        "severity": severity,
        "time": at,
        "message": message,
        "fields": fields,
    }


def spelled(number: float) -> float | str:
    """A number, or its name where JSON has none, or nobody could read it."""
    if isinstance(number, int):
        if -LARGEST <= number <= LARGEST:
            return number
        number = math.inf if number > 0 else -math.inf
    if math.isfinite(number):
        return float(number)
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise
