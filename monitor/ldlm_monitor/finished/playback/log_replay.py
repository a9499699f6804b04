"""Judges finished logs on a virtual clock, for `replay`, `report` and `--once`."""

import math
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.errors import InputError
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.judge.core.assemble import MonitorSettings, assemble
from ldlm_monitor.logs.history.file_head import callback_run
from ldlm_monitor.logs.history.kinship import kin
from ldlm_monitor.logs.history.launches import join_launches
from ldlm_monitor.logs.history.merge import (
    ALONE_APART_SECONDS,
    EXACT_APART_SECONDS,
    History,
    place,
    place_stream,
)
from ldlm_monitor.logs.history.strangers import Apart, notices_of, set_apart
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.run_names import RunNames, launch_time
from ldlm_monitor.logs.source.companions import Surroundings
from ldlm_monitor.logs.source.decoders import remedy
from ldlm_monitor.logs.source.input_patterns import resolve


class ReplaySettings(MonitorSettings, Protocol):
    """The settings of a monitor and of the files that it judges."""

    files: tuple[str, ...]
    companions: bool
    join: bool


class Replay:
    """One pass over files that are finished, or are read as if they were.

    It waits for nothing and sends nothing; the clock ends at the last byte's time. `monitor`
    judges `history`. `notices`, `apart`, `ahead`, `alone`: see `gather`. `parser`: one made of the
    settings' formats; None makes it. `looks`: at the end, look whether runs of this host still have
    their processes. Raises `InputError`, `RuleError` or `FormatError` for unusable files.
    """

    def __init__(
        self,
        settings: ReplaySettings,
        *,
        alone: Path | None = None,
        apart: float | None = None,
        parser: Parser | None = None,
        looks: bool = False,
        ahead: bool = True,
    ) -> None:
        self._looks = looks
        self.monitor = assemble(settings, parser=parser)
        names = self.monitor.names
        found = gather(settings, names, alone=alone, apart=apart, ahead=ahead)
        self.history, self.notices = found
        self.monitor.runs.guesses.update(self.history.guesses)
        ends = self.history.judged_to.items()
        self.monitor.runs.set_ends({run: at for run, at in ends if at < self.history.end})

    def transitions(self) -> Iterator[Transition]:
        """Every alert transition, in order; its time is None where the log has none."""
        for _, _, transitions in self.played():
            yield from transitions

    def played(self) -> Iterator[tuple[float | None, Chunk | None, list[Transition]]]:
        """For each piece: its time (None if its log has no times), the piece, its transitions.

        The last item, without time and piece, has the transitions of the end. Raises `InputError`.
        """
        history = self.history
        for when, chunk, file in history.play():
            since = history.since(when, chunk, file)
            found = self.monitor.feed(chunk, when, since=since)
            yield when if file.timeline.timed else None, chunk, self._dated(found)
        refuse_unreadable(history)
        for name, end in history.run_ends.items():
            if (run := self.monitor.runs.get(name)) is not None:
                run.steps.ends_at = end
        ended = self.monitor.finish(history.end, [file.path for file in history.all])
        if self._looks:
            ended += self._look_at_host(history.end)
        yield None, None, self._dated(ended)

    def end(self) -> Snapshot:
        """Play all of it; returns the state at the end. Raises `InputError`."""
        for _ in self.played():
            pass
        return self.snapshot()

    def _look_at_host(self, end: float) -> list[Transition]:
        """Bring the states of this host's runs up to now; all else stays at the log's `end`."""
        runs = self.monitor.runs
        cases = [*runs.probe_candidates(math.inf, math.inf)]
        if not cases:
            return []
        # Here, since most logs are of ended runs, and this import takes a twentieth of a start.
        from ldlm_monitor.host.probe.run_processes import departed, present

        hosts = present(cases, time.time())
        for name, host in hosts.items():
            runs.look(name, host.at)
        self.monitor.note_edge([], hosts)
        gone = [departed(each) for each in cases if each.run not in hosts]
        return [
            *self.monitor.observe(filter(None, gone), end),
            *self.monitor.finish(end),
        ]

    def snapshot(self) -> Snapshot:
        """The state at the end, once `transitions` or `played` is exhausted."""
        return self.monitor.snapshot()

    def _dated(self, transitions: list[Transition]) -> list[Transition]:
        return [
            replace(each, time=None)
            if each.labels.get("run") in self.history.untimed_runs
            else each
            for each in transitions
        ]


def gather(
    settings: ReplaySettings,
    names: RunNames,
    *,
    alone: Path | None = None,
    apart: float | None = None,
    ahead: bool = False,
) -> tuple[History, list[str]]:
    """The history of the settings' files and companions, and notices of files added or left out.

    `alone`: a log to take instead of all these. `apart`: seconds that the rows of one piece may
    span; None: the most that keeps the order of rows over all files. `ahead`: then rows of several
    files may come ahead of their times. Raises `InputError`.
    """
    patterns = resolve(settings.files if alone is None else (str(alone),), base=Path())
    files = patterns.present()
    notices = [f"{path}: left out, a copy of the file beside it" for path in patterns.copies()]
    notices += join_launches(files, files, names, joins=settings.join)
    if settings.companions and alone is None:
        inputs = {path.resolve(): path for path in files if not patterns.names(path)}
        given = [path for path in files if patterns.names(path) and path.suffix == ".jsonl"]
        files = _with_companions(files, names, notices, inputs, given)
    ahead = ahead and apart is None and len(files) > 1
    if apart is None:
        apart = ALONE_APART_SECONDS if len(files) == 1 else EXACT_APART_SECONDS
    history = place(files, names, apart=apart, ahead=ahead)
    refuse_unreadable(history)
    notices += history.notices
    for path in patterns.pipes():
        history.streams.append(place_stream(str(path), path.open("rb"), names, time.time()))
    if patterns.standard_input:
        history.streams.append(place_stream("-", sys.stdin.buffer, names, time.time()))
    return history, notices


def refuse_unreadable(history: History) -> None:
    """Raise `InputError` for the first file that could not be read whole."""
    for path, error in history.unreadable.items():
        raise InputError(
            f"cannot be read ({error.strerror})", where=str(path), remedy=remedy(error)
        ) from error


def _with_companions(
    files: list[Path],
    names: RunNames,
    notices: list[str],
    inputs: Mapping[Path, Path],
    given: list[Path],
) -> list[Path]:
    """The files and their companions; one that fits several launches belongs to the newest.

    Rows are companions of each other, too; those of a log belong to it. `inputs`: see `set_apart`.
    `given`: see `kin`.
    """
    found = {path.resolve(): path for path in files}
    claims: dict[Path, Path] = {}
    apart: list[Apart] = []
    around = Surroundings()
    by_launch = sorted(files, key=lambda path: (launch_time(str(path)) or 0.0, path))
    for log in sorted(by_launch, key=lambda path: path.suffix != ".jsonl"):
        is_log = log.suffix != ".jsonl"
        companions, strangers = kin(log, around, given=given if is_log else ())
        for companion in companions:
            real = companion.path.resolve()
            claims[real] = log
            if is_log and real in found and not names.is_given:
                notices.append(f"{companion.path} and {log} are one run: {companion.reason}")
            if real not in found:
                found[real] = companion.path
                notices.append(f"{companion.path}: added, {companion.reason}")
        if is_log:
            apart += set_apart(log, strangers, names, inputs)
    notices += notices_of(apart)
    for real, log in claims.items():
        run = names.origin(str(log)).run
        names.tie(str(found[real]), run)
        if (named := callback_run(real)) is not None:
            names.rename(run, named)
    return list(found.values())
