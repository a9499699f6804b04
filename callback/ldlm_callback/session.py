"""A rank's files, threads and hooks, from their start until the process ends, in any way."""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from ldlm_callback.device import GpuSampler
from ldlm_callback.rank import HeartbeatPage, Identity, Launch
from ldlm_callback.rows import Row, Rows
from ldlm_callback.servers import Exporter, FlightRecorder
from ldlm_callback.signals import (
    ProcessEnd,
    Termination,
    register_fork_hooks,
    register_stacks,
)
from ldlm_callback.steps import Steps
from ldlm_callback.stop_request import read_request
from ldlm_callback.writer import MAX_TEXT, RowWriter

SCHEMA = "ldlm.health/1"  # of the rows, see docs/callback.md; the number counts layouts
READY_SECONDS = 1.0
"""Seconds that the start waits for stack file and heartbeat on a slow disk. A choice: longer
delays the training, shorter begins it more often before they exist."""
LOOK_SECONDS = 1.0
"""Seconds between two looks for a request to stop. A choice: each is a call of the file system, of
each rank, and `MARGIN_SECONDS` of the monitor's `supervise/stopping.py` has room for several."""
CLOSE_SECONDS = 2.0
"""Most seconds of each wait at the end: a job's grace period may be 30 s (Slurm's KillWait)."""

T = TypeVar("T")


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

    Once `steps` is not live (after the end, and in a forked child), no method does anything.
    A part that fails is reported by `say`, and the others go on. `errors`: those of the callback.
    """

    def __init__(
        self, launch: Launch, options: Options, every: int, say: Callable[[str], None]
    ) -> None:
        self.errors = 0
        self._launch = launch
        self._options = options
        self._say = say
        self._stacks = launch.out / f"stack_rank{launch.rank}.txt"
        self._has_no_heartbeat = False
        self._look_at = 0.0
        self._gpu: GpuSampler | None = None
        self._exporter: Exporter | None = None
        self._recorder: FlightRecorder | None = None
        self._termination: Termination | None = None
        self._ended = False
        self._ready = threading.Event()
        self._rows = Rows(launch.rank, every, self._alarm, say)
        self._writer = RowWriter(
            launch.out / f"health_rank{launch.rank}.jsonl",
            self._header,
            make=self._rows.make,
            prepare=self._prepare,
            idle=self._idle,
            say=say,
        )
        identity = {"rank": launch.rank, "host": launch.host, "pid": os.getpid()}
        writer = self._writer
        self.steps = Steps(writer.put, identity, every, writer.hurry, writer.rows, writer.half)
        self._process_end = ProcessEnd(self._exited, self.failed)
        if options.sigterm and threading.current_thread() is threading.main_thread():
            self._termination = Termination(self._terminated)
        register_fork_hooks(self)
        self._writer.start()
        self._ready.wait(READY_SECONDS)

    def failed(self, error: BaseException) -> None:
        """Report that the training ends with the exception `error`."""
        lines = traceback.format_exception(error)
        text = "".join(traceback.format_exception_only(error)).strip()
        fields = {"exc_type": type(error).__name__, "traceback": "".join(lines)[-MAX_TEXT:]}
        self.end("failed", text, fields)

    def end(self, status: str, error: str | None = None, fields: Mapping[str, Any] = {}) -> None:
        """Write all rows and, once, an `end` row with `fields`; waits up to 3 * `CLOSE_SECONDS`."""
        steps = self.steps
        if not steps.is_live or self._ended:
            return
        self._ended = True
        steps.settle(wait=CLOSE_SECONDS)
        steps.give_up()
        self._writer.flush(CLOSE_SECONDS)
        row: Row = {"type": "end", "status": status, "error": error, "time": time.time()}
        row |= {"step": steps.beat.step, "phase": steps.beat.phase.decode(errors="replace")}
        unwritten = {
            "dropped": self._writer.dropped,
            "values_not_read": steps.unread + self._rows.unread,
            "errors": self.errors,
        }
        row |= {name: count for name, count in unwritten.items() if count}
        self._writer.put({**row, **fields})
        steps.beat.status = status.encode()
        if steps.page is not None:
            steps.page.beat(steps.beat)
        if not self._writer.flush(CLOSE_SECONDS):
            problem = self._writer.problem or "the disk does not answer"
            self._say(f"the last rows of rank {self._launch.rank} are lost: {problem}")

    def close(self) -> None:
        """Release files, threads and hooks; call `end` before."""
        if not self.steps.is_live:
            return
        self._process_end.forget()
        for each in (self._termination, self._gpu, self._exporter, self._recorder):
            if each is not None:
                each.close()
        self._writer.close(CLOSE_SECONDS)
        self.steps.is_live = False

    def in_child(self) -> None:
        """Stop in a forked child, such as a DataLoader's worker, which is no rank."""
        was_live, self.steps.is_live = self.steps.is_live, False
        if was_live and self._termination is not None:
            self._termination.in_child()

    def _exited(self) -> None:
        with suppress(Exception):
            self.end("finished")
            self.close()

    def _terminated(self, ends: bool) -> None:
        """Report SIGTERM as the end if the process `ends`; otherwise only write the rows."""
        if ends:
            self.end("failed", "SIGTERM", {"exc_type": "SignalException", "signal": "SIGTERM"})
        elif self.steps.is_live:
            self._writer.flush(CLOSE_SECONDS)

    def _alarm(self) -> None:
        self.steps.suspicious = True

    def _prepare(self) -> None:
        """Run in the writer's thread: every call that a slow disk may block."""
        launch, options = self._launch, self._options
        if options.flight_recorder:
            self._recorder = self._optional("the flight recorder is not served", FlightRecorder)
        number = self._optional("stacks cannot be asked for", self._register_stacks) or 0
        path = launch.out / f"heartbeat_rank{launch.rank}"
        recorder = "" if self._recorder is None else self._recorder.path
        identity = Identity.of(launch, number, self._stacks.name, recorder)
        page = self._optional("there is no heartbeat", lambda: HeartbeatPage(path, identity))
        if page is not None:
            page.beat(self.steps.beat)
            self.steps.page = page
        self._sync()
        self._ready.set()
        if (address := options.serve) is not None:
            self._exporter = self._optional(
                f"no metrics on {address}",
                lambda: Exporter(address, launch.run, launch.rank, lambda: self._rows.latest),
            )
        if options.gpu:
            self._gpu = GpuSampler(launch.local_rank, partial(setattr, self._rows, "extra"))

    def _optional(self, otherwise: str, work: Callable[[], T]) -> T | None:
        """The result of `work`; None if it fails, which `otherwise` reports: training goes on."""
        try:
            return work()
        except (ImportError, AttributeError, OSError, RuntimeError, ValueError) as error:
            self._say(f"{otherwise}: {error}")
            return None

    def _register_stacks(self) -> int:
        self._launch.out.mkdir(parents=True, exist_ok=True)
        wanted = self._options.stack_signal
        return register_stacks(self._stacks, wanted) if wanted else 0

    def _idle(self) -> None:
        self.steps.settle_idle()
        self._look_for_stop()
        self._sync()

    def _look_for_stop(self) -> None:
        """Read a request to stop, if the loop asks for one and `ldlm-monitor run` may write it."""
        stopping, launch, now = self.steps.stopping, self._launch, time.monotonic()
        if not stopping.is_asked or not launch.launch or stopping.request or now < self._look_at:
            return
        if self.steps.page is not None:
            self.steps.page.heed_stop()
        self._look_at = now + LOOK_SECONDS
        stopping.request = read_request(launch.out, launch.launch)

    def _sync(self) -> None:
        if self.steps.page is None:
            return
        try:
            self.steps.page.sync()
            self._has_no_heartbeat = False
        except OSError as error:
            if not self._has_no_heartbeat:
                self._has_no_heartbeat = True
                self._say(f"there is no heartbeat: {error}; it is tried again")

    def _header(self) -> Row:
        torch = sys.modules.get("torch")
        launch = {**asdict(self._launch), "out": None}
        if self._launch.world_size < 1:
            launch["world_size"] = None
        launch["mesh"] = dict(self._launch.mesh) or None
        row: Row = {
            "schema": SCHEMA,
            "type": "run",
            "time": time.time(),
            "pid": os.getpid(),
            **launch,
            "framework": self._options.framework or ("python" if torch is None else "pytorch"),
            "torch": getattr(torch, "__version__", None),
            "config": dict(self._options.config),
        }
        return {key: value for key, value in row.items() if value is not None}
