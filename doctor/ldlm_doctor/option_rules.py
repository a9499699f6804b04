"""Judges the options of a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ldlm_doctor.model import Edit, Findings, data
from ldlm_doctor.options import Group
from ldlm_doctor.setting import Setting
from ldlm_doctor.words import duration

TIMEOUTS = {"ddp_timeout": 1, "nccl_timeout": 1, "distributed_timeout_minutes": 60}
"""Options for the process group's timeout (of transformers, verl and Megatron-LM), in seconds."""
_MODES = frozenset({"sequential", "random", "mixed", "alternate", "alternating", "cycle"})


def judge(group: Group) -> Findings:
    """All findings in options that are given together."""
    for rule in _RULES:
        yield from rule(group)


def workers(group: Group) -> Findings:
    """More than the node has cores, where that is known."""
    for option in _workers(group):
        number = option.number or 0
        total = number * (group.processes or 1)
        counted = f"{number} workers x {group.processes or 'all'} processes of a node"
        if group.cores is not None and number > 1 and total > group.cores:
            yield option.finding("too-many-workers", f"{counted}, {group.cores} cores")


def timeouts(group: Group) -> Findings:
    """How long a collective may take, in seconds."""
    for option in group.of(*TIMEOUTS):
        seconds = (option.number or 0) * TIMEOUTS[option.name]
        if seconds > 86_400:
            yield option.finding("ddp-timeout-days", duration(seconds))


def distributed(group: Group) -> Findings:
    """Flags of DistributedDataParallel."""
    strategies = (o for o in group.of("strategy") if o.value == "ddp_find_unused_parameters_true")
    unused = group.on("find_unused_parameters", "ddp_find_unused_parameters")
    yield from (option.finding("find-unused-parameters") for option in (*unused, *strategies))
    modes = [
        o for o in group.options if (o.value or "").lower() in _MODES and "sampl" not in o.name
    ]
    frozen = [o for o in group.options if o.name.startswith("freeze") and o.truth]
    for option in group.on("static_graph", "ddp_static_graph") if modes or frozen else ():
        other, edit = (modes or frozen)[0], _switched_off(option)
        yield option.finding("static-graph-with-modes", f"{other.name}: {other.value}", edit)


def _workers(group: Group) -> Iterator[Setting]:
    """Numbers of workers of a DataLoader; other programs have workers too."""
    return group.of(*data("names")["workers"], *(("workers",) if group.launched else ()))


def _switched_off(option: Setting) -> Edit | None:
    """False, in the spelling that the file uses."""
    word = option.value or ""
    return option.with_value("False" if word[:1] == "T" else "false") if word != "1" else None


_RULES: tuple[Callable[[Group], Findings], ...] = (
    workers, timeouts, distributed,
)  # fmt: skip
