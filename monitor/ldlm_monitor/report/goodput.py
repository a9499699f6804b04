"""How much of a run's time advanced the training, and the causes of the loss of the rest.

Goodput is the share of the run's time that went into steps that were kept (Google's "ML
Productivity Goodput"). ETTR and MTTF follow Kokolis et al. 2024, "Revisiting Reliability in
Large-Scale Machine Learning Research Clusters", arXiv:2410.21680.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from pydantic import Field

from ldlm_monitor.analysis.readings import RunReadings
from ldlm_monitor.model.incident_view import View
from ldlm_monitor.model.view import RunView
from ldlm_monitor.run.pace import COARSE_SECONDS
from ldlm_monitor.text.format import duration

PAUSE = 3.0
"""Multiple of the usual length from which a gap is a pause: a choice; less includes slow steps."""
EXPLAINED_PAUSE = 1.5
"""`PAUSE` if an evaluation or a checkpoint is logged in the gap: a choice, as that explains it."""
_CAUSES = {"eval": "evaluation", "checkpoint": "checkpoint"}  # of a pause, by an event kind's start
_NO_PROGRESS = ("start", "steps taken again", "restart", "stall", "after the last step")
"""What ETTR takes off: catching up and starting, as in the paper, and hanging."""


class Spent(View):
    """`seconds` lost to the cause `what`, in `times` intervals."""

    what: str
    seconds: float
    times: int


class Goodput(View):
    """`share` (0..1) of `total_seconds` went into steps that were kept, the rest into `losses`."""

    total_seconds: float
    productive_seconds: float
    share: float
    step_seconds: float = Field(description="the usual time of a step, the median")
    least_pause_seconds: float = Field(description="shorter pauses look like steps")
    losses: tuple[Spent, ...] = Field(description="the greatest first")
    failures: int = Field(description="restarts that took steps again, and a failed end")
    ettr: float = Field(description="effective training time ratio, 0..1: less lost to failures")
    mttf_seconds: float | None = Field(description="time up per failure; None without a failure")
    gpu_hours: float | None = Field(description="total time x ranks; None if these are unknown")

    @property
    def said(self) -> str:
        """The share, the usual time of a step and the blind spot in a sentence."""
        least = self.least_pause_seconds
        blind = f"; pauses below {duration(least)} are not seen" if least else ""
        failed = (
            f" ETTR {100 * self.ettr:.1f} %, MTTF {duration(self.mttf_seconds)}."
            if self.mttf_seconds is not None
            else ""
        )
        return (
            f"{100 * self.share:.1f} % of {duration(self.total_seconds)} brought the training "
            f"forward, at {duration(self.step_seconds)} a step{blind}.{failed}"
        )


def goodput(readings: RunReadings, run: RunView, now: float) -> Goodput | None:
    """The goodput from the run's start to its end, or to `now` (Unix seconds) if it goes on.

    None for fewer than three steps, if a step has no time, or if no time passed. Evaluations and
    checkpoints are recognised if the log announces them; other pauses are unexplained. Steps that
    were repeated after a restart are lost.
    """
    times = readings.steps.times
    paces = readings.durations().values
    # Two times are one interval, which shows no usual length to compare it with.
    if len(times) < 3 or not len(paces) or not all(math.isfinite(at) for at in times):
        return None
    usual = median(paces)
    least = 0.0 if readings.is_exact else COARSE_SECONDS
    began = min(run.started_at if run.started_at is not None else times[0], times[0])
    ended = run.ended_at if run.ended_at is not None else now
    after = "end" if run.state == "finished" else "after the last step"
    lost = {"start": [times[0] - began], after: [ended - times[-1]]}
    productive = 0.0
    for what, seconds, useful in _gaps(readings, usual, least, run.stall_limit_seconds):
        lost.setdefault(what, []).append(seconds)
        productive += useful
    skipped = min(usual * run.skipped_steps, productive)
    lost["skipped steps"] = [skipped / run.skipped_steps] * run.skipped_steps if skipped else []
    found = _summed(productive - skipped, lost, usual, least)
    failures = len(readings.steps.resumes) + (run.state in ("crashed", "killed"))
    return found and _reliability(found, failures, run.world_size)


def _gaps(
    readings: RunReadings, usual: float, least: float, limit: float | None
) -> Iterator[tuple[str, float, float]]:
    """(cause, seconds lost, productive seconds) of each interval between two steps."""
    steps, times = readings.steps.steps, readings.steps.times
    resumes = {resume.step: resume for resume in readings.steps.resumes}
    explained = _explanations(readings.events)
    for index in range(1, len(steps)):
        gap = times[index] - times[index - 1]
        wanted = usual * (steps[index] - steps[index - 1])
        resume = resumes.get(steps[index])
        if resume is not None and resume.time == times[index]:
            down = max(resume.time - resume.time_before, 0.0)
            yield "steps taken again", gap - down, 0.0
            yield "restart", down - wanted, min(down, wanted)
            continue
        cause = _cause(explained, times[index - 1], times[index])
        usually = wanted * (EXPLAINED_PAUSE if cause else PAUSE)
        if gap > usually and gap - wanted > least:
            stalled = limit is not None and gap > limit
            yield cause or ("stall" if stalled else "unexplained pause"), gap - wanted, wanted
        else:
            yield "", 0.0, gap


def _summed(
    productive: float, lost: Mapping[str, Sequence[float]], usual: float, least: float
) -> Goodput | None:
    losses = [
        Spent(what=what, seconds=sum(pieces), times=len(pieces))
        for what, seconds in lost.items()
        if (pieces := [each for each in seconds if each > 0])
    ]
    total = math.fsum([productive, *(loss.seconds for loss in losses)])
    if total <= 0:
        return None
    return Goodput(
        total_seconds=total,
        productive_seconds=productive,
        share=productive / total,
        step_seconds=usual,
        least_pause_seconds=least,
        losses=tuple(sorted(losses, key=lambda spent: -spent.seconds)),
        failures=0,
        ettr=1 - sum(loss.seconds for loss in losses if loss.what in _NO_PROGRESS) / total,
        mttf_seconds=None,
        gpu_hours=None,
    )


def _reliability(found: Goodput, failures: int, ranks: int | None) -> Goodput:
    """The account with the figures of its failures; the time up is all but that of restarts."""
    down = sum(loss.seconds for loss in found.losses if loss.what == "restart")
    return found.model_copy(
        update={
            "failures": failures,
            "mttf_seconds": (found.total_seconds - down) / failures if failures else None,
            "gpu_hours": found.total_seconds * ranks / 3600 if ranks else None,
        }
    )


def _explanations(events: Sequence[tuple[str, float]]) -> list[tuple[float, str]]:
    causes = ((at, _CAUSES.get(kind.partition("_")[0])) for kind, at in events)
    return sorted((at, cause) for at, cause in causes if cause is not None and math.isfinite(at))


def _cause(explained: Sequence[tuple[float, str]], after: float, until: float) -> str | None:
    first = bisect_left(explained, (after, ""))
    found = explained[first] if first < len(explained) else None
    return found[1] if found is not None and found[0] <= until else None
