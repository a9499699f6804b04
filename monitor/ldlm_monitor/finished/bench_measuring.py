"""Measures a run for `bench`: the numbers that it logs, with their times, and its memory."""

import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from ldlm_monitor.base.text.sanitize import plain
from ldlm_monitor.finished.bench_record import BenchRecord, BenchSeries
from ldlm_monitor.finished.readings import STEPS, Column, Readings, RunReadings
from ldlm_monitor.host.probe.command_processes import CommandProcesses
from ldlm_monitor.host.probe.gpu import GpuReader
from ldlm_monitor.host.supervise.streams import Link
from ldlm_monitor.logs.history.file_head import launch_facts
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.logs.source.companions import Surroundings, companions
from ldlm_monitor.logs.source.follower import Follower
from ldlm_monitor.logs.source.input_patterns import resolve

SEARCH_SECONDS = 2.0
"""Seconds between two searches for files: a choice; less loads a network disk, more reads late."""
POLL_SECONDS = 0.1
"""Seconds between two looks at memory and files: a choice; less costs CPU, more misses peaks."""
POLL_SHARE = 0.05
"""Share of the time that looks take at most: a choice; more slows the command, less is coarse."""


class BenchLimits(NamedTuple):
    """When a command is ended: `steps` after its first step, `seconds` after its start; None: no
    such limit. `grace`: seconds from SIGTERM to SIGKILL.
    """

    steps: int | None
    seconds: float | None
    grace: float


class BenchReader:
    """Reads the numbers of the run `name`, from its log and the files that it writes.

    `formats`: format files. `also`: files, folders or globs that it writes. `notice` gets a line
    for each file found. Of files that exist now, before the run, only what is appended is read.
    `gpu`: its memory.
    """

    def __init__(
        self, name: str, formats: Sequence[Path], also: Sequence[str], notice: Callable[[str], None]
    ) -> None:
        self.run = RunReadings(name)
        self.gpu = _GpuMemory()
        self._readings = Readings(Parser(formats), RunNames(name), live=True)
        self._readings.runs[name] = self.run
        self._directory = Path.cwd()
        self._patterns = resolve(also, base=self._directory)
        self._notice = notice
        near = (folder.glob("*.jsonl") for folder in Surroundings().of(self._directory))
        present = (*self._patterns.files(), *(path for paths in near for path in paths))
        self._before = {path: _size(path) for path in present}

    def begin(self, log: Path) -> None:
        """Read this log from now on."""
        self._log = log
        self._follower = Follower()
        self._follower.add(log)

    def read(self, now: float) -> int:
        """Read what was written by `now` (Unix seconds); the number of pieces."""
        count = 0
        for count, chunk in enumerate(self._follower.read(None, now), 1):  # noqa: B007
            self._readings.feed(chunk, now)
        return count

    def search(self) -> None:
        """Search for files that are written beside the log."""
        for path in self._found():
            self._follower.add(path, offset=self._before.get(path, 0))

    def finish(self, now: float) -> None:
        """Read the rest of all files, as the command has ended."""
        self.search()
        while self.read(now) or self._follower.has_backlog:
            pass
        for chunk in self._follower.finish():
            self._readings.feed(chunk, now)
        self._readings.finish(map(str, self._follower.paths))
        self._follower.close()

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


class Measuring:
    """What the relay's command does, by its `link`: `follow` until it is over.

    `memory`: bytes by quantity. `exit_code`: None if it could not be started. `seconds`: from its
    start to its end, or to the limit that ended it.
    """

    def __init__(self, link: Link, reader: BenchReader, limits: BenchLimits) -> None:
        self._link, self._reader, self._limits = link, reader, limits
        self._processes: CommandProcesses | None = None
        self._began = time.monotonic()
        self._kill_at: float | None = None
        self._is_over = False
        self.stopped_by: StoppedBy = "command"
        self.exit_code: int | None = None
        self.seconds = 0.0
        self.memory: dict[str, Column] = {}

    def follow(self) -> None:
        """Read and measure until the command is over, and all that a limit ended."""
        due = search_at = time.monotonic()
        while not self._is_over and self._link.is_open:
            for said in self._link.receive(due - time.monotonic()):
                self._heed(said)
            self._reader.read(time.time())
            now = time.monotonic()
            self._limit(now)
            if now >= due:
                if now >= search_at:
                    self._reader.search()
                    search_at = now + SEARCH_SECONDS
                self._measure()
                due = now + max(POLL_SECONDS, (time.monotonic() - now) / POLL_SHARE)
        self._link.close()
        self._reader.finish(time.time())

    def record(self, name: str, command: Sequence[str], started_at: float) -> BenchRecord:
        """What was measured, under `name`; `started_at`: Unix seconds."""
        run = self._reader.run
        columns = {each: run.column(each) for each in run.quantities()}
        columns |= {STEPS: run.steps} | self.memory
        return BenchRecord(
            name=name,
            command=tuple(plain(word, 2000) for word in command),  # a word may be a script
            started_at=started_at,
            seconds=self.seconds,
            stopped_by=self.stopped_by,
            exit_code=self.exit_code or 0,
            steps=run.taken,
            settings={plain(key): plain(text) for key, text in run.settings.items()},
            exact=run.is_exact,
            series={
                each: BenchSeries(
                    steps=(*kept.steps,), times=(*kept.times,), values=(*kept.values,)
                )
                for each, kept in columns.items()
                if kept
            },
        )

    def _heed(self, said: dict[str, object]) -> None:
        if isinstance(pid := said.get("started"), int):
            self._processes = CommandProcesses(pid)
        if "interrupted" in said and self._kill_at is None:
            self.stopped_by = "interrupt"
        if isinstance(code := said.get("ended"), int):
            self.exit_code = code if self._processes is not None else None
            self.seconds = self.seconds or time.monotonic() - self._began
        self._is_over = self._is_over or "over" in said

    def _limit(self, now: float) -> None:
        """End what has reached a limit, all its processes; let it be over when they have ended."""
        processes, limits = self._processes, self._limits
        reached: dict[StoppedBy, bool] = {
            "steps": limits.steps is not None and self._reader.run.taken >= limits.steps,
            "seconds": limits.seconds is not None and now - self._began >= limits.seconds,
        }
        limit = next((limit for limit, is_reached in reached.items() if is_reached), None)
        if limit and processes is not None and self.stopped_by == "command" and not self.seconds:
            self.stopped_by, self.seconds = limit, now - self._began
            self._kill_at = now + limits.grace
            processes.signal(signal.SIGTERM)
        if processes is not None and self._kill_at is not None and now >= self._kill_at:
            processes.signal(signal.SIGKILL)
            self._kill_at = float("inf")
        if self.seconds and (self._kill_at is None or processes is None or not processes.is_alive):
            self._link.send({"release": True})

    def _measure(self) -> None:
        if self._processes is None or self.seconds:
            return
        step = self._reader.run.last_step or 0
        host = self._processes.look()  # `look` sets `pids`, whose GPU memory is measured
        seen = {
            "host_memory_bytes": host,
            "gpu_memory_bytes": self._reader.gpu.look(self._processes.pids),
        }
        for name, value in seen.items():
            if value:
                column = self.memory.setdefault(name, Column())
                column.steps.append(step)
                column.times.append(time.time())
                column.values.append(float(value))


class _GpuMemory:
    """GPU memory by nvidia-ml-py (extra `gpu`); without it or a GPU, `look` returns None."""

    def __init__(self) -> None:
        self._reader = GpuReader()
        self._before = self._used()

    def look(self, pids: Collection[int]) -> int | None:
        """Bytes that these processes use on the GPU that they fill most; None if they use none.

        If the driver lists none of these processes, as in a container with its own process
        numbers, the increase of the GPU's memory in use since the command began is returned.
        """
        now = self._used()
        used = [sum(on.get(pid) or 0 for pid in pids) for on in self._reader.processes]
        if not any(used):
            used = [at - before for at, before in zip(now, self._before, strict=False)]
        most = max(used, default=0)
        return most if most > 0 else None

    def _used(self) -> list[int]:
        return [int(gpu.values["gpu_memory_used_bytes"]) for gpu in self._reader.look()]
