"""Runs a command, watches it, and ends it with everything that it started."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from ldlm_monitor.analysis.bench.outputs import Outputs
from ldlm_monitor.analysis.bench.processes import CommandProcesses, GpuMemory
from ldlm_monitor.analysis.column import Column
from ldlm_monitor.model.errors import UsageError

StoppedBy: TypeAlias = Literal["command", "steps", "seconds", "interrupt"]

POLL_SECONDS = 0.1
"""Between two looks at memory and files; longer where a look takes long (`POLL_SHARE`)."""
POLL_SHARE = 0.05
"""Share of the time that looks may take, so that they do not slow the command."""
DRAIN_SECONDS = 2.0
"""How long to wait for the rest of the output: a grandchild may hold the pipe open."""
_READ = 64 * 1024
"""The capacity of a Linux pipe: one read empties it."""


@dataclass(frozen=True, slots=True)
class BenchLimits:
    """When it is stopped: `steps` after its first logged step, `seconds` after its start.

    `grace`: seconds from SIGTERM to SIGKILL.
    """

    steps: int | None
    seconds: float | None
    grace: float


@dataclass(slots=True)
class Watched:
    """How it went. `memory`: by quantity, bytes at the steps and times they were looked at."""

    exit_code: int = 0
    stopped_by: StoppedBy = "command"
    started_at: float = 0.0
    seconds: float = 0.0
    gpus: tuple[str, ...] = ()
    memory: dict[str, Column] = field(default_factory=dict)


def watch(
    command: Sequence[str],
    directory: Path,
    outputs: Outputs,
    limits: BenchLimits,
    echo: Callable[[bytes], None],
) -> Watched:
    """Until it ends, or a limit or Ctrl-C (SIGTERM and SIGHUP too) ends it.

    Raises `UsageError` where it cannot be started.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    gpu = GpuMemory()
    running = _Running(_started(command, directory), outputs, echo)
    result = running.result
    try:
        result.stopped_by = running.follow(limits, gpu)
    except KeyboardInterrupt:
        result.stopped_by = "interrupt"
    finally:
        result.seconds = time.time() - result.started_at
        running.end(limits.grace)
    result.gpus = gpu.names if "gpu_memory_bytes" in result.memory else ()
    outputs.finish(time.time())
    return result


def _started(command: Sequence[str], directory: Path) -> subprocess.Popen[bytes]:
    """In a session of its own, its output unbuffered where it is Python."""
    try:
        return subprocess.Popen(
            list(command),
            cwd=directory,
            env={"PYTHONUNBUFFERED": "1", **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise UsageError(
            f"cannot be started ({error.strerror})",
            where=command[0],
            remedy="write the command behind --, as you would type it",
        ) from error


class _Running:
    """The command while it runs: its output, its processes, what they use."""

    def __init__(
        self, process: subprocess.Popen[bytes], outputs: Outputs, echo: Callable[[bytes], None]
    ) -> None:
        assert process.stdout is not None
        self._process = process
        self._output = process.stdout
        self._outputs = outputs
        self._echo = echo
        self._family = CommandProcesses(process.pid)
        self.result = Watched(started_at=time.time())

    def follow(self, limits: BenchLimits, gpu: GpuMemory) -> StoppedBy:
        """Until it ends or reaches a limit."""
        begun = due = time.monotonic()
        while True:
            more = self._read(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            if now >= due:
                self._outputs.poll(time.time())
                self._measure(gpu)
                took = time.monotonic() - now
                due = now + max(POLL_SECONDS, took / POLL_SHARE)
            if limits.steps is not None and self._outputs.run.taken >= limits.steps:
                return "steps"
            if limits.seconds is not None and now - begun >= limits.seconds:
                return "seconds"
            if not more or self._process.poll() is not None:
                return "command"

    def end(self, grace: float) -> None:
        """SIGTERM, and SIGKILL to what is left after `grace` seconds, or at another Ctrl-C.

        Its output is read meanwhile.
        """
        try:
            if self._process.poll() is not None:
                self._drain(DRAIN_SECONDS, lambda: self._family.is_alive)
            if self._family.is_alive:
                self._family.signal(signal.SIGTERM)
                self._drain(grace, lambda: self._family.is_alive)
        except KeyboardInterrupt:
            self.result.stopped_by = "interrupt"
        if self._family.is_alive:
            self._family.signal(signal.SIGKILL)
        self.result.exit_code = self._process.wait()
        self._drain(DRAIN_SECONDS, lambda: True)
        self._output.close()

    def _read(self, seconds: float) -> bool:
        """Wait for output; whether more may come."""
        ready, _, _ = select.select([self._output], [], [], seconds)
        if not ready:
            return True
        data = os.read(self._output.fileno(), _READ)
        if data:
            self._outputs.write(data, time.time())
            try:
                self._echo(data)
            except BrokenPipeError:  # the reader is gone, as with `| head`
                self._echo = lambda data: None
        return bool(data)

    def _drain(self, seconds: float, go_on: Callable[[], bool]) -> None:
        """Read on, to the end of the output where it comes."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not self._read(min(left, 0.1)):
                return
            if not go_on():
                until = min(until, time.monotonic() + 0.2)

    def _measure(self, gpu: GpuMemory) -> None:
        step = self._outputs.run.last_step or 0
        self._note("host_memory_bytes", step, self._family.look())
        self._note("gpu_memory_bytes", step, gpu.look(self._family.pids))

    def _note(self, name: str, step: int, value: int | None) -> None:
        if value:
            column = self.result.memory.setdefault(name, Column())
            column.steps.append(step)
            column.times.append(time.time())
            column.values.append(float(value))
