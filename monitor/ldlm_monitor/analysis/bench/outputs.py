"""What a command writes while it runs, as it comes: its output, and files beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ldlm_monitor.analysis.readings import Readings, RunReadings
from ldlm_monitor.playback.launch import launch_facts
from ldlm_monitor.source import Follower, Surroundings, companions, resolve
from ldlm_monitor.source.split import Splitter

LOOK_SECONDS = 2.0
"""How often files that the command writes are looked for."""


class Outputs:
    """Feeds the readings; `name` is the run's. `log` keeps the output, `directory` is where
    the command runs, `also` are files, folders or globs that it writes.

    Of files that were there before only what is new is read.
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
        self._splitter = Splitter(str(log), (0, 0, 0))
        self._before = {path: _size(path) for path in (*self._patterns.files(), *self._near())}
        self._others = Follower()
        self._present: list[Path] = []
        self._due = -math.inf

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._others.close()

    @property
    def run(self) -> RunReadings:
        """What was logged so far."""
        return self._readings.runs.setdefault(self._name, RunReadings(self._name))

    def write(self, data: bytes, now: float) -> None:
        """Output of the command, read at `now` (Unix seconds)."""
        self._file.write(data)
        for chunk in self._splitter.feed(data, now):
            self._readings.feed(chunk, now)

    def poll(self, now: float) -> None:
        """Look for files that it writes, and read what is new in them."""
        self._file.flush()
        for path in self._files(now):
            self._others.add(path, offset=self._before.get(path, 0))
        for chunk in self._others.read(None, now):
            self._readings.feed(chunk, now)

    def finish(self, now: float) -> None:
        """The command has ended: complete what is open."""
        self._due = -math.inf
        self.poll(now)
        self._readings.feed(self._splitter.finish(), now)
        while self._others.has_backlog:
            self.poll(now)
        for chunk in self._others.finish():
            self._readings.feed(chunk, now)
        self._readings.finish([str(self._log), *map(str, self._others.paths)])

    def _files(self, now: float) -> list[Path]:
        """What is read beside the output; looked for every `LOOK_SECONDS`."""
        if now >= self._due:
            self._due = now + LOOK_SECONDS
            self._present = list(self._found())
        return self._present

    def _found(self) -> Iterator[Path]:
        """The files that were named, and companions that have grown since the start."""
        yield from self._patterns.files()
        facts = launch_facts(self._log)
        for companion in companions(self._directory / self._log.name, facts, Surroundings()):
            path = companion.path
            if path in self._others.paths or _size(path) > self._before.get(path, 0):
                if path not in self._others.paths:
                    self._notice(f"{path}: read too, {companion.reason}")
                yield path

    def _near(self) -> Iterator[Path]:
        """Companions of earlier runs in the same place."""
        for folder in Surroundings().of(self._directory):
            yield from folder.glob("*.jsonl")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
