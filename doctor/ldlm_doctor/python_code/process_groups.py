"""How long ranks wait for one another, and how their group ends."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ldlm_doctor.finding import Check, Finding
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import INIT_PROCESS_GROUP, Program
from ldlm_doctor.python_code.values import arguments, constant, seconds

_DOCS = "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group"
NO_TIMEOUT = Check(
    id="process-group-no-timeout",
    severity="info",
    title="How long a collective may take is the default",
    why="With NCCL a collective may take 10 minutes (30 before torch 2.2), the first one and a "
    "wait for rank 0's long work included. NCCL_TIMEOUT in the environment is read by nothing.",
    source=f"{_DOCS}; defaults of the wheels 2.2 to 2.15",
    since="2.2",
    fix="init_process_group(timeout=timedelta(...)): longer than the longest wait that is "
    "normal, and no more.",
)
DAYS = Check(
    id="process-group-timeout-days",
    severity="error",
    title="A hang is noticed after days",
    why="A rank that hangs or dies keeps all others waiting, and their GPUs paid for, until the "
    "timeout of the process group.",
    source=_DOCS,
    since="",
    fix="timeout=timedelta(minutes=30), or what the longest normal wait takes.",
)
LONG = Check(
    id="process-group-timeout-long",
    severity="warning",
    title="A hang is noticed after more than an hour",
    why="Until the timeout of the process group every rank waits for the one that hangs.",
    source=_DOCS,
    since="",
    fix="A long timeout for what is slow (a group of its own, or the first step), a short one "
    "for training.",
)
NOT_DESTROYED = Check(
    id="process-group-not-destroyed",
    severity="info",
    title="The process group is never destroyed",
    why="torch warns at exit that destroy_process_group() was not called, and NCCL may hang or "
    "abort there while other ranks still communicate.",
    source="https://docs.pytorch.org/docs/stable/distributed.html#shutdown",
    since="2.4",
    fix="torch.distributed.destroy_process_group() at the end, on every rank.",
)
CHECKS = (NO_TIMEOUT, DAYS, LONG, NOT_DESTROYED)
_GROUPS = INIT_PROCESS_GROUP | {
    "torch.distributed.new_group",
    "torch.distributed.distributed_c10d.new_group",
}
_POSITIONAL = ("backend", "init_method", "timeout")
_DAY, _HOUR = 86400.0, 3600.0


def inspect(module: Module, program: Program) -> Iterator[Finding]:
    """Each process group that is made."""
    is_script = bool(program.loops(module)) or _runs_itself(module)
    destroyed = program.any_relative(_destroys, module)
    starts = list(module.calls_to(INIT_PROCESS_GROUP))
    for call in module.calls_to(_GROUPS):
        is_start = any(call is start for start in starts)
        given = arguments(
            module, call, _POSITIONAL if is_start else ("ranks", "timeout", "backend")
        )
        timeout = given["timeout"]
        length = seconds(module, timeout)
        if not is_start and constant(module, given["backend"]) == "gloo":
            continue  # a group of its own to wait in, as long as it takes
        if length is not None and length >= _DAY:
            yield module.finding(DAYS, timeout or call, f"{length / _DAY:,.1f} days")
        elif length is not None and length > _HOUR:
            yield module.finding(LONG, timeout or call, f"{length / _HOUR:g} hours")
        elif is_start and given.lacks("timeout") and program.has_loops(module):
            backend = constant(module, given["backend"])
            if not isinstance(backend, str) or "nccl" in backend:
                yield module.finding(NO_TIMEOUT, call)
    if starts and is_script and not destroyed and program.has_loops(module):
        yield module.finding(NOT_DESTROYED, starts[0])


def _destroys(module: Module) -> bool:
    return "destroy_process_group" in module.words


def _runs_itself(module: Module) -> bool:
    return any(
        isinstance(node, ast.If) and "__name__" in ast.dump(node.test) for node in module.tree.body
    )
