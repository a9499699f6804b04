"""The explanation of an alert: the log line that made it fire, its incident, the root cause."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

from ldlm_monitor.base.alert import Transition, alert_key
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.points import Labels
from ldlm_monitor.base.records import Position
from ldlm_monitor.base.snapshot import AlertView
from ldlm_monitor.judge.core.run_health import HealthBook
from ldlm_monitor.judge.incidents import Incidents, RunFacts
from ldlm_monitor.judge.run.fleet import Fleet
from ldlm_monitor.judge.run.quantity import SourceLine

SeriesFilter: TypeAlias = Callable[[str, Labels], bool]
"""Whether a rule reads the series of a name and labels."""
MAX_LINE = 2000
"""Characters of a log line, and of a summary with its verdict, in an alert. A choice: shorter texts
lose words (Slack's messages show 1,700), longer ones swell the state and every message."""


class EvidenceFinder:
    """Finds the log line that made an alert begin, and stores it until the alert ends.

    The line's text is copied from the chunks that are being judged.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._chunks: dict[str, Chunk] = {}
        self._found: dict[str, SourceLine] = {}

    @contextmanager
    def looking_at(self, chunks: Sequence[Chunk], run_name: str) -> Iterator[None]:
        """Judge records of a run in chunks of its files, and store the line of its last step.

        Without chunks, everything stays as it is.
        """
        if not chunks:
            yield
            return
        before, self._chunks = self._chunks, {chunk.path: chunk for chunk in chunks}
        try:
            yield
            run = self._fleet.get(run_name)
            if run is not None and (text := self._text(at := run.life.progress_position)):
                run.progress_line = at, text
        finally:
            self._chunks = before

    def position(self, alert: str, labels: Mapping[str, str]) -> Position | None:
        """The position of the line that made an active alert begin; None if none was found."""
        evidence = self._found.get(alert_key(alert, labels))
        return None if evidence is None else evidence.position

    def attach(self, transition: Transition, asks: Callable[[str], SeriesFilter]) -> Transition:
        """Add the alert's log line, if found; `asks` maps an alert's name to its `SeriesFilter`."""
        reads = asks(transition.alert)
        key = transition.key
        if transition.previous == "inactive":  # a pending alert ends without a transition
            self._found.pop(key, None)
        evidence = self._found.get(key)
        if transition.state not in ("pending", "firing"):
            self._found.pop(key, None)
        elif evidence is None:
            evidence = self._find(transition, reads)
            if evidence is not None:
                self._found[key] = evidence
        if transition.state == "firing":
            transition = self._with_verdict(transition, reads)
        if evidence is None:
            return transition
        return replace(
            transition, position=evidence.position, step=evidence.step, line=evidence.text
        )

    def _with_verdict(self, transition: Transition, reads: SeriesFilter) -> Transition:
        """Add the run's verdict if the transition's rule reads the time of the last step."""
        run = self._fleet.get(transition.labels.get("run", ""))
        if run is None or not reads("ldlm_train_last_progress_timestamp_seconds", run.labels):
            return transition
        if (found := run.verdict) is None:
            return transition
        summary = transition.annotations.get("summary", "")
        added = {"summary": f"{summary}; {found}"[:MAX_LINE], "verdict": found.word}
        return replace(transition, annotations={**transition.annotations, **added})

    def _find(self, transition: Transition, reads: SeriesFilter) -> SourceLine | None:
        run = self._fleet.get(transition.labels.get("run", ""))
        if run is None or (evidence := run.evidence(reads, transition.labels)) is None:
            return None
        return replace(
            evidence,
            step=run.life.progress_step if evidence.step is None else evidence.step,
            text=evidence.text or self._text(evidence.position),
        )

    def _text(self, position: Position) -> str | None:
        chunk = self._chunks.get(position.path)
        if chunk is None or chunk.framed:
            return None
        start = position.offset - chunk.offset
        return _line(chunk.data, start) if 0 <= start < len(chunk.data) else None


def _line(data: bytes, start: int) -> str:
    ends = [end for end in (data.find(b"\n", start), data.find(b"\r", start)) if end >= 0]
    stop = min([*ends, start + 4 * MAX_LINE])  # a character of UTF-8 has up to four bytes
    return data[start:stop].decode("utf-8", "replace")[:MAX_LINE]


class Explainer:
    """Completes alerts by what their incidents answer at that time (Unix seconds).

    Only an incident names a first rank. A critical alert whose rule names none gets that rank; a
    rule's own rank is that of its series, and stays.
    """

    def __init__(self, incidents: Incidents, health: HealthBook) -> None:
        self._incidents = incidents
        self._health = health
        self._named: dict[str, str] = {}

    def transition(self, transition: Transition, at: float) -> Transition:
        """The transition with health, incident, cause and rank; an end keeps the last rank."""
        key, run = transition.key, transition.labels.get("run", "")
        if run:
            transition = replace(transition, health=self._health.of(run).level)
        if transition.state != "firing":
            rank = self._named.pop(key, None)
            return transition if rank is None else _with_rank(transition, rank)
        answer = self._incidents.answer(run, key, at)
        if answer is None:
            return transition
        found = replace(transition, cause=answer.cause, incident=answer.incident)
        if answer.rank is None or not found.wants_rank:
            return found
        self._named[key] = str(answer.rank)
        summary = _named(transition.annotations, answer.rank)
        return _with_rank(replace(found, annotations=summary), str(answer.rank))


def with_rank(alert: AlertView, ranks: Mapping[str, int]) -> AlertView:
    """A critical alert with its run's rank in `ranks` as an annotation, if its rule names none.

    Labels stay: they are the alert's identity for Alertmanagers.
    """
    rank = ranks.get(alert.labels.get("run", ""))
    if rank is None or alert.rank or alert.labels.get("severity") != "critical":
        return alert
    named = {**_named(alert.annotations, rank), "rank": str(rank)}
    return alert.model_copy(update={"annotations": named})


def _with_rank(transition: Transition, rank: str) -> Transition:
    labels = {**transition.labels, "rank": rank}
    return replace(transition, labels=labels, identity=transition.key)


def _named(annotations: Mapping[str, str], rank: int) -> dict[str, str]:
    summary = annotations.get("summary", "")
    if f"rank {rank} " not in summary:  # a stall's verdict may name it
        summary = f"{summary}: rank {rank} failed first"
    return {**annotations, "summary": summary[:MAX_LINE]}


def facts_from(fleet: Fleet) -> Callable[[str], RunFacts]:
    """A function that returns the present facts of the run of a given name."""

    def facts(name: str) -> RunFacts:
        run = fleet.get(name)
        if run is None:
            return RunFacts()
        progress, attempts = run.life.progress_step, run.life.attempts
        return RunFacts(
            state=run.life.state,
            ended_at=run.life.ended_at,
            last_progress_at=-math.inf if progress is None else run.life.last_progress_at,
            timed=name not in fleet.untimed,
            attempt=attempts.number,
            refuted_ends=run.life.ending.refuted,
            step=None if attempts.counts_in_epoch else progress,
            epoch=run.progress.epoch if attempts.counts_in_epoch else None,
            world_size=run.logged.world_size,
            logged_ranks=run.ranks,
            rank_steps=run.progress.rank_steps,
            meshes=run.progress.meshes,
        )

    return facts
