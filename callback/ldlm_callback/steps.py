"""One rank's steps, in the loop's thread: stores a beat and passes an entry to the writer."""

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic, sleep, time
from typing import Any, TypeAlias

from ldlm_callback.checksums import Checked
from ldlm_callback.device import SLOTS, WIDTH, DeviceCopies, LateArrays, is_capturing, is_tensor
from ldlm_callback.gradients import gradient_window, parameter_groups
from ldlm_callback.rank import Beat, HeartbeatPage
from ldlm_callback.rows import Entry, Row, event_row, snapshot, whole
from ldlm_callback.stop_request import Stopping

STEP_PHASES = frozenset({"train", "data", "forward", "backward", "optimizer"})
"""Phases that are parts of a step; time in any other phase is not in `step_seconds`."""
_ANNOUNCED = {
    "eval": ("eval_started", "eval_finished", "eval_finished"),
    "checkpoint": ("checkpoint_started", "checkpoint_saved", "checkpoint_failed"),
}
"""By phase: the kinds of its events at its begin, at its end, and at its end by an exception."""
_IDLE_SECONDS = 0.3
"""Seconds without a call of the loop after which the writer's thread passes on values that have
arrived. A choice: most steps are shorter, so the loop does that itself."""
_Sent: TypeAlias = tuple[list[str], DeviceCopies | LateArrays, int]
"""Names of values that are under way, the copies of their device, the slot where they arrive."""


@dataclass(eq=False)
class Steps:
    """Takes the loop's calls: stores a beat, and passes on what becomes rows (`put`).

    Work that takes time is done by the writer's thread. Values on a device are copied only
    for steps that are multiples of `every`. `identity`: rank, host and pid, for heartbeat rows.
    `is_live`: False after the end and in a forked child. `suspicious`: a value was not finite, so
    the next step measures gradient norms. `page`: the heartbeat's, once there is one. `clock`: what
    monotonic time is short of Unix time. `unread` counts lost values.
    `stopping`: where the loop is to stop.
    `hurry` is called where rows should be written now: at the first loss that is not finite, and
    when values of the last step arrive while the loop makes no call. `queue`: takes entries too,
    while it has fewer than `room`.
    """

    put: Callable[[Entry | Row], None]
    identity: Mapping[str, Any]
    every: int = 1
    hurry: Callable[[], None] = lambda: None
    queue: deque[Row | Entry] = field(default_factory=deque)
    room: int = 0

    def __post_init__(self) -> None:
        self.is_live = True
        self.page: HeartbeatPage | None = None
        self.clock = time() - monotonic()
        self.suspicious = False
        self.beat = Beat(phase_since=time())
        self.unread = 0
        self.stopping = Stopping()
        self._came_at = 0.0
        self._hurried_at = -math.inf
        self._watches = False
        self._tensor: Any = None
        self._groups: dict[str, list[Any]] = {}
        self._groups_every = 1
        self._checked: Checked | None = None
        self._phases: list[tuple[str, str, float, float]] = []
        self._is_outside = True
        self._paused = 0.0
        self._data: float | None = None
        self._copies: dict[Any, DeviceCopies | None] = {}
        self._waiting: deque[tuple[Entry, list[_Sent]]] = deque()
        self._settling = threading.Lock()

    def step(
        self,
        step: Any,
        given: dict[str, Any],
        samples: Any = None,
        tokens: Any = None,
        batch: Any = None,
        *,
        ids: Any = None,
    ) -> None:
        """Take a step that is done now; `given`, its values by name, is changed and kept.

        What few steps need stands in other methods: each line has to be fetched from memory again.
        """
        number = step if type(step) is int else whole(step, self.beat.step + 1)
        checks = self._watches and self._measure(number, given)
        on_device, tensor = None, self._tensor
        try:
            for name, value in given.items():
                kind = type(value)
                if kind is float or kind is int or value is None:
                    continue
                if kind is not tensor or not value.is_cpu:
                    on_device = self._snapshot(given)
                    break
                given[name] = value.item()
        except RuntimeError:  # of a tensor with more elements
            on_device = self._snapshot(given)
        self._came_at = at = monotonic()
        beat = self.beat
        beat.step = number
        beat.time = now = at + self.clock
        if self._is_outside:
            self._is_outside = False
            beat.phase, beat.phase_since = b"train", now
            if self.page is not None:
                self.page.beat(beat)
        elif self.page is not None:
            self.page.step(number, now)
        loss = given.get("loss")
        # Neither NaN nor infinite, found without a call.
        if type(loss) is float and loss - loss != 0.0:
            self._alarm(at)
        entry = (number, now, at, self._paused, self._data, given, samples, tokens, batch, ids)
        if on_device or self._waiting:
            self._file(entry, on_device if checks or number % self.every == 0 else None)
        elif len(self.queue) < self.room:
            self.queue.append(entry)  # as `put` does, the call of which is a sixth of a step's cost
        else:
            self.put(entry)

    def _snapshot(self, given: dict[str, Any]) -> dict[str, Any]:
        """Tensors on a device, removed from `given`; PyTorch's class of tensors is known then."""
        self._tensor = getattr(sys.modules.get("torch"), "Tensor", None)
        return snapshot(given)

    def _measure(self, number: int, given: dict[str, Any]) -> bool:
        """Add the gradient norms and checksums that are due; returns whether checksums are."""
        if self._groups and (self.suspicious or number % self._groups_every == 0):
            self.suspicious = False
            given |= gradient_window(sys.modules["torch"], self._groups)
        checks = self._checked is not None and number % self._checked.every == 0
        if checks:
            given |= self._sums()
        return checks

    def _alarm(self, at: float) -> None:
        """Note a loss that is not finite, and have rows written now, at most once a second."""
        self.suspicious = True
        if at - self._hurried_at > 1.0:
            self._hurried_at = at
            self.hurry()

    def add_values(self, given: dict[str, Any]) -> None:
        """Take more values of the last step; `given` is changed and kept."""
        on_device = snapshot(given)
        number = max(self.beat.step, 0)
        self._file((number, time(), None, 0.0, None, given, None, None, None, None), on_device)

    def enter(self, phase: str) -> None:
        """Begin a phase within the present one."""
        outer = self.beat.phase.decode(errors="replace")
        self._phases.append((phase, outer, self.beat.phase_since, monotonic()))
        self.settle()
        self._be_in(phase, time())
        if phase in _ANNOUNCED:
            self.event(_ANNOUNCED[phase][0], phase, "info", {"family": "progress"})

    def leave(self, error: BaseException | None) -> None:
        """End the phase that began last; `error`: the exception that ended it, if any."""
        if not self._phases:
            return
        phase, outer, since, began = self._phases.pop()
        spent = monotonic() - began
        if outer in STEP_PHASES or outer == "init":
            if phase == "data":
                self._data = (self._data or 0.0) + spent
            elif phase not in STEP_PHASES:
                self._paused += spent
        if phase in _ANNOUNCED:
            kind = _ANNOUNCED[phase][1 if error is None else 2]
            severity = "error" if kind == "checkpoint_failed" else "info"
            message = phase if error is None else f"{phase}: {type(error).__name__}"
            self.event(kind, message, severity, {"family": "progress", "seconds": spent})
        self._be_in(outer, since)

    def event(self, kind: str, message: str, severity: str, fields: Mapping[str, Any]) -> None:
        """Pass on an event, with the present time and step."""
        at = {"time": time(), "step": self.beat.step}
        self.put(event_row(str(kind), severity, str(message), fields=dict(fields), **at))

    def should_stop(self, step: Any) -> bool:
        """Whether the loop is to stop at this step (None: the last one), which it then reports."""
        number = step if type(step) is int else whole(step, self.beat.step)
        if not self.stopping.is_due(number):
            return False
        if message := self.stopping.news(number):
            fields = {"action": message, "family": "process", "role": "evidence"}
            self.event("run_action", message, "warning", fields)
        return True

    def watch(self, parameters: Any, every: int, optimizer: Any, check_every: int) -> None:
        """Also measure gradients by group, and checksums, every so many steps; 0: never."""
        groups = parameter_groups(parameters)
        self._groups, self._groups_every = groups if every else {}, max(int(every), 1)
        self._watches = bool(self._groups) or check_every > 0
        everything = [each for group in groups.values() for each in group]
        self._checked = Checked(everything, optimizer, int(check_every)) if check_every else None

    def _sums(self) -> dict[str, Any]:
        """The checksums of now. Tensors of a kind that has none end the checks, which is said."""
        try:
            return self._checked.sums() if self._checked is not None else {}
        except Exception as error:  # noqa: BLE001 the step's row is still written
            self._checked = None
            self.event("warning", f"replicas are not checked: {error}", "warning", {})
            return {}

    def settle(self, *, wait: float = 0.0) -> bool:
        """Pass on steps whose values arrive within `wait` seconds; returns whether any did."""
        if not self._waiting or not self._settling.acquire(blocking=False):
            return False
        passed = False
        try:
            until = monotonic() + wait
            while self._waiting:
                if self._arrived():
                    passed = True
                elif monotonic() >= until:
                    break
                else:
                    sleep(0.001)  # never in the loop: `wait` is 0 until the training ends
        finally:
            self._settling.release()
        return passed

    def settle_idle(self) -> None:
        """Settle from the writer's thread, if the loop has made no call for `_IDLE_SECONDS`.

        It also reads both clocks there, so that a step reads one of them.
        """
        self.clock = time() - monotonic()
        if monotonic() - self._came_at >= _IDLE_SECONDS and self.settle():
            self.hurry()

    def give_up(self) -> None:
        """Pass on the steps that wait, without the values that have not arrived."""
        while self._waiting:
            entry, copies = self._waiting.popleft()
            self.unread += sum(len(names) for names, _, _ in copies)
            self.put(entry)

    def _file(self, entry: Entry, on_device: dict[str, Any] | None) -> None:
        if self._waiting:
            self.settle()
        if on_device:
            self._waiting.append((entry, self._send(on_device)))
        elif self._waiting:
            self._waiting.append((entry, []))
        else:
            self.put(entry)

    def _arrived(self) -> bool:
        entry, copies = self._waiting[0]
        while copies:
            names, device, slot = copies[-1]
            values = device.read(slot, len(names))
            if values is None:
                return False
            entry[5].update(zip(names, values, strict=True))
            copies.pop()
        self.put(entry)
        # After `put`: a thread that finds `_waiting` empty may put the next entry at once.
        self._waiting.popleft()
        return True

    def _send(self, on_device: dict[str, Any]) -> list[_Sent]:
        sent: list[_Sent] = []
        if late := [name for name, value in on_device.items() if not is_tensor(value)]:
            arrays = [on_device.pop(name) for name in late]
            if len(self._waiting) < SLOTS:
                sent.append((late, LateArrays(arrays), 0))
            else:  # the device is so many steps behind, or hangs: it keeps no more memory for us
                self.unread += len(late)
        by_device: dict[Any, list[str]] = {}
        for name, tensor in on_device.items():
            by_device.setdefault(tensor.device, []).append(name)
        capturing = is_capturing()
        for device, every in by_device.items():
            for names in (every[at : at + WIDTH] for at in range(0, len(every), WIDTH)):
                copies = slot = None
                try:
                    if not capturing:
                        if device not in self._copies:
                            self._copies[device] = DeviceCopies(device)
                        copies = self._copies[device]
                    if copies is not None:
                        slot = copies.start([on_device[name] for name in names])
                except Exception:  # noqa: BLE001 this kind of device allows no copies
                    self._copies[device] = None
                if copies is None or slot is None:
                    self.unread += len(names)
                else:
                    sent.append((names, copies, slot))
        return sent

    def _be_in(self, phase: str, since: float) -> None:
        beat = self.beat
        beat.phase, beat.phase_since = phase.encode()[:32], since  # bytes in `BEAT`
        self._is_outside = phase not in STEP_PHASES
        beat.time, self._came_at = time(), monotonic()
        if self.page is not None:
            self.page.beat(beat)
        if phase not in STEP_PHASES:
            now = {"time": beat.time, "step": max(beat.step, 0), "phase": phase}
            self.put({"type": "heartbeat", **now, **self.identity})
