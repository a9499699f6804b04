"""How long a job may run, by what its scheduler is told, against how long a hang may last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import re2

from ldlm_doctor.bash_script import Script
from ldlm_doctor.model import Finding
from ldlm_doctor.option_rules import TIMEOUTS
from ldlm_doctor.options import Group, count, slurm_options
from ldlm_doctor.setting import Environment, GroupTimeout, Setting, Surroundings

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
    """Timeouts that the job's time limit comes before, where processes talk to each other."""
    limit = limit_of(script)
    if limit is None or environment.launch is None:
        return
    told = list(_given(environment, groups))
    for seconds, place in told:
        if seconds >= limit.seconds:
            yield place.finding("timeout-beyond-walltime", _cost(seconds, limit, script))
    least = None if told else _least(around)
    if least is not None and least.seconds >= limit.seconds:
        said = f"{least.path}:{least.line} gives {_cost(least.seconds, limit, script)}"
        yield script.finding(limit.at, "timeout-beyond-walltime", said)


def of_job(environment: Environment, group: Group, around: Surroundings) -> Iterator[Finding]:
    """The same for a process in a job of Slurm, by the times that Slurm gives it."""
    start, end = (next(environment.of(name), None) for name in _TIMES)
    allowed = _number(end) - _number(start) if start and end else 0.0
    if end is None or not 0 < allowed < _number(end):
        return
    told = list(_given(environment, [group]))
    for seconds, place in told:
        if seconds >= allowed:
            yield place.finding("timeout-beyond-walltime", _compared(seconds, allowed))
    least = None if told else _least(around)
    if least is not None and least.seconds >= allowed:
        said = f"{least.path}:{least.line} gives {_compared(least.seconds, allowed)}"
        yield end.finding("timeout-beyond-walltime", said)


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


def _compared(seconds: float, allowed: float) -> str:
    return f"{_hours(seconds)}, the job has {_hours(allowed)}"


def _cost(seconds: float, limit: Limit, script: Script) -> str:
    """What a hang may take: at most the job's whole time, on all its GPUs."""
    said = _compared(seconds, limit.seconds)
    slurm = slurm_options(script)
    nodes = count(slurm, "nodes") or 1
    each = count(slurm, "gpus_per_node", "gres", "gpus_per_task")
    total = count(slurm, "gpus") or (each and each * nodes)
    hours = limit.seconds / 3600 * (total or 0)
    return f"{said}: up to {hours:.0f} GPU-hours" if total and hours >= 1 else said


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.0f} h" if seconds >= 7200 else f"{seconds / 60:.0f} min"
