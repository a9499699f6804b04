"""Runs a command, reads what it writes, watches it, and ends it with all that it started."""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from ldlm_monitor.analysis.bench.gpu_memory import GpuMemory
from ldlm_monitor.analysis.column import Column
from ldlm_monitor.analysis.readings import Readings, RunReadings
from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.playback.content import launch_facts
from ldlm_monitor.probe.command_processes import CommandProcesses
from ldlm_monitor.source.companions import Surroundings, companions
from ldlm_monitor.source.follow import Follower
from ldlm_monitor.source.input_patterns import resolve
from ldlm_monitor.source.split import Splitter

LOOK_SECONDS = 2.0
"""Seconds between two searches for files: a choice; less loads a network disk, more reads late."""


class Outputs:
    """Feeds the readings of the run `name` with what a command writes.

    `log`: the file that keeps the command's output. `directory`: where the command runs. `also`:
    files, folders or globs that the command writes. `notice` gets a line for each file found. Of
    files that existed before the start, only what is appended is read.
    """

    def __init__(
        self,
        readings: Readings,
        name: str,
        *,
        log: Path,
        directory: Path,
        also: Sequence[str],
        notice: Callable[[str], None],
    ) -> None:
        self._readings = readings
        self._name = name
        self._log = log
        self._directory = directory
        self._patterns = resolve(also, base=directory)
        self._notice = notice
        self._file = log.open("wb")
        # Split from the pipe, not followed as a file: each line has the time of its arrival.
        self._splitter = Splitter(str(log), (0, 0, 0))
        self._follower = Follower()
        near = (folder.glob("*.jsonl") for folder in Surroundings().of(directory))
        present = (*self._patterns.files(), *(path for paths in near for path in paths))
        self._before = {path: _size(path) for path in present}
        self._due = -math.inf

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._follower.close()

    @property
    def run(self) -> RunReadings:
        """The numbers that were logged so far."""
        return self._readings.runs.setdefault(self._name, RunReadings(self._name))

    def write(self, data: bytes, now: float) -> None:
        """Add output of the command that was read at `now` (Unix seconds)."""
        self._file.write(data)
        self._feed(self._splitter.feed(data, now), now)

    def poll(self, now: float) -> None:
        """Read what is new in files of the command; search for more if due. `now`: Unix seconds."""
        if now >= self._due:
            self._due = now + LOOK_SECONDS
            self._file.flush()
            for path in self._found():
                self._follower.add(path, offset=self._before.get(path, 0))
        self._feed(self._follower.read(None, now), now)

    def finish(self, now: float) -> None:
        """Read the rest of all files, as the command has ended. `now`: Unix seconds."""
        self._due = -math.inf
        self.poll(now)
        while self._follower.behind() and self._feed(self._follower.read(None, now), now):
            pass
        self._feed((self._splitter.finish(), *self._follower.finish()), now)
        self._readings.finish([str(self._log), *map(str, self._follower.paths)])

    def _feed(self, chunks: Iterable[Chunk], now: float) -> int:
        count = 0
        for count, chunk in enumerate(chunks, 1):  # noqa: B007
            self._readings.feed(chunk, now)
        return count

    def _found(self) -> Iterator[Path]:
        """The files that were named, and companions that have grown since the start."""
        yield from self._patterns.files()
        facts = launch_facts(self._log)
        for companion in companions(self._directory / self._log.name, facts, Surroundings()):
            path = companion.path
            if path not in self._follower.paths and _size(path) > self._before.get(path, 0):
                self._notice(f"{path}: read too, {companion.reason}")
                yield path


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


StoppedBy: TypeAlias = Literal["command", "steps", "seconds", "interrupt"]

POLL_SECONDS = 0.1
"""Seconds between two looks at memory and files: a choice; less costs CPU, more misses peaks."""
POLL_SHARE = 0.05
"""Share of the time that looks take at most: a choice; more slows the command, less is coarse."""
DRAIN_SECONDS = 2.0
"""Seconds to wait for the output after the command's end. A choice: longer delays the end if a
grandchild keeps the pipe open, shorter stops one that still writes."""
_READ = 64 * 1024
"""Bytes of one read: the capacity of a Linux pipe (pipe(7)), so that one read empties it."""


@dataclass(frozen=True, slots=True)
class BenchLimits:
    """When a command is stopped: `steps` after its first step, `seconds` after its start; None: no
    such limit. `grace`: seconds from SIGTERM to SIGKILL.
    """

    steps: int | None
    seconds: float | None
    grace: float


def watch(
    command: Sequence[str],
    directory: Path,
    outputs: Outputs,
    limits: BenchLimits,
    echo: Callable[[bytes], None],
) -> WatchedCommand:
    """Run the command until it ends, or a limit or Ctrl-C (SIGTERM and SIGHUP too) ends it.

    `echo` gets the output. Raises `UsageError` if the command cannot be started.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    gpu = GpuMemory()
    running = WatchedCommand(_started(command, directory), outputs, echo)
    try:
        running.stopped_by = running.follow(limits, gpu)
    except KeyboardInterrupt:
        running.stopped_by = "interrupt"
    finally:
        running.seconds = time.time() - running.started_at
        running.end(limits.grace)
    outputs.finish(time.time())
    return running


def _started(command: Sequence[str], directory: Path) -> subprocess.Popen[bytes]:
    """Start the command in a session of its own; Python does not buffer: lines arrive at once."""
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


class WatchedCommand:
    """A command, its output and processes. `memory`: bytes by quantity. `started_at`: Unix s."""

    def __init__(
        self, process: subprocess.Popen[bytes], outputs: Outputs, echo: Callable[[bytes], None]
    ) -> None:
        assert process.stdout is not None
        self._process = process
        self._output = process.stdout
        self._outputs = outputs
        self._echo = echo
        self._family = CommandProcesses(process.pid)
        self.exit_code = 0
        self.stopped_by: StoppedBy = "command"
        self.started_at = time.time()
        self.seconds = 0.0
        self.memory: dict[str, Column] = {}

    def follow(self, limits: BenchLimits, gpu: GpuMemory) -> StoppedBy:
        """Read and measure until the command ends or reaches a limit."""
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
        """Send SIGTERM, and SIGKILL after `grace` seconds or another Ctrl-C; read the output."""
        try:
            if self._process.poll() is not None:
                self._drain(DRAIN_SECONDS, lambda: self._family.is_alive)
            if self._family.is_alive:
                self._family.signal(signal.SIGTERM)
                self._drain(grace, lambda: self._family.is_alive)
        except KeyboardInterrupt:
            self.stopped_by = "interrupt"
        if self._family.is_alive:
            self._family.signal(signal.SIGKILL)
        self.exit_code = self._process.wait()
        self._drain(DRAIN_SECONDS, lambda: True)
        self._output.close()

    def _read(self, seconds: float) -> bool:
        """Wait for output and pass it on; returns whether more may come."""
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
        """Read to the output's end, for `seconds` at most; stop soon after `go_on()` is false."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not self._read(min(left, 0.1)):  # 0.1 s: `go_on` is called ten times a second
                return
            if not go_on():
                until = min(until, time.monotonic() + 0.2)  # 0.2 s for the rest in the pipe

    def _measure(self, gpu: GpuMemory) -> None:
        step = self._outputs.run.last_step or 0
        host = self._family.look()  # `look` sets `pids`, whose GPU memory is measured
        seen = {"host_memory_bytes": host, "gpu_memory_bytes": gpu.look(self._family.pids)}
        for name, value in seen.items():
            if value:
                column = self.memory.setdefault(name, Column())
                column.steps.append(step)
                column.times.append(time.time())
                column.values.append(float(value))
