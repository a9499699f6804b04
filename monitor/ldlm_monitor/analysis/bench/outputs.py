"""What a command writes while it runs, as it comes: its output, and files beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ldlm_monitor.analysis.readings import Readings, RunReadings
from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.playback.history import launch_facts
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
        # Not followed in the file: each line has the time at which it came through the pipe.
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
        """What was logged so far."""
        return self._readings.runs.setdefault(self._name, RunReadings(self._name))

    def write(self, data: bytes, now: float) -> None:
        """Output of the command, read at `now` (Unix seconds)."""
        self._file.write(data)
        self._feed(self._splitter.feed(data, now), now)

    def poll(self, now: float) -> None:
        """Look for files that it writes, and read what is new in them."""
        if now >= self._due:
            self._due = now + LOOK_SECONDS
            self._file.flush()
            for path in self._found():
                self._follower.add(path, offset=self._before.get(path, 0))
        self._feed(self._follower.read(None, now), now)

    def finish(self, now: float) -> None:
        """The command has ended: complete what is open."""
        self._due = -math.inf
        self.poll(now)
        while self._follower.behind() and self._feed(self._follower.read(None, now), now):
            pass
        self._feed((self._splitter.finish(), *self._follower.finish()), now)
        self._readings.finish([str(self._log), *map(str, self._follower.paths)])

    def _feed(self, chunks: Iterable[Chunk], now: float) -> int:
        """How many there were."""
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
