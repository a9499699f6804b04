"""How long ranks wait for one another, and how their group ends."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ldlm_doctor.model import Finding
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import INIT_PROCESS_GROUP, Program
from ldlm_doctor.python_code.values import arguments, constant, seconds
from ldlm_monitor.text.format import duration

_DOCS = "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group"
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
            yield module.finding("process-group-timeout-days", timeout or call, duration(length))
        elif length is not None and length > _HOUR:
            yield module.finding("process-group-timeout-long", timeout or call, duration(length))
        elif is_start and given.lacks("timeout") and program.has_loops(module):
            backend = constant(module, given["backend"])
            if not isinstance(backend, str) or "nccl" in backend:
                yield module.finding("process-group-no-timeout", call)
    if starts and is_script and not destroyed and program.has_loops(module):
        yield module.finding("process-group-not-destroyed", starts[0])


def _destroys(module: Module) -> bool:
    return "destroy_process_group" in module.words


def _runs_itself(module: Module) -> bool:
    return any(
        isinstance(node, ast.If) and "__name__" in ast.dump(node.test) for node in module.tree.body
    )
