"""Where the time of a run went: what of it brought the training forward, and what did not.

Goodput is the share of the time in which steps were taken that counted, as Google's "ML
Productivity Goodput" has it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import median

from pydantic import Field

from ldlm_monitor.analysis.readings import RunReadings
from ldlm_monitor.model.view import RunView, View
from ldlm_monitor.run.pace import COARSE_SECONDS
from ldlm_monitor.text.format import duration

PAUSE = 3.0
"""A gap between steps that is longer than so many usual ones is a pause."""
EXPLAINED_PAUSE = 1.5
"""The same, where the log announces an evaluation or a checkpoint in it."""
_CAUSES = {"eval": "evaluation", "checkpoint": "checkpoint"}


class Spent(View):
    """Seconds that one thing took, in `times` pieces."""

    what: str
    seconds: float
    times: int


class Goodput(View):
    """`share` (0..1) of `total_seconds` went into steps that counted, the rest into `losses`."""

    total_seconds: float
    productive_seconds: float
    share: float
    step_seconds: float = Field(description="the usual time of a step, the median")
    least_pause_seconds: float = Field(description="shorter pauses look like steps")
    losses: tuple[Spent, ...] = Field(description="the greatest first")

    @property
    def said(self) -> str:
        """The share in a sentence."""
        least = self.least_pause_seconds
        blind = f"; pauses below {duration(least)} are not seen" if least else ""
        return (
            f"{100 * self.share:.1f} % of {duration(self.total_seconds)} brought the training "
            f"forward, at {duration(self.step_seconds)} a step{blind}."
        )


def goodput(readings: RunReadings, run: RunView, now: float) -> Goodput | None:
    """From the run's start to its end, or to `now`; None where the log has too few times.

    Evaluations and checkpoints are known where the log announces them; another pause is one
    that nothing explains. Steps that a restart took again are lost work.
    """
    steps, times = readings.steps.steps, readings.steps.times
    paces = readings.durations().values
    if len(steps) < 3 or not len(paces) or not all(math.isfinite(at) for at in times):
        return None
    usual = median(paces)
    book = _Book(least=0.0 if readings.is_exact else COARSE_SECONDS)
    began = min(run.started_at if run.started_at is not None else times[0], times[0])
    book.lose("start", times[0] - began)
    lost = {resume.step: resume for resume in readings.steps.resumes}
    explained = _explanations(readings.events)
    for index in range(1, len(steps)):
        gap = times[index] - times[index - 1]
        wanted = usual * (steps[index] - steps[index - 1])
        resume = lost.get(steps[index])
        if resume is not None and resume.time == times[index]:
            down = max(resume.time - resume.time_before, 0.0)
            book.lose("steps taken again", gap - down)
            book.lose("restart", down - wanted)
            book.productive += min(down, wanted)
            continue
        cause = _cause(explained, times[index - 1], times[index])
        usually = wanted * (EXPLAINED_PAUSE if cause else PAUSE)
        if gap > usually and gap - wanted > book.least:
            book.lose(cause or "unexplained pause", gap - wanted)
            book.productive += wanted
        else:
            book.productive += gap
    ended = run.ended_at if run.ended_at is not None else now
    after = "end" if run.state == "finished" else "after the last step"
    book.lose(after, ended - times[-1])
    skipped = min(usual * run.skipped_steps, book.productive)
    book.lose("skipped steps", skipped, run.skipped_steps)
    book.productive -= skipped
    return book.closed(usual)


class _Book:
    """`least`: the shortest pause that can be seen, in seconds."""

    def __init__(self, least: float) -> None:
        self.least = least
        self.productive = 0.0
        self._lost: dict[str, tuple[float, int]] = {}

    def lose(self, what: str, seconds: float, times: int = 1) -> None:
        if seconds > 0 and times:
            spent, count = self._lost.get(what, (0.0, 0))
            self._lost[what] = spent + seconds, count + times

    def closed(self, usual: float) -> Goodput | None:
        total = self.productive + sum(seconds for seconds, _ in self._lost.values())
        if total <= 0:
            return None
        losses = (Spent(what=what, seconds=s, times=n) for what, (s, n) in self._lost.items())
        return Goodput(
            total_seconds=total,
            productive_seconds=self.productive,
            share=self.productive / total,
            step_seconds=usual,
            least_pause_seconds=self.least,
            losses=tuple(sorted(losses, key=lambda spent: -spent.seconds)),
        )


def _explanations(events: Sequence[tuple[str, float]]) -> list[tuple[float, str]]:
    causes = ((at, _CAUSES.get(kind.partition("_")[0])) for kind, at in events)
    return sorted((at, cause) for at, cause in causes if cause is not None and math.isfinite(at))


def _cause(explained: Sequence[tuple[float, str]], after: float, until: float) -> str | None:
    """What was announced first between two times."""
    first = bisect_left(explained, (after, ""))
    found = explained[first] if first < len(explained) else None
    return found[1] if found is not None and found[0] <= until else None
