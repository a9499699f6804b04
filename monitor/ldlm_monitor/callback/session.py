"""A rank's files, threads and hooks, from the first step to however the process ends."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ldlm_monitor.callback.gpu import GpuSampler
from ldlm_monitor.callback.heartbeat import HeartbeatPage, Identity
from ldlm_monitor.callback.launch import Launch, pid_namespace, start_ticks
from ldlm_monitor.callback.rows import Row, Rows
from ldlm_monitor.callback.servers import Exporter, FlightRecorder
from ldlm_monitor.callback.signals import (
    ProcessEnd,
    Termination,
    register_fork_hooks,
    register_stacks,
)
from ldlm_monitor.callback.steps import Steps
from ldlm_monitor.callback.writer import RowWriter

SCHEMA = "ldlm.health/1"
READY_SECONDS = 1.0
"""How long the first files are waited for, where the disk is slow."""
CLOSE_SECONDS = 2.0
"""Limit of each wait at the end: a dead disk must not hold a job beyond its grace period."""
_SYNC_SECONDS = 1.0
"""Where the page cannot be mapped, a write a second is what a network disk bears."""
_TRACEBACK_LINES = 60
"""The frames of a training loop and its framework; the last lines matter most."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `HealthCallback`, which documents them."""

    config: Mapping[str, Any]
    framework: str | None
    serve: int | str | None
    sigterm: bool
    stack_signal: int | None
    flight_recorder: bool
    gpu: bool


class Session:
    """The files, threads and hooks of one rank: opens and closes them.

    Once `steps` is not live (after the end, and in a forked child) nothing may be done. What
    fails is reported by `say`, and the rest goes on.
    """

    def __init__(
        self, launch: Launch, options: Options, every: int, say: Callable[[str], None]
    ) -> None:
        self.errors = 0
        self._launch = launch
        self._options = options
        self._say = say
        self._heartbeat: HeartbeatPage | None = None
        self._gpu: GpuSampler | None = None
        self._exporter: Exporter | None = None
        self._recorder: FlightRecorder | None = None
        self._termination: Termination | None = None
        self._synced_at = 0.0
        self._ended = False
        self._ready = threading.Event()
        self._rows = Rows(launch.rank, every, self._alarm)
        self._writer = RowWriter(
            launch.out / f"health_rank{launch.rank}.jsonl",
            self._header,
            make=self._rows.make,
            prepare=self._prepare,
            idle=self._idle,
            say=say,
        )
        identity = {"rank": launch.rank, "host": launch.host, "pid": os.getpid()}
        self.steps = Steps(self._writer.put, identity, every, self._writer.hurry)
        self._process_end = ProcessEnd(self._exited, self.failed)
        if options.sigterm and threading.current_thread() is threading.main_thread():
            self._termination = Termination(self._terminated)
        register_fork_hooks(self)
        self._writer.start()
        self._ready.wait(READY_SECONDS)

    def failed(self, error: BaseException) -> None:
        """The training ends with this exception."""
        lines = traceback.format_exception(error)
        text = "".join(traceback.format_exception_only(error)).strip()
        fields = {"exc_type": type(error).__name__, "traceback": "".join(lines)[-16_000:]}
        self.end("failed", text, fields)

    def end(self, status: str, error: str | None = None, fields: Mapping[str, Any] = {}) -> None:
        """Write the last row, once, and all that waits, for at most two seconds a flush."""
        steps = self.steps
        if not steps.is_live or self._ended:
            return
        self._ended = True
        steps.settle(wait=CLOSE_SECONDS)
        steps.give_up()
        self._writer.flush(CLOSE_SECONDS)
        row: Row = {
            "type": "end",
            "status": status,
            "error": error,
            "time": time.time(),
            "step": steps.beat.step,
            "phase": steps.beat.phase.decode(errors="replace"),
            **fields,
        }
        unwritten = {
            "dropped": self._writer.dropped,
            "values_not_read": steps.unread + self._rows.unread,
            "errors": self.errors,
        }
        row |= {name: count for name, count in unwritten.items() if count}
        self._writer.put(row)
        steps.beat.status = status.encode()
        steps.store_beat(steps.beat)
        if not self._writer.flush(CLOSE_SECONDS):
            problem = self._writer.problem or "the disk does not answer"
            self._say(f"the last rows of rank {self._launch.rank} are lost: {problem}")

    def close(self) -> None:
        """Release everything; `end` comes first."""
        if not self.steps.is_live:
            return
        self._process_end.forget()
        for each in (self._termination, self._gpu, self._exporter, self._recorder):
            if each is not None:
                each.close()
        self._writer.close(CLOSE_SECONDS)
        self.steps.is_live = False

    def in_child(self) -> None:
        """A DataLoader's worker, say: it is no rank."""
        was_live, self.steps.is_live = self.steps.is_live, False
        if was_live and self._termination is not None:
            self._termination.in_child()

    def _exited(self) -> None:
        """At the interpreter's exit: without an exception the training ended well."""
        with suppress(Exception):
            self.end("finished")
            self.close()

    def _terminated(self, ends: bool) -> None:
        """SIGTERM came."""
        if ends:
            self.end("failed", "SIGTERM", {"exc_type": "SignalException", "signal": "SIGTERM"})
        elif self.steps.is_live:
            self._writer.flush(CLOSE_SECONDS)

    def _alarm(self) -> None:
        self.steps.suspicious = True

    def _take_gpu(self, values: dict[str, float]) -> None:
        self._rows.extra = values

    def _prepare(self) -> None:
        """Run in the writer's thread: every call that a slow disk may block."""
        launch, options = self._launch, self._options
        stacks = launch.out / f"stack_rank{launch.rank}.txt"
        number = 0
        try:
            launch.out.mkdir(parents=True, exist_ok=True)
            if options.stack_signal:
                number = register_stacks(stacks, options.stack_signal)
        except OSError as error:
            self._say(f"{stacks}: {error.strerror}; stacks cannot be asked for")
        if options.flight_recorder:
            self._open_recorder()
        self._make_heartbeat(number, stacks.name)
        self._ready.set()
        if options.serve is not None:
            self._start_exporter(options.serve)
        if options.gpu:
            self._gpu = GpuSampler(launch.local_rank, self._take_gpu)

    def _open_recorder(self) -> None:
        try:
            self._recorder = FlightRecorder()
        except (ImportError, AttributeError, OSError, RuntimeError) as error:
            self._say(f"the flight recorder cannot be served: {error}")

    def _make_heartbeat(self, stack_signal: int, stack_file: str) -> None:
        launch = self._launch
        path = launch.out / f"heartbeat_rank{launch.rank}"
        identity = Identity(
            pid=os.getpid(),
            stack_signal=stack_signal,
            start_ticks=start_ticks(),
            pid_namespace=pid_namespace(),
            created=time.time(),
            rank=launch.rank,
            world_size=launch.world_size,
            host=launch.host.encode()[:64],
            run=launch.run.encode()[:128],
            stack_file=stack_file.encode() if stack_signal else b"",
            recorder_socket=self._recorder.path.encode() if self._recorder else b"",
        )
        try:
            heartbeat = HeartbeatPage(path, identity)
            heartbeat.beat(self.steps.beat)
            heartbeat.sync()
            self._heartbeat, self.steps.store_beat = heartbeat, heartbeat.beat
        except (OSError, ValueError) as error:
            self._say(f"{path}: {error}; there is no heartbeat")

    def _start_exporter(self, address: int | str) -> None:
        launch = self._launch
        try:
            self._exporter = Exporter(address, launch.run, launch.rank, lambda: self._rows.latest)
        except (ImportError, OSError, ValueError) as error:
            self._say(f"no metrics on {address}: {error}")

    def _idle(self) -> None:
        self.steps.settle_idle()
        now = time.monotonic()
        if self._heartbeat is not None and now - self._synced_at >= _SYNC_SECONDS:
            self._synced_at = now
            with suppress(OSError):  # the rows' own writer says what is wrong with the disk
                self._heartbeat.sync()

    def _header(self) -> Row:
        launch = self._launch
        torch = sys.modules.get("torch")
        row: Row = {
            "schema": SCHEMA,
            "type": "run",
            "time": time.time(),
            "run": launch.run,
            "rank": launch.rank,
            "world_size": launch.world_size if launch.world_size > 0 else None,
            "pid": os.getpid(),
            "host": launch.host,
            "local_rank": launch.local_rank,
            "attempt": launch.attempt,
            "framework": self._options.framework or ("python" if torch is None else "pytorch"),
            "torch": getattr(torch, "__version__", None),
            "config": dict(self._options.config),
        }
        return {key: value for key, value in row.items() if value is not None}
