"""Finished logs through the same core, on a virtual clock: `replay`, `report` and `--once`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ldlm_monitor.config import Settings
from ldlm_monitor.core.assemble import assemble
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.model.view import Snapshot
from ldlm_monitor.parse import Parser
from ldlm_monitor.playback.finished_inputs import gather, refuse_unreadable
from ldlm_monitor.playback.history import History
from ldlm_monitor.run.identity import RunNames


class Replay:
    """One pass over files that are finished, or read as if they were.

    Nothing is waited for, nobody is notified; the clock ends at the last byte's time.
    `notices` say what was added to the files that were named, and why; `history` is what is
    played, `monitor` who judges it. `apart`: seconds
    within which rows with times count as one piece (None: as many as keep the
    order over all files). `parser`: one of the settings' formats, made where none is given.
    """

    def __init__(
        self, settings: Settings, *, apart: float | None = None, parser: Parser | None = None
    ) -> None:
        self.monitor = assemble(settings, parser=parser)
        self.history, self.notices = gather(settings, self.monitor.names, apart=apart)

    @property
    def names(self) -> RunNames:
        """Which run each file belongs to."""
        return self.monitor.names

    def transitions(self) -> Iterator[Transition]:
        """Every alert transition, in order; its time is None where the log has none."""
        for _, _, transitions in self.played():
            yield from transitions

    def played(self) -> Iterator[tuple[float | None, Chunk | None, list[Transition]]]:
        """Each piece of a file, when it came, and what it brought about; last, without a piece,
        the end. Times are None where the log has none.
        """
        history = self.history
        for when, chunk, file in history.play():
            dated = list(self._dated(self.monitor.feed(chunk, when), history))
            yield when if file.timeline.timed else None, chunk, dated
        refuse_unreadable(self.history)
        paths = [file.path for file in history.files]
        yield None, None, list(self._dated(self.monitor.finish(history.end, paths), history))

    def snapshot(self) -> Snapshot:
        """The state at the end; call it after `transitions` is exhausted."""
        return self.monitor.snapshot()

    def _dated(self, transitions: list[Transition], history: History) -> Iterator[Transition]:
        for transition in transitions:
            untimed = transition.labels.get("run") in history.untimed_runs
            yield replace(transition, time=None) if untimed else transition
