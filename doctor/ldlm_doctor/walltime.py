"""The time limit of a job against the timeouts of its process groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import re2

from ldlm_doctor.bash_script import Script
from ldlm_doctor.model import Finding
from ldlm_doctor.option_rules import TIMEOUTS
from ldlm_doctor.options import Group, count, slurm_options
from ldlm_doctor.setting import Environment, GroupTimeout, Setting, Surroundings
from ldlm_monitor.text.format import duration

_LIMITS = (
    re2.compile(r"(?m)^#SBATCH[ \t]+(?:--time[= \t]+|-t[ \t]*)([0-9:-]+)"),
    re2.compile(r"(?m)^#PBS[ \t]+-l[ \t]+(?:[^\n]*[,:])?walltime=([0-9:]+)"),
    re2.compile(r"(?m)^#BSUB[ \t]+-W[ \t]*([0-9:]+)"),
)
_LSF = 2
_TIMES = ("SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME")


@dataclass(frozen=True, slots=True)
class Limit:
    """A job's time limit in seconds, and the byte where it stands."""

    seconds: float
    at: int


def limit_of(script: Script) -> Limit | None:
    """What the directives of Slurm, PBS or LSF say; None where they say nothing."""
    text = script.content.decode("latin-1")
    for scheduler, pattern in enumerate(_LIMITS):
        found = pattern.search(text)
        if found:
            seconds = _seconds(str(found.group(1)), lsf=scheduler == _LSF)
            return Limit(seconds, found.start()) if seconds else None
    return None


def _seconds(text: str, *, lsf: bool) -> float:
    """Slurm's `m`, `m:s`, `h:m:s`, `d-h`, `d-h:m`, PBS's `h:m:s`, LSF's `m` and `h:m`."""
    days, dashed, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or not (days.isdigit() or not dashed):
        return 0.0
    from_hours = dashed or len(parts) == 3 or (lsf and len(parts) == 2)
    units = [3600, 60, 1] if from_hours else [60, 1]
    clocked = sum(int(part) * unit for part, unit in zip(parts, units, strict=False))
    return float(int(days or 0) * 86_400 + clocked)


def beyond(
    script: Script, environment: Environment, groups: list[Group], around: Surroundings
) -> Iterator[Finding]:
    """Timeouts that end after the job's time limit, where several processes communicate."""
    limit = limit_of(script)
    if limit is not None and environment.launch is not None:
        at = script.setting(limit.at)
        cost = _cost(limit, script)
        yield from _compared(_given(environment, groups), around, limit.seconds, at, cost)


def of_job(environment: Environment, group: Group, around: Surroundings) -> Iterator[Finding]:
    """The same for a process in a job of Slurm, by the times that Slurm gives it."""
    start, end = (next(environment.of(name), None) for name in _TIMES)
    allowed = _number(end) - _number(start) if start and end else 0.0
    if end is not None and 0 < allowed < _number(end):
        yield from _compared(_given(environment, [group]), around, allowed, end)


def _compared(
    given: Iterator[tuple[float, Setting]],
    around: Surroundings,
    allowed: float,
    at: Setting,
    cost: str = "",
) -> Iterator[Finding]:
    """The timeouts of a launch that its job does not reach; without one, that of the project."""
    places = list(given)
    least = None if places else _least(around)
    for seconds, place in places:
        if seconds >= allowed:
            detail = f"{duration(seconds)}, the job has {duration(allowed)}{cost}"
            yield place.finding("timeout-beyond-walltime", detail)
    if least is not None and least.seconds >= allowed:
        detail = f"{duration(least.seconds)}, the job has {duration(allowed)}{cost}"
        yield at.finding("timeout-beyond-walltime", f"{least.path}:{least.line} gives {detail}")


def _given(environment: Environment, groups: list[Group]) -> Iterator[tuple[float, Setting]]:
    """The timeouts of a launch, in seconds, and where they stand."""
    for group in groups:
        for option in group.of(*TIMEOUTS):
            yield float((option.number or 0) * TIMEOUTS[option.name]), option
    for setting in environment.of("DEEPSPEED_TIMEOUT"):
        yield _number(setting) * 60, setting


def _least(around: Surroundings) -> GroupTimeout | None:
    """The shortest timeout that code or configuration gives: no launch has less."""
    elsewhere = [timeout for timeout in around.group_timeouts if not timeout.of_one_launch]
    return min(elsewhere, key=lambda timeout: timeout.seconds, default=None)


def _number(setting: Setting) -> float:
    text = (setting.value or "").strip()
    return float(text) if text.isdigit() else 0.0


def _cost(limit: Limit, script: Script) -> str:
    """What a hang may cost: at most the job's whole time, on all its GPUs."""
    slurm = slurm_options(script)
    nodes = count(slurm, "nodes") or 1
    each = count(slurm, "gpus_per_node", "gres", "gpus_per_task")
    total = count(slurm, "gpus") or (each and each * nodes)
    hours = limit.seconds / 3600 * (total or 0)
    return f": up to {hours:.0f} GPU-hours" if total and hours >= 1 else ""
