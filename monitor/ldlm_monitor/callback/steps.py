"""One rank's steps: what each row says, and what the heartbeat does."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ldlm_monitor.callback.device import Copy, DeviceCopies, is_capturing
from ldlm_monitor.callback.heartbeat import Beat
from ldlm_monitor.callback.values import (
    gather,
    gradient_norms,
    nonfinite,
    parameter_groups,
    whole,
)
from ldlm_monitor.callback.writer import Row, spelled

STEP_PHASES = frozenset({"train", "data", "forward", "backward", "optimizer"})
"""Parts of a step; time in any other phase is no part of `step_seconds`."""
_ANNOUNCED = {
    "eval": ("eval_started", "eval_finished", "eval_finished"),
    "checkpoint": ("checkpoint_started", "checkpoint_saved", "checkpoint_failed"),
}
"""Events at the begin of a phase, at its end, and where it ended with an exception."""
_ALIASES = {"evaluation": "eval", "validation": "eval", "evaluate": "eval", "save": "checkpoint"}
_IDLE_SECONDS = 2.0


class Entered(NamedTuple):
    """A phase that began: the one around it, since when, and when this one began (monotonic)."""

    phase: str
    outer: str
    outer_since: float
    began: float


class Steps:
    """Turns calls from the loop into rows (`put`) and beats (`tell`), in the loop's own thread.

    `latest` is the last row that is complete. `extra` joins the next row, once.
    """

    def __init__(
        self,
        put: Callable[[Row], None],
        tell: Callable[[Beat], None],
        identity: Mapping[str, Any],
        every: int,
    ) -> None:
        self.beat = Beat(phase_since=time.time())
        self.latest: Row = {}
        self.extra: dict[str, float] = {}
        self.unread = 0
        self._put = put
        self._tell = tell
        self._identity = identity
        self._every = every
        self._groups: dict[str, list[Any]] = {}
        self._groups_every = 1
        self._suspicious = False
        self._bad: set[str] = set()
        self._stepped_at: float | None = None
        self._paused = 0.0
        self._data: float | None = None
        self._samples: int | None = None
        self._tokens: int | None = None
        self._copies: dict[Any, DeviceCopies | None] = {}
        self._waiting: deque[tuple[Row, list[tuple[list[str], Copy]]]] = deque()
        self._settling = threading.Lock()

    def step(
        self,
        step: Any,
        given: Mapping[str, Any],
        *,
        samples: Any,
        tokens: Any,
        batch: Any,
    ) -> None:
        """A step is done, now."""
        now, at = time.time(), time.monotonic()
        beat = self.beat
        number = whole(step, beat.step + 1)
        row: Row = {"type": "step", "step": number, "time": now}
        on_device: dict[str, Any] = {}
        if batch is not None:
            row["batch"] = beat.batch = whole(batch, -1)
        self.unread += gather(given, row, on_device)
        if self._groups and (self._suspicious or number % self._groups_every == 0):
            self._suspicious = False
            norms = gradient_norms(sys.modules["torch"], self._groups)
            self.unread += gather(norms, row, on_device)
        self._account(row, at, number - beat.step, samples, tokens)
        beat.step, beat.time, beat.monotonic = number, now, at
        beat.steps += 1
        if beat.phase not in _STEP_PHASES:
            beat.phase, beat.phase_since = b"train", now
        self._file(row, on_device, due=number % self._every == 0)
        self._tell(beat)

    def tell_values(self, given: Mapping[str, Any]) -> None:
        """More is known of the last step."""
        row: Row = {"type": "step", "step": max(self.beat.step, 0), "time": time.time()}
        on_device: dict[str, Any] = {}
        self.unread += gather(given, row, on_device)
        self._file(row, on_device, due=True)

    def enter(self, phase: str) -> Entered:
        """A phase begins; what `leave` needs to know."""
        phase = _ALIASES.get(phase, phase)
        outer = self.beat.phase.decode(errors="replace")
        before = Entered(phase, outer, self.beat.phase_since, time.monotonic())
        self._be_in(phase, time.time())
        self.settle()
        if phase in _ANNOUNCED:
            self.event(_ANNOUNCED[phase][0], phase, "info", {"family": "progress"})
        return before

    def leave(self, entered: Entered, error: BaseException | None) -> None:
        """The phase is over."""
        phase, outer, since, began = entered
        spent = time.monotonic() - began
        if phase == "data" and outer in (*STEP_PHASES, "init"):
            self._data = (self._data or 0.0) + spent
        elif phase not in STEP_PHASES and outer in (*STEP_PHASES, "init"):
            self._paused += spent
        if phase in _ANNOUNCED:
            kind = _ANNOUNCED[phase][1 if error is None else 2]
            severity = "error" if kind == "checkpoint_failed" else "info"
            message = phase if error is None else f"{phase}: {type(error).__name__}"
            self.event(kind, message, severity, {"family": "progress", "seconds": spent})
        self._be_in(outer, since)

    def event(self, kind: str, message: str, severity: str, fields: Mapping[str, Any]) -> None:
        """Something happened, now."""
        self._put(
            {
                "type": "event",
                "kind": str(kind),
                "severity": severity,
                "time": time.time(),
                "step": self.beat.step,
                "message": str(message),
                "fields": dict(fields),
            }
        )

    def watch(self, parameters: Any, every: int) -> None:
        """Also tell gradient norms by group."""
        self._groups = parameter_groups(parameters)
        self._groups_every = max(int(every), 1)

    def settle(self, *, wait: float = 0.0) -> None:
        """Complete the rows whose values came by now, or within `wait` seconds."""
        if not self._settling.acquire(blocking=False):
            return
        try:
            until = time.monotonic() + wait
            while self._waiting:
                if self._arrived(Copy.read):
                    continue
                if time.monotonic() >= until:
                    break
                time.sleep(0.001)
        finally:
            self._settling.release()

    def settle_idle(self) -> None:
        """The same from another thread, where the loop has not come by for a while."""
        quiet = time.monotonic() - self.beat.monotonic >= _IDLE_SECONDS
        if not self._waiting or not quiet or not self._settling.acquire(blocking=False):
            return
        try:
            while self._waiting and self._arrived(Copy.peek):
                pass
        finally:
            self._settling.release()

    def give_up(self) -> None:
        """Complete the rows that wait, without the values that did not come."""
        while self._waiting:
            row, copies = self._waiting.popleft()
            self.unread += sum(len(names) for names, _ in copies)
            self._complete(row)

    def _arrived(self, read: Callable[[Copy], list[float] | None]) -> bool:
        """Complete the oldest row if all of its values are there."""
        row, copies = self._waiting[0]
        while copies:
            names, copy = copies[-1]
            values = read(copy)
            if values is None:
                return False
            row.update(zip(names, values, strict=True))
            copies.pop()
        self._waiting.popleft()
        self._complete(row)
        return True

    def _file(self, row: Row, on_device: dict[str, Any], *, due: bool) -> None:
        """Put the row behind those that wait for values; one that is not due only for a NaN."""
        if self._waiting:
            self.settle()
        if due and on_device:
            self._waiting.append((row, self._send(on_device)))
        elif due or any(True for _ in nonfinite(row)):
            if self._waiting:
                self._waiting.append((row, []))
            else:
                self._complete(row)

    def _send(self, on_device: dict[str, Any]) -> list[tuple[list[str], Copy]]:
        if is_capturing():
            self.unread += len(on_device)
            return []
        by_device: dict[Any, list[str]] = {}
        for name, tensor in on_device.items():
            by_device.setdefault(tensor.device, []).append(name)
        sent = []
        for device, names in by_device.items():
            copy = self._start_copy(device, [on_device[name] for name in names])
            if copy is None:
                self.unread += len(names)
            else:
                sent.append((names, copy))
        return sent

    def _start_copy(self, device: Any, tensors: list[Any]) -> Copy | None:
        """None where too much is under way, or nothing can be copied from that kind of device."""
        try:
            if device not in self._copies:
                self._copies[device] = None
                self._copies[device] = DeviceCopies(device)
            copies = self._copies[device]
            return None if copies is None else copies.start(tensors)
        except Exception:  # noqa: BLE001 the row is told without these values
            self._copies[device] = None
            return None

    def _account(self, row: Row, at: float, advanced: int, samples: Any, tokens: Any) -> None:
        """Times and totals of the step."""
        beat = self.beat
        seconds = math.nan
        if self._stepped_at is not None and advanced > 0:
            seconds = (at - self._stepped_at - self._paused) / advanced
            row["step_seconds"] = beat.step_seconds = seconds
        self._stepped_at, self._paused = at, 0.0
        if self._data is not None:
            row["data_seconds"], self._data = self._data, 0.0
        for name, told, total in (
            ("samples", samples, beat.samples_total),
            ("tokens", tokens, beat.tokens_total),
        ):
            if told is None:
                continue
            count = whole(told, 0)
            row[f"{name}_total"] = total + count
            setattr(beat, f"{name}_total", total + count)
            if seconds > 0:
                row[f"{name}_per_second"] = count / (seconds * max(advanced, 1))
        if self.extra:
            extra, self.extra = self.extra, {}
            row.update(extra)

    def _complete(self, row: Row) -> None:
        """All that is known of a step is in its row."""
        beat, step = self.beat, row["step"]
        beat.loss = _number(row.get("loss"), beat.loss)
        beat.grad_norm = _number(row.get("grad_norm"), beat.grad_norm)
        beat.learning_rate = _number(row.get("learning_rate"), beat.learning_rate)
        bad: set[str] = set()
        for name, value in nonfinite(row):
            bad.add(name)
            if beat.nonfinite == 0:
                beat.nonfinite_step = step
                beat.nonfinite_quantity = name.encode()[:48]
            beat.nonfinite += 1
            if name not in self._bad:
                self._tell_of_nonfinite(name, value, row)
        self._bad = bad
        self._put(row)
        self.latest = row

    def _tell_of_nonfinite(self, name: str, value: float, row: Row) -> None:
        """Once, until the value is finite again."""
        self._suspicious = True
        batch = row.get("batch")
        where = f"step {row['step']}" + ("" if batch is None else f", batch {batch}")
        told, rank = spelled(value), self._identity["rank"]
        fields = {"quantity": name, "value": told, "family": "numerics", "role": "root"}
        if batch is not None:
            fields["batch"] = batch
        self._put(
            {
                "type": "event",
                "kind": "nonfinite_metric",
                "severity": "error",
                "time": row["time"],
                "step": row["step"],
                "message": f"{name} is {told} at {where} on rank {rank}",
                "fields": fields,
            }
        )

    def _be_in(self, phase: str, since: float) -> None:
        beat = self.beat
        beat.phase, beat.phase_since = phase.encode()[:32], since
        beat.time, beat.monotonic = time.time(), time.monotonic()
        self._tell(beat)
        if phase not in STEP_PHASES:
            self._put(
                {
                    "type": "heartbeat",
                    "time": beat.time,
                    "step": max(beat.step, 0),
                    "phase": phase,
                    **self._identity,
                }
            )


_STEP_PHASES = frozenset(phase.encode() for phase in STEP_PHASES)


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise
