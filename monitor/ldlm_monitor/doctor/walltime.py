"""How long a job may run, by what its scheduler is told, against how long a hang may last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import re2

from ldlm_monitor.doctor.bash_script import Script
from ldlm_monitor.doctor.finding import Check, Finding
from ldlm_monitor.doctor.option_rules import TIMEOUTS
from ldlm_monitor.doctor.options import Group, count, slurm_options
from ldlm_monitor.doctor.setting import Environment, Surroundings

BEYOND_WALLTIME = Check(
    "timeout-beyond-walltime",
    "warning",
    "A hang outlasts the job",
    "The process group's timeout is not shorter than the job's time limit: a rank that hangs is "
    "never told, and all GPUs wait until the scheduler ends the job, without a dump, a checkpoint "
    "or a reason.",
    "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group; "
    "https://slurm.schedmd.com/sbatch.html#OPT_time",
    "",
    "A timeout of half an hour or less; let one process prepare the data beforehand instead of "
    "all waiting for it.",
)
CHECKS = (BEYOND_WALLTIME,)

_LIMITS = (
    re2.compile(r"(?m)^#SBATCH[ \t]+(?:--time[= \t]+|-t[ \t]*)([0-9:-]+)"),
    re2.compile(r"(?m)^#PBS[ \t]+-l[ \t]+(?:[^\n]*[,:])?walltime=([0-9:]+)"),
    re2.compile(r"(?m)^#BSUB[ \t]+-W[ \t]*([0-9:]+)"),
)
_LSF = 2


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
    script: Script, path: str, environment: Environment, groups: list[Group], around: Surroundings
) -> Iterator[Finding]:
    """Timeouts that the job's time limit comes before, where processes talk to each other."""
    limit = limit_of(script)
    if limit is None or environment.launch is None:
        return
    told = False
    for option in (option for group in groups for option in group.of(*TIMEOUTS)):
        told = True
        seconds = (option.number or 0) * TIMEOUTS[option.name]
        if seconds >= limit.seconds:
            yield option.finding(BEYOND_WALLTIME, _cost(seconds, limit, script))
    for setting in environment.of("DEEPSPEED_TIMEOUT"):
        minutes = (setting.value or "").strip()
        told = True
        if minutes.isdigit() and int(minutes) * 60 >= limit.seconds:
            yield setting.finding(BEYOND_WALLTIME, _cost(int(minutes) * 60, limit, script))
    elsewhere = [timeout for timeout in around.group_timeouts if not timeout.of_one_launch]
    least = min(elsewhere, key=lambda timeout: timeout.seconds, default=None)
    if least is not None and not told and least.seconds >= limit.seconds:
        place = f"{least.path}:{least.line} gives {_cost(least.seconds, limit, script)}"
        line, evidence = script.line_at(limit.at), script.line_text(limit.at)
        yield Finding(BEYOND_WALLTIME, path, line, evidence, place)


def _cost(seconds: float, limit: Limit, script: Script) -> str:
    """What a hang may take: at most the job's whole time, on all its GPUs."""
    said = f"{_hours(seconds)}, the job has {_hours(limit.seconds)}"
    slurm = slurm_options(script)
    nodes = count(slurm, "nodes") or 1
    each = count(slurm, "gpus_per_node", "gres", "gpus_per_task")
    total = count(slurm, "gpus") or (each and each * nodes)
    hours = limit.seconds / 3600 * (total or 0)
    return f"{said}: up to {hours:.0f} GPU-hours" if total and hours >= 1 else said


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.0f} h" if seconds >= 7200 else f"{seconds / 60:.0f} min"
