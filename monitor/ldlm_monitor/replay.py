"""Finished logs through the same core, on a virtual clock: `replay`, `report` and `--once`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from ldlm_monitor.alert import Transition
from ldlm_monitor.assemble import assemble
from ldlm_monitor.chunk import Chunk
from ldlm_monitor.config import Settings
from ldlm_monitor.errors import InputError
from ldlm_monitor.history import (
    ALONE_APART_SECONDS,
    EXACT_APART_SECONDS,
    History,
    launch_facts,
    place,
    place_stream,
)
from ldlm_monitor.run.identity import launch_time
from ldlm_monitor.source import Surroundings, companions, resolve, undecided
from ldlm_monitor.view import Snapshot


class Replay:
    """One pass over files that are finished, or read as if they were.

    Nothing is waited for, nobody is notified; the clock ends at the last byte's time.
    `notices` say what was added to the files that were named, and why; `history` is what is
    played, `monitor` who judges it. `apart`: seconds
    within which rows that tell their times count as one piece (None: as many as keep the
    order over all files).
    """

    def __init__(self, settings: Settings, *, apart: float | None = None) -> None:
        self.monitor = assemble(settings)
        self.notices: list[str] = []
        patterns = resolve(settings.files, base=Path())
        files = patterns.present()
        if settings.companions:
            files = self._with_companions(files)
        if apart is None:
            apart = ALONE_APART_SECONDS if len(files) == 1 else EXACT_APART_SECONDS
        self.history = place(files, self.monitor.names, apart=apart)
        self._refuse_unreadable()
        streams: list[tuple[str, BinaryIO]] = [
            (str(path), path.open("rb")) for path in patterns.pipes()
        ]
        if patterns.standard_input:
            streams.append(("-", sys.stdin.buffer))
        for name, stream in streams:
            placed = place_stream(name, stream, self.monitor.names, time.time())
            self.history.files.append(placed)

    def transitions(self) -> Iterator[Transition]:
        """Every alert transition, in order; its time is None where the log tells none."""
        for _, _, transitions in self.played():
            yield from transitions

    def played(self) -> Iterator[tuple[float | None, Chunk | None, list[Transition]]]:
        """Each piece of a file, when it came, and what it brought about; last, without a piece,
        the end. Times are None where the log tells none.
        """
        history = self.history
        for when, chunk, file in history.play():
            told = list(self._told(self.monitor.feed(chunk, when), history))
            yield when if file.timeline.timed else None, chunk, told
        self._refuse_unreadable()
        paths = [file.path for file in history.files]
        yield None, None, list(self._told(self.monitor.finish(history.end, paths), history))

    def snapshot(self) -> Snapshot:
        """The state at the end; call it after `transitions` is exhausted."""
        return self.monitor.snapshot()

    def _refuse_unreadable(self) -> None:
        for path, error in self.history.unreadable.items():
            raise InputError(
                f"cannot be read ({error.strerror})",
                where=str(path),
                remedy="check its permissions",
            ) from error

    def _told(self, transitions: list[Transition], history: History) -> Iterator[Transition]:
        for transition in transitions:
            untimed = transition.labels.get("run") in history.untimed_runs
            yield replace(transition, time=None) if untimed else transition

    def _with_companions(self, files: list[Path]) -> list[Path]:
        """The files and what belongs to them; of several launches, the newest has a claim."""
        found = {path.resolve(): path for path in files}
        around = Surroundings()
        for log in sorted(files, key=lambda path: (launch_time(str(path)) or 0.0, path)):
            facts = launch_facts(log)
            for companion in companions(log, facts, around):
                real = companion.path.resolve()
                if real not in found:
                    found[real] = companion.path
                    self.notices.append(f"{companion.path}: added, {companion.reason}")
                self.monitor.names.tie(str(found[real]), self.monitor.names.origin(str(log)).run)
            if reason := undecided(log, facts, around):
                self.notices.append(reason)
        return list(found.values())
